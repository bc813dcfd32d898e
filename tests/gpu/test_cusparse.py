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
PROMISED = ("cublas-dense", "cusparse-bell")  # serve finite operands only
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
    options = {"assume_finite": kernel in PROMISED, **options}
    with sf.tracing() as trace:
        y = sf.matmul(A, X, kernel=kernel, **options)
    assert [run.kernel for run in trace if run.op == "matmul"] == [kernel]
    return y


def refusals(kernel: str, A: Any, X: Any, **options: Any) -> list[str]:
    """Codes of the reasons why a kernel does not serve a call."""
    return [reason.code for reason in sf.explain(A, X, **options).row(kernel).reasons]


def used(states: list[Any]) -> set[int]:
    """The algorithms of all products that were made."""
    return {key[-1].algorithm for state in states for key in state.products}


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


def certified(kernel: str, library: str, device: str, values: str, **options: Any) -> None:
    """Hold a kernel to the oracle; one that needs a promise must ask for it."""
    # CuPy scales and adds with subnormals flushed to zero.
    place = {"library": library, "device": device, "flush": library == "cupy"}
    if kernel in PROMISED and values == "any":
        with pytest.raises(AssertionError, match="needs-finite-operand"):
            certify_kernel(kernel, values=values, examples=40, **place, **options)
        return
    certificate = certify_kernel(kernel, values=values, **place, **({"examples": 60} | options))
    assert not set(certificate.refusals) & FAULTS
    assert sum(certificate.runs.values()) >= 5


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("values", ["any", "moderate"])
@pytest.mark.parametrize("kernel", ["cusparse-csr", "cublas-dense", "cublas-nm"])
def test_certified(kernel: str, values: str, library: str, device: str) -> None:
    certified(kernel, library, device, values)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("values", ["any", "moderate"])
@pytest.mark.parametrize("kernel", ["cusparse-bell", "cusparse-bsr"])
def test_blocks_certified(kernel: str, values: str, library: str, device: str) -> None:
    served = [*(["float16", "bfloat16"] if library == "torch" else ["float16"]), "float64"]
    sizes = st.tuples(st.integers(0, 3), st.integers(0, 3))
    for b in (2, 3, 8, 16):
        options = {
            "formats": "blocked_ell" if kernel == "cusparse-bell" else "bsr",
            "dtypes": served if kernel == "cusparse-bell" else [*served, "float32", "complex64"],
            "shapes": sizes.map(lambda size, b=b: (b * size[0], b * size[1])),
            "blocksizes": (b, b),
        }
        certified(kernel, library, device, values, **options)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("values", ["any", "moderate"])
def test_sampled_products_certified(values: str, library: str, device: str) -> None:
    for kernel in ("cuda-gather", "cuda-blocks") if library == "torch" else ("cuda-gather",):
        options = {"library": library, "device": device, "flush": library == "cupy"}
        certificate = certify_kernel(kernel, "sddmm", values=values, examples=60, **options)
        assert not set(certificate.refusals) & FAULTS
        assert sum(certificate.runs.values()) >= 10


@pytest.mark.parametrize("library", LIBRARIES)
def test_sparse_products_certified(library: str, device: str) -> None:
    for values in ("any", "moderate"):
        options = {"library": library, "device": device, "values": values, "examples": 60}
        options["flush"] = library == "cupy"
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
                for promised in {True, kernel in PROMISED}:
                    Y[...] = np.nan
                    assert multiply(kernel, A, X, out=Y, assume_finite=promised) is Y
                    assert_close(Y, A, X)
                    nans = int((base != base).sum())  # what lies beside the view stays
                    assert nans == int(np.prod(base.shape)) - 96 * n


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("promised", [False, True])
def test_columns_are_laid_into_rows(promised: bool, dtype: str, device: str) -> None:
    """Of a product that is large enough for it, with the same result."""
    options = {"shape": (4096, 2048), "density": 0.02, "dtype": dtype}
    with products() as states:
        A = matrix(device, "torch", **options)
        X = operand(A, 256)[1]
        expected = multiply("cusparse-csr", A, X, assume_finite=promised)
        for layout, out_layout in (("C", "F"), ("F", "C"), ("F", "F")):
            Z = X if layout == "C" else X.mT.contiguous().mT
            Y = torch.full((4096, 256), torch.nan, dtype=X.dtype, device=device)
            Y = Y if out_layout == "C" else Y.mT.contiguous().mT
            multiply("cusparse-csr", A, Z, out=Y, assume_finite=promised)
            assert torch.allclose(Y, expected, rtol=2e-3, atol=1e-5)
    assert {key[-1].transposed for state in states for key in state.products} == {False}
    assert {key[-1].order for state in states for key in state.products} == {c.ORDER_ROW}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("kernel", ["cusparse-csr", "cusparse-bsr"])
