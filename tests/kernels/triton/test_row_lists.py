"""Laws of the lists of rows and parts of rows, on drawn lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from sparseformats_kernels.triton.row_lists import entries_of, longest

LENGTHS = st.lists(st.integers(0, 90), max_size=30)
SIZES = st.sampled_from([1, 2, 8])


def rows_of(lengths: list[int]) -> tuple[Any, Any]:
    end = np.cumsum(np.array(lengths, np.int64))
    return end - np.array(lengths, np.int64), end


@given(LENGTHS, st.integers(1, 40), SIZES, SIZES)
def test_every_element_is_in_one_entry(lengths: list[int], limit: int, bm: int, bk: int) -> None:
    begin, end = rows_of(lengths)
    made = entries_of(begin, end, limit, bm, bk)
    assert made.row.size % bm == 0
    filling = made.row == len(lengths)
    assert filling.sum() < bm
    assert (made.begin[filling] == made.end[filling]).all()
    for i in range(len(lengths)):
        mine = np.flatnonzero(made.row == i)
        mine = mine[np.argsort(made.begin[mine], kind="stable")]
        assert made.begin[mine][0] == begin[i]
        assert made.end[mine][-1] == end[i]
        assert np.array_equal(made.end[mine][:-1], made.begin[mine][1:])
        assert (made.end[mine] - made.begin[mine] <= limit).all()
        numbers = made.number[mine]
        assert (numbers >= 0).all() if mine.size > 1 else numbers[0] == -1
        assert mine.size == 1 or np.array_equal(np.diff(numbers), np.ones(mine.size - 1))


@given(LENGTHS, st.integers(1, 40), SIZES, SIZES)
def test_parts_are_numbered_through(lengths: list[int], limit: int, bm: int, bk: int) -> None:
    begin, end = rows_of(lengths)
    made = entries_of(begin, end, limit, bm, bk)
    numbers = np.sort(made.number[made.number >= 0])
    assert np.array_equal(numbers, np.arange(made.parts))
    row, first, behind = made.split
    assert np.array_equal(row, np.flatnonzero(np.array(lengths, np.int64) > limit))
    for i, low, high in zip(row, first, behind, strict=True):
        mine = np.sort(made.number[made.row == i])
        assert np.array_equal(mine, np.arange(low, high))


@given(LENGTHS, st.integers(1, 40), SIZES, SIZES)
def test_steps_reach_the_longest_entry(lengths: list[int], limit: int, bm: int, bk: int) -> None:
    begin, end = rows_of(lengths)
    made = entries_of(begin, end, limit, bm, bk)
    steps = (-(-(made.end - made.begin) // bk)).reshape(-1, bm)
    assert np.array_equal(made.steps, steps.max(axis=1))
    assert (np.diff(made.steps) <= 0).all()


def test_rows_of_as_many_steps_keep_their_order() -> None:
    made = entries_of(*rows_of([9, 16, 3, 12, 8, 0]), 100, 1, 8)
    assert made.row.tolist() == [0, 1, 3, 2, 4, 5]


def test_only_a_row_that_outlasts_the_rest_is_cut() -> None:
    assert longest(16384, 163 * 16384, 132, 8) >= 326
    assert longest(16384, 163 * 16384, 132, 8) < 1000
    assert longest(10, 0, 132, 16) == 64
    assert longest(0, 0, 132, 16) == 64
    assert longest(1, 2**40, 1, 4) == 2**15 * 4
    even = entries_of(*rows_of([40] * 50), longest(50, 2000, 4, 8), 4, 8)
    assert not even.parts
    skewed = entries_of(*rows_of([40] * 50 + [4000]), longest(51, 6000, 4, 8), 4, 8)
    assert set(skewed.split[0]) == {50}
    assert skewed.parts > 1
