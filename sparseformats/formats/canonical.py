"""Bringing constructor input into canonical form: sorted, each position once.

New arrays are made only where something is out of order. An element that stands alone keeps its
bits; equal positions are summed as `ArrayLibrary.segment_sum` describes.
"""

from __future__ import annotations

from typing import NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import INT64_MAX
from sparseformats.formats.checks import not_ascending

__all__ = [
    "Blocks",
    "canonical_blocks",
    "canonical_compressed",
    "canonical_coordinates",
    "expand",
    "pointers",
    "row_major",
]


class Blocks(NamedTuple):
    """Sorted blocks, each block position once, with the mask of stored slots (None: as values)."""

    row: Array
    col: Array
    data: Array
    stored: Array | None


def expand(lib: ArrayLibrary, indptr: Array, count: int) -> Array:
    """Row of each element: the inverse of `pointers`, in the dtype of `indptr`."""
    rows = int(indptr.shape[0]) - 1
    index = lib.arange(rows, lib.dtype_name(indptr), lib.device(indptr))
    return lib.repeat(index, indptr[1:] - indptr[:-1], count)


def pointers(lib: ArrayLibrary, row: Array, rows: int, name: str) -> Array:
    """Pointer array over `rows` rows from the row of each element, in any order."""
    ends = lib.cumsum(lib.bincount(row, rows)) if rows else lib.zeros(0, "int64", lib.device(row))
    start = lib.zeros(1, name, lib.device(row))
    return lib.concat([start, lib.astype(ends, name)])


def _strictly_ascending(lib: ArrayLibrary, major: Array, minor: Array) -> bool:
    if int(major.shape[0]) < 2:
        return True
    later = (major[1:] > major[:-1]) | ((major[1:] == major[:-1]) & (minor[1:] > minor[:-1]))
    return not lib.any(~later)


def row_major(lib: ArrayLibrary, row: Array, col: Array, shape: tuple[int, int]) -> Array:
    """Stable permutation that sorts positions by row, then by column.

    One key a position where it fits: sorted pieces one behind the other are then merged, not
    sorted anew.
    """
    if shape[0] * shape[1] > INT64_MAX:
        return lib.lexsort(row, col)
    return lib.argsort(lib.astype(row, "int64") * shape[1] + lib.astype(col, "int64"))


def _groups(lib: ArrayLibrary, *keys: Array) -> tuple[Array, Array] | None:
    """Starts and lengths of runs of equal keys; None where every key stands alone."""
    count = int(keys[0].shape[0])
    if count < 2:
        return None
    fresh = keys[0][1:] != keys[0][:-1]
    for key in keys[1:]:
        fresh = fresh | (key[1:] != key[:-1])
    device = lib.device(keys[0])
    first = lib.zeros(1, "int64", device)
    starts = lib.concat([first, lib.flatnonzero(fresh) + 1])
    if int(starts.shape[0]) == count:
        return None
    ends = lib.concat([starts[1:], lib.full(1, count, "int64", device)])
    return starts, ends - starts


def canonical_coordinates(
    lib: ArrayLibrary, data: Array, row: Array, col: Array
) -> tuple[Array, Array, Array]:
    """Sorted by row, then column, with duplicates summed."""
    if _strictly_ascending(lib, row, col):
        return data, row, col
    order = lib.lexsort(row, col)
    data, row, col = lib.take(data, order), lib.take(row, order), lib.take(col, order)
    groups = _groups(lib, row, col)
    if groups is None:
        return data, row, col
    starts, counts = groups
    data = lib.segment_sum(data, starts, counts)
    return data, lib.take(row, starts), lib.take(col, starts)


def canonical_compressed(
    lib: ArrayLibrary, data: Array, indices: Array, indptr: Array
) -> tuple[Array, Array, Array]:
    """Indices ascending within each row (or column), duplicates summed."""
    if not_ascending(lib, indptr, indices) is None:
        return data, indices, indptr
    row = expand(lib, indptr, int(indices.shape[0]))
    data, row, indices = canonical_coordinates(lib, data, row, indices)
    rows = int(indptr.shape[0]) - 1
    return data, indices, pointers(lib, row, rows, lib.dtype_name(indptr))


def canonical_blocks(
    lib: ArrayLibrary, row: Array, col: Array, data: Array, stored: Array | None
) -> Blocks:
    """Blocks sorted by block row, then block column, equal positions summed.

    Parameters
    ----------
    row, col : (nnzb,) arrays
    data : (nnzb, R, C) array
    stored : (nnzb, R, C) bool array, or None
        Which slots are stored; None means those that are not zero.

    Returns
    -------
    Blocks
        A slot is stored where any of the summed blocks stores it; its sum runs over those that
        do, so a lone -0.0 survives meeting another block's fill.
    """
    if _strictly_ascending(lib, row, col):
        return Blocks(row, col, data, stored)
    order = lib.lexsort(row, col)
    row, col, data = lib.take(row, order), lib.take(col, order), lib.take(data, order)
    stored = None if stored is None else lib.take(stored, order)
    groups = _groups(lib, row, col)
    if groups is None:
        return Blocks(row, col, data, stored)
    starts, counts = groups
    mask = lib.nonzero_mask(data) if stored is None else stored
    size = int(data.shape[1]) * int(data.shape[2])
    target = lib.repeat(lib.arange(int(starts.shape[0]), device=lib.device(row)), counts)
    slot = lib.flatnonzero(mask)
    values = lib.take(lib.xp.reshape(data, (-1,)), slot)
    key = lib.take(target, slot // size) * size + slot % size
    order = lib.argsort(key)
    values, key = lib.take(values, order), lib.take(key, order)
    runs = _groups(lib, key)
    if runs is not None:
        values, key = lib.segment_sum(values, *runs), lib.take(key, runs[0])
    shape = (int(starts.shape[0]), int(data.shape[1]), int(data.shape[2]))
    merged = lib.scatter(shape, key, values)
    kept = lib.scatter(shape, key, lib.full(int(key.shape[0]), True, "bool", lib.device(row)))
    return Blocks(lib.take(row, starts), lib.take(col, starts), merged, kept)
