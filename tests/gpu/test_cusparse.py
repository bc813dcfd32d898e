"""cuSPARSE and cuBLAS on the device: right values, the caller's stream, graphs, limits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import sparseformats as sf
from sparseformats import _arrays, dispatch
from sparseformats.testing import assert_close, certify_kernel
from sparseformats.testing.operands import LAYOUTS, backed
from sparseformats_kernels.cusparse import MOST_COLUMNS, api as c, spgemm
from sparseformats_kernels.cusparse.csr import CSRProduct

LIBRARIES = ("torch", "cupy")
KERNELS = {
    "cusparse-csr": ("csr", {}),
    "cusparse-bell": ("blocked_ell", {"blocksize": 16}),
    "cusparse-bsr": ("bsr", {"blocksize": (16, 16)}),
    "cublas-dense": ("csr", {}),
}
FAULTS = {"check-failed", "cost-failed", "failed-to-load", "package-broken", "missing-package"}


def matrix(
    device: str, library: str = "torch", format: str = "csr", dtype: str = "float32", **options: Any
) -> Any:
    """96 x 80, some rows empty, in whole blocks of 16 and of many values."""
    options = {"shape": (96, 80), "density": 0.2, "seed": 0, **options}
    rng, (m, k) = np.random.default_rng(options["seed"]), options.pop("shape")
    dense = rng.standard_normal((m, k)) * (rng.random((m, k)) < options.pop("density"))
    dense[5:30] = 0
    dense[:, 16:32] = 0
    del options["seed"]
    A = sf.from_dense(dense.astype(np.float32), format, **options)
    return A.astype(np.dtype(dtype)).to_device(device, library=library)


def operand(
    A: Any, n: int, layout: str = "C", seed: int = 1, rows: int = 0, guard: Any = None
) -> Any:
    """Memory of an operand of `A`, and the view of it."""
    host = np.random.default_rng(seed).standard_normal((rows or A.shape[1], n))
    return backed(host.astype(np.dtype(A.dtype_name)), layout, A.lib, A.device, guard)


def multiply(kernel: str, A: Any, X: Any, **options: Any) -> Any:
    """The product, and proof that the kernel asked for made it."""
    with sf.tracing() as trace:
        y = sf.matmul(A, X, kernel=kernel, assume_finite=kernel == "cublas-dense", **options)
    assert [run.kernel for run in trace if run.op == "matmul"] == [kernel]
    return y


@contextmanager
def products() -> Iterator[list[Any]]:
    """Every packed state of `CSRProduct` that is made meanwhile."""
    found: list[Any] = []
    original = CSRProduct.pack

    def pack(A: Any, query: Any) -> Any:
        found.append(original(A, query))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CSRProduct, "pack", staticmethod(pack))
        yield found


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("values", ["any", "moderate"])
@pytest.mark.parametrize("kernel", ["cusparse-csr", "cublas-dense", "cublas-nm"])
def test_certified(kernel: str, values: str, library: str, device: str) -> None:
    if kernel == "cublas-dense" and values == "any":
        with pytest.raises(AssertionError, match="needs-finite-operand"):
            certify_kernel(kernel, library=library, device=device, examples=40)
        return
    options = {"library": library, "device": device, "values": values, "examples": 60}
    certificate = certify_kernel(kernel, **options)
    assert not set(certificate.refusals) & FAULTS
    assert sum(certificate.runs.values()) >= 10


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("values", ["any", "moderate"])
@pytest.mark.parametrize("kernel", ["cusparse-bell", "cusparse-bsr"])
def test_blocks_certified(kernel: str, values: str, library: str, device: str) -> None:
    served = [*(["float16", "bfloat16"] if library == "torch" else ["float16"]), "float64"]
    sizes = st.tuples(st.integers(0, 3), st.integers(0, 3))
    for b in (2, 3, 8, 16):
        certificate = certify_kernel(
            kernel,
            dtypes=served if kernel == "cusparse-bell" else [*served, "float32", "complex64"],
            shapes=sizes.map(lambda size, b=b: (b * size[0], b * size[1])),
            blocksizes=(b, b),
            library=library,
            device=device,
            values=values,
            examples=50,
        )
        assert not set(certificate.refusals) & FAULTS
        assert sum(certificate.runs.values()) >= 5


@pytest.mark.parametrize("library", LIBRARIES)
def test_sparse_products_certified(library: str, device: str) -> None:
    for values in ("any", "moderate"):
        options = {"library": library, "device": device, "values": values, "examples": 60}
        certificate = certify_kernel("cusparse-spgemm", "spgemm", **options)
        assert not set(certificate.refusals) & FAULTS
        assert sum(certificate.runs.values()) >= 10


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("n", [1, 3, 40, 200])
@pytest.mark.parametrize("kernel", KERNELS)
def test_layouts(kernel: str, n: int, library: str, device: str) -> None:
    format, options = KERNELS[kernel]
    for dtype in ("float16", "float64"):
        A = matrix(device, library, format, dtype, **options)
        for layout in LAYOUTS:
            _, X = operand(A, n, layout)
            for out_layout in ("C", "F", "rows", "columns", "offset"):
                base, Y = operand(A, n, out_layout, rows=96, guard=np.nan)
                Y[...] = np.nan
                assert multiply(kernel, A, X, out=Y) is Y
                assert_close(Y, A, X)
                nans = int((base != base).sum())  # what lies beside the view stays
                assert nans == int(np.prod(base.shape)) - 96 * n


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kernel", ["cusparse-csr", "cusparse-bell", "cusparse-bsr"])
def test_only_what_is_stored_meets_the_operand(kernel: str, library: str, device: str) -> None:
    """An empty slot that is read as block 0, or a fill that is not there, gives NaN."""
    format, options = KERNELS[kernel]
    A = matrix(device, library, format, "float64", **options)
    if format == "blocked_ell":
        assert int((A.col_indices == -1).sum()) > 0
    for n in (1, 8, 129):
        _, X = operand(A, n)
        X[:16] = np.nan
        X[40, 0] = np.inf
        assert_close(multiply(kernel, A, X), A, X)


@pytest.mark.parametrize("n", [1, 8, 256])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_long_row_of_halves_is_summed_in_float32(dtype: str, n: int, device: str) -> None:
    k = 60_000
    values = torch.randn(k, device=device).to(getattr(torch, dtype))
    col, ptr = torch.arange(k, device=device), torch.tensor([0, 0, k, k], device=device)
    A, X = sf.CSR(values, col, ptr, (3, k)), torch.randn(k, n, device=device).to(values.dtype)
    for beta in (0, 0.3):
        Y = torch.ones(3, n, device=device, dtype=values.dtype)
        out = multiply("cusparse-csr", A, X, out=Y.clone(), alpha=0.7, beta=beta)
        assert_close(out, A, X, alpha=0.7, beta=beta, out=Y)


def test_the_algorithm_by_case(device: str) -> None:
    cases = [
        ("float32", 1, 0.2),
        ("float32", 64, 0.2),
        ("float32", 512, 0.2),
        ("float16", 512, 0.2),
    ]
    expected = {(0, c.SPMV_CSR_ALG2), (64, c.SPMM_CSR_ALG3), (512, c.SPMM_CSR_ALG2)}
    ran = set()
    for dtype, n, density in cases:
        with products() as states:
            A = matrix(device, dtype=dtype, density=density)
            assert_close(multiply("cusparse-csr", A, X := operand(A, n)[1]), A, X)
        shapes = {key[-1] for state in states for key in state.products}
        ran |= {(shape.n, shape.algorithm) for shape in shapes if dtype == "float32"}
        if dtype == "float16":
            assert {shape.algorithm for shape in shapes} == {c.SPMM_CSR_ALG3}
    assert ran == expected


def test_the_same_bits_where_they_are_asked_for(device: str) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        with products() as states:
            A = matrix(device)
            for n in (1, 512):
                _, X = operand(A, n)
                first = multiply("cusparse-csr", A, X).clone()
                assert all(torch.equal(first, multiply("cusparse-csr", A, X)) for _ in range(5))
        used = {key[-1].algorithm for state in states for key in state.products}
        assert used == {c.SPMV_CSR_ALG2, c.SPMM_CSR_ALG3}
        E, X = matrix(device, format="blocked_ell", dtype="float64", blocksize=16), X.double()
        codes = {reason.code for reason in sf.explain(E, X).row("cusparse-bell").reasons}
        assert codes == {"nondeterministic"}
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("kernel", KERNELS)
def test_it_runs_on_the_callers_stream(kernel: str, device: str) -> None:
    """The operand's last values come late on a side stream; any other stream would miss them."""
    format, options = KERNELS[kernel]
    A = matrix(device, "torch", format, "float64", **options)
    for n in (1, 64):
        X, late = operand(A, n)[1], operand(A, n, seed=2)[1]
        multiply(kernel, A, X)  # prepared on the default stream
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            multiply(kernel, A, X)
            torch.cuda._sleep(100_000_000)
            X.copy_(late)
            y = multiply(kernel, A, X)
            assert not side.query()  # nothing waited for the device
        side.synchronize()
        assert_close(y, A, late)