def test_only_what_is_stored_meets_the_operand(
    kernel: str, dtype: str, library: str, device: str
) -> None:
    """A fill that is not there, or the first row read for padding, gives NaN."""
    format, options = KERNELS[kernel]
    A = matrix(device, library, format, dtype, **options)
    for n in (1, 2, 8, 129):
        for layout in ("C", "F", "offset"):
            _, X = operand(A, n, layout)
            X[:16] = np.nan
            X[40, 0] = np.inf
            assert_close(multiply(kernel, A, X), A, X)
    X[...] = 1
    X[0] = np.nan  # met by no element of the last row
    single = sf.CSR([1.0], [79], [0, 1], (1, 80)).astype(np.dtype(dtype))
    single = single.to_device(device, library=library)
    assert_close(multiply("cusparse-csr", single, X), single, X)


@pytest.mark.parametrize("library", LIBRARIES)
def test_empty_slots_need_a_finite_operand(library: str, device: str) -> None:
    grid = np.array([[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]])
    dense = np.kron(grid, np.ones((16, 16))).astype(np.float64)
    A = sf.from_dense(dense, "blocked_ell", blocksize=16).to_device(device, library=library)
    assert int((A.col_indices == -1).sum()) == 3
    X = operand(A, 40)[1]
    assert_close(multiply("cusparse-bell", A, X), A, X)
    assert refusals("cusparse-bell", A, X) == ["needs-finite-operand"]
    X[:16] = np.nan
    assert_close(A @ X, A, X)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("b", [2, 3, 16, 20, 64])
def test_single_precision_of_blocked_ell_is_tf32(b: int, library: str, device: str) -> None:
    options = {"shape": (6 * b, 5 * b), "density": 1.0, "blocksize": b}
    A = matrix(device, library, "blocked_ell", **options)
    X = operand(A, 40)[1]
    assert "precision" in refusals("cusparse-bell-tf32", A, X, assume_finite=True)
    promises = {"assume_finite": True, "precision": "tf32"}
    assert refusals("cusparse-bell", A, X, **promises) == ["dtype"]
    y = multiply("cusparse-bell-tf32", A, X, **promises)
    assert_close(y, A, X, factor=2.0, extra=2 * 2.0**-11)


@pytest.mark.parametrize("promised", [False, True])
@pytest.mark.parametrize("n", [1, 8, 256])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_long_row_of_halves_is_summed_in_float32(
    dtype: str, n: int, promised: bool, device: str
) -> None:
    k = 60_000
    values = torch.randn(k, device=device).to(getattr(torch, dtype))
    col, ptr = torch.arange(k, device=device), torch.tensor([0, 0, k, k], device=device)
    A, X = sf.CSR(values, col, ptr, (3, k)), torch.randn(k, n, device=device).to(values.dtype)
    options = {"assume_finite": promised}
    for beta in (0, 0.3):
        Y = torch.ones(3, n, device=device, dtype=values.dtype)
        out = multiply("cusparse-csr", A, X, out=Y.clone(), alpha=0.7, beta=beta, **options)
        assert_close(out, A, X, alpha=0.7, beta=beta, out=Y)
    # Sums in memory, rounded to a half type each time, would be off by 1e-4 of the terms' size.
    y = multiply("cusparse-csr", A, X, **options)[1].double()
    exact, size = values.double() @ X.double(), values.double().abs() @ X.double().abs()
    once = torch.finfo(values.dtype).eps / 2
    assert bool(((y - exact).abs() <= once * exact.abs() + 1e-5 * size).all())


def test_the_algorithm_by_case(device: str) -> None:
    for dtype in ("float16", "float32", "float64"):
        for n, promised in ((1, False), (8, False), (8, True), (512, False), (512, True)):
            with products() as states:
                A = matrix(device, dtype=dtype)
                X = operand(A, n)[1]
                assert_close(multiply("cusparse-csr", A, X, assume_finite=promised), A, X)
            if n == 1:
                assert used(states) == {c.SPMV_CSR_ALG2}
            elif not promised:
                assert used(states) == {c.SPMM_CSR_ALG2}
            elif n == 8:
                assert used(states) == {c.SPMM_CSR_ALG3}
            assert used(states) <= {c.SPMV_CSR_ALG2, c.SPMM_CSR_ALG2, c.SPMM_CSR_ALG3}


def test_uneven_halves_are_shared_out_evenly(device: str) -> None:
    dense = (torch.rand(4096, 4096, device=device) < 0.002).float()
    dense[7] = 1
    for dtype, algorithm in (("float16", c.SPMM_CSR_ALG2), ("float32", c.SPMM_CSR_ALG3)):
        with products() as states:
            A = sf.from_dense(dense.to(getattr(torch, dtype)), "csr")
            X = operand(A, 64)[1]
            assert_close(multiply("cusparse-csr", A, X, assume_finite=True), A, X)
        assert used(states) == {algorithm}
        assert states[0].longest == 4096


@pytest.mark.parametrize("n", [1, 3, 4, 64])
def test_bytes_give_words(n: int, device: str) -> None:
    values = torch.randint(-9, 9, (40, 50), device=device)
    A = sf.from_dense(values.to(torch.int8), "csr")
    X = torch.randint(-9, 9, (50, n), device=device).to(torch.int8)
    y = multiply("cusparse-csr", A, X)
    assert y.dtype == torch.int32
    assert torch.equal(y.cpu(), values.int().cpu() @ X.int().cpu())


