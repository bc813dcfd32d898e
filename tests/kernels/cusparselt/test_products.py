"""Operands, layouts, sizes, numbers and epilogues as the kernel hands them to the library."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats.testing.operands import LAYOUTS
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
from tests.kernels.cusparse.fake import COL, ROW
from tests.kernels.cusparselt.fake import Fake
from tests.kernels.cusparselt.support import (
    HALVES,
    dense,
    expected,
    matrix,
    operand,
    packed,
    product,
    query_for,
    same,
)

DTYPES = (*HALVES, "float32", "int8", "float8_e4m3fn")
SHAPES = [(64, 96), (33, 50), (1, 4), (16, 3), (5, 130)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_and_type(shape: tuple[int, int], dtype: str, library: Fake) -> None:
    A = matrix(shape, dtype)
    for n in (1, 8, 13, 32):
        for layout in ("C", "F"):
            X = operand(shape[1], n, dtype, layout)
            y = product(A, X, x_layout=layout)
            assert y.is_contiguous()
            assert same(y, expected(A, X))


@pytest.mark.parametrize("n", [1, 16, 21])
@pytest.mark.parametrize("out_layout", [x for x in LAYOUTS if x != "broadcast"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, out_layout: str, n: int, library: Fake) -> None:
    A, X = matrix((48, 64)), operand(64, n, layout=layout)
    out = operand(48, n, layout=out_layout, seed=3)
    before = out.clone()
    state, query = packed(A, X)
    run = CuSparseLtProduct.bind(state, query)
    assert run(X, out, 1, 0) is out
    assert same(out, expected(A, X))
    out.copy_(before)
    assert run(X, out, 2, 0.5) is out
    assert same(out, expected(A, X, 2, 0.5, before))


@pytest.mark.parametrize("dtype", HALVES)
def test_operands_are_used_where_they_lie(dtype: str, library: Fake) -> None:
    A, n = matrix((48, 64), dtype), 32
    for x_layout, out_layout in (("C", "C"), ("F", "C"), ("C", "F"), ("F", "F")):
        X, out = operand(64, n, dtype, x_layout), operand(48, n, dtype, out_layout)
        product(A, X, out)
        _, _, _, _, b, _, c, d, *_ = library.named("Matmul")[-1]
        assert (b, c, d) == (X.data_ptr(), out.data_ptr(), out.data_ptr())
        made = library.named("DenseDescriptorInit")[-2:]
        rows = (64, n, n) if x_layout == "C" else (n, 64, 64)
        assert made[0][2:] == (*rows, 16, {"float16": 2, "bfloat16": 14}[dtype], ROW)
        order, step = (ROW, n) if out_layout == "C" else (COL, 48)
        assert made[1][2:5] == (48, n, step)
        assert made[1][7] == order


def test_slices_with_aligned_rows_are_used_where_they_lie(library: Fake) -> None:
    A, base = matrix((48, 64)), operand(64, 64)
    X = base[:, 8:40]
    product(A, X)
    assert library.named("Matmul")[-1][4] == X.data_ptr()
    X = base[:, 1:33]  # the same steps, another alignment
    assert same(product(A, X), expected(A, X))
    assert library.named("Matmul")[-1][4] != X.data_ptr()


def test_one_bound_kernel_serves_operands_of_any_alignment(library: Fake) -> None:
    A, base, room = matrix((48, 64)), operand(64, 80), torch.empty(48 * 40 + 8, dtype=torch.float16)
    state, query = packed(A, base[:, :32])
    run = CuSparseLtProduct.bind(state, query)
    for shift in (0, 3, 8, 1, 0):
        X, out = base[:, shift : shift + 32], room[shift : shift + 48 * 32].view(48, 32)
        for _ in range(2):
            assert run(X, out, 1, 0) is out
            assert same(out, expected(A, X))


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_bytes_in_rows_are_turned(dtype: str, library: Fake) -> None:
    A = matrix((32, 64), dtype)
    X = operand(64, 32, dtype)
    assert same(product(A, X), expected(A, X))
    assert library.named("Matmul")[-1][4] != X.data_ptr()
    X = operand(64, 32, dtype, "F")
    assert same(product(A, X, x_layout="F"), expected(A, X))
    assert library.named("Matmul")[-1][4] == X.data_ptr()


def test_int8_is_scaled_in_integers(library: Fake) -> None:
    A, X = matrix((32, 64), "int8"), operand(64, 16, "int8", "F")
    big = torch.full((32, 16), 20_000_001, dtype=torch.int32)
    for alpha, beta in ((3, 0), (1, 1), (-7, 2)):
        out = big.clone()
        product(A, X, out, alpha, beta, x_layout="F")
        assert same(out, expected(A, X, alpha, beta, big))


def test_numbers_are_read_anew(library: Fake) -> None:
    A, X, Y = matrix((48, 64)), operand(64, 24), operand(48, 24, seed=3)
    state, query = packed(A, X, beta_zero=False)
    run = CuSparseLtProduct.bind(state, query)
    for alpha, beta in ((2, 0.5), (2, 0.25), (0.5, 0.25), (1, 0.25), (1, 0), (2.5, 0), (True, 1)):
        out = Y.clone()
        assert same(run(X, out, alpha, beta), expected(A, X, alpha, beta, Y))


def test_beta_of_zero_reads_nothing(library: Fake) -> None:
    for n in (16, 19):
        A, X = matrix((48, 64)), operand(64, n)
        out = torch.full((48, n), torch.nan, dtype=torch.float16)
        assert same(product(A, X, out), expected(A, X))


def test_a_product_is_rounded_once(library: Fake) -> None:
    """Also where the result is made in other memory: 2049 + 0.5 would be lost twice."""
    A = sf.from_dense(torch.eye(16, dtype=torch.float16), "2:4")
    for n in (8, 5):
        X = torch.full((16, n), 1.0, dtype=torch.float16)
        out = torch.full((16, n), 2050.0, dtype=torch.float16)
        assert same(product(A, X, out, 1.5, 1), torch.full((16, n), 2051.5).double())


@pytest.mark.parametrize("size", [(0, 8), (8, 0), (0, 0)])
@pytest.mark.parametrize("n", [0, 3, 8])
def test_sizes_of_zero(size: tuple[int, int], n: int, library: Fake) -> None:
    m, k = size
    A, X = matrix(size), operand(k, n)
    assert same(product(A, X), torch.zeros(m, n).double())
    out = torch.full((m, n), 3.0, dtype=torch.float16)
    assert product(A, X, out, 1, 0.5) is out
    assert same(out, torch.full((m, n), 1.5).double())


def test_sizes_of_the_matrix_that_the_library_cannot_take_are_padded(library: Fake) -> None:
    A, X = matrix((33, 50)), operand(50, 13)
    X[:] = torch.where(X == 0, 1, X)
    state, _ = packed(A, X)
    assert (state.blob.m, state.blob.k) == (48, 64)
    assert same(product(A, X), expected(A, X))
    (made,) = {call[2:5] for call in library.named("StructuredDescriptorInit")}
    assert made == (48, 64, 64)


@pytest.mark.parametrize("layout", ["C", "F"])
def test_what_lay_in_added_memory_is_not_met(
    layout: str, library: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New memory of the device holds anything: zeros of the matrix must not meet NaN there."""
    A, X = matrix((33, 50)), operand(50, 13, layout=layout)
    original = type(A.lib).maker

    def maker(self: Any, shape: Any, dtype: str, place: str) -> Any:
        make = original(self, shape, dtype, place)
        return lambda: make().fill_(torch.nan)

    monkeypatch.setattr(type(A.lib), "maker", maker)
    assert same(product(A, X, x_layout=layout), expected(A, X))


