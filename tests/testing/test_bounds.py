"""The error bound accepts sound arithmetic, and the comparison fails on a wrong element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparseformats import reference, testing
from sparseformats.formats import COO, CSR, NM

RNG = np.random.default_rng(0)


def matrix(D: Any) -> COO:
    row, col = np.nonzero(D)
    return COO(D[row, col], row, col, D.shape)


def product(dtype: str, n: int = 200) -> tuple[Any, Any]:
    made = testing.host_dtype(dtype)
    D, X = (RNG.standard_normal(shape).astype(made) for shape in ((3, n), (n, 2)))
    return matrix(D), X


def rounded(A: Any, X: Any) -> Any:
    return reference.matmul(A, X).rounded()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_the_bound_fits_the_type(dtype: str) -> None:
    A, X = product(dtype)
    good = rounded(A, X)
    testing.assert_close(good, A, X)
    eps = testing.error_bound(reference.matmul(A, X)) / np.abs(good.astype(complex))
    unit = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}
    assert (eps >= unit.get(dtype, 2**-24)).all()
    assert (eps < 1e6 * unit.get(dtype, 2**-24)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_an_error_beyond_the_bound_is_reported(dtype: str) -> None:
    A, X = product(dtype)
    bound = testing.error_bound(reference.matmul(A, X))
    wrong = rounded(A, X)
    wrong[1, 1] += np.asarray(3 * bound[1, 1]).astype(wrong.dtype)
    with pytest.raises(AssertionError, match=r"1 of 6 elements are wrong; the worst, \(1, 1\)"):
        testing.assert_close(wrong, A, X)


def test_sums_in_float16_are_rejected() -> None:
    A = matrix(np.ones((1, 4096), np.float16))
    X = np.full((4096, 1), 1e-3, np.float16)
    stuck = np.float16(0)
    for value in X[:, 0]:
        stuck = np.float16(stuck + value)
    testing.assert_close(rounded(A, X), A, X)
    with pytest.raises(AssertionError, match="elements are wrong"):
        testing.assert_close(np.array([[stuck]]), A, X)


def test_tf32_needs_the_allowance() -> None:
    A, X = product("float32")
    coarse = (X.view(np.int32) & ~np.int32(0x1FFF)).view(np.float32)
    result = rounded(A, coarse)
    testing.assert_close(result, A, X, extra=2 * 2.0**-10)
    with pytest.raises(AssertionError, match="elements are wrong"):
        testing.assert_close(result, A, X)


def test_a_tolerance_may_allow_more() -> None:
    A, X = product("float32")
    bound = testing.error_bound(reference.matmul(A, X))
    loose = (rounded(A, X) + 3 * bound).astype(np.float32)
    with pytest.raises(AssertionError, match="elements are wrong"):
        testing.assert_close(loose, A, X)
    testing.assert_close(loose, A, X, factor=4)


def test_integers_are_exact() -> None:
    A, X = matrix(np.array([[2**24 + 1]])), np.array([[1]])
    testing.assert_close(np.array([[2**24 + 1]]), A, X)
    with pytest.raises(AssertionError, match="expected 16777217, got 16777216"):
        testing.assert_close(np.array([[2**24]]), A, X)


def test_type_shape_and_library_count() -> None:
    A, X = matrix(np.ones((2, 3), np.float32)), np.ones((3, 2), np.float32)
    Y = rounded(A, X)
    with pytest.raises(AssertionError, match="expected float32, got float64"):
        testing.assert_close(Y.astype(np.float64), A, X)
    with pytest.raises(AssertionError, match=r"expected shape \(2, 2\), got \(2,\)"):
        testing.assert_close(Y[0], A, X)
    import torch

    with pytest.raises(AssertionError, match="the result is a torch array on cpu"):
        testing.assert_close(torch.from_numpy(Y), A, X)


@pytest.mark.parametrize("wrong", [0.0, np.inf, -np.inf])
def test_nan_must_be_where_it_belongs(wrong: float) -> None:
    A, X = matrix(np.array([[1.0, np.nan]])), np.ones((2, 1))
    testing.assert_close(np.array([[np.nan]]), A, X)
    with pytest.raises(AssertionError, match="expected nan"):
        testing.assert_close(np.array([[wrong]]), A, X)


@pytest.mark.parametrize("wrong", [0.0, np.nan, -np.inf, np.finfo(float).max])
def test_infinity_must_be_where_it_belongs(wrong: float) -> None:
    A, X = matrix(np.array([[1.0]])), np.array([[np.inf]])
    testing.assert_close(np.array([[np.inf]]), A, X)
    with pytest.raises(AssertionError, match="expected inf"):
        testing.assert_close(np.array([[wrong]]), A, X)


@pytest.mark.parametrize("invented", [np.nan, np.inf])
def test_what_is_not_finite_must_not_be_invented(invented: float) -> None:
    for dtype in (np.float64, np.complex128):
        A, X = matrix(np.ones((1, 1), dtype)), np.ones((1, 1), dtype)
        with pytest.raises(AssertionError, match="elements are wrong"):
            testing.assert_close(np.full((1, 1), invented, dtype), A, X)


def test_a_sum_that_overflows_its_accumulator_is_open() -> None:
    A, X = matrix(np.array([[3e38, 3e38, -3e38]], np.float32)), np.ones((3, 1), np.float32)
    for allowed in (np.inf, np.nan, 3e38):
        testing.assert_close(np.array([[allowed]], np.float32), A, X)


def test_a_result_that_overflows_its_type_is_infinite() -> None:
    A, X = matrix(np.array([[6e4, 6e4]], np.float16)), np.ones((2, 1), np.float16)
    testing.assert_close(np.array([[np.inf]], np.float16), A, X)
    for wrong in (-np.inf, np.nan, 6e4):
        with pytest.raises(AssertionError, match="elements are wrong"):
            testing.assert_close(np.array([[wrong]], np.float16), A, X)


def test_n_m_leaves_open_what_meets_no_non_zero() -> None:
    data, indices = np.array([[[2.0, 0.0]]]), np.array([[[1, 0]]], np.uint8)
    A = NM(data, indices, (1, 4), 2, 4)
    X = np.array([[1.0], [1.0], [np.inf], [1.0]])
    for allowed in (2.0, np.nan):
        testing.assert_close(np.array([[allowed]]), A, X)
    meets = np.array([[1.0], [np.inf], [1.0], [1.0]])
    testing.assert_close(np.array([[np.inf]]), A, meets)
    with pytest.raises(AssertionError, match="expected inf"):
        testing.assert_close(np.array([[2.0]]), A, meets)


def test_underflow_is_allowed_for() -> None:
    A, X = matrix(np.array([[1e-30]], np.float32)), np.array([[1e-10]], np.float32)
    testing.assert_close(np.array([[1e-40]], np.float32), A, X)
    with pytest.raises(AssertionError, match="elements are wrong"):
        testing.assert_close(np.array([[0.0]], np.float32), A, X)
    testing.assert_close(np.array([[0.0]], np.float32), A, X, flush=True)


def test_left_operands_and_scalars() -> None:
    A = CSR(np.array([1.0, 2.0]), np.array([0, 1]), np.array([0, 1, 2]), (2, 3))
    X, out = np.array([[1.0, 10.0]]), np.ones((1, 3))
    right = 2 * X @ A.to_dense() + 3 * out
    testing.assert_close(right, A, X, alpha=2, beta=3, out=out, left=True)
    with pytest.raises(AssertionError, match="elements are wrong"):
        testing.assert_close(right, A, X, alpha=2, beta=2, out=out, left=True)


def test_an_empty_result_is_right() -> None:
    A = matrix(np.zeros((0, 3)))
    testing.assert_close(np.zeros((0, 2)), A, np.ones((3, 2)))


@pytest.mark.parametrize(
    ("exact", "actual", "lost", "right"),
    [
        (-np.inf, np.nan, True, True),
        (np.inf, np.nan, True, True),
        (-np.inf, np.nan, False, False),
        (np.nan, np.inf, True, False),
        (-np.inf, np.inf, True, False),
        (-np.inf, -65504.0, True, False),
        (1.0, np.nan, True, False),
        (-np.inf, -np.inf, True, True),
    ],
)
def test_nan_for_an_infinity_where_a_kernel_says_so(
    exact: float, actual: float, lost: bool, right: bool
) -> None:
    A = CSR(np.array([exact], np.float16), np.array([0]), np.array([0, 1]), (1, 1))
    product = reference.matmul(A, np.ones((1, 1), np.float16))
    made = np.array([[actual]], np.float16)
    if right:
        testing.assert_product(made, product, nan_for_infinity=lost)
    else:
        with pytest.raises(AssertionError):
            testing.assert_product(made, product, nan_for_infinity=lost)
