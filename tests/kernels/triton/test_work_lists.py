"""Laws of work lists on drawn rows; `test_schedule.py` has the rows that matter most."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from sparseformats_kernels.triton.schedule import FIXED, in_parts, schedule

COUNTS = st.lists(st.integers(0, 40), max_size=30)


def rows_of(counts: list[int]) -> tuple[Any, Any]:
    end = np.cumsum(np.array(counts, np.int64))
    return end - np.array(counts, np.int64), end


@given(COUNTS, st.integers(0, 5), st.integers(1, 9), st.integers(1, 3))
def test_every_tile_goes_to_one_program(
    counts: list[int], columns: int, programs: int, step: int
) -> None:
    begin, end = rows_of(counts)
    ptr, items = schedule(begin, end, columns, programs, step)
    assert ptr[0] == 0
    assert ptr[-1] == len(items) == len(counts) * columns
    assert (np.diff(ptr) >= 0).all()
    assert ptr.dtype == items.dtype == np.int32
    made = Counter((int(row), int(column)) for row, column in items[:, :2])
    assert made == Counter({(i, j): 1 for i in range(len(counts)) for j in range(columns)})
    assert np.array_equal(items[:, 2], begin[items[:, 0]])
    assert np.array_equal(items[:, 3], end[items[:, 0]])


@given(COUNTS.filter(bool), st.integers(1, 5), st.integers(1, 9))
def test_no_program_has_much_more_than_its_share(
    counts: list[int], columns: int, programs: int
) -> None:
    begin, end = rows_of(counts)
    ptr, items = schedule(begin, end, columns, programs)
    cost = items[:, 3] - items[:, 2] + FIXED
    loads = [int(cost[ptr[p] : ptr[p + 1]].sum()) for p in range(programs)]
    assert max(loads) <= int(cost.sum()) / programs + 2 * int(cost.max())


def test_even_rows_are_dealt_evenly() -> None:
    begin, end = rows_of([20] * 64)
    ptr, _ = schedule(begin, end, 32, 132)
    assert set(np.diff(ptr).tolist()) <= {15, 16}


def test_the_same_list_every_time() -> None:
    begin, end = rows_of([3, 9, 0, 9, 1, 40] * 5)
    first, again = (schedule(begin, end, 3, 4) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@given(COUNTS, st.integers(1, 4), st.integers(1, 40))
def test_parts_of_a_row_are_the_row(counts: list[int], columns: int, programs: int) -> None:
    begin, end = rows_of([count * 7 for count in counts])
    parts = in_parts(begin, end, columns, programs)
    for i in range(len(counts)):
        mine = parts.row == i
        assert parts.begin[mine][0] == begin[i]
        assert parts.end[mine][-1] == end[i]
        assert np.array_equal(parts.end[mine][:-1], parts.begin[mine][1:])
        assert (parts.number[mine] > 0).all() == (mine.sum() > 1)
    numbers = parts.number[parts.number > 0]
    assert np.array_equal(numbers, 1 + np.arange(numbers.size))
    for row, first, count in parts.split:
        mine = parts.number[parts.row == row]
        assert np.array_equal(mine - 1, first + np.arange(count))


def test_only_a_row_that_outlasts_the_rest_is_cut() -> None:
    even = in_parts(*rows_of([40] * 50), 4, 132)
    assert even.row.size == 50
    skewed = in_parts(*rows_of([40] * 50 + [4000]), 4, 132)
    assert (skewed.row == 50).sum() > 1
    assert (np.bincount(skewed.row)[:50] == 1).all()