# ---- what a matrix may hold


@pytest.mark.parametrize("dtype", HALVES)
def test_zeros_of_both_signs_and_nan(dtype: str, library: Fake) -> None:
    D = dense((32, 64), dtype)
    D[D == 0] = -0.0
    D[0, :4] = torch.tensor([torch.nan, 0, -0.0, 1]).to(D.dtype)
    D[1, :4] = torch.tensor([0, torch.inf, torch.nan, 0]).to(D.dtype)
    D[2, :4] = 0
    A = sf.from_dense(D, "2:4")
    X = torch.ones(64, 16, dtype=D.dtype)
    y = product(A, X).double()
    assert y[:2].isnan().all()
    assert same(y[2:].to(D.dtype), (D.double() @ X.double())[2:])


def test_stored_zeros_cost_no_place(library: Fake) -> None:
    """Zeros of the library's own format may lie where a group is full already."""
    D = dense((32, 32))
    A = sf.from_dense(D, "csr").to("2:4")
    mask = torch.ones_like(D, dtype=torch.bool)
    full = sf.from_dense(D, "csr", mask=mask).to("2:4")
    assert full.nnz == D.numel() > A.nnz
    X = operand(32, 8)
    assert same(product(full, X), expected(A, X))


@pytest.mark.parametrize("pattern", ["1:2", "1:4", "2:8", "1:3", "1:8"])
def test_patterns_that_are_two_of_four_as_well(pattern: str, library: Fake) -> None:
    torch.manual_seed(0)
    D = torch.randint(1, 4, (32, 48)).half()
    A = sf.prune(D, pattern)
    X = operand(48, 8)
    assert same(product(A, X), expected(A, X))


def test_another_format_is_a_mistake_of_ours() -> None:
    from sparseformats_kernels.cusparselt.packing import unpacked

    with pytest.raises(TypeError, match="expected an n:m matrix, got csr"):
        unpacked(sf.eye(4), "float16")


# ---- epilogues


def layer(A: Any, X: Any, bias: Any, activation: str | None, alpha: Any = 1, beta: Any = 0) -> Any:
    names = ["bias"] * (bias is not None) + [activation] * (activation is not None)
    query = query_for(A, X, epilogue="+".join(filter(None, names)) or None)
    state = CuSparseLtProduct.pack(A, query)
    return CuSparseLtProduct.bind_epilogue(state, query)(X, None, alpha, beta, bias)


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
@pytest.mark.parametrize("shape", [(48, 64), (33, 64), (7, 30)])
@pytest.mark.parametrize("n", [16, 5])
def test_bias_and_relu(n: int, shape: tuple[int, int], dtype: str, library: Fake) -> None:
    A, X = matrix(shape, dtype), operand(shape[1], n, dtype)
    bias = operand(shape[0], 1, dtype, seed=7)[:, 0].contiguous()
    exact = expected(A, X)
    added = exact + bias.double()[:, None]
    assert same(layer(A, X, bias, None), added)
    assert same(layer(A, X, None, "relu"), exact.relu())
    assert same(layer(A, X, bias, "relu"), added.relu())


def test_relu_keeps_nan(library: Fake) -> None:
    A, X = matrix((16, 32)), operand(32, 8)
    X[0, 0] = torch.nan
    y = layer(A, X, None, "relu")
    assert y[:, 0].isnan().any()
    assert (y[:, 1:] >= 0).all()


def test_run_does_as_bind(library: Fake) -> None:
    A, X, bias = matrix((48, 64)), operand(64, 24), operand(48, 1, seed=7)[:, 0].contiguous()
    state, _ = packed(A, X)
    y = CuSparseLtProduct.run(state, X, None, 1, 0, bias=bias, activation="relu")
    assert same(y, (expected(A, X) + bias.double()[:, None]).relu())
