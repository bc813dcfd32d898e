"""Unions of block columns: every stored block is met once, by its own rows of X, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparseformats_kernels.triton.unions import BITS, FAR, ROOMS, Sharing, Unions, room, unions

SHARINGS = [
    Sharing(4, 2, 2),
    Sharing(3, 4, 1),
    Sharing(2, 6, 4),
    Sharing(3, 8, 3),
    Sharing(4, 1, 4),
]


def stored(rows: int, columns: int, density: float, seed: int) -> tuple[Any, Any, Any]:
    """Random block columns as rows of a padded list, as Blocked-ELL keeps them."""
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, columns)) < density
    mask[:: max(rows // 3, 1)] = False
    width = max(int(mask.sum(1).max(initial=0)), 1) + 1
    found = np.full((rows, width), -1, np.int32)
    for row, line in enumerate(mask):
        at = np.flatnonzero(line)
        found[row, : at.size] = at
    begin = np.arange(rows, dtype=np.int64) * width
    return found.reshape(-1), begin, begin + mask.sum(1)


def met(made: Unions, sharing: Sharing, slots: int, width: int) -> list[tuple[int, int, int]]:
    """What a slow kernel would multiply: (block row, block column, place), step by step."""
    found = []
    for tile, (begin, end) in enumerate(zip(made.begin, made.end, strict=True)):
        for step in range(begin, end):
            start, stop = made.starts[step], made.starts[step + 1]
            assert 0 < stop - start <= slots
            used = []
            for group in range(sharing.groups):
                word = int(made.present[step * sharing.groups + group])
                assert word >= 0
                slot = word >> BITS
                for bit in range(sharing.columns * sharing.rows):
                    if word >> bit & 1:
                        column, row = divmod(bit, sharing.rows)
                        k = int(made.k[step * sharing.columns + column])
                        assert k != FAR
                        row += (tile * sharing.groups + group) * sharing.rows
                        found.append((row, k // width, int(made.places[start + slot])))
                        used.append(slot)
                        slot += 1
            assert used == list(range(stop - start))
    return found


@pytest.mark.parametrize("sharing", SHARINGS, ids=str)
@pytest.mark.parametrize("slots", [1, 5, 24])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.4, 1.0])
def test_every_block_is_met_once(sharing: Sharing, slots: int, density: float) -> None:
    columns, begin, end = stored(29, 23, density, 3)
    places = np.random.default_rng(1).permutation(columns.size)
    expected = [
        (row, int(columns[at]), int(places[at]))
        for row in range(29)
        for at in range(begin[row], end[row])
    ]
    made = unions(columns, places, begin, end, sharing, slots, 16)
    assert sorted(met(made, sharing, slots, 16)) == expected
    itself = unions(columns, None, begin, end, sharing, slots, 16)
    assert itself.places[:-2].tolist() == [at for _, _, at in met(itself, sharing, slots, 16)]
    assert sorted(itself.places[:-2]) == [
        at for row in range(29) for at in range(begin[row], end[row])
    ]


@pytest.mark.parametrize("sharing", SHARINGS, ids=str)
def test_rows_of_x_come_once_a_tile_and_in_order(sharing: Sharing) -> None:
    columns, begin, end = stored(50, 40, 0.2, 5)
    made = unions(columns, None, begin, end, sharing, ROOMS[-1], 32)
    high = sharing.groups * sharing.rows
    for tile, (first, last) in enumerate(zip(made.begin, made.end, strict=True)):
        rows = range(tile * high, min((tile + 1) * high, 50))
        expected = sorted({int(columns[at]) for row in rows for at in range(begin[row], end[row])})
        k = made.k[first * sharing.columns : last * sharing.columns]
        assert k[k != FAR].tolist() == [32 * column for column in expected]
        assert last - first == -(-len(expected) // sharing.columns)


def test_a_crowded_step_is_multiplied_column_by_column() -> None:
    # Two rows store columns 0, 1, 2; the third stores nothing, the fourth column 1 alone.
    columns = np.array([0, 1, 2, 0, 1, 2, 1], np.int32)
    begin, end = np.array([0, 3, 6, 6]), np.array([3, 6, 6, 7])
    made = unions(columns, None, begin, end, Sharing(2, 2, 2), 3, 16)
    # Five blocks in columns 0 and 1 are too many for one step; column 2 has two.
    assert made.k.tolist() == [0, FAR, 16, FAR, 32, FAR]
    assert made.starts.tolist() == [0, 2, 5, 7]
    assert made.places.tolist() == [0, 3, 1, 4, 6, 2, 5, 0, 0]
    # Of each step: both rows of group 0 in the first column; in the second step row 1 of group 1,
    # whose block is the third.
    assert made.present[:6].tolist() == [0b11, 0, 0b11, 0b10 | 2 << BITS, 0b11, 0]
    assert (made.begin.tolist(), made.end.tolist()) == ([0], [3])


@pytest.mark.parametrize("rows", [0, 1, 17])
def test_without_blocks_there_are_no_steps(rows: int) -> None:
    nothing = np.zeros(rows, np.int64)
    made = unions(np.zeros(16, np.int32), None, nothing, nothing, Sharing(4, 2, 2), 8, 16)
    assert made.begin.tolist() == made.end.tolist() == [0] * -(-rows // 8)
    assert made.k.size == 0
    assert made.starts.tolist() == [0]
    assert made.places.tolist() == [0, 0]  # and the loading warp two blocks
    assert not made.present.any()
    assert made.present.size == 4  # groups read one step ahead
    assert room(np.zeros(16, np.int32), nothing, nothing, Sharing(4, 2, 2)) == ROOMS[0]


@pytest.mark.parametrize(("density", "sharing"), [(0.1, SHARINGS[0]), (0.5, SHARINGS[1])])
def test_room_holds_nearly_every_group_of_columns(density: float, sharing: Sharing) -> None:
    columns, begin, end = stored(192, 300, density, 7)
    slots = room(columns, begin, end, sharing)
    wanted = unions(columns, None, begin, end, sharing, BITS * 4, 16)
    crowded = float((np.diff(wanted.starts) > slots).mean())
    assert crowded <= 0.02
    smaller = ROOMS[ROOMS.index(slots) - 1]
    assert float((np.diff(wanted.starts) > smaller).mean()) > 0.02


def test_room_is_bounded() -> None:
    full = np.tile(np.arange(8, dtype=np.int32), 128)
    begin = np.arange(128) * 8
    assert room(full, begin, begin + 8, Sharing(4, 32, 4)) == ROOMS[-1]
