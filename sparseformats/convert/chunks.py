"""Cutting rows into chunks, so that index arithmetic stays small beside input and output.

A chunk small enough for a CPU's cache is also faster. On a device only matrices are cut whose
temporaries would otherwise rival the matrix itself, for each cut costs a synchronisation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary

__all__ = ["Chunk", "even_chunks", "limit", "row_chunks"]

_ON_CPU = 1 << 18
_ON_DEVICE = 1 << 26


class Chunk(NamedTuple):
    """Rows `first` to `last` and their elements (or blocks) `start` to `stop`."""

    first: int
    last: int
    start: int
    stop: int


def limit(device: str) -> int:
    """Elements that are worked on together."""
    return _ON_CPU if device == "cpu" else _ON_DEVICE


def row_chunks(
    lib: ArrayLibrary, indptr: Array, count: int, *, step: int = 1, weight: int = 1
) -> list[Chunk]:
    """Cut (block) rows where about `limit` elements are reached.

    Parameters
    ----------
    indptr : (rows + 1,) array
    count : int
        ``indptr[-1]``, known without asking the device.
    step : int
        Chunks start at multiples of it.
    weight : int
        Elements that each index of the pointers stands for.
    """
    rows = int(indptr.shape[0]) - 1
    most = max(1, limit(lib.device(indptr)) // weight)
    if count <= 2 * most:
        return [Chunk(0, rows, 0, count)]
    starts = np.arange(0, rows + step, step)
    starts[-1] = rows
    ends = lib.to_numpy(indptr)[starts]
    found, at = [], 0
    while at < len(starts) - 1:
        after = int(np.searchsorted(ends, ends[at] + most, side="right")) - 1
        after = min(max(after, at + 1), len(starts) - 1)
        found.append(Chunk(*(int(x) for x in (starts[at], starts[after], ends[at], ends[after]))))
        at = after
    return found


def even_chunks(lib: ArrayLibrary, x: Array, step: int = 1) -> list[tuple[int, int]]:
    """Cut the first axis of a dense array, at multiples of `step`.

    Rows of an array that is not contiguous are taken many at a time: each of its cache lines
    may hold elements of them all.
    """
    rows = int(x.shape[0])
    width = math.prod(int(s) for s in x.shape[1:])
    most = limit(lib.device(x))
    if not lib.is_contiguous(x):
        most *= 16
    if rows * width <= 2 * most:
        return [(0, rows)]
    height = max(1, most // max(1, width * step)) * step
    return [(i, min(i + height, rows)) for i in range(0, rows, height)]
