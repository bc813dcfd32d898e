"""Operands, layouts, scalars and algorithms as the kernels hand them to the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import Transposed, _arrays
from sparseformats.dispatch import Query
from sparseformats.testing import assert_close
from sparseformats.testing.operands import LAYOUTS, backed, laid_out
from sparseformats_kernels.cusparse.blocks import BlockedELLProduct, BSRProduct
from sparseformats_kernels.cusparse.csr import CSRProduct
from tests.kernels.cpu.products import FORMATS, matrix, values
from tests.kernels.cusparse.fake import COL, ROW, Fake, FakeDevice

TORCH = _arrays.library("torch")
DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
KERNELS: dict[Any, tuple[str, dict[str, Any]]] = {
    CSRProduct: ("csr", {}),
    BlockedELLProduct: ("blocked_ell", {"block": (3, 3)}),
    BSRProduct: ("bsr", {"block": (3, 3)}),
}


def query_for(A: Any, X: Any, **facts: Any) -> Query:
    base = A.base if isinstance(A, Transposed) else A
    out = TORCH.result_dtype(A.dtype_name, TORCH.dtype_name(X))
    known: dict[str, Any] = {
        "transposed": base is not A,
        "m": A.shape[0],
        "k": A.shape[1],
        "n": int(X.shape[1]),
        "a_dtype": A.dtype_name,
        "x_dtype": TORCH.dtype_name(X),
        "out_dtype": "int32" if out == "int8" else out,
        "library": "torch",
        "device": "cuda",
    }
    return Query("matmul", base.family, **(known | facts))


def packed(kernel: Any, A: Any, X: Any, **facts: Any) -> tuple[Any, Query]:
    query = query_for(A, X, **facts)
    return kernel.pack(A.base if isinstance(A, Transposed) else A, query), query


def product(kernel: Any, A: Any, X: Any, out: Any = None, alpha: Any = 1, beta: Any = 0) -> Any:
    state, query = packed(kernel, A, X, beta_zero=beta == 0)
    return kernel.bind(state, query)(X, out, alpha, beta)


def operand(rows: int, n: int, dtype: str = "float32", layout: str = "C", seed: int = 1) -> Any:
    host = values(np.random.default_rng(seed), dtype, (rows, n))
    return laid_out(host, layout, TORCH)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_through_rows(format: str, dtype: str, library: Fake) -> None:
    A = matrix(format, (14, 11), "torch", dtype)
    for n in (1, 2, 5):
        X = operand(11, n, dtype)
        assert_close(product(CSRProduct, A, X), A, X)
    assert library.named("cusparseSpMM")
    assert library.named("cusparseSpMV")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("out_layout", [None, *(x for x in LAYOUTS if x != "broadcast")])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, out_layout: str | None, n: int, kernel: Any, library: Fake) -> None:
    format, options = KERNELS[kernel]
    A = matrix(format, (15, 12), "torch", **options)
    X = operand(12, n, layout=layout)
    out = base = None
    if out_layout is not None:
        base, out = backed(np.full((15, n), np.nan, np.float32), out_layout, TORCH)
    y = product(kernel, A, X, out)
    assert_close(y, A, X)
    assert out is None or y is out
    if base is not None:  # nothing beside the view was written
        assert int(torch.isnan(base).sum()) == base.numel() - 15 * n


@pytest.mark.parametrize("layout", ["C", "F", "rows"])
@pytest.mark.parametrize("out_layout", ["C", "F", "rows"])
def test_operands_are_read_and_results_written_where_they_lie(
    layout: str, out_layout: str, library: Fake
) -> None:
    A, X = matrix("csr", (14, 11), "torch"), operand(11, 6, layout=layout)
    out = operand(14, 6, layout=out_layout)
    y = product(CSRProduct, A, X, out)
    assert_close(y, A, X)
    (call,) = library.named("cusparseSpMM")
    x, y = (library.objects.get(call[i]) for i in (5, 7))
    assert (x, y) == (None, None)  # descriptors went with the state
    made = library.named("cusparseCreateDnMat")[-2:]
    assert [row[4] for row in made] == [X.data_ptr(), out.data_ptr()]
    assert made[0][6] == made[1][6] == (COL if out_layout == "F" else ROW)
    assert call[2] == ((layout == "F") != (out_layout == "F"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("alpha", "beta"), [(2, 0), (0.5, 1), (-1, 3), (1, 0.25), (0, 2)])
def test_scalars(kernel: Any, dtype: str, alpha: Any, beta: Any, library: Fake) -> None:
    format, options = KERNELS[kernel]
    A = matrix(format, (15, 12), "torch", dtype, **options)
    for n in (1, 4):
        X, Y = operand(12, n, dtype), operand(15, n, dtype, seed=2)
        out = Y.clone()
        assert product(kernel, A, X, out, alpha, beta) is out
        assert_close(out, A, X, alpha=alpha, beta=beta, out=Y)


def test_complex_scalars(library: Fake) -> None:
    A, X = matrix("csr", (14, 11), "torch", "complex64"), operand(11, 4, "complex64")
    out = operand(14, 4, "complex64", seed=2)
    expected = (2 - 1j) * (A.to_dense() @ X) + 1j * out
    product(CSRProduct, A, X, out, 2 - 1j, 1j)
    assert torch.allclose(out, expected, atol=1e-4)


def test_beta_zero_never_reads_out(library: Fake) -> None:
    for dtype in DTYPES:
        A, X = matrix("csr", (14, 11), "torch", dtype), operand(11, 4, dtype)
        for layout in ("C", "columns"):
            host = np.full((14, 4), np.nan).astype(_arrays.library("numpy").dtype(dtype))
            out = laid_out(host, layout, TORCH)
            assert_close(product(CSRProduct, A, X, out), A, X)


@pytest.mark.parametrize(("a", "x"), [("float16", "float32"), ("int32", "float64")])
def test_promoted_dtypes(a: str, x: str, library: Fake) -> None:
    A, X = matrix("csr", (14, 11), "torch", a), operand(11, 4, x)
    y = product(CSRProduct, A, X)
    assert str(y.dtype) == f"torch.{x}"
    assert_close(y, A, X)


def test_bytes_give_words(library: Fake) -> None:
    A, X = matrix("csr", (14, 11), "torch", "int8"), operand(11, 4, "int8")
    y = product(CSRProduct, A, X, None, 3)
    assert y.dtype == torch.int32
    assert torch.equal(y, 3 * (A.to_dense().int() @ X.int()))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("m", "k", "n"), [(0, 6, 3), (6, 0, 3), (6, 6, 0), (6, 6, 3)])
@pytest.mark.parametrize("beta", [0, 1, 2])
def test_empty_sizes_never_reach_the_library(
    kernel: Any, m: int, k: int, n: int, beta: int, library: Fake
) -> None:
    format, options = KERNELS[kernel]
    if format == "blocked_ell":
        A: Any = sf.BlockedELL(torch.zeros(m // 3, 0, 3, 3), np_index(m // 3, 0), (m, k))
    else:
        A = sf.from_dense(torch.zeros(m, k), format, **({"blocksize": (3, 3)} if options else {}))
    X = torch.full((k, n), torch.nan)
    Y = torch.full((m, n), 3.0 if beta else torch.nan)
    out = product(kernel, A, X, Y, 1, beta)
    assert out is Y
    assert torch.equal(out, torch.full((m, n), 3.0 * beta))
    if beta == 0:
        assert torch.equal(product(kernel, A, X), torch.zeros(m, n))
    assert not library.named("cusparseSpMM")
    assert not library.named("cusparseSpMV")


def np_index(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.int64)


def test_empty_slots_of_blocked_ell_are_passed_as_such(library: Fake) -> None:
    """Three slots a row in a matrix of two block columns: the third can only be empty."""
    data = torch.ones(2, 3, 2, 2)
    A = sf.BlockedELL(data, torch.tensor([[1, -1, -1], [0, 1, -1]]), (4, 4))
    X = operand(4, 3)
    assert_close(product(BlockedELLProduct, A, X), A, X)
    (made, *_) = library.named("cusparseCreateBlockedEll")
    assert made[1:5] == (4, 4, 2, 4)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_narrow_indices_are_shared_and_wide_ones_copied(index: str, library: Fake) -> None:
    A, X = matrix("csr", (14, 11), "torch", index=index), operand(11, 4)
    state, _ = packed(CSRProduct, A, X)
    data, indices, indptr = state.arrays
    assert data.data_ptr() == A.data.data_ptr()
    assert {indices.dtype, indptr.dtype} == {torch.int32}
    assert (indices.data_ptr() == A.indices.data_ptr()) == (index == "int32")


def test_the_state_does_not_hold_the_matrix(library: Fake) -> None:
    import weakref

    A, X = matrix("bsr", (14, 11), "torch"), operand(11, 4)
    state, _ = packed(CSRProduct, A, X)
    gone = weakref.ref(A)
    del A
    assert gone() is None
    assert state.nnz > 0


def test_kernels_of_blocks_refuse_other_formats(library: Fake) -> None:
    A, X = matrix("csr", (14, 11), "torch"), operand(11, 4)
    with pytest.raises(TypeError, match="expected a Blocked-ELL matrix, got csr"):
        packed(BlockedELLProduct, A, X)
    with pytest.raises(TypeError, match="expected a BSR matrix, got csr"):
        packed(BSRProduct, A, X)


def test_run_without_bind_does_the_same(library: Fake, device: FakeDevice) -> None:
    for kernel, (format, options) in KERNELS.items():
        A, X = matrix(format, (15, 12), "torch", **options), operand(12, 4)
        state, _ = packed(kernel, A, X)
        assert_close(kernel.run(state, X, None, 1, 0), A, X)
