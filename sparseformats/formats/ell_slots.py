"""Where the blocks of Blocked-ELL lie: the constructor and conversions share it."""

from __future__ import annotations

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.formats.canonical import pointers

__all__ = ["place_blocks", "slots_in_rows"]


def slots_in_rows(lib: ArrayLibrary, row: Array, rows: int, width: int) -> Array:
    """Flat slot (row width + rank in the row) of each block, given sorted block rows."""
    starts = pointers(lib, row, rows, "int64")
    rank = lib.arange(int(row.shape[0]), device=lib.device(row)) - lib.take(starts, row)
    return lib.astype(row, "int64") * width + rank


def place_blocks(
    lib: ArrayLibrary, col: Array, data: Array, slot: Array, rows: int, width: int
) -> tuple[Array, Array]:
    """Blocked-ELL arrays with each block in its slot and every other slot empty.

    Parameters
    ----------
    col : (nnzb,) array
    data : (nnzb, b, b) array
    slot : (nnzb,) int64 array
        From `slots_in_rows`.
    rows, width : int

    Returns
    -------
    (rows, width) block columns and (rows, width, b, b) values.
    """
    columns = lib.full(rows * width, -1, lib.dtype_name(col), lib.device(col))
    lib.put(columns, slot, col)
    b, c = int(data.shape[1]), int(data.shape[2])
    within = lib.arange(b * c, device=lib.device(col))
    target = lib.xp.reshape(slot[:, None] * (b * c) + within[None, :], (-1,))
    values = lib.scatter((rows, width, b, c), target, lib.xp.reshape(data, (-1,)))
    return lib.xp.reshape(columns, (rows, width)), values
