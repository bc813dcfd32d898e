"""Which kernels the registry has for a device, and float64 results to hold large products to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import sparseformats as sf
from sparseformats import _dtypes, dispatch, reference, testing
from sparseformats.dispatch import KernelRecord, Query
from sparseformats.testing import certify
from tests.kernels.triton.kinds import NARROW
from tests.kernels.triton.matrices import dense, matrix
from tests.kernels.triton.ordeal import Subject

__all__ = [
    "Case",
    "block_for",
    "block_kernels",
    "cases",
    "drawn",
    "dtypes_of",
    "example",
    "formats_of",
    "hold",
    "kind",
]
__all__ += ["hold", "kind", "libraries", "record_of", "serves_something"]

BLOCKS = ("bsr", "bsr.T", "blocked_ell", "blocked_ell.T")
FORMATS = (*BLOCKS, "csr", "csc", "coo", "n:m", "n:m.T")
# The last resort and the library's oracle: nothing to compare with.
ORACLES = {"reference"}


class Case(NamedTuple):
    """A kernel of an operation, on arrays of one library."""

    op: str
    kernel: str
    library: str

    def __str__(self) -> str:
        return "-".join(self)


def kind(device: str) -> str:
    """``"cuda"`` of ``"cuda:0"``."""
    return device.partition(":")[0]


def libraries(device: str) -> tuple[str, ...]:
    """Array libraries that a device has."""
    return ("torch", "cupy") if kind(device) == "cuda" else ("numpy", "torch")


def _declared(record: KernelRecord, fact: str) -> list[tuple[Any, ...]]:
    rules = (check for check in record.checks if isinstance(check, dispatch.checks.Check))
    return [rule.allowed for rule in rules if rule.fact == fact]


def _serves(record: KernelRecord, device: str) -> bool:
    named = _declared(record, "device")
    return record.name not in ORACLES and bool(named) and all(kind(device) in x for x in named)


def cases(device: str) -> list[Case]:
    """Every kernel whose record names the kind of device, with each library that it reads."""
    return [
        Case(record.op, record.name, library)
        for record in dispatch.records()
        for library in libraries(device)
        if _serves(record, device)
        and all(library in allowed for allowed in _declared(record, "library"))
        and dtypes_of(Case(record.op, record.name, library))
    ]


def block_kernels(device: str) -> list[str]:
    """Names of kernels of BSR and Blocked-ELL products on torch's arrays."""
    found = (record_of(c.op, c.kernel) for c in cases(device) if c[::2] == ("matmul", "torch"))
    found = (record for record in found if record.name not in NARROW)  # which has its own tests
    return [record.name for record in found if set(BLOCKS) & set(record.formats)]


def record_of(op: str, kernel: str) -> KernelRecord:
    """The record of a kernel."""
    (found,) = (record for record in dispatch.records(op) if record.name == kernel)
    return found


def dtypes_of(case: Case) -> list[str]:
    """Value types that a kernel's record allows for all operands, among those of the library."""
    record = record_of(case.op, case.kernel)
    facts = ("a_dtype", "x_dtype", "out_dtype")
    allowed = [names for fact in facts for names in _declared(record, fact)]
    every = _dtypes.VALUE_DTYPES[case.library]
    return [name for name in every if all(name in names for names in allowed)]


def _asks(record: KernelRecord, code: str, call: Query) -> bool:
    """Whether one of a record's rules refuses a call for a reason of this code."""
    rules = (rule for rule in record.checks if isinstance(rule, dispatch.checks.Check))
    return any(rule.code == code and rule(call) is not None for rule in rules)


def finite_only(case: Case) -> bool:
    """Whether a kernel serves floating numbers only under the promise that they are finite."""
    dtypes = {"a_dtype": "float32", "x_dtype": "float32", "out_dtype": "float32"}
    call = Query("matmul", "bsr", m=4, k=4, n=2, blocksize=(2, 2), **dtypes)
    return _asks(record_of(case.op, case.kernel), "needs-finite-operand", call)


