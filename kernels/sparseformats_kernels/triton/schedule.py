"""Which program makes which tiles of a result, and in which order.

The tiles of one column of tiles lie side by side in time, so that programs that run together read
the same columns of the dense operand. Within that the longest rows come first, and each tile goes
to the program with the least to do so far; the last few go out strictly by length, so that all
programs end together. Rows so long that they would outlast the rest start before everything else.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np

__all__ = ["FIXED", "Parts", "in_parts", "schedule"]

Host = np.ndarray[Any, np.dtype[Any]]

FIXED = 2  # steps that starting and writing a tile take the time of
EXACT = 50_000  # tiles up to which each goes to the idlest program; it takes a microsecond a tile
CUT = 0.1  # of all that a program has to do, which a row must be longer than to be cut
SHORTEST = 16  # blocks that a row must be longer than to be cut
EARLY = 0.3  # of all that a program has to do, which a row that starts first is longer than


class Parts(NamedTuple):
    """Rows of tiles, of which long ones are summed in parts.

    Attributes
    ----------
    row : (parts,) int64
        Tile row of each part.
    begin, end : (parts,) int64
        Its blocks.
    number : (parts,) int64
        From 1 on among the parts of rows that have several; 0 for a row that is whole.
    split : (rows in parts, 3) int64
        Tile row, number of its first part counted from 0, and how many it has.
    """

    row: Host
    begin: Host
    end: Host
    number: Host
    split: Host


def in_parts(begin: Host, end: Host, columns: int, programs: int) -> Parts:
    """Cut the rows that would keep one program busy when all others have ended.

    Parts of a row are added in a fixed order afterwards, which costs time and memory, so a row is
    cut only if it is longer than twice the mean and than all that a program has to do.
    """
    length = end - begin
    share = int(length.sum()) * columns / programs if programs else 0
    limit = max(2 * length.mean() if length.size else 0, CUT * share, SHORTEST)
    count = np.where(length > limit, -(-length // max(1, int(limit))), 1)
    row = np.repeat(np.arange(length.size), count)
    rank = np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
    first = begin[row] + length[row] * rank // count[row]
    last = begin[row] + length[row] * (rank + 1) // count[row]
    several = count[row] > 1
    number = np.where(several, np.cumsum(several), 0)
    long = np.flatnonzero(count > 1)
    split = np.stack([long, np.cumsum(count[long]) - count[long], count[long]], axis=1)
    return Parts(row, first, last, number, split)


def schedule(
    begin: Host, end: Host, columns: int, programs: int, step: int = 1, parts: int = 1
) -> tuple[Host, Host]:
    """Deal the tiles of a result to programs.

    Parameters
    ----------
    begin, end : (rows,) int64
        Blocks of each row of tiles: ``begin[i]:end[i]``.
    columns : int
        Tiles side by side in a row.
    programs : int
        Programs that run at the same time.
    step, parts : int
        Blocks that are multiplied at a time, and how many such times each of them takes.

    Returns
    -------
    program_ptr : (programs + 1,) int32
        Tiles of program p are ``items[program_ptr[p]:program_ptr[p + 1]]``.
    items : (rows * columns, 4) int32
        Tile row, tile column, begin, end; in the order in which they are to be made.
    """
    cost = -(-(end - begin) // step) * parts + FIXED
    row, column = _order(cost, columns, programs)
    last = max(0, row.size - _by_length(cost, columns, programs))
    order = np.argsort(-cost[row[last:]], kind="stable") + last
    row[last:], column[last:] = row[order], column[order]
    owner = _deal(cost[row], programs)
    order = np.argsort(owner, kind="stable")
    row, column = row[order], column[order]
    items = np.stack([row, column, begin[row], end[row]], axis=1).astype(np.int32)
    program_ptr = np.zeros(programs + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=programs), out=program_ptr[1:])
    return program_ptr, items


def _by_length(cost: Host, columns: int, programs: int) -> int:
    """How many of the last tiles go out by length: enough to even out the longest before them."""
    work = max(int(cost.sum()), 1)
    usual = cost[cost <= EARLY * work * columns / programs]
    needed = -(-int(usual.max(initial=0)) * programs // work) if usual.size else 0
    return cost.size * min(columns, needed)


def _order(cost: Host, columns: int, programs: int) -> tuple[Host, Host]:
    """Rows and columns of all tiles: columns slowly, long rows first, very long ones before all."""
    order = np.argsort(-cost, kind="stable")
    early = cost[order] > EARLY * cost.sum() * columns / programs
    parts = [order[early], order[~early]]
    row = np.concatenate([np.tile(part, columns) for part in parts])
    column = np.concatenate([np.repeat(np.arange(columns), part.size) for part in parts])
    return row, column


def _deal(cost: Host, programs: int) -> Host:
    """Owner of each tile: whoever has the least to do when its turn comes.

    Of very many tiles the first go out in rounds, in which the longest goes to the idlest.
    """
    owner = np.empty(cost.size, np.int64)
    load = np.zeros(programs, np.int64)
    rounds = max(0, cost.size - EXACT) // programs * programs
    for start in range(0, rounds, programs):
        part = cost[start : start + programs]
        idle = np.argsort(load, kind="stable")
        longest = np.argsort(-part, kind="stable")
        owner[start + longest] = idle
        load[idle] += part[longest]
    loads = [(time, program) for program, time in enumerate(load.tolist())]
    heapq.heapify(loads)
    for tile, length in enumerate(cost[rounds:].tolist(), start=rounds):
        time, program = loads[0]
        owner[tile] = program
        heapq.heapreplace(loads, (time + length, program))
    return owner
