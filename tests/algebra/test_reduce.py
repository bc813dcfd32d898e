"""Diagonals and sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import _dtypes, reference
from sparseformats.testing import host_dtype, matrices, unchanged
from tests.algebra.support import LIBRARIES, host

EVERY = pytest.mark.parametrize("library", LIBRARIES)


@EVERY
def test_diagonal(library: str) -> None:
    @given(matrices(library=library), st.integers(-8, 8))
    def law(A: Any, k: int) -> None:
        with unchanged(A):
            d = host(A.diagonal(k))
        m, n = A.shape
        length = max(0, min(m + min(k, 0), n - max(k, 0)))
        expected = np.zeros(length, host_dtype(A.dtype_name))
        for (i, j), v in reference.entries(A).items():
            if j - i == k:
                expected[min(i, j)] = v
        assert (d.shape, d.tobytes()) == ((length,), expected.tobytes())

    law()


SUMS = {
    "bool": "int64",
    "int8": "int32",
    "int16": "int32",
    "uint8": "uint32",
    "uint16": "uint32",
}


def expected_dtype(A: Any) -> str:
    name = SUMS.get(A.dtype_name, A.dtype_name)
    return "int64" if A.library == "torch" and name == "uint32" else name


def check_sum(A: Any, axis: Any, got: Any) -> None:
    """Element by element within the rounding of any order of addition."""
    name = expected_dtype(A)
    assert A.lib.dtype_name(got) == name
    m, n = A.shape
    shape = {None: (), 0: (n,), 1: (m,)}[axis]
    wide = {"i": np.int64, "u": np.uint64, "f": np.float64, "c": np.complex128}[_dtypes.kind(name)]
    total, size, count = np.zeros(shape, wide), np.zeros(shape), np.zeros(shape, int)
    with np.errstate(all="ignore"):
        for at, v in reference.entries(A).items():
            place = () if axis is None else at[1 - axis]
            total[place] += v.astype(wide)
            size[place] += abs(v.astype(np.complex128))
            count[place] += 1
        got = host(got)
        assert got.shape == shape
        if wide in (np.int64, np.uint64):
            assert np.array_equal(got, total.astype(host_dtype(name)))
            return
        single = np.dtype({"c": np.complex64, "f": np.float32}[_dtypes.kind(name)])
        epsilon = 2.0**-52 if ("64" in name and name != "complex64") or "128" in name else 2.0**-23
        fine = np.finfo(single).tiny
        rounding = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(name, 0) * np.abs(total)
        bound = 2 * count * epsilon * size + rounding + fine
        assert np.all(np.abs(got.astype(wide) - total) <= bound + 1e-7)


@EVERY
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_sums(library: str, axis: Any) -> None:
    dtypes = ["float32", "float64", "complex64", "bool", "int8", "uint8", "int32", "int64"]
    dtypes += {"torch": ["float16", "bfloat16"], "numpy": ["float16", "uint16", "bfloat16"]}.get(
        library, []
    )

    @given(matrices(library=library, dtypes=dtypes, values="moderate"))
    def law(A: Any) -> None:
        with unchanged(A):
            got = A.sum(axis)
        check_sum(A, axis, got)
        if axis is not None:
            assert np.array_equal(host(A.sum(axis - 2)), host(got))

    law()


def test_the_checker_rejects_a_sum_of_the_other_axis() -> None:
    A = sf.from_dense([[1.0, 2], [3, 4]], "csr")
    check_sum(A, 0, A.sum(0))
    with pytest.raises(AssertionError):
        check_sum(A, 0, A.sum(1))
    with pytest.raises(AssertionError):
        check_sum(A, None, A.sum() + 1)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_half_types_are_summed_in_float32(axis: Any) -> None:
    A = sf.from_dense(np.ones((1, 4096), np.float16), "csr")
    A = A if axis != 0 else A.T
    total = A.sum(axis)
    assert (total.dtype, np.max(total)) == (np.float16, 4096)


@pytest.mark.parametrize("axis", [None, 1])
def test_integers(axis: Any) -> None:
    A = sf.from_dense(np.array([[127, 127]], np.int8), "csr")
    assert np.array_equal(A.sum(axis).reshape(-1), [254])
    wide = sf.from_dense(np.array([[2**63, 2**63, 5]], np.uint64), "csr")
    assert np.array_equal(wide.sum(axis).reshape(-1), [5])
    wraps = sf.from_dense(np.array([[2**31 - 1, 1]], np.int32), "csr")
    assert np.array_equal(wraps.sum(axis).reshape(-1), [-(2**31)])


def test_only_stored_elements_count() -> None:
    A = sf.CSR([np.nan, -0.0, np.inf, -np.inf], [0, 0, 0, 1], [0, 1, 2, 4, 4], (4, 2))
    sums = A.sum(1)
    assert np.isnan(sums[0])
    assert np.signbit(sums[1])
    assert np.isnan(sums[2])
    assert (sums[3], np.signbit(sums[3])) == (0, False)
    assert np.isnan(A.sum())
    assert sf.eye(0).sum() == 0
    assert sf.eye(0, 3).sum(0).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("what", "error", "text"),
    [
        (lambda A: A.sum(2), ValueError, "axis must be None, 0 or 1, got 2"),
        (lambda A: A.sum(-3), ValueError, "got -3"),
        (lambda A: A.sum("x"), TypeError, "axis must be an integer, got 'x'"),
        (lambda A: A.sum((0, 1)), TypeError, "axis must be an integer"),
        (lambda A: A.diagonal(0.5), TypeError, "k must be an integer, got 0.5"),
    ],
)
def test_refusals(what: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        what(sf.eye(2))
