"""Every registered kernel of every operation against the oracle, and proof that it is what ran.

What a kernel's record says decides what is drawn for it, so a new kernel is here as soon as it is
registered; `certify_kernel` fails where another kernel ran or none served a call.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings

import sparseformats as sf
from sparseformats import dispatch, reference
from sparseformats.dispatch import EXACT, KernelRecord
from sparseformats.testing import certify, certify_kernel
from sparseformats_kernels.cpu import sddmm
from tests.kernels.cpu.products import FORMATS, LIBRARIES, allows, array, matrix

OPERATIONS = {record.op for record in dispatch.records()}
CASES = [
    (record.op, record.name, library)
    for record in dispatch.records()
    for library in LIBRARIES
    if allows(record, "library", library) and allows(record, "device", "cpu")
    if not record.package_reasons()
]
FAULTS = {"check-failed", "cost-failed", "failed-to-load", "package-broken"}


@pytest.mark.parametrize(("op", "kernel", "library"), CASES)
@pytest.mark.parametrize("values", ["any", "moderate"])
def test_against_the_oracle(op: str, kernel: str, library: str, values: str) -> None:
    certificate = certify_kernel(kernel, op, library=library, values=values, examples=25)
    assert not set(certificate.refusals) & FAULTS
    assert sum(certificate.runs.values()) >= 3


def test_no_kernel_is_left_out() -> None:
    assert {"matmul", "sddmm", "spgemm", "convert:csr->bsr"} <= OPERATIONS
    here = {(record.op, record.name) for record in dispatch.records()}
    assert {case[:2] for case in CASES} == {(op, n) for op, n in here if _runs_here(op, n)}


def _runs_here(op: str, name: str) -> bool:
    (record,) = (r for r in dispatch.records(op) if r.name == name)
    readable = any(allows(record, "library", library) for library in LIBRARIES)
    return readable and allows(record, "device", "cpu") and not record.package_reasons()


# ---- planted kernels


def record(op: str, target: Callable[..., Any], formats: Any, **options: Any) -> KernelRecord:
    name = target.__name__.replace("_", "-")
    path = f"{__name__}:{target.__name__}"
    return KernelRecord(name, op, formats, path, cost=lambda query: 1.0, **options)


def uses_the_patterns_values(A: Any, X: Any, Y: Any, alpha: Any, query: Any) -> Any:
    values = sddmm.gather(A, X, Y, alpha, query)
    return values * A.data.astype(values.dtype)


def forgets_alpha(A: Any, X: Any, Y: Any, alpha: Any, query: Any) -> Any:
    return sddmm.gather(A, X, Y, 1, query)


def leaves_out_the_last_term(A: Any, X: Any, Y: Any, alpha: Any, query: Any) -> Any:
    return sddmm.gather(A, X[:, :-1], Y[:-1], alpha, query)


def sums_in_half(A: Any, X: Any, Y: Any, alpha: Any, query: Any) -> Any:
    half = (x.astype(np.float16).astype(x.dtype) for x in (X, Y))
    return sddmm.gather(A, *half, alpha, query)


def reads_blocks_row_by_row(A: Any, X: Any, Y: Any, alpha: Any, query: Any) -> Any:
    return np.swapaxes(sddmm.block_gemm(A, X, Y, alpha, query), 1, 2).reshape(A.data.shape)


def overwrites_x(A: Any, X: Any, Y: Any, alpha: Any, query: Any) -> Any:
    if X.flags.writeable:
        X *= 0
    return sddmm.gather(A, X, Y, alpha, query)


def drops_what_cancels(A: Any, B: Any, query: Any) -> Any:
    S = A.to_scipy() @ B.to_scipy()
    S.eliminate_zeros()
    return sf.from_scipy(S)


def leaves_rows_unsorted(A: Any, B: Any, query: Any) -> Any:
    S = (A.to_scipy() @ B.to_scipy()).sorted_indices()
    parts = {"data": S.data[::-1].copy(), "indices": S.indices[::-1].copy()}
    return sf.CSR.trusted(**parts, indptr=S.indptr, shape=S.shape)


def negates_zeros(A: Any, options: Any) -> Any:
    data = np.where(A.data == 0, -A.data, A.data)
    rows = np.repeat(np.arange(A.shape[0], dtype=A.indptr.dtype), np.diff(A.indptr))
    return sf.COO.trusted(data=data, row=rows, col=A.indices, shape=A.shape)


class Dense:
    """The dense candidate without its rule about finite operands."""

    __name__ = "unruly_dense"

    def pack(self, A: Any, query: Any) -> Any:
        D = reference.dense(A)
        return (D.T if query.transposed else D), query.out_dtype

    def run(self, state: Any, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        with np.errstate(all="ignore"):
            y = (alpha * (state[0] @ x)).astype(state[1])
            y = y if out is None or beta == 0 else y + beta * out
        if out is None:
            return y
        out[...] = y
        return out


unruly_dense = Dense()

FLOATS = {"dtypes": ["float32", "float64"]}
PLANTED: list[tuple[str, Any, tuple[str, ...], dict[str, Any]]] = [
    ("sddmm", uses_the_patterns_values, ("csr",), {"values": "small"}),
    ("sddmm", forgets_alpha, ("csr", "n:m"), {"values": "small"}),
    ("sddmm", leaves_out_the_last_term, ("coo",), {"values": "small"}),
    ("sddmm", sums_in_half, ("csr",), {"values": "moderate", **FLOATS}),
    ("sddmm", reads_blocks_row_by_row, ("bsr",), {"values": "small", "blocksizes": (2, 2)}),
    ("sddmm", overwrites_x, ("csc",), {"values": "small", **FLOATS}),
    ("spgemm", drops_what_cancels, ("csr",), {"values": "small", **FLOATS}),
    ("spgemm", leaves_rows_unsorted, ("csr",), {"values": "small", **FLOATS}),
    ("convert:csr->coo", negates_zeros, ("csr",), {"values": "small", **FLOATS}),
    ("matmul", unruly_dense, ("csr", "bsr", "blocked_ell"), {"values": "any", **FLOATS}),
]


@pytest.fixture
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do not spend time on making the failing example small."""
    found = functools.partial(settings, phases=[Phase.generate], database=None, derandomize=True)
    monkeypatch.setattr(certify, "settings", found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize(
    ("op", "target", "formats", "options"), PLANTED, ids=[case[1].__name__ for case in PLANTED]
)
def test_a_planted_kernel_is_rejected(
    op: str, target: Any, formats: Any, options: dict[str, Any]
) -> None:
    planted = record(op, target, formats, tolerance=EXACT) if op.startswith("convert") else None
    with pytest.raises(AssertionError) as caught:
        certify_kernel(planted or record(op, target, formats), examples=150, **options)
    assert "served no example" not in str(caught.value)


@pytest.mark.usefixtures("unshrunk")
def test_the_unruly_kernel_is_right_where_its_rule_would_let_it_run() -> None:
    formats = ("csr", "bsr", "blocked_ell")
    rules = (dispatch.checks.finite_operand(),)
    for values in ("moderate", "any"):
        options = {"values": values, "dtypes": ["float64", "int64"]}
        certify_kernel(
            record("matmul", unruly_dense, formats, checks=rules), examples=40, **options
        )


# ---- threads and processes


def operands(library: str, format: str) -> tuple[Any, Any, Any]:
    """A square matrix, a wide operand and a bias, of small integers: every sum is exact."""
    P = matrix(format, (14, 14), library)
    values = np.random.default_rng(4).integers(-3, 4, (14, 17)).astype(np.float32)
    A = sf.sddmm(P, array(library, values), array(library, values.T.copy()))
    return A, array(library, values), array(library, values[:, 0].copy())


def calls(A: Any, X: Any, bias: Any) -> list[Callable[[], Any]]:
    """Mixed uses of one matrix; each gives a NumPy array that is exact."""
    host, promise = A.lib.to_numpy, {"assume_finite": True}
    found: list[Callable[[], Any]] = [
        lambda: host(A @ X),
        lambda: host(A @ X[:, 0]),
        lambda: host(X.mT @ A),
        lambda: host(sf.matmul(A, X, out=A.lib.zeros((14, 17), "float32"), alpha=2, beta=1)),
        lambda: host(sf.matmul(A, X, kernel="reference")),
        lambda: host(sf.matmul(A, X, kernel="dense", **promise)),
        lambda: host(sf.linear(X.mT, A, bias, activation="relu")),
        lambda: host(sf.sddmm(A, X, X.mT).to_dense()),
        lambda: host(A.to("coo").to("csr").to_dense()),
        lambda: host(sf.plan(A, X)(X)),
        lambda: np.asarray([str(sf.explain(A, X).chosen)]),
    ]
    if A.library == "numpy":
        found.append(lambda: host((A @ A).to_dense()))
    return found


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ["csr", "bsr", "blocked_ell.T", "n:m"])
def test_sixteen_threads_mix_calls_on_one_matrix(library: str, format: str) -> None:
    A, X, bias = operands(library, format)
    mixed = calls(A, X, bias)
    expected = [call() for call in mixed]
    sf.clear_cache()
    gate = threading.Barrier(16)

    def work(number: int) -> None:
        gate.wait(60)
        for step in range(3 * len(mixed)):
            at = (5 * number + step) % len(mixed)
            if step % 7 == number % 7:
                sf.clear_cache(A)
            np.testing.assert_array_equal(mixed[at](), expected[at])

    with ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(work, number) for number in range(16)]:
            done.result()


