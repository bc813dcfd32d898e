"""The oracles of sampled and of sparse products, on matrices that a person can verify."""

from __future__ import annotations

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import reference
from sparseformats.testing import check_sampled, check_sparse_product


def test_sampled_by_hand() -> None:
    P = sf.CSR([9.0, 0.0], [1, 0], [0, 1, 2], (2, 2))
    X, Y = np.asarray([[1.0, 2], [3, 4]]), np.asarray([[5.0, 6], [7, 8]])
    p = reference.sampled(reference.slots(P), X, Y, "float64", 2)
    assert p.value.tolist() == [2 * (1 * 6 + 2 * 8), 2 * (3 * 5 + 4 * 7)]
    assert p.magnitude.tolist() == p.value.tolist()
    assert p.length.tolist() == [2, 2]
    assert not p.unspecified.any()
    b = reference.sampled(reference.slots(P), X > 1, Y > 6, "bool")
    assert b.value.tolist() == [True, True]


def test_sparse_product_by_hand() -> None:
    A = sf.CSR([1.0, -1.0, 3.0], [0, 1, 1], [0, 2, 3], (2, 2))
    B = sf.CSR([2.0, 2.0, 5.0], [0, 0, 1], [0, 1, 3], (2, 2))
    places, p = reference.sparse_matmul(A, B, "float64")
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert p.value.tolist() == [0, -5, 6, 15]  # the first is 1 * 2 - 1 * 2
    assert p.magnitude.tolist() == [4, 5, 6, 15]
    assert p.length.tolist() == [2, 1, 1, 1]
    assert reference.sparse_matmul(A, sf.CSR([], [], [0, 0, 0], (2, 2)), "float64")[0] == []


def test_a_sparse_product_keeps_what_cancels() -> None:
    A = sf.CSR([1.0, -1.0, 3.0], [0, 1, 1], [0, 2, 3], (2, 2))
    B = sf.CSR([2.0, 2.0, 5.0], [0, 0, 1], [0, 1, 3], (2, 2))
    C = A @ B
    assert C.nnz == 4
    assert C.data.tolist() == [0, -5, 6, 15]
    check_sparse_product(A, B)


def wrong(S: sf.CSR, kind: str) -> sf.CSR:
    data, indices, indptr = (np.array(x) for x in (S.data, S.indices, S.indptr))
    if kind == "value":
        data[-1] += 1
    elif kind == "place":
        indices[0] = 1 - indices[0]
    elif kind == "dtype":
        data = data.astype(np.float32)
    elif kind == "missing":
        data, indices, indptr = data[:-1], indices[:-1], np.minimum(indptr, data.size - 1)
    return sf.CSR(data, indices, indptr, S.shape)


KINDS = pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("value", "elements are wrong"),
        ("place", "wrong elements are stored"),
        ("dtype", "expected float64, got float32"),
        ("missing", "1 missing"),
    ],
)


@KINDS
def test_the_check_of_sampled_products_fails(
    kind: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    P = sf.CSR([9.0, 1.0], [1, 0], [0, 1, 2], (2, 2))
    X, Y, right = np.ones((2, 3)), np.ones((3, 2)), sf.sddmm
    check_sampled(P, X, Y)
    monkeypatch.setattr(sf, "sddmm", lambda *args, **kw: wrong(right(*args, **kw), kind))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=text):
        check_sampled(P, X, Y)


@KINDS
def test_the_check_of_sparse_products_fails(
    kind: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    A, right = sf.CSR([9.0, 1.0], [1, 0], [0, 1, 2], (2, 2)), sf.matmul
    check_sparse_product(A, A)
    monkeypatch.setattr(sf, "matmul", lambda *args, **kw: wrong(right(*args, **kw), kind))
    with pytest.raises(AssertionError, match=text):
        check_sparse_product(A, A)


def test_the_checks_want_the_formats_that_are_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    A = sf.CSR([9.0, 1.0], [1, 0], [0, 1, 2], (2, 2))
    monkeypatch.setattr(sf, "sddmm", lambda *args, **kw: A.to("coo"))
    monkeypatch.setattr(sf, "matmul", lambda *args, **kw: A.to("coo"))
    with pytest.raises(AssertionError, match="expected the pattern's"):
        check_sampled(A, np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(AssertionError, match="expected CSR"):
        check_sparse_product(A, A)


def test_a_pattern_error_without_a_reason_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kw: object) -> None:
        raise sf.PatternError("no")

    monkeypatch.setattr(sf, "sddmm", refuse)
    with pytest.raises(sf.PatternError):
        check_sampled(sf.eye(2), np.ones((2, 2)), np.ones((2, 2)))
