"""Scalars, signs and sizes: the pattern is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import sparseformats as sf
from sparseformats import _dtypes, reference
from sparseformats.algebra import scaling
from sparseformats.testing import check_valid, matrices, unchanged
from tests.algebra.support import LIBRARIES, PLANTED, expect, half_aware, host

EVERY = pytest.mark.parametrize("library", LIBRARIES)
CSR = sf.eye(2)
WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: sf.eye(2, dtype="int64").astype("int8") * 300, OverflowError, "300 does not fit int8"),
    (lambda: CSR * CSR, TypeError, r"A \* B .*got CSR.*multiply.*A @ B"),
    (lambda: CSR * np.ones((2, 2)), TypeError, "multiply"),
    (lambda: np.ones((2, 2)) * CSR, TypeError, "multiply"),
    (lambda: CSR / np.ones((2, 2)), TypeError, r"A / B .*multiply\(1 / D\)"),
    (lambda: CSR / CSR, TypeError, "multiply"),
    (lambda: 2 / CSR, TypeError, "unsupported operand"),
    (lambda: CSR * "x", TypeError, "can't multiply|unsupported operand"),
    (lambda: -sf.eye(2, dtype="bool"), TypeError, "bool"),
    (lambda: sf.eye(2, dtype="bfloat16") * np.float16(2), TypeError, "no common dtype"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_refusals(number: int) -> None:
    what, error, text = WRONG[number]
    with pytest.raises(error, match=text) as caught:
        what()
    assert "{" not in str(caught.value)


def check_scaling(library: str, factor: Any, how: Any) -> None:
    dtypes = ["float32", "float64", "complex64"] + ["float16"] * (library != "array_api_strict")

    @how
    @given(matrices(library=library, dtypes=dtypes))
    def law(A: Any) -> None:
        with unchanged(A):
            try:
                B = A * factor
            except sf.PatternError:  # stored zeros without a slot became NaN
                assert ":" in A.format
                assert not np.isfinite(factor)
                return
        a, dtype = reference.entries(A), A.dtype_name
        if _dtypes.kind(dtype) == "c":  # libraries differ in products of infinite parts
            assert set(reference.entries(B)) == set(a)
            check_valid(B)
        else:
            scaled = {at: half_aware(np.multiply, v, factor, dtype) for at, v in a.items()}
            expect(B, scaled, A.shape, dtype)
        assert B.format == A.format

    law()


@EVERY
@pytest.mark.parametrize("factor", [2, -1.5, 0, np.inf, np.nan, True])
def test_scaling(library: str, factor: Any) -> None:
    check_scaling(library, factor, settings())


@EVERY
def test_negative_and_absolute(library: str) -> None:
    @given(matrices(library=library))
    def law(A: Any) -> None:
        a, name = reference.entries(A), A.dtype_name
        with np.errstate(all="ignore"):
            if name != "bool":
                expect(-A, {at: (-v[None])[0] for at, v in a.items()}, A.shape, name)
            size = {"complex64": "float32", "complex128": "float64"}.get(name, name)
            if _dtypes.kind(name) != "c":
                expect(abs(A), {at: np.abs(v[None])[0] for at, v in a.items()}, A.shape, size)
            else:
                B = abs(A)
                check_valid(B)
                assert (set(reference.entries(B)), B.dtype_name) == (set(a), size)
        assert (abs(A)).format == A.format

    law()


def test_stored_zeros_without_a_slot() -> None:
    full = sf.CSR([1.0, 2.0, 0.0, -0.0], [0, 1, 2, 3], [0, 4], (1, 4)).to("2:4")
    assert full.side.nnz == 2
    assert (full * -2).nnz == 4
    assert np.signbit((full * -2).side.data).tolist() == [True, False]
    with pytest.raises(sf.PatternError, match="row 0, group 0 has 4"):
        full * np.nan
    none = full.with_data(np.zeros((1, 1, 2)))
    assert (none.nnz, none.side.nnz) == (4, 2)
    assert (none.astype("int8").nnz, none.astype("int8").side.dtype) == (4, np.int8)


def test_fill_stays_plus_zero() -> None:
    A = sf.from_dense([[0.0, 2.0]], "bsr", blocksize=2)
    for B in (-A, A * np.nan, A * -1, A / 0):
        check_valid(B)
        assert not np.signbit(B.data[0, 0, 0])
        assert B.nnz == 1


DTYPES = [
    ("numpy", "int8", 2, "*", "int8"),
    ("numpy", "int8", 0.5, "*", "float64"),
    ("numpy", "int8", 1j, "*", "complex128"),
    ("numpy", "bool", 2, "*", "int64"),
    ("numpy", "bool", True, "*", "bool"),
    ("numpy", "float32", 2.5, "*", "float32"),
    ("numpy", "float32", np.float64(2.5), "*", "float64"),
    ("numpy", "float32", np.int64(2), "*", "float64"),
    ("numpy", "float32", 1j, "*", "complex64"),
    ("numpy", "float64", 1j, "*", "complex128"),
    ("numpy", "bfloat16", 0.5, "*", "bfloat16"),
    ("numpy", "int32", 2, "/", "float64"),
    ("numpy", "bool", True, "/", "float64"),
    ("numpy", "float16", 2, "/", "float16"),
    ("torch", "int8", 0.5, "*", "float32"),
    ("torch", "int8", np.float64(0.5), "*", "float32"),
    ("torch", "bool", 2, "*", "int64"),
    ("torch", "int32", 2, "/", "float32"),
    ("torch", "float8_e5m2", 2, "*", "float8_e5m2"),
    ("torch", "bfloat16", 0.5, "/", "bfloat16"),
    ("array_api_strict", "int8", 0.5, "*", "float64"),
    ("array_api_strict", "int32", 2, "/", "float64"),
]


@pytest.mark.parametrize(("library", "dtype", "factor", "symbol", "expected"), DTYPES)
def test_dtypes(library: str, dtype: str, factor: Any, symbol: str, expected: str) -> None:
    A = sf.eye(2, dtype=dtype, library=library)
    B = A * factor if symbol == "*" else A / factor
    assert B.dtype_name == expected
    want = complex(factor) if symbol == "*" else 1 / complex(factor)
    assert complex(host(B.data)[0]) == want
    if symbol == "*":
        assert sf.same(factor * A, B)


def test_half_products_are_rounded_once() -> None:
    A = sf.eye(1, dtype="float16") * 1.0009765625
    assert (A * 0.1).data[0] == np.float16(np.float32(1.0009765625) * np.float32(0.1))
    assert (sf.eye(1) / 0).data[0] == np.inf


# ---- planted bugs


def forgets_marks(A: Any, f: Any) -> Any:
    """Scales the data as it lies: fill turns to NaN or -0.0, vanishing values are lost."""
    return type(A).from_parts({**A.buffers(), "data": f(A.data)}, A.static())


@pytest.mark.parametrize("factor", [0.0, np.nan])
def test_planted(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "mapped", forgets_marks)
    with pytest.raises((AssertionError, TypeError)):
        check_scaling("numpy", factor, PLANTED)