def test_it_runs_on_cupys_stream(device: str) -> None:
    import cupy

    A = matrix(device, "cupy")
    X, late = operand(A, 64)[1], operand(A, 64, seed=2)[1]
    multiply("cusparse-csr", A, X)
    busy = cupy.ones((6000, 6000))
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as side:
        for _ in range(3):
            busy = busy @ busy * 1e-4
        X[...] = late
        y = multiply("cusparse-csr", A, X)
    side.synchronize()
    assert_close(y, A, late)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_graphs_replay_with_new_data(kernel: str, warm: bool, device: str) -> None:
    format, options = KERNELS[kernel]
    A = matrix(device, "torch", format, "float16", **options)
    for n in (1, 48):
        X, Y, Z = operand(A, n)[1], operand(A, n, rows=96)[1], operand(A, n, rows=96)[1]
        plan = sf.plan(A, X, kernel=kernel, assume_finite=True)
        if warm:
            plan(X, out=Y)
        graphs = []
        for target in (Y, Z):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                plan(X, out=target)
            graphs.append((graph, target))
        for seed in (3, 4):
            X.copy_(operand(A, n, seed=seed)[1])
            for graph, target in graphs:
                target.fill_(np.nan)
                graph.replay()
                assert_close(target, A, X)
            assert_close(plan(X), A, X)  # and the plan still works beside them