def _in_child(pipe: Any, mixed: list[Callable[[], Any]], expected: list[Any]) -> None:
    if "torch" in sys.modules:  # whose OpenMP has no threads in a child: torch's own rule
        sys.modules["torch"].set_num_threads(1)
    for call, value in zip(mixed, expected, strict=True):
        np.testing.assert_array_equal(call(), value)
    pipe.send("equal")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ["csr", "bsr"])
def test_a_forked_child_goes_on_with_what_the_parent_prepared(library: str, format: str) -> None:
    A, X, bias = operands(library, format)
    mixed = calls(A, X, bias)
    expected = [call() for call in mixed]
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    child = fork.Process(target=_in_child, args=(there, mixed, expected))
    child.start()
    there.close()
    try:
        assert here.poll(60), "the child hangs"
        assert here.recv() == "equal"
    finally:
        child.join(10)
        child.kill()
    assert child.exitcode == 0
    np.testing.assert_array_equal(mixed[0](), expected[0])  # the parent is none the worse


def test_every_format_is_multiplied_by_what_certification_calls_its_kernels() -> None:
    for format in FORMATS:
        A, X, _ = operands("numpy", format)
        with sf.tracing() as trace:
            A @ X
        assert ("matmul", trace.kernels[-1], "numpy") in CASES
