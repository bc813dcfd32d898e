"""Products of the oracle on matrices that a person can check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparseformats import reference
from sparseformats.formats import ALL, BSR, COO, CSR, NM

INF, NAN = np.inf, np.nan


def csr(D: Any, dtype: Any = np.float64) -> CSR:
    D = np.array(D, dtype)
    row, col = np.nonzero(D)
    indptr = np.searchsorted(row, np.arange(D.shape[0] + 1))
    return CSR(D[row, col], col, indptr, D.shape)


def result(A: Any, X: Any, **options: Any) -> Any:
    return reference.matmul(A, np.asarray(X), **options).rounded()


def test_small_product() -> None:
    A = csr([[2, 0, 1], [0, 0, 0]])
    p = reference.matmul(A, np.array([[1.0, 2.0], [3.0, 4.0], [-5.0, 6.0]]))
    assert p.rounded().tolist() == [[-3, 10], [0, 0]]
    assert p.magnitude.tolist() == [[7, 10], [0, 0]]
    assert p.length.tolist() == [[2, 2], [0, 0]]
    assert p.dtype == "float64"


def test_vectors_batches_and_left_operands() -> None:
    A = csr([[1, 2], [0, 3], [4, 0]])
    D, x = A.to_dense(), np.array([1.0, 10.0])
    assert result(A, x).tolist() == (D @ x).tolist()
    batch = np.arange(12.0).reshape(3, 2, 2)
    assert np.array_equal(result(A, batch), D @ batch)
    left = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(reference.rmatmul(left, A).rounded(), left @ D)
    assert np.array_equal(reference.rmatmul(left[0], A).rounded(), left[0] @ D)
    many = np.arange(12.0).reshape(2, 2, 3)
    out = np.ones((2, 2, 2))
    got = reference.rmatmul(many, A, alpha=2, beta=3, out=out).rounded()
    assert np.array_equal(got, 2 * many @ D + 3)


def test_empty_shapes() -> None:
    assert result(csr(np.zeros((3, 0))), np.zeros((0, 2))).tolist() == [[0, 0]] * 3
    assert result(csr(np.zeros((0, 3))), np.zeros((3, 2))).shape == (0, 2)
    assert result(csr([[1.0]]), np.zeros((1, 0))).shape == (1, 0)
    assert result(csr([[1.0]]), np.zeros((0, 1, 4))).shape == (0, 1, 4)


def test_scalars() -> None:
    A, X, out = csr([[2.0]]), np.array([[3.0]]), np.array([[10.0]])
    assert result(A, X, alpha=2, beta=-1, out=out).tolist() == [[2]]
    assert result(A, X, beta=0, out=np.array([[NAN]])).tolist() == [[6]]
    p = reference.matmul(A, X, alpha=-2, beta=-1, out=out)
    assert p.magnitude.tolist() == [[22]]


@pytest.mark.parametrize(
    ("a", "x", "expected"),
    [
        ("int8", "int8", "int32"),
        ("int8", "int16", "int32"),
        ("uint8", "uint16", "uint32"),
        ("int8", "uint8", "int64"),
        ("int32", "uint8", "int64"),
        ("int32", "int8", "int32"),
        ("uint64", "uint8", "uint64"),
        ("uint64", "int8", "float64"),
        ("bool", "int8", "int32"),
        ("bool", "bool", "bool"),
        ("float16", "float16", "float16"),
        ("int32", "float32", "float64"),
        ("float32", "complex64", "complex64"),
    ],
)
def test_result_types_of_numpy(a: str, x: str, expected: str) -> None:
    assert reference.product_dtype(csr([[1]], a), np.ones((1, 1), x)) == expected


def test_result_types_of_torch() -> None:
    import torch

    A = csr([[1]], np.uint8).to_library("torch")
    assert reference.product_dtype(A, torch.ones(1, 1, dtype=torch.uint8)) == "int64"
    p = reference.matmul(A, torch.ones(1, 1, dtype=torch.float16))
    assert p.dtype == "float16"


def test_narrow_integers_do_not_wrap_and_wide_ones_do() -> None:
    assert result(csr([[100, 100]], np.int8), np.array([[100], [100]], np.int8)) == 20000
    assert result(csr([[200, 200]], np.uint8), np.array([[200], [200]], np.uint8)) == 80000
    wide = result(csr([[2**30, 2**30]], np.int32), np.array([[2], [2]], np.int32))
    assert wide.dtype == np.int32
    assert wide == 0
    assert result(csr([[2**63]], np.uint64), np.array([[3]], np.uint64)) == 2**63


def test_bools_are_or_and() -> None:
    A = csr([[True, True], [False, True]], bool)
    X = np.array([[True], [False]])
    assert result(A, X).tolist() == [[True], [False]]
    out = np.array([[False], [True]])
    assert result(A, X, beta=True, out=out).tolist() == [[True], [True]]


def test_half_types_are_summed_wide() -> None:
    A = csr(np.ones((1, 4096)), np.float16)
    assert result(A, np.ones((4096, 1), np.float16)) == 4096


def test_complex() -> None:
    assert result(csr([[1j, 2]], complex), np.array([[1j], [1]])) == 1


def test_only_stored_elements_of_csr_meet_the_operand() -> None:
    A = csr([[1, 0], [0, NAN]])
    assert np.array_equal(result(A, [[INF, 1], [INF, 1]]), [[INF, 1], [NAN, NAN]], equal_nan=True)
    stored = COO(np.array([0.0]), np.array([0]), np.array([0]), (1, 1))
    assert np.isnan(result(stored, [[INF]]))


def test_fill_of_blocks_meets_the_operand_and_padding_does_not() -> None:
    data = np.array([[[1.0, 0.0], [0.0, 0.0]]])
    A = BSR(data, np.array([0]), np.array([0, 1, 1]), (3, 3))
    got = result(A, [[1.0], [INF], [INF]])
    assert np.array_equal(got, [[NAN], [NAN], [0]], equal_nan=True)
    ragged = BSR(data, np.array([0]), np.array([0, 1]), (1, 1), stored=ALL)
    assert result(ragged, [[2.0]]) == 2


def test_n_m_leaves_open_what_meets_no_non_zero() -> None:
    data, indices = np.array([[[2.0, 0.0]]]), np.array([[[1, 0]]], np.uint8)
    A = NM(data, indices, (1, 4), 2, 4)
    p = reference.matmul(A, np.array([[1, INF], [INF, 1], [1, 1], [1, 1]]))
    assert p.rounded().tolist() == [[INF, 2]]
    assert p.unspecified.tolist() == [[False, True]]
    q = reference.rmatmul(np.array([[INF]]), A)
    assert q.unspecified.tolist() == [[True, False, True, True]]


def test_shapes_must_match() -> None:
    for X in (np.ones((3, 1)), np.ones(3), np.float64(1)):
        with pytest.raises(ValueError, match=r"a \(1, 2\) matrix cannot multiply .* of shape"):
            reference.matmul(csr([[1, 2]]), np.asarray(X))
