"""Numbering the large blocks that small ones fall into.

The numbers come from a bitmap of block positions, or from a sort where such a bitmap would be
larger than the matrix; never from an m x n array, and never from ``row * columns + column``
without a look at its width.
"""

from __future__ import annotations

from typing import NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import INT32_MAX, INT64_MAX
from sparseformats.convert.pointers import bounds, run_starts, sorted_pointers

__all__ = ["Large", "number"]

_BITMAP = 4  # bytes of bitmap a small block that are still cheaper than sorting
_ALWAYS = 4096  # and what is small enough whatever the number of blocks


class Large(NamedTuple):
    """Large blocks that occur, and which of them each small block belongs to."""

    indices: Array
    indptr: Array
    owner: Array


def number(
    lib: ArrayLibrary, brow: Array, bcol: Array, grid: tuple[int, int], *, ordered: bool
) -> Large:
    """Number large blocks by block row, then block column.

    Parameters
    ----------
    brow, bcol : (N,) arrays, N >= 1
        Position of the large block that each small one falls into.
    grid : (rows, columns)
        Extents of these positions.
    ordered : bool
        Small blocks already come in the order of the large ones.
    """
    rows, cols = grid
    if ordered:
        owner, starts = run_starts(lib, brow, bcol)
        kept = lib.take(brow, starts)
        indptr = sorted_pointers(lib, kept, rows, "int64")
        return Large(lib.take(bcol, starts), indptr, owner)
    if rows * cols <= _BITMAP * int(brow.shape[0]) + _ALWAYS:
        return _by_bitmap(lib, brow, bcol, grid)
    return _by_sort(lib, brow, bcol, grid)


def _by_bitmap(lib: ArrayLibrary, brow: Array, bcol: Array, grid: tuple[int, int]) -> Large:
    rows, cols = grid
    if rows * cols > INT32_MAX:
        brow = lib.astype(brow, "int64")
    key = brow * cols + bcol
    # An array of ones and not the scalar, which a device would have to be sent and waited for.
    found = lib.full(int(key.shape[0]), True, "bool", lib.device(key))
    mask = lib.scatter(rows * cols, key, found)
    keys = lib.flatnonzero(mask)
    rank = lib.cumsum(mask) - 1
    return Large(keys % cols, bounds(lib, keys, rows, cols), lib.take(rank, key))


def _by_sort(lib: ArrayLibrary, brow: Array, bcol: Array, grid: tuple[int, int]) -> Large:
    rows, cols = grid
    if rows * cols <= INT64_MAX:
        key = lib.astype(brow, "int64") * cols + bcol
        order = lib.argsort(key)
        runs, starts = run_starts(lib, lib.take(key, order))
    else:
        order = lib.lexsort(brow, bcol)
        runs, starts = run_starts(lib, lib.take(brow, order), lib.take(bcol, order))
    first = lib.take(order, starts)
    indptr = sorted_pointers(lib, lib.take(brow, first), rows, "int64")
    owner = lib.scatter(int(order.shape[0]), order, runs)
    return Large(lib.take(bcol, first), indptr, owner)
