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
from sparseformats_kernels.cusparse import api as c, csr, spmm, times
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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("beta", [0, 1])
def test_sums_of_half_types_are_left_unrounded(beta: int, dtype: str, library: Fake) -> None:
    A = matrix("csr", (14, 11), "torch", dtype)
    for n in (1, 5):
        X = operand(11, n, dtype)
        facts = {"out_dtype": "float32", "wide": True, "beta_zero": beta == 0}
        state, query = packed(CSRProduct, A, X, **facts)
        out = torch.ones(14, n) if beta else None
        y = CSRProduct.bind(state, query)(X, out, 1, beta)
        wide = A.astype("float32"), X.to(torch.float32)
        assert_close(y, *wide, beta=beta, out=torch.ones(14, n) if beta else None)


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


LARGE = times.Work(m=16_384, k=16_384, nnz=2_600_000, longest=220, size=4)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small matrices be served as a large one would be."""
    monkeypatch.setattr(csr, "Work", lambda *facts: LARGE._replace(size=facts[-1]))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("out_layout", [None, "C", "F"])
@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (0.5, 0), (2, 0.5)])
def test_columns_are_laid_into_rows_where_that_pays(
    layout: str, out_layout: str | None, alpha: Any, beta: Any, dtype: str, library: Fake
) -> None:
    A, X = matrix("csr", (14, 11), "torch", dtype), operand(11, 24, dtype, layout)
    out = before = None
    if out_layout is not None:
        out = operand(14, 24, dtype, out_layout, seed=3)
        before = out.clone()
    beta = beta if out is not None else 0
    for _ in range(2):
        if out is not None and before is not None:
            out[...] = before
        y = product(CSRProduct, A, X, out, alpha, beta)
        assert out is None or y is out
        assert_close(y, A, X, alpha=alpha, beta=beta, out=before)
    kinds = {row[6] for row in library.named("cusparseCreateDnMat")}
    assert kinds == {ROW}
    assert {call[2] for call in library.named("cusparseSpMM")} == {0}


@pytest.mark.usefixtures("large")
def test_what_is_laid_anew_is_read_anew(library: Fake) -> None:
    A, X, out = matrix("csr", (14, 11), "torch"), operand(11, 24, layout="F"), operand(14, 24)
    state, query = packed(CSRProduct, A, X, x_layout="F")
    run = CSRProduct.bind(state, query)
    for seed in (1, 2, 3):
        X.copy_(operand(11, 24, seed=seed))
        assert_close(run(X, out, 1, 0), A, X)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("allocates", [True, False])
def test_a_graph_that_owns_no_memory_takes_operands_as_they_lie(
    allocates: bool, library: Fake, device: FakeDevice
) -> None:
    A, X, out = matrix("csr", (14, 11), "torch"), operand(11, 24, layout="F"), operand(14, 24)
    device.allocates = allocates
    state, query = packed(CSRProduct, A, X, x_layout="F", out_layout="C", assume_finite=True)
    run = CSRProduct.bind(state, query)
    prepared = {row[10] for row in library.named("cusparseSpMM_preprocess")}
    device.graph = 3
    assert_close(run(X, out, 1, 0), A, X)
    (call,) = library.named("cusparseSpMM")
    assert call[2] == (not allocates)
    assert call[10] in prepared


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
    state, _ = packed(CSRProduct, A, X)
    for y in (product(CSRProduct, A, X, None, 3), CSRProduct.run(state, X, None, 3, 0)):
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


def halves_of_a_long_row(dtype: str) -> tuple[Any, Any]:
    values = torch.rand(600, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype))
    A = sf.CSR(values, torch.arange(600), torch.tensor([0, 0, 600]), (2, 600))
    return A, operand(600, 3, dtype)


@pytest.mark.parametrize("promised", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_summed_in_float32_and_rounded_once(
    dtype: str, promised: bool, library: Fake
) -> None:
    A, X = halves_of_a_long_row(dtype)
    state, query = packed(CSRProduct, A, X, assume_finite=promised)
    run = CSRProduct.bind(state, query)
    for out in (None, torch.full((2, 3), torch.nan, dtype=X.dtype)):
        assert_close(run(X, out, 1, 0), A, X)
        assert_close(run(X, None, 0.5, 0), A, X, alpha=0.5)
    used = {call[9] for call in library.named("cusparseSpMM")}
    assert used == {c.SPMM_CSR_ALG3 if promised else c.SPMM_CSR_ALG2}


def test_the_stand_in_tells_sums_in_memory_apart(library: Fake) -> None:
    A, X = halves_of_a_long_row("bfloat16")
    state, query = packed(CSRProduct, A, X)
    run = spmm.bind(state, query, lambda state, case: c.SPMM_CSR_ALG2, False)
    with pytest.raises(AssertionError, match="elements are wrong"):
        assert_close(run(X, None, 1, 0), A, X)


def test_what_fills_up_with_zeros_needs_a_promise(library: Fake) -> None:
    A, X = matrix("csr", (14, 11), "torch"), operand(11, 4)
    X[0] = torch.inf
    found = []
    for promised in (False, True):
        state, query = packed(CSRProduct, A, X, assume_finite=promised)
        found.append(CSRProduct.bind(state, query)(X, None, 1, 0))
    assert_close(found[0], A, X)
    with pytest.raises(AssertionError, match="elements are wrong"):
        assert_close(found[1], A, X)
    state, query = packed(CSRProduct, A, X, deterministic=True)
    with pytest.raises(RuntimeError, match=r"the same bits .* assume_finite=True"):
        CSRProduct.bind(state, query)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_narrow_indices_are_shared_and_wide_ones_copied(index: str, library: Fake) -> None:
    A, X = matrix("csr", (14, 11), "torch", index=index), operand(11, 4)
    state, _ = packed(CSRProduct, A, X)
    data, indices, indptr = state.arrays
    assert data.data_ptr() == A.data.data_ptr()
    assert {indices.dtype, indptr.dtype} == {torch.int32}
    assert (indices.data_ptr() == A.indices.data_ptr()) == (index == "int32")


def test_an_empty_slot_meets_the_first_rows(library: Fake) -> None:
    """What the library does, and why the record asks for a finite operand."""
    A = sf.BlockedELL(torch.ones(2, 2, 2, 2), torch.tensor([[1, -1], [0, 1]]), (4, 4))
    X = operand(4, 3)
    X[0] = torch.nan
    y = product(BlockedELLProduct, A, X)
    assert torch.isnan(y[:2]).all()
    assert not torch.isnan(sf.matmul(A, X, kernel="reference")[:2]).any()


def test_a_product_of_blocks_copies_what_lies_further_apart_than_its_addresses_reach(
    library: Fake,
) -> None:
    A, X = matrix("bsr", (15, 12), "torch", block=(3, 3)), operand(12, 4, layout="rows")
    state, query = packed(BSRProduct, A, X)
    out = operand(15, 4, layout="rows")
    for reach, same in ((2**31 - 1, True), (15 * 4, False)):
        state.reach = reach
        made = len(library.named("cusparseCreateDnMat"))
        assert BSRProduct.bind(state, query)(X, out, 1, 0) is out
        assert_close(out, A, X)
        x, y = library.named("cusparseSpMM")[-1][5::2][:2]
        found = {library.objects.get(i, {}).get("val") for i in (x, y)}
        assert (found == {X.data_ptr(), out.data_ptr()}) == same
        assert len(library.named("cusparseCreateDnMat")) > made
    assert state.reach < 2**31


def test_addresses_reach_as_far_as_the_library_counts(library: Fake) -> None:
    for kernel, (format, options) in KERNELS.items():
        A, X = matrix(format, (15, 12), "torch", **options), operand(12, 4)
        state, _ = packed(kernel, A, X)
        assert state.reach == (2**31 - 1 if kernel is BSRProduct else None)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors(dtype: str, library: Fake) -> None:
    A, X = matrix("csr", (14, 11), "torch", dtype), operand(11, 1, dtype)
    state, query = packed(CSRProduct, A, X)
    run, x = CSRProduct.bind_vector(state, query), X[:, 0]
    y = run(x, None, 1, 0)
    assert tuple(y.shape) == (14,)
    assert_close(y[:, None], A, X)
    before = operand(14, 1, dtype, seed=3)[:, 0]
    for alpha, beta in ((1, 0), (2, 0.5)):
        out = before.clone()
        assert run(x, out, alpha, beta) is out
        assert_close(out[:, None], A, X, alpha=alpha, beta=beta, out=before[:, None])
    apart = torch.stack([x, x], dim=1)[:, 0]  # a stride of 2
    target = torch.full((14, 2), torch.nan, dtype=x.dtype)
    run(apart, target[:, 0], 1, 0)
    assert_close(target[:, :1], A, X)
    assert bool(torch.isnan(target[:, 1]).all())
    empty = sf.CSR(torch.zeros(0), torch.zeros(0).long(), torch.zeros(15).long(), (14, 11))
    state, query = packed(CSRProduct, empty, X)
    assert torch.equal(CSRProduct.bind_vector(state, query)(x, None, 1, 0), 0 * y)


def test_the_longest_row_is_counted(library: Fake) -> None:
    A = sf.from_dense(torch.tensor([[1.0, 0, 2], [0, 0, 0], [3, 4, 5]]), "csr")
    assert packed(CSRProduct, A, operand(3, 2))[0].longest == 3
    assert packed(CSRProduct, matrix("csr", (0, 4), "torch"), operand(4, 2))[0].longest == 0


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
