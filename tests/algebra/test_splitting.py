"""split: every element goes to one of two parts, the right one, with its bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import reference
from sparseformats.algebra import splitting
from sparseformats.reference.decoding import is_nonzero
from sparseformats.testing import check_content_preserved, check_valid, matrices, unchanged
from tests.algebra.support import LIBRARIES, PLANTED, array

PATTERNS = ("2:4", "1:2", "3:5", "4:4", "1:4")


def check_split(A: Any, pattern: str, **options: Any) -> sf.Sum:
    with unchanged(A):
        S = sf.split(A, pattern, **options)
    check_valid(S)
    check_content_preserved(A, S)
    first, rest = S.parts
    assert (first.format, rest.format) == (pattern, "csr")
    assert S.library == A.library
    return S


def check_groups(A: Any, pattern: str) -> None:
    """Of each group the n largest are in the first part, and all zeros."""
    S = check_split(A, pattern)
    n, m = (int(number) for number in pattern.split(":"))
    kept, rest = (reference.entries(part) for part in S.parts)
    assert all(is_nonzero(value.reshape(1))[0] for value in rest.values())
    nonzeros = [at for at, value in kept.items() if is_nonzero(value.reshape(1))[0]]
    for group in {(i, j // m) for i, j in rest}:
        assert sum((i, j // m) == group for i, j in nonzeros) == n
    pruned = reference.content(sf.prune(A, pattern)).elements
    assert pruned == {at: kept[at].tobytes() for at in nonzeros}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_groups(pattern: str, library: str) -> None:
    @given(matrices(library=library))
    def law(A: Any) -> None:
        check_groups(A, pattern)

    law()


def check_blocks(A: Any, format: str, size: tuple[int, int], min_fill: float | None) -> None:
    """Blocks that are full enough are whole in the first part, all others in the rest."""
    S = check_split(A, format, blocksize=size, min_fill=min_fill)
    assert S.parts[0].blocksize == size
    share = min_fill
    if share is None:
        value = np.dtype(A.lib.to_numpy(A.parts[0].data if A.format == "sum" else A.data).dtype)
        index = S.lib.to_numpy(A.to("coo").row).dtype
        share = value.itemsize / (value.itemsize + index.itemsize)
    first, rest = (set(reference.entries(part)) for part in S.parts)
    (R, C), (m, n) = size, A.shape
    for top in range(0, m, R):
        for left in range(0, n, C):
            places = {
                (i, j) for i in range(top, min(m, top + R)) for j in range(left, min(n, left + C))
            }
            stored = places & (first | rest)
            if stored:
                full = len(stored) / len(places) >= share
                assert stored <= (first if full else rest)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ["bsr", "blocked_ell"])
def test_blocks(format: str, library: str) -> None:
    sizes = st.tuples(st.integers(1, 4), st.integers(1, 4))
    sizes = sizes if format == "bsr" else sizes.map(lambda size: (size[0], size[0]))
    shares = st.sampled_from([None, 0, 0.1, 0.25, 1 / 3, 0.5, 2 / 3, 1, 1.0])

    @given(matrices(library=library), sizes, shares)
    def law(A: Any, size: tuple[int, int], min_fill: float | None) -> None:
        check_blocks(A, format, size, min_fill)

    law()


@pytest.mark.parametrize("library", LIBRARIES)
def test_dense(library: str) -> None:
    D = array([[1.0, -4.0, 3.0, 0.5], [0.0, 0.0, -0.0, 2.0]], library)
    S = sf.split(D, "2:4")
    assert [sorted(reference.entries(part)) for part in S.parts] == [
        [(0, 1), (0, 2), (1, 3)],
        [(0, 0), (0, 3)],
    ]
    assert S.library == library
    B = sf.split(D, "bsr", blocksize=(1, 2), min_fill=1)
    assert [part.nnz for part in B.parts] == [4, 1]


def test_ties_nan_and_infinities_are_ranked_as_prune_ranks_them() -> None:
    W = [[2.0, -2.0, 2.0, 1.0], [np.inf, 1.0, np.nan, 3.0], [5e-324, 1.0, -1e-300, 0.0]]
    S = sf.split(W, "2:4")
    assert sorted(reference.entries(S.parts[1])) == [(0, 2), (0, 3), (1, 1), (1, 3), (2, 0)]
    assert sf.same(S.parts[0], sf.prune(W, "2:4"))


def test_the_structure_is_the_same_whatever_is_left() -> None:
    fits = sf.from_dense([[1.0, 0.0, 2.0, 0.0]])
    S = sf.split(fits, "2:4")
    assert [part.nnz for part in S.parts] == [2, 0]
    none = sf.split(np.zeros((0, 5)), "2:4")
    assert [(part.format, part.shape) for part in none.parts] == [("2:4", (0, 5)), ("csr", (0, 5))]
    empty = sf.split(np.zeros((3, 5)), "bsr", blocksize=2)
    assert (empty.nnz, empty.parts[0].nnzb) == (0, 0)


def test_stored_zeros_go_to_the_pattern_and_never_to_the_rest() -> None:
    A = sf.from_dense(np.array([[1.0, 2.0, 0.0, 3.0]]), mask=np.ones((1, 4), bool))
    first, rest = sf.split(A, "2:4").parts
    assert (first.nnz, rest.nnz) == (3, 1)
    assert first.side.nnz == 1  # no slot is left for the zero


def test_a_pattern_of_trainable_blocks_stays_whole() -> None:
    A = sf.BSR(np.zeros((2, 2, 2)), [0, 1], [0, 1, 2], (4, 4), stored="all")
    S = sf.split(A, "bsr")
    assert (S.parts[0].zeros, S.parts[0].nnz, S.parts[1].nnz) == ("all", 8, 0)
    assert S.parts[0].blocksize == (2, 2)  # inherited
    values = np.arange(1.0, 9.0).reshape(2, 2, 2)  # no zero tells of the mark
    assert sf.split(A.with_data(values), "bsr").parts[0].zeros == "all"
    assert sf.split(A.with_data(values).T, "bsr").parts[0].zeros == "all"


def test_index_widths_are_kept() -> None:
    A = sf.from_dense(np.ones((2, 8))).to("csr", index_dtype="int64")
    assert sf.split(A, "2:4").parts[1].indices.dtype == np.int64
    S = sf.split(A.to("csr", index_dtype="int32"), "bsr", blocksize=2)
    assert {part.indices.dtype for part in S.parts} == {np.dtype("int32")}
    assert sf.split(np.ones((2, 8)), "2:4").parts[1].indices.dtype == np.int32


def test_a_sum_can_be_split_anew() -> None:
    S = sf.split(np.arange(32.0).reshape(4, 8), "2:4")
    B = sf.split(S, "1:4")
    assert sf.same(S, B)
    assert B.parts[1].nnz > S.parts[1].nnz


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: sf.split(np.ones((2, 4)), "csr"), ValueError, "split: pattern must be 'n:m'"),
        (lambda: sf.split(np.ones((2, 4)), 4), TypeError, "split: pattern must be a string"),
        (lambda: sf.split(np.ones((2, 4)), "5:4"), ValueError, "n <= m"),
        (lambda: sf.split(np.ones((2, 4)), "bsr"), ValueError, r"split.*blocksize=\(R, C\)"),
        (lambda: sf.split(np.ones((2, 4)), "blocked_ell", blocksize=(1, 2)), ValueError, "square"),
        (
            lambda: sf.split(np.ones((2, 4)), "2:4", blocksize=2),
            ValueError,
            "blocksize=2 goes with",
        ),
        (lambda: sf.split(np.ones((2, 4)), "2:4", min_fill=0.5), ValueError, "min_fill=0.5 goes"),
        (lambda: sf.split(np.ones((2, 4)), "bsr", blocksize=2, min_fill=2), ValueError, "0 … 1"),
        (
            lambda: sf.split(np.ones((2, 4)), "bsr", blocksize=2, min_fill="half"),
            *(TypeError, "min_fill must be a number, got 'half'"),
        ),
        (
            lambda: sf.split(np.ones((2, 4)), "bsr", blocksize=2, min_fill=True),
            *(TypeError, "min_fill must be a number, got True"),
        ),
        (
            lambda: sf.split(np.ones((2, 4)), "bsr", blocksize=2, min_fill=np.complex64(0.5)),
            *(TypeError, "min_fill must be a number, got np.complex64"),
        ),
        (lambda: sf.split(np.ones(4), "2:4"), ValueError, r"2-D array, got shape \(4,\)"),
        (lambda: sf.split(object(), "2:4"), TypeError, "got object"),
        (
            lambda: sf.split(torch.ones(2, 4, requires_grad=True), "2:4"),
            *(NotImplementedError, "^split"),
        ),
    ],
)
def test_refusals(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call()
    assert "{" not in str(caught.value)


# ---- planted bugs


def loses_the_rest(A: Any, halves: Any, target: Any, whole: bool = False) -> sf.Sum:
    none = halves._replace(others=halves.others[:0])
    return DIVIDED(A, none, target, whole)


def keeps_all_in_the_rest(A: Any, halves: Any, target: Any, whole: bool = False) -> sf.Sum:
    every = halves._replace(others=A.lib.arange(A.nnz))
    return DIVIDED(A, every, target, whole)


DIVIDED = splitting._divided


@pytest.mark.parametrize("planted", [loses_the_rest, keeps_all_in_the_rest])
def test_planted(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "_divided", planted)

    @PLANTED
    @given(matrices("csr"))
    def law(A: Any) -> None:
        check_groups(A, "2:4")

    with pytest.raises((AssertionError, ValueError)):
        law()
