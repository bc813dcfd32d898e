"""What every block-sparse kernel must stand, on a GPU or interpreted: small, and quick to fail.

Each check takes a `Subject` and raises AssertionError. The same checks that hold the library's
kernels must reject the planted bugs of `tests.kernels.triton.planted`.
"""

from __future__ import annotations

import itertools
import mmap
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

import sparseformats as sf
from sparseformats import dispatch, testing
from sparseformats._arrays import TorchLibrary
from sparseformats.testing.certify import needed_precision
from tests.kernels.triton.matrices import FORMATS, dense, matrix

__all__ = ["CHECKS", "FAULTS", "Subject", "codes_of", "vast"]

FAULTS = {
    *("check-failed", "cost-failed", "failed-to-load", "backend-failed", "no-device"),
    *("missing-package", "package-too-old", "package-unknown", "package-broken"),
}
"""Codes of reasons that are no refusal of a call but a defect."""


@dataclass
class Subject:
    """A kernel under test, on a device; it may refuse calls, with its own reasons.

    Attributes
    ----------
    served : int
    refused : Counter
        By the codes of the reasons.
    """

    kernel: str
    device: str
    served: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def run(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Make a call with ``kernel=``; None where the kernel refuses it. Proves that it ran."""
        if call is sf.matmul and (precision := precision_for(self.kernel)) is not None:
            options = {"precision": precision, **options}
        with sf.tracing() as trace:
            try:
                made = call(*args, kernel=self.kernel, **options)
            except sf.NoKernelError as error:
                refusal = error
            else:
                refusal = None
        if refusal is not None:
            codes = codes_of(refusal, self.kernel)
            assert not FAULTS & set(codes), refusal
            self.refused.update(codes)
            return None
        assert {run.kernel for run in trace if run.op == "matmul"} <= {self.kernel}, trace.kernels
        self.served += 1
        return made

    def matmul(self, A: Any, X: Any, **call: Any) -> Any:
        """The product, or None."""
        return self.run(sf.matmul, A, X, **call)

    def hold(self, A: Any, X: Any, **call: Any) -> None:
        """Hold a product to `check_product`."""
        self.run(testing.check_product, A, X, **call)


Check = Callable[..., None]


def precision_for(kernel: str) -> str | None:
    """What a product's kernel has to be asked for, if it serves no call without."""
    records = [record for record in dispatch.records("matmul") if record.name == kernel]
    return needed_precision(records[0]) if records else None


@contextmanager
def deterministic() -> Iterator[None]:
    """Calls ask for the same bits on every run, as under torch's switch, which asks more things."""
    before = TorchLibrary.deterministic
    TorchLibrary.deterministic = lambda self: True  # type: ignore[method-assign]
    try:
        yield
    finally:
        TorchLibrary.deterministic = before  # type: ignore[method-assign]


def codes_of(refusal: sf.NoKernelError, kernel: str) -> list[str]:
    """Codes of a kernel's reasons in a refusal, of which there must be some."""
    rows = getattr(refusal.explanation, "rows", ())
    codes = [reason.code for row in rows if row.kernel == kernel for reason in row.reasons]
    if not codes:
        raise AssertionError(f"{kernel} refuses without a reason: {refusal}")
    return codes


def shapes_and_layouts(subject: Subject) -> None:
    """Blocks of any size, ragged shapes, and operands and results of any strides."""
    outs = itertools.cycle(["guarded", "rows", "F", "columns", "offset", "C", None])
    layouts = itertools.cycle(["C", "guarded", "columns", "F", "rows"])
    blocks = itertools.cycle([(16, 16), (24, 24), (3, 5), (64, 64), (16, 64)])
    for number, (format, dtype) in enumerate(itertools.product(FORMATS, ("float16", "float32"))):
        block = next(blocks)
        shape = (2 * block[0] + 1, 3 * block[1] + 2)
        A = matrix(format, shape, block, dtype, device=subject.device, seed=number)
        host = dense((A.shape[1], 33 + number), dtype, library="numpy")
        X = testing.laid_out(host, next(layouts), A.lib, subject.device)
        scalars = {"alpha": -2, "beta": 3} if number % 3 == 2 else {}
        subject.hold(A, X, out=next(outs), **(scalars or {"alpha": 1}))


def exact_integers(
    subject: Subject,
    *,
    sizes: tuple[int, ...] = (16, 48, 80),
    columns: tuple[int, ...] = (1, 33),
    formats: tuple[str, ...] = FORMATS,
) -> None:
    """Blocks of 16 and K an odd multiple of it, N a multiple of nothing: equal, not close."""
    for k, n, format, dtype in itertools.product(sizes, columns, formats, ("float32", "float16")):
        options = {"density": 0.8, "values": "integers", "device": subject.device}
        A = matrix(format, (32, k), (16, 16), dtype, **options)
        X = dense((A.shape[1], n), dtype, values="integers", device=subject.device)
        expected = A.to_dense().double() @ X.double()
        Y = subject.matmul(A, X)
        assert Y is None or torch.equal(Y.double(), expected), (k, n, format)


def poison(subject: Subject) -> None:
    """NaN where nothing may look: other rows, padding, empty slots, and `out` under beta 0."""
    device = subject.device
    for format, (size, dtype) in itertools.product(
        ("bsr", "blocked_ell"),
        ((16, torch.float16), (24, torch.float32), (64, torch.float16)),
    ):
        blocks = torch.zeros(4, 5, dtype=torch.bool, device=device)
        blocks[0, 1] = blocks[0, 4] = blocks[2, 4] = True
        D = blocks.repeat_interleave(size, 0).repeat_interleave(size, 1).to(dtype)
        D = D[:-1, :-1].contiguous()
        A = sf.from_dense(D, format, blocksize=size if format != "bsr" else (size, size))
        memory = torch.full((A.shape[1] + 64, 19), torch.nan, device=device, dtype=dtype)
        met = (D.sum(dim=0) > 0).nonzero()[:, 0]
        memory[met] = (1 + torch.arange(19, device=device) % 4).to(dtype)
        out = torch.full((A.shape[0], 19), torch.nan, device=device, dtype=dtype)
        Y = subject.matmul(A, memory[: A.shape[1]], out=out)
        expected = D.sum(dim=1)[:, None] * memory[met[0]][None, :]
        assert Y is None or Y is out
        assert Y is None or torch.equal(Y, expected), f"{format} {size}: {Y} != {expected}"


def sums_in_float32(subject: Subject) -> None:
    """A float16 accumulator stops at 2048."""
    ones = torch.ones(4096, 16, dtype=torch.float16, device=subject.device)
    A = sf.from_dense(ones.T.contiguous(), "bsr", blocksize=(16, 16))
    Y = subject.matmul(A, ones)
    assert Y is None or torch.equal(Y, torch.full_like(Y, 4096))


def vast(rows: int, step: int, columns: int, device: str) -> torch.Tensor:
    """A bfloat16 view (rows, columns) whose rows lie `step` elements apart, beyond 2**31 in all.

    On a GPU as much memory lies before it, so that an offset that wrapped hits that and not a
    neighbour; on the CPU, where only touched pages exist, the checker of memory notices.
    """
    extent, before = (rows - 1) * step + columns, 0 if device == "cpu" else 2**31
    assert extent > 2**31
    if device == "cpu":
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        memory = torch.frombuffer(mmap.mmap(-1, 2 * extent, flags=flags), dtype=torch.bfloat16)
    else:
        memory = torch.full((before + extent,), torch.nan, dtype=torch.bfloat16, device=device)
    return memory.as_strided((rows, columns), (step, 1), before)


def far_apart(subject: Subject) -> None:
    """Offsets beyond 2**31 elements: rows of the operand and of the result far apart."""
    rows, step, n = 80, 2**25 + 2**21, 3
    A = matrix("bsr", (rows, rows), (16, 16), "bfloat16", values="integers", device=subject.device)
    X = dense((rows, n), "bfloat16", values="integers", device=subject.device)
    expected = (A.to_dense().double() @ X.double()).to(torch.bfloat16)
    far = vast(rows, step, n, subject.device)
    for operand, target in ((X, far), (X.T.contiguous().T, far), (far, torch.empty_like(X))):
        far.copy_(X)
        if target is far:
            target.fill_(torch.nan)
        Y = subject.matmul(A, operand, out=target)
        assert Y is None or torch.equal(target, expected)


def same_bits(subject: Subject) -> None:
    """Twenty runs with other work between them give the same bits: rows of very many blocks."""
    device, generator = subject.device, torch.Generator().manual_seed(1)
    mask = torch.zeros(4, 300, dtype=torch.bool)
    mask[1], mask[3, ::7] = True, True
    D = mask.repeat_interleave(16, 0).repeat_interleave(16, 1)
    D = D * torch.randn(64, 4800, generator=generator)
    D = D * torch.randn(1, 4800, generator=generator).exp()
    X = torch.randn(4800, 40, generator=generator)
    for dtype in (torch.float32, torch.bfloat16) if device != "cpu" else (torch.float32,):
        A = sf.from_dense(D.to(device, dtype), "bsr", blocksize=(16, 16))
        operand = X.to(device, dtype)
        with deterministic():
            first = subject.matmul(A, operand, assume_finite=True)
        for run in range(19 if first is not None and device != "cpu" else 1):
            noise = torch.randn(2**22 if run % 2 else 2**10, device=device).sort()
            with deterministic():
                again = subject.matmul(A, operand, assume_finite=True)
            assert first is None or torch.equal(again, first), f"run {run + 2} differs"
            del noise


CHECKS: tuple[Check, ...] = (
    shapes_and_layouts,
    exact_integers,
    poison,
    sums_in_float32,
    far_apart,
    same_bits,
)