def test_cupy_graphs(device: str) -> None:
    import cupy

    A = matrix(device, "cupy")
    X, Y = operand(A, 48)[1], operand(A, 48, rows=96)[1]
    plan = sf.plan(A, X, out=Y, kernel="cusparse-csr")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan(X, out=Y)
        graph = stream.end_capture()
    for seed in (3, 4):
        X[...] = operand(A, 48, seed=seed)[1]
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert_close(Y, A, X)


@pytest.mark.parametrize("kernel", ["cusparse-csr", "cusparse-bell", "cusparse-bsr"])
def test_the_most_columns(kernel: str, device: str) -> None:
    format, options = KERNELS[kernel]
    dtype = "float16" if kernel == "cusparse-bell" else "float32"
    A = matrix(device, "torch", format, dtype, shape=(32, 32), density=0.5, **options)
    X = torch.randn(32, MOST_COLUMNS + 1, device=device, dtype=A.dtype)
    reasons = sf.explain(A, X).row(kernel).reasons
    assert [reason.code for reason in reasons] == ["size"]
    X = X[:, 1:].contiguous()
    y, exact = multiply(kernel, A, X), A.to_dense().double() @ X.double()
    assert torch.allclose(y.double(), exact, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kernel", ["cusparse-csr", "cusparse-bell", "cusparse-bsr"])
def test_more_than_two_to_the_31_results(kernel: str, device: str) -> None:
    format, options = KERNELS[kernel]
    m, n = 32_784, 65_600
    row = torch.arange(m, device=device)
    values = torch.randn(m, device=device).half()
    A = sf.COO(values, row, row % 16, (m, 16)).to(format, **options)
    X = torch.randn(16, n, device=device).half()
    Y = multiply(kernel, A, X)
    for i in (0, 1, 32_759, m - 17, m - 1):
        assert torch.allclose(Y[i], values[i] * X[i % 16], rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_sparse_products_by_both_algorithms(
    dtype: str, library: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    A, B = matrix(device, library, dtype=dtype), matrix(device, library, "csc", dtype, seed=5).T
    found = A @ B
    expected = A.to_device("cpu", library="numpy") @ B.to_device("cpu", library="numpy")
    assert found.problems() == []
    monkeypatch.setattr(
        spgemm, "_multiplied", lambda *args: spgemm._Call(*args, c.SPGEMM_ALG3).run()
    )
    frugal = A @ B
    for C in (found, frugal):
        C = C.to_device("cpu", library="numpy")
        assert np.array_equal(C.indptr, expected.indptr)
        assert np.array_equal(C.indices, expected.indices)
        assert np.allclose(C.data, expected.data, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_cancels_stays_stored(library: str, device: str) -> None:
    A = sf.CSR([1.0, 1.0], [0, 1], [0, 2, 2], (2, 2)).to_device(device, library=library)
    B = sf.CSR([1.0, -1.0], [1, 1], [0, 1, 2], (2, 3)).to_device(device, library=library)
    C = A @ B
    assert (C.nnz, C.shape) == (1, (2, 3))
    assert C.to_device("cpu", library="numpy").to_dense().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert (sf.eye(3).to_device(device, library=library)[:, :2] @ A).nnz == 2


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_index_width_of_results(index: str, device: str) -> None:
    A = matrix(device).to("csr", index_dtype=index)
    C = A @ A.T
    assert str(C.indices.dtype) == f"torch.{index}"
    _, X = operand(A, 8)
    assert_close(multiply("cusparse-csr", A, X), A, X)


def test_types_that_go_through_rows(device: str) -> None:
    """What the block kernels do not have is multiplied as rows, and `explain` says why."""
    for format, dtype, code in (("blocked_ell", "complex64", "dtype"), ("bsr", "complex128", None)):
        options = {"blocksize": 16 if format == "blocked_ell" else (16, 8)}
        A = matrix(device, "torch", format, dtype, **options)
        _, X = operand(A, 8)
        explanation = sf.explain(A, X)
        assert explanation.chosen == "cusparse-csr"
        row = explanation.row("cusparse-bell" if code else "cusparse-bsr")
        assert [reason.code for reason in row.reasons] == [code or "blocksize"]
        assert_close(A @ X, A, X)


def test_threads_share_a_matrix(device: str) -> None:
    A, wrong = matrix(device), []
    plan = sf.plan(A, operand(A, 32)[1], kernel="cusparse-csr")

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream(device)):
            for step in range(20):
                X = torch.randn(80, 32, device=device)
                y = plan(X) if step % 2 else multiply("cusparse-csr", A, X)
                if not torch.allclose(y, A.to_dense() @ X, atol=1e-3):
                    wrong.append((seed, step))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_every_kernel_here_is_available(device: str) -> None:
    names = {record.name for record in dispatch.records()}
    assert {*KERNELS, "cublas-nm", "cusparse-spgemm"} <= names
    for record in dispatch.records():
        if record.name in KERNELS:
            assert record.package_reasons() == []
    assert _arrays.library("torch").capability(device) is not None
