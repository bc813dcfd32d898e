"""Pointer arrays and sorted keys."""

from __future__ import annotations

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import INT32_MAX

__all__ = ["bounds", "index_name_of", "run_starts", "sorted_pointers"]


def index_name_of(lib: ArrayLibrary, x: Array) -> str:
    """``"int32"`` or ``"int64"``."""
    return lib.dtype_name(x)


def bounds(lib: ArrayLibrary, keys: Array, count: int, step: int = 1) -> Array:
    """Where ascending `keys` reach 0, step, 2 step, … count step: (count + 1,) int64."""
    name = lib.dtype_name(keys)
    if name != "int64" and count * step > INT32_MAX:
        keys, name = lib.astype(keys, "int64"), "int64"
    marks = lib.arange(count + 1, name, lib.device(keys))
    return lib.searchsorted(keys, marks * step if step != 1 else marks)


def sorted_pointers(lib: ArrayLibrary, row: Array, rows: int, name: str) -> Array:
    """Pointer array over `rows` rows from the ascending row of each element.

    A search a row where rows are fewer than elements, else a count of elements. On a device the
    search is always chosen: counting would have to be waited for.
    """
    nnz = int(row.shape[0])
    if rows < nnz or lib.device(row) != "cpu":
        return lib.astype(bounds(lib, row, rows), name)
    ends = lib.cumsum(lib.bincount(row, rows)) if rows else lib.zeros(0, "int64", lib.device(row))
    return lib.concat([lib.zeros(1, name, lib.device(row)), lib.astype(ends, name)])


def run_starts(lib: ArrayLibrary, *keys: Array) -> tuple[Array, Array]:
    """Runs of equal keys among neighbours.

    Parameters
    ----------
    *keys : (N,) arrays, N >= 1

    Returns
    -------
    run : (N,) int64
        Number of the run of each element.
    starts : (S,) int64
        First element of each run.
    """
    fresh = keys[0][1:] != keys[0][:-1]
    for key in keys[1:]:
        fresh = fresh | (key[1:] != key[:-1])
    zero = lib.zeros(1, "int64", lib.device(keys[0]))
    return (
        lib.concat([zero, lib.cumsum(fresh)]),
        lib.concat([zero, lib.flatnonzero(fresh) + 1]),
    )