def drawn(case: Case) -> dict[str, Any]:
    """Shapes and blocks to draw for a kernel: small ones, or what its record asks for."""
    record = record_of(case.op, case.kernel)
    whole = Query("matmul", "bsr", m=4, k=4, n=2, blocksize=(2, 2))
    ragged = Query("matmul", "bsr", m=5, k=5, n=2, blocksize=(2, 2))
    if _asks(record, "pattern", Query("matmul", "n:m", m=4, k=4, n=2, pattern=(3, 4))):
        return {"formats": "2:4"}
    if _asks(record, "blocksize", whole):
        shapes = [(16, 32), (33, 17), (20, 40), (32, 0), (0, 16), (16, 16)]
        if _asks(record, "divisibility", ragged):
            shapes = [(m // 16 * 16, k // 16 * 16) for m, k in shapes]
        return {"blocksizes": (16, 16), "shapes": st.sampled_from(shapes)}
    if _asks(record, "divisibility", ragged):
        shapes = [(4, 6), (2, 2), (6, 4), (8, 2), (0, 2), (2, 8)]
        return {"blocksizes": (2, 2), "shapes": st.sampled_from(shapes)}
    return {}


def flushes(case: Case) -> bool:
    """Whether subnormal numbers may become zero: vendors' libraries do not say that they do not."""
    return case.kernel.startswith(("cublas", "cusparse"))


def formats_of(case: Case) -> list[str]:
    """Formats that a kernel's record names, among those that `example` makes."""
    return [name for name in FORMATS if name in record_of(case.op, case.kernel).formats]


def example(
    case: Case,
    format: str,
    shape: tuple[int, int],
    block: tuple[int, int],
    dtype: str,
    **place: Any,
) -> Any:
    """A matrix of a format for a kernel; what has no blocks has the same entries.

    n:m is 2:4, or 1:2 for a kernel that takes no other.
    """
    options = {"library": case.library, **place}
    if format in BLOCKS:
        return matrix(format, shape, block, dtype, **options)
    made = matrix("bsr", shape, block, dtype, **options)
    if not format.startswith("n:m"):
        return made.to(format)
    whole = made.to_dense()
    call = Query("matmul", "n:m", pattern=(2, 4), m=4, k=4, n=2)
    narrow = _asks(record_of(case.op, case.kernel), "pattern", call)
    place = made.lib.arange(shape[1], device=made.device)
    keep = place % 2 < 1 if narrow else place % 4 < 2
    zero = made.lib.zeros(1, dtype, made.device)
    kept = made.lib.where(keep[None, :], whole, zero)
    pruned = sf.from_dense(kept, "1:2" if narrow else "2:4")
    return pruned.T if format.endswith(".T") else pruned


def hold(subject: Subject, A: Any, X: Any, **call: Any) -> None:
    """Hold a large product of finite numbers to float64 arithmetic on the device.

    Parameters
    ----------
    call : mapping
        ``alpha``, ``beta``, ``out`` of `sparseformats.matmul`.
    """
    out, beta, alpha = call.get("out"), call.get("beta", 0), call.get("alpha", 1)
    before = None if out is None or beta == 0 else out.double().clone()
    Y = subject.matmul(A, X, assume_finite=True, **call)
    if Y is None:
        return
    assert out is None or Y is out
    D, wide = A.to_dense().double(), X.double()
    value, magnitude = alpha * (D @ wide), abs(alpha) * (D.abs() @ wide.abs())
    if before is not None:
        value, magnitude = value + beta * before, magnitude + abs(beta) * before.abs()
    length = (D != 0).sum(dim=1, keepdim=True)
    bound = certify._bound(record_of("matmul", subject.kernel), flush=False)
    arrays = [x.cpu().numpy() for x in (value, magnitude, length.expand_as(value))]
    unspecified = np.zeros(arrays[0].shape, np.bool_)
    product = reference.Product(A.dtype_name, *arrays, unspecified)
    testing.assert_product(A.lib.to_numpy(Y), product, **bound)


def block_for(kernel: str) -> tuple[int, int]:
    """Blocks that a kernel takes: of 64, or smaller ones where it is for these."""
    call = Query("matmul", "bsr", m=256, k=256, n=64, blocksize=(64, 64))
    return (16, 16) if _asks(record_of("matmul", kernel), "blocksize", call) else (64, 64)


def serves_something(kernel: str, device: str) -> Subject:
    """A subject that has served the plainest of calls, on whole blocks of a size that all take."""
    subject = Subject(kernel, device)
    for dtype in ("float16", "float32"):
        for format in ("bsr", "blocked_ell"):
            A = matrix(format, (256, 256), block_for(kernel), dtype, device=device)
            hold(subject, A, dense((256, 64), dtype, device=device))
    assert subject.served, subject.refused
    return subject
