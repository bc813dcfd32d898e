"""Which rows of X a tile of several block rows reads, and which of its blocks meet them.

A tile runs over the ascending union of the block columns that its block rows store, in steps of a
few columns. Each of the tile's groups of warps owns some neighbouring block rows and finds, for
each step, which of its blocks are stored. The blocks of a step lie one behind the other in shared
memory, those of one group together, in the order (group, column, row).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["BITS", "FAR", "Sharing", "Unions", "room", "unions"]

Host = np.ndarray[Any, np.dtype[Any]]

BITS = 24
"""Low bits of a word of `Unions.present` that say which blocks are stored."""
FAR = 2**31 - 1024
"""A row that no X has: the copy engine brings zeros for it and reads nothing."""
ROOMS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
MOST = 0.98  # of the steps have room for the blocks of all their columns


class Sharing(NamedTuple):
    """How block rows share.

    Attributes
    ----------
    groups : int
        Groups of warps that make a tile.
    rows : int
        Block rows of each group.
    columns : int
        Block columns of a step; at most `BITS` // rows.
    """

    groups: int
    rows: int
    columns: int


class Unions(NamedTuple):
    """Steps of all tiles, one tile after another.

    Attributes
    ----------
    k : (steps * columns,) int32
        First row of X of each column of a step, `FAR` where it has fewer columns.
    present : (steps * groups + groups,) int32
        For each step and group: bit ``column * rows + row`` is set where that block is stored, and
        above `BITS` stands where in the step the group's blocks begin.
    starts : (steps + 1,) int32
        Blocks of step s are ``places[starts[s]:starts[s + 1]]``.
    places : (blocks + 2,) int32
        Where each block lies among the values.
    begin, end : (tiles,) int64
        Steps of tile i are ``begin[i]:end[i]``.
    """

    k: Host
    present: Host
    starts: Host
    places: Host
    begin: Host
    end: Host


class _Merged(NamedTuple):
    """Blocks in the order of tiles and columns."""

    tile: Host  # of each block, as the following ones
    row: Host  # within the tile
    place: Host
    entry: Host  # in the list of all columns of all tiles
    column: Host  # of each entry
    first: Host  # whether each entry begins a group of columns


def room(columns: Host, begin: Host, end: Host, sharing: Sharing) -> int:
    """Blocks that a step should have room for, so that hardly any has to be split.

    Parameters
    ----------
    columns : (slots,) int
        Block columns, ascending within a block row.
    begin, end : (block_rows,) int64
        Blocks of row i are ``begin[i]:end[i]``.
    """
    merged = _merge(columns, None, begin, end, sharing)
    if not merged.entry.size:
        return ROOMS[0]
    counts = np.sort(np.bincount((np.cumsum(merged.first) - 1)[merged.entry]))
    wanted = int(counts[min(int(MOST * counts.size), counts.size - 1)])
    return next((size for size in ROOMS if size >= wanted), ROOMS[-1])


def unions(
    columns: Host,
    places: Host | None,
    begin: Host,
    end: Host,
    sharing: Sharing,
    slots: int,
    width: int,
) -> Unions:
    """Merge the columns of neighbouring block rows into steps.

    Parameters
    ----------
    columns : (slots,) int
        Block columns, ascending within a block row.
    places : (slots,) int or None
        Where each block lies among the values; None where that is its own number.
    begin, end : (block_rows,) int64
        Blocks of row i are ``begin[i]:end[i]``.
    sharing : Sharing
    slots : int
        Most blocks of a step; columns of more are multiplied one by one, or in several steps.
    width : int
        Columns of a block.
    """
    merged = _merge(columns, places, begin, end, sharing)
    first = _split(merged, slots)
    run = np.cumsum(first) - 1  # of each column
    starts_of_runs = np.flatnonzero(first)
    table = np.full((starts_of_runs.size, sharing.columns), FAR, np.int64)
    table[run, np.arange(run.size) - starts_of_runs[run]] = merged.column * width
    owner, row = merged.row // sharing.rows, merged.row % sharing.rows
    within = (np.arange(run.size) - starts_of_runs[run])[merged.entry]
    bit = within * sharing.rows + row
    key = (run[merged.entry] * sharing.groups + owner) * BITS + bit
    order = np.argsort(key, kind="stable")
    key, run_of, bit, owner = (x[order] for x in (key, run[merged.entry], bit, owner))
    rank = _ranks(run_of)
    step = _numbers(run_of * (int(rank.max(initial=0)) // slots + 1) + rank // slots)
    heads = np.flatnonzero(np.diff(step, prepend=-1))
    tiles = -(-begin.size // sharing.groups // sharing.rows)
    ends = np.cumsum(np.bincount(merged.tile[order][heads], minlength=tiles))
    return Unions(
        table[run_of[heads]].reshape(-1).astype(np.int32),
        _words(step, owner, rank % slots, bit, heads.size, sharing.groups),
        np.append(heads, step.size).astype(np.int32),
        np.append(merged.place[order], (0, 0)).astype(np.int32),
        np.concatenate([np.zeros(min(tiles, 1), np.int64), ends[:-1]]),
        ends,
    )


def _merge(columns: Host, places: Host | None, begin: Host, end: Host, sharing: Sharing) -> _Merged:
    count = end - begin
    row = np.repeat(np.arange(begin.size), count)
    slot = np.arange(row.size) + np.repeat(begin - (np.cumsum(count) - count), count)
    column = columns[slot].astype(np.int64)
    high = sharing.groups * sharing.rows
    wide = int(column.max(initial=0)) + 1
    key = row // high * wide + column
    order = np.argsort(key, kind="stable")  # rows ascend within a column
    key, row, slot = key[order], row[order], slot[order]
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    entry = _numbers(key)
    tile = key[heads] // wide
    first = _ranks(tile) % sharing.columns == 0
    place = slot if places is None else places[slot].astype(np.int64)
    return _Merged(row // high, row % high, place, entry, key[heads] % wide, first)


def _split(merged: _Merged, slots: int) -> Host:
    """Where steps begin: with every column of those groups that have too many blocks."""
    group = np.cumsum(merged.first) - 1
    crowded = np.bincount(group[merged.entry], minlength=group.size) > slots
    first: Host = merged.first | crowded[group]
    return first


def _words(step: Host, owner: Host, slot: Host, bit: Host, steps: int, groups: int) -> Host:
    """What each group does in each step."""
    at = step * groups + owner
    # Sums of distinct powers of two, exact in float64.
    words = np.bincount(at, weights=np.exp2(bit), minlength=(steps + 1) * groups).astype(np.int64)
    heads = np.flatnonzero(np.diff(at, prepend=-1))
    words[at[heads]] += slot[heads] << BITS
    return words.astype(np.int32)


def _numbers(key: Host) -> Host:
    """Number of each run of equal entries."""
    numbers: Host = np.cumsum(np.diff(key, prepend=-1) != 0) - 1
    return numbers


def _ranks(key: Host) -> Host:
    """0, 1, ... within each run of equal entries."""
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    ranks: Host = np.arange(key.size) - heads[_numbers(key)] if key.size else key
    return ranks
