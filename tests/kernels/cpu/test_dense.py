"""The dense candidate: only where the result cannot differ, and only where it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats.testing import assert_close
from tests.kernels.cpu.products import FORMATS, array, matrix, values

LIBRARIES = ("numpy", "torch")
INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8")


def reasons(A: Any, X: Any, **options: Any) -> dict[str, Any]:
    return {r.code: r for r in sf.explain(A, X, **options).row("dense").reasons}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", FORMATS)
def test_a_float_operand_never_gets_it_unasked(library: str, format: str) -> None:
    A = matrix(format, (14, 11), library, block=(1, 1))
    host = np.zeros((11, 3), np.float32)
    host[1, 0], host[4, 1], host[7, 2] = np.nan, np.inf, -np.inf
    X = array(library, host)
    with sf.tracing() as trace:
        y = A @ X
    assert "dense" not in trace.kernels
    assert_close(y, A, X)
    assert set(reasons(A, X)) == {"needs-finite-operand"}
    for options in ({"kernel": "dense"}, {}):
        with sf.use_kernel("dense"), pytest.raises(sf.NoKernelError, match="assume_finite=True"):
            sf.matmul(A, X, **options)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ["csr", "bsr", "blocked_ell"])
def test_it_would_be_wrong_at_infinity(library: str, format: str) -> None:
    """A broken promise shows that the rule is needed: for element and block formats alike."""
    A = matrix(format, (14, 11), library)
    host = np.zeros((11, 11), np.float32)
    np.fill_diagonal(host, np.inf)
    X = array(library, host)
    y = sf.matmul(A, X, kernel="dense", assume_finite=True)
    with pytest.raises(AssertionError):
        assert_close(y, A, X)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("format", ["csr", "csc", "bsr.T"])
def test_integers_and_bools_are_exact(library: str, dtype: str, format: str) -> None:
    A = matrix(format, (14, 11), library, dtype)
    X = array(library, values(np.random.default_rng(1), dtype, (11, 5)))
    assert not reasons(A, X)
    assert_close(sf.matmul(A, X, kernel="dense"), A, X)


def test_sums_of_narrow_integers_wrap_as_the_others_do() -> None:
    A = sf.CSR(np.full(90_000, 32767, np.int16), np.arange(90_000), [0, 90_000], (1, 90_000))
    X = np.full((90_000, 1), 32767, np.int16)
    exact = 90_000 * 32767**2
    for kernel in ("dense", "scipy-csr"):
        y = sf.matmul(A, X, kernel=kernel)
        assert y.dtype == np.int32
        assert int(y[0, 0]) == (exact + 2**31) % 2**32 - 2**31


def test_many_ones_are_true() -> None:
    k = 1 << 12
    A = sf.CSR(np.ones(k, bool), np.arange(k), [0, k, k], (2, k))
    assert sf.matmul(A, np.ones((k, 1), bool), kernel="dense").tolist() == [[True], [False]]


def test_it_wins_above_break_even_density_and_not_below() -> None:
    rng = np.random.default_rng(0)
    X = np.ones((512, 64), np.float32)
    chosen = {}
    for density in (0.01, 0.9):
        D = np.where(rng.random((512, 512)) < density, 1, 0).astype(np.float32)
        chosen[density] = sf.explain(sf.from_dense(D, "csr"), X, assume_finite=True).chosen
    assert chosen[0.01] != "dense"
    assert chosen[0.9] == "dense"


def test_the_hint_predicts_the_gain() -> None:
    A = sf.from_dense(np.ones((512, 512), np.float32), "csr")
    hint = reasons(A, np.ones((512, 64), np.float32))["needs-finite-operand"].hint
    assert hint.startswith("pass assume_finite=True")
    assert "us a call" in hint
    assert "by scipy-csr" in hint


def test_a_large_copy_is_refused_unless_asked_for_by_name() -> None:
    m = k = 4200  # 70 MB in float32
    A = sf.CSR(np.ones(3, np.float32), [0, 5, 9], [0, *[3] * m], (m, k))
    X = np.ones((k, 1), np.float32)
    reason = reasons(A, X, assume_finite=True)["size"]
    assert f"has one of {4 * m * k:,} bytes" in reason.message
    assert set(reasons(A, X, assume_finite=True, kernel="dense")) == set()
    with sf.tracing() as trace:
        y = sf.matmul(A, X, kernel="dense", assume_finite=True)
    assert trace.kernels == ["dense"]
    assert y[0, 0] == 3
    sf.clear_cache()
    # Four times the matrix's own bytes are always allowed.
    parts = np.tile(np.arange(0, k, 2, dtype="int32"), m), np.arange(m + 1, dtype="int32") * 2100
    full = sf.CSR(np.ones(m * 2100, np.float32), *parts, (m, k), copy=False, check=False)
    assert "size" not in reasons(full, X, assume_finite=True)