def test_the_same_bits_where_they_are_asked_for(device: str) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        with products() as states:
            A = matrix(device)
            _, X = operand(A, 1)
            first = multiply("cusparse-csr", A, X).clone()
            for _ in range(5):
                assert torch.equal(first, multiply("cusparse-csr", A, X))
        assert used(states) == {c.SPMV_CSR_ALG2}
        _, X = operand(A, 512)
        assert refusals("cusparse-csr", A, X, assume_finite=True) == ["nondeterministic"]
        E, X = matrix(device, format="blocked_ell", dtype="float64", blocksize=16), X.double()
        assert refusals("cusparse-bell", E, X, assume_finite=True) == ["nondeterministic"]
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
    for n, promised in ((1, True), (48, True), (48, kernel in PROMISED)):
        A = matrix(device, "torch", format, "float16", **options)
        X, Y, Z = operand(A, n)[1], operand(A, n, rows=96)[1], operand(A, n, rows=96)[1]
        plan = sf.plan(A, X, out=Y, kernel=kernel, assume_finite=promised)
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
def test_many_columns(kernel: str, device: str) -> None:
    format, options = KERNELS[kernel]
    for dtype in ("float16", "float64" if kernel == "cusparse-bell" else "float32"):
        A = matrix(device, "torch", format, dtype, shape=(32, 32), density=0.5, **options)
        for n in (MOST_COLUMNS, MOST_COLUMNS + 1, 4 * MOST_COLUMNS + 1):
            X = torch.randn(32, n, device=device, dtype=A.dtype)
            if kernel == "cusparse-bsr" and n > MOST_COLUMNS:
                assert refusals(kernel, A, X) == ["size"]
                continue
            for promised in {True, kernel in PROMISED}:
                y = multiply(kernel, A, X, assume_finite=promised)
                exact = A.to_dense().float() @ X.float()
                assert torch.allclose(y.float(), exact, rtol=2e-3, atol=2e-2)
                del y, exact


@pytest.mark.parametrize("kernel", ["cusparse-csr", "cusparse-bell", "cusparse-bsr"])
def test_more_than_two_to_the_31_results(kernel: str, device: str) -> None:
    format, options = KERNELS[kernel]
    m, n = 32_784, 65_600
    row = torch.arange(m, device=device)
    values = torch.randn(m, device=device).half()
    A = sf.COO(values, row, row % 16, (m, 16)).to(format, **options)
    X = torch.randn(16, n, device=device).half()
    if kernel == "cusparse-bsr":  # its addresses would wrap
        assert refusals(kernel, A, X) == ["size"]
        assert refusals(kernel, A, X[:, : (2**31 - 1) // m]) == []
        return
    for promised in {True, kernel in PROMISED}:
        Y = multiply(kernel, A, X, assume_finite=promised)
        for i in (0, 1, 32_759, m - 17, m - 1):
            assert torch.allclose(Y[i], values[i] * X[i % 16], rtol=2e-3, atol=1e-5)
        del Y


@pytest.mark.parametrize("kernel", ["cusparse-csr", "cusparse-bell", "cusparse-bsr"])
def test_an_operand_of_more_than_two_to_the_31_elements(kernel: str, device: str) -> None:
    format, options = KERNELS[kernel]
    k, n = 32_784, 65_600
    row = torch.arange(16, device=device)
    column = k - 1 - row * 2049  # of a block column of its own each
    A = sf.COO(torch.ones(16, device=device).half(), row, column, (16, k)).to(format, **options)
    X = torch.randn(k, n, device=device, dtype=torch.float16)
    if kernel == "cusparse-bsr":
        assert refusals(kernel, A, X) == ["size"]
        return
    for promised in {True, kernel in PROMISED}:
        Y = multiply(kernel, A, X, assume_finite=promised)
        assert torch.equal(Y, X[column])
        del Y


@pytest.mark.parametrize("kernel", ["cusparse-csr", "cusparse-bell", "cusparse-bsr"])
def test_rows_that_lie_far_apart(kernel: str, device: str) -> None:
    """Offsets beyond 2**31 elements between the first and the last of few."""
    format, options = KERNELS[kernel]
    A, step = matrix(device, "torch", format, "float16", **options), 2**25
    memory = torch.zeros(95 * step + 40, device=device, dtype=torch.float16)
    far = memory.as_strided((96, 40), (step, 1))
    X = operand(A, 40)[1]
    multiply(kernel, A, X, out=far)
    assert_close(far.contiguous(), A, X)
    far[:80] = X
    assert_close(multiply(kernel, A, far[:80]), A, X)


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
        explanation = sf.explain(A, X, assume_finite=True)
        assert explanation.row("cusparse-csr").reasons == ()
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
    assert {*KERNELS, "cublas-nm", "cusparse-spgemm", "cusparse-bell-tf32"} <= names
    for record in dispatch.records():
        if record.name in KERNELS:
            assert record.package_reasons() == []
    assert _arrays.library("torch").capability(device) is not None
