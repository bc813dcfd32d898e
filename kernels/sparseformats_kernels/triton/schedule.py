"""Which program makes which tiles of a result, and in which order.

The tiles of one column of tiles lie side by side in time, so that programs that run together read
the same columns of the dense operand. Within that the longest rows come first, and each tile goes
to the program with the least to do so far; the last few go out strictly by length, so that all
programs end together. Rows so long that they would outlast the rest start before everything else.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

__all__ = ["FIXED", "schedule"]

Host = np.ndarray[Any, np.dtype[Any]]

FIXED = 2  # steps that starting and writing a tile take the time of
LAST = 3  # tiles of each program that go out by length
EARLY = 3.0  # rows of more than so many times the mean start first


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
    row, column = _order(cost, columns)
    last = max(0, row.size - LAST * programs)
    order = np.argsort(-cost[row[last:]], kind="stable") + last
    row[last:], column[last:] = row[order], column[order]
    owner = _deal(cost[row], programs, last)
    order = np.argsort(owner, kind="stable")
    row, column = row[order], column[order]
    items = np.stack([row, column, begin[row], end[row]], axis=1).astype(np.int32)
    program_ptr = np.zeros(programs + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=programs), out=program_ptr[1:])
    return program_ptr, items


def _order(cost: Host, columns: int) -> tuple[Host, Host]:
    """Rows and columns of all tiles: columns slowly, long rows first, very long ones before all."""
    order = np.argsort(-cost, kind="stable")
    early = cost[order] > EARLY * max(cost.mean(), 1) if cost.size else np.zeros(0, np.bool_)
    parts = [order[early], order[~early]]
    row = np.concatenate([np.tile(part, columns) for part in parts])
    column = np.concatenate([np.repeat(np.arange(columns), part.size) for part in parts])
    return row, column


def _deal(cost: Host, programs: int, last: int) -> Host:
    """Owner of each tile.

    Of every `programs` tiles in turn the longest goes to the idlest; from tile `last` on each goes
    to whoever is idlest by then.
    """
    owner = np.empty(cost.size, np.int64)
    load = np.zeros(programs, np.int64)
    for start in range(0, last, programs):
        part = cost[start : min(start + programs, last)]
        idle = np.argsort(load, kind="stable")[: part.size]
        longest = np.argsort(-part, kind="stable")
        owner[start + longest] = idle
        load[idle] += part[longest]
    loads = [(int(time), program) for program, time in enumerate(load)]
    heapq.heapify(loads)
    for tile in range(last, cost.size):
        time, owner[tile] = loads[0]
        heapq.heapreplace(loads, (time + int(cost[tile]), int(owner[tile])))
    return owner
