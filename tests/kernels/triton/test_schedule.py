"""The list of tiles: each tile once, programs end together, neighbours read the same columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sparseformats_kernels.triton.schedule import FIXED, in_parts, schedule


def rows_of(counts: list[int]) -> tuple[Any, Any]:
    length = np.asarray(counts, np.int64)
    end = np.cumsum(length)
    return end - length, end


def loads(program_ptr: Any, items: Any, step: int, parts: int) -> Any:
    cost = -(-(items[:, 3] - items[:, 2]) // step) * parts + FIXED
    return np.array([cost[a:b].sum() for a, b in pairwise(program_ptr)])


CASES = {
    "one": ([3], 1, 1),
    "empty rows": ([0, 0, 5, 0], 3, 4),
    "no blocks": ([0] * 10, 2, 7),
    "even": ([8] * 64, 32, 132),
    "random": (np.random.default_rng(0).binomial(128, 0.1, 128).tolist(), 32, 132),
    "power law": (np.random.default_rng(1).zipf(1.6, 500).clip(1, 512).tolist(), 16, 132),
    "fewer tiles than programs": ([4, 2], 1, 2),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("step", "parts"), [(1, 1), (4, 1), (1, 2)])
def test_every_tile_is_made_once(name: str, step: int, parts: int) -> None:
    counts, columns, programs = CASES[name]
    begin, end = rows_of(counts)
    program_ptr, items = schedule(begin, end, columns, programs, step, parts)
    assert program_ptr.dtype == items.dtype == np.int32
    assert (program_ptr[0], program_ptr[-1]) == (0, len(counts) * columns)
    assert (np.diff(program_ptr) >= 0).all()
    tiles = {(int(row), int(column)) for row, column, _, _ in items}
    assert len(tiles) == len(items) == len(counts) * columns
    assert (items[:, 2] == begin[items[:, 0]]).all()
    assert (items[:, 3] == end[items[:, 0]]).all()


@pytest.mark.parametrize("name", ["random", "power law"])
def test_programs_end_together(name: str) -> None:
    counts, columns, programs = CASES[name]
    parts = in_parts(*rows_of(counts), columns, programs)
    found = loads(*schedule(parts.begin, parts.end, columns, programs), 1, 1)
    assert found.max() <= 1.04 * found.mean()


def test_columns_advance_slowly() -> None:
    """Tiles that are made at the same time read the same columns of the operand."""
    counts, columns, programs = CASES["random"]
    program_ptr, items = schedule(*rows_of(counts), columns, programs)
    for a, b in pairwise(program_ptr):
        early = items[a : max(a, b - 4), 1]  # the last few go out by length
        assert (np.diff(early) >= 0).all()


def test_rows_that_outlast_the_rest_start_first() -> None:
    counts = [200] + [4] * 511
    program_ptr, items = schedule(*rows_of(counts), 16, 132)
    long = np.flatnonzero(items[:, 0] == 0)
    assert set(long) <= {int(start) for start in program_ptr[:-1]}


@pytest.mark.parametrize(
    ("counts", "columns", "programs", "cut"),
    [
        ([8] * 64, 32, 132, []),
        ([512] + [8] * 255, 400, 132, []),  # its tiles take no longer than all others together
        ([512] + [8] * 255, 1, 132, [0]),
        ([10, 10, 500, 10, 400], 1, 132, [2, 4]),
        ([15, 0, 0, 0], 1, 132, []),  # too short to be worth it
        ([0, 0], 1, 2, []),
        ([], 1, 1, []),
    ],
)
def test_only_rows_that_outlast_a_program_are_cut(
    counts: list[int], columns: int, programs: int, cut: list[int]
) -> None:
    begin, end = rows_of(counts)
    parts = in_parts(begin, end, columns, programs)
    assert parts.split[:, 0].tolist() == cut
    for row, first, count in parts.split:
        mine = np.flatnonzero(parts.row == row)
        assert parts.number[mine].tolist() == list(range(first + 1, first + count + 1))
    assert (parts.number[~np.isin(parts.row, cut)] == 0).all()
    for row, (low, high) in enumerate(zip(begin, end, strict=True)):
        mine = np.flatnonzero(parts.row == row)
        edges = [*parts.begin[mine], parts.end[mine[-1]]]
        assert (edges[0], edges[-1]) == (low, high)
        assert all(a <= b for a, b in pairwise(edges))
        assert (parts.begin[mine][1:] == parts.end[mine][:-1]).all()
