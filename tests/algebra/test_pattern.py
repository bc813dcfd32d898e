"""check_pattern and prune against slow loops over dense rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import _dtypes, reference
from sparseformats.algebra import pattern, ranking
from sparseformats.convert import chunks
from sparseformats.reference.decoding import is_nonzero
from sparseformats.testing import check_valid, matrices, unchanged
from tests.algebra.support import LIBRARIES, PLANTED, array

EVERY = pytest.mark.parametrize("library", LIBRARIES)
PATTERNS = st.sampled_from([(2, 4), (1, 2), (1, 4), (3, 5), (4, 4), (2, 9)])


def size_of(v: Any) -> tuple[int, float]:
    """Sort key of a value: NaN above all."""
    if v.dtype.kind in "biu":
        return (0, abs(int(v)))
    z = complex(v)
    with np.errstate(all="ignore"):
        return (1, 0.0) if z != z else (0, float(np.hypot(z.real, z.imag)))


def judged(D: Any, n: int, m: int) -> tuple[dict[Any, Any], dict[Any, int]]:
    """Elements that pruning keeps, and the number of non-zeros of each group."""
    kept, counts = {}, {}
    full = is_nonzero(D)
    for i in range(D.shape[0]):
        for left in range(0, D.shape[1], m):
            cols = [j for j in range(left, min(left + m, D.shape[1])) if full[i, j]]
            counts[i, left // m] = len(cols)
            ranked = sorted(cols, key=lambda j: size_of(D[i, j]), reverse=True)  # stable
            kept |= {(i, j): D[i, j] for j in ranked[:n]}
    return kept, counts


def check_pruned(B: Any, kept: dict[Any, Any]) -> None:
    check_valid(B)
    assert {at: v.tobytes() for at, v in kept.items()} == dict(reference.content(B).elements)


@EVERY
def test_prune_groups(library: str) -> None:
    @given(matrices(library=library), PATTERNS)
    def law(A: Any, nm: tuple[int, int]) -> None:
        n, m = nm
        D = reference.dense(A)
        kept, counts = judged(D, n, m)
        with unchanged(A):
            B = sf.prune(A, f"{n}:{m}")
        assert (B.format, B.dtype_name, B.library) == (f"{n}:{m}", A.dtype_name, library)
        check_pruned(B, kept)
        dense = A.lib.from_numpy(D, "cpu")
        check_pruned(sf.prune(dense, f"{n}:{m}"), kept)
        for report in (sf.check_pattern(A, f"{n}:{m}"), sf.check_pattern(dense, f"{n}:{m}")):
            check_report(report, D, n, m, kept, counts)
        assert sf.check_pattern(B, f"{n}:{m}").ok

    law()


def check_report(
    report: Any, D: Any, n: int, m: int, kept: dict[Any, Any], counts: dict[Any, int]
) -> None:
    bad = [(i, g, c) for (i, g), c in counts.items() if c > n]
    assert (report.n, report.m, report.shape, report.groups) == (n, m, D.shape, len(counts))
    assert (report.violations, report.ok) == (len(bad), not bad)
    assert report.places == tuple(bad[: pattern.SHOWN])
    assert report.histogram == tuple(np.bincount(list(counts.values()), minlength=m + 1).tolist())
    per_row = [sum(i == row for i, _, _ in bad) for row in range(D.shape[0])]
    assert report.row_violations.tolist() == per_row
    assert report.lost_elements == int(is_nonzero(D).sum()) - len(kept)
    assert "{" not in str(report)
    wide = np.complex128 if D.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        energy = {
            at: np.abs(D[at].astype(wide)) ** 2
            for at in zip(*np.nonzero(is_nonzero(D)), strict=True)
        }
        whole = sum(energy.values(), np.float64(0))
        part = sum(
            (v for at, v in energy.items() if tuple(map(int, at)) not in kept), np.float64(0)
        )
        small = whole < np.finfo(np.float64).tiny and report.lost_elements
        if not np.isfinite(whole) or small:
            assert np.isnan(report.energy_lost)
        else:
            assert np.isclose(report.energy_lost, part / whole if whole else 0, atol=1e-12)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1e-200, 2e-200, 3e-200, 0.0], np.nan),  # squares that float64 does not hold
        ([1e-160, 2e-160, 3e-160, 0.0], np.nan),  # nor with all their digits
        ([1e-200, 0.0, 0.0, 0.0], 0.0),
        ([1e200, 2e200, 3e200, 0.0], np.nan),
        ([3.0, 1e-200, 4.0, 0.0], 0.0),
        ([1.0, 2.0, 2.0, 4.0], 5 / 25),
    ],
)
def test_a_share_is_told_where_float64_holds_it(row: list[float], expected: float) -> None:
    np.testing.assert_equal(sf.check_pattern([row]).energy_lost, expected)


@pytest.mark.parametrize("dtype", _dtypes.VALUE_DTYPES["torch"])
def test_torch_dtypes_and_ties(dtype: str) -> None:
    W = array([[1, 1, 1, 1, 0, 1, 1, 1]], "torch", dtype)
    assert [at[1] for at in sorted(reference.entries(sf.prune(W)))] == [0, 1, 5, 6]
    assert sf.prune(W).dtype_name == dtype


def test_order_of_special_values() -> None:
    nan, inf = np.nan, np.inf
    payload = np.array([0x7FC00001], np.uint32).view(np.float32)[0]
    W = np.array([[inf, 3, -inf, nan], [1, payload, nan, nan], [-0.0, 1e-45, 0, 2e-45]], np.float32)
    found = sorted(reference.entries(sf.prune(W)))
    assert found == [(0, 0), (0, 3), (1, 1), (1, 2), (2, 1), (2, 3)]
    U = np.array([[2**64 - 1, 2**63, 2**63 - 1, 1]], np.uint64)
    assert sf.prune(U, "1:4").to_dense().tolist() == [[2**64 - 1, 0, 0, 0]]
    I = np.array([[127, -128, 126, 0]], np.int8)  # noqa: E741
    assert sf.prune(I, "1:4").to_dense().tolist() == [[0, -128, 0, 0]]
    Z = np.array([[3 + 4j, 5j, complex(0, nan), 1]])
    assert sf.prune(Z).to_dense()[0, :2].tolist() == [3 + 4j, 0]


def test_many_chunks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    W = np.random.default_rng(0).standard_normal((40, 24)).astype(np.float32)
    S = sf.from_dense(W, "csr")
    whole, report = sf.prune(W), sf.check_pattern(W)
    monkeypatch.setattr(chunks, "limit", lambda device: 50)
    for X in (W, S):
        assert sf.same(sf.prune(X), whole, level="buffers")
        again = sf.check_pattern(X)
        assert (again.places, again.histogram) == (report.places, report.histogram)
        assert np.array_equal(again.row_violations, report.row_violations)


def test_inputs_of_every_kind() -> None:
    D = [[1.0, 2, 3, 0]]
    for W in (D, np.array(D), scipy.sparse.csr_array(np.array(D)), sf.from_dense(D, "coo")):
        assert sf.prune(W).to_dense().tolist() == [[0, 2, 3, 0]]
        assert sf.check_pattern(W).violations == 1
    F = np.asfortranarray(np.arange(32.0).reshape(4, 8))[::-1]
    assert np.array_equal(sf.prune(F).to_dense()[:, 2:4], F[:, 2:4])
    P = np.tile(np.array([1, 0, 1, 0], np.float16), (8, 2))  # along rows, not down columns
    assert sf.check_pattern(P).ok
    assert not sf.check_pattern(P.T).ok
    T = sf.from_dense(P, "2:4").T
    assert sf.check_pattern(T).violations == 8
    assert sf.prune(T).nnz == 16


def test_the_report_is_readable() -> None:
    W = np.ones((3, 8))
    W[1] = 0
    W[2, :2] = 0
    text = str(sf.check_pattern(W))
    assert text.splitlines() == [
        "2:4 along the rows of a 3 x 8 matrix: 3 of 6 groups violate",
        "  groups by number of non-zeros: 0: 2, 2: 1, 4: 3",
        "  rows with violations: 2 of 3, most in row 0 (2)",
        "  first: row 0, group 0 has 4; row 0, group 1 has 4; row 2, group 1 has 4",
        "  pruning by magnitude would drop 6 non-zeros, 42.86% of the sum of squares",
    ]
    assert "and 15 more" in str(sf.check_pattern(np.ones((5, 16))))
    assert str(sf.check_pattern(np.zeros((0, 4)))).endswith("non-zeros: none")
    assert "0 of 1 groups violate" in str(sf.check_pattern(np.eye(1)))


# ---- blocks


@EVERY
def test_prune_blocks(library: str) -> None:
    @given(
        matrices(library=library, dtypes=["float32", "int8", "complex64"], values="small"),
        st.tuples(st.integers(1, 3), st.integers(1, 3)),
        st.floats(0, 1),
    )
    def law(A: Any, size: tuple[int, int], density: float) -> None:
        (m, n), (r, c), D = A.shape, size, reference.dense(A)
        energy = {}
        for i in range(-(-m // r)):
            for j in range(-(-n // c)):
                block = D[i * r : i * r + r, j * c : j * c + c].astype(np.complex128)
                energy[i, j] = float((block.real**2 + block.imag**2).sum())
        count = int(density * len(energy) + 0.5)
        ranked = sorted((at for at in energy if energy[at]), key=lambda at: -energy[at])[:count]
        kept = {
            (i, j): D[i, j]
            for i, j in zip(*(x.tolist() for x in np.nonzero(is_nonzero(D))), strict=True)
            if (i // r, j // c) in ranked
        }
        for W in (A, A.lib.from_numpy(D, "cpu")):
            B = sf.prune(W, "bsr", blocksize=size, density=density)
            assert (B.format, B.blocksize, B.nnzb) == ("bsr", size, len(ranked))
            check_pruned(B, kept)

    law()


def test_block_special_values_and_inherited_sizes() -> None:
    W = np.diag([np.nan, 1e200, 1e300, 5.0])
    found = sf.prune(W, "bsr", blocksize=1, density=3 / 16).to_dense()
    assert np.isnan(found[0, 0])
    assert found[1:].any(axis=0).tolist() == [False, True, True, False]
    A = sf.from_dense(np.eye(4), "bsr", blocksize=2)
    assert sf.prune(A, "bsr", density=0.25).nnzb == 1
    assert sf.prune(A, "bsr", density=1).nnzb == 2
    assert sf.prune(A, "bsr", density=0).nnz == 0
    Z = sf.BSR(np.array([[[0.0]], [[-0.0]]]), [0, 1], [0, 2], (1, 2), stored="all")
    assert sf.prune(Z, "bsr", density=1).nnzb == 0


W4 = np.ones((2, 4))
WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: sf.prune(W4, "2-4"), ValueError, "pattern must be 'n:m' such as '2:4', got '2-4'"),
    (lambda: sf.prune(W4, 24), TypeError, "must be a string such as '2:4', got 24"),
    (lambda: sf.check_pattern(W4, "5:4"), ValueError, "n=5, m=4"),
    (lambda: sf.check_pattern(W4, "bsr"), ValueError, "check_pattern: pattern must be 'n:m'"),
    (lambda: sf.prune(W4, "2:4", density=0.5), ValueError, "density=0.5 goes with 'bsr'"),
    (lambda: sf.prune(W4, "2:4", blocksize=2), ValueError, "blocksize=2 goes with 'bsr'"),
    (lambda: sf.prune(W4, "bsr", blocksize=2), ValueError, "needs density="),
    (lambda: sf.prune(W4, "bsr", density=0.5), ValueError, r"blocksize=\(R, C\)"),
    (lambda: sf.prune(W4, "bsr", density="x"), TypeError, "density must be a number, got 'x'"),
    (lambda: sf.prune(W4, "bsr", density=2), ValueError, "within 0 … 1, got 2"),
    (lambda: sf.prune(sf.eye(4), "bsr", density=0.5), ValueError, "block size"),
    (lambda: sf.prune(np.ones(4)), ValueError, r"2-D array, got shape \(4,\)"),
    (lambda: sf.prune(np.ones((1, 4), object)), TypeError, "dtype object"),
    (lambda: sf.prune("x"), TypeError, "got str"),
    (lambda: sf.prune(torch.ones(1, 4, requires_grad=True)), NotImplementedError, "^prune"),
    (lambda: sf.check_pattern(torch.ones(1, 4, requires_grad=True)), NotImplementedError, "^check"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_refusals(number: int) -> None:
    what, error, text = WRONG[number]
    with pytest.raises(error, match=text) as caught:
        what()
    assert "{" not in str(caught.value)


# ---- planted bugs


def takes_the_last_of_equals(lib: Any, x: Any) -> Any:
    return RIGHT(lib, x) * 4 - np.arange(x.size) % 4


def ignores_the_sign(lib: Any, x: Any) -> Any:
    return -lib.astype(x, "int64") if _dtypes.kind(lib.dtype_name(x)) in "iu" else RIGHT(lib, x)


def nan_is_nothing(lib: Any, x: Any) -> Any:
    return np.where(x != x, 0, RIGHT(lib, x))


RIGHT = ranking.descending


@pytest.mark.parametrize(
    ("planted", "dtype"),
    [
        (takes_the_last_of_equals, "int8"),
        (ignores_the_sign, "int8"),
        (nan_is_nothing, "float32"),
    ],
)
def test_planted(planted: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "descending", planted)

    @PLANTED
    @given(matrices("csr", dtypes=dtype, shapes=(3, 8)))
    def law(A: Any) -> None:
        check_pruned(sf.prune(A, "1:4"), judged(reference.dense(A), 1, 4)[0])

    with pytest.raises(AssertionError):
        law()
