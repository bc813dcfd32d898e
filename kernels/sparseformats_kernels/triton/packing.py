"""What block kernels read: which stored blocks make each block row, and tiles packed from them.

`Blocks` names the blocks of BSR and Blocked-ELL alike, of the matrix or of its transpose, by places
in the matrix's own values: nothing is copied. `tiles` copies the values once into tiles of a size
that tensor cores like, for blocks of any size: a tile holds the rows of one block row and any BK
columns of its blocks, with a list of these columns, -1 where a tile has fewer. Block rows never
share a tile, so that no element meets a row of the operand that its own blocks do not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.formats import BSR, BlockedELL, SparseMatrix

__all__ = ["PAD", "Blocks", "Tiles", "blocks_of", "tiles"]

Host = np.ndarray[Any, np.dtype[Any]]

PAD = 16
"""Entries after the last of a list of columns: kernels read ahead."""


class Blocks(NamedTuple):
    """Stored blocks by block row of the matrix that is multiplied.

    Attributes
    ----------
    columns : (slots + PAD,) int32
        Block columns.
    places : (slots + PAD,) int32 or None
        Where each block lies among the values; None where that is its own number.
    begin, end : (block_rows,) NumPy int64
        Blocks of row i are ``begin[i]:end[i]``.
    """

    columns: Array
    places: Array | None
    begin: Host
    end: Host


class Tiles(NamedTuple):
    """Values packed for one kernel.

    Attributes
    ----------
    values : (tiles, BM, BK) array
    columns : (tiles * BK,) int32
        Columns of the matrix, -1 where there is none.
    begin, end : (tile_rows,) NumPy int64
        Tiles of tile row i are ``begin[i]:end[i]``.
    """

    values: Array
    columns: Array
    begin: Host
    end: Host


def blocks_of(A: SparseMatrix, transposed: bool) -> Blocks:
    """Stored blocks of `A`, or of its transpose, by block row."""
    lib, device = A.lib, A.device
    if isinstance(A, BSR):
        columns, slots = lib.astype(A.indices, "int64"), None
        ptr = lib.to_numpy(A.indptr).astype(np.int64)
        begin, end = ptr[:-1], ptr[1:]
    elif isinstance(A, BlockedELL):
        columns = lib.reshape(lib.astype(A.col_indices, "int64"), (-1,))
        slots = lib.flatnonzero(columns >= 0)
        rows, width = (int(size) for size in A.col_indices.shape)
        used = lib.to_numpy(lib.astype(A.col_indices >= 0, "int64")).sum(axis=1)
        begin = np.arange(rows, dtype=np.int64) * width
        end = begin + used
    else:
        raise TypeError(f"expected a block format, got {A.format}")
    if not transposed:
        return Blocks(_padded(lib, columns), None, begin, end)
    row = np.repeat(np.arange(begin.size), end - begin)
    if slots is not None:
        columns = lib.take(columns, slots)
    order = lib.argsort(columns)  # stable: rows ascend within a column
    found = lib.take(lib.from_numpy(row, device), order)
    places = order if slots is None else lib.take(slots, order)
    count = -(-A.shape[1] // A.blocksize[1])
    ends = np.cumsum(lib.to_numpy(lib.bincount(columns, count)).astype(np.int64))
    starts = np.concatenate([np.zeros(min(count, 1), np.int64), ends[:-1]])
    return Blocks(_padded(lib, found), _padded(lib, places), starts, ends)


def _padded(lib: ArrayLibrary, x: Array) -> Array:
    tail = lib.zeros(PAD, "int32", lib.device(x))
    return lib.concat([lib.astype(x, "int32"), tail])


def tiles(
    A: SparseMatrix, transposed: bool, shape: tuple[int, int], tile: tuple[int, int]
) -> Tiles:
    """Copy the values of `A`, or of its transpose, into tiles.

    Parameters
    ----------
    shape : (m, k)
        Of the matrix that is multiplied.
    tile : (BM, BK)
    """
    lib, device, (bm, bk) = A.lib, A.device, tile
    blocks = blocks_of(A, transposed)
    r, c = A.blocksize[::-1] if transposed else A.blocksize
    high, count = -(-r // bm), blocks.end - blocks.begin
    steps = -(-(count * c) // bk)
    first = np.cumsum(steps) - steps
    total = int(steps.sum())
    slot = np.repeat(blocks.begin, count) + _ranks(count)
    # Where the first column of each block goes, among all columns of all tiles.
    target = np.repeat(first * bk, count) + _ranks(count) * c
    at = (target[:, None] + np.arange(c)).reshape(-1)
    index = lib.from_numpy(slot, device)
    column = lib.astype(lib.take(blocks.columns, index), "int64")
    logical = lib.reshape(column[:, None] * c + lib.arange(c, device=device)[None, :], (-1,))
    logical = lib.where(logical < shape[1], logical, logical * 0 - 1)
    columns = lib.full(total * bk, -1, "int64", device)
    lib.put(columns, lib.from_numpy(at, device), logical)
    data = _values(A, blocks, index, transposed)
    values = _placed(lib, data, lib.from_numpy(at, device), (high, total, bm, bk))
    offset = np.arange(high)[None, :] * total  # parts of a high block row lie apart
    begin, end = ((x[:, None] + offset).reshape(-1) for x in (first, first + steps))
    columns = lib.astype(columns, "int32")
    if high > 1:
        columns = lib.concat([columns] * high)
    return Tiles(values, columns, begin, end)


def _ranks(count: Host) -> Host:
    """0, 1, ... within each run of `count` entries."""
    ranks: Host = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return ranks


def _values(A: SparseMatrix, blocks: Blocks, index: Array, transposed: bool) -> Array:
    """Values of the blocks in the order of `index`, (nnzb, columns, rows)."""
    lib, size = A.lib, tuple(int(s) for s in A.data.shape[-2:])
    data = lib.reshape(A.data, (-1, *size))
    places = index
    if blocks.places is not None:
        places = lib.astype(lib.take(blocks.places, index), "int64")
    found = lib.take(data, places)
    return found if transposed else lib.xp.permute_dims(found, (0, 2, 1))


def _placed(lib: ArrayLibrary, data: Array, at: Array, shape: tuple[int, int, int, int]) -> Array:
    """Scatter columns of blocks, (nnzb, c, r), into tiles of the given (high, total, bm, bk)."""
    high, total, bm, bk = shape
    nnzb, c, r = (int(s) for s in data.shape)
    device, dtype, xp = lib.device(data), lib.dtype_name(data), lib.xp
    made = lib.zeros((total * bk, high * bm), dtype, device)
    if nnzb:
        rows = lib.zeros((nnzb * c, high * bm), dtype, device)
        rows[:, :r] = lib.reshape(lib.contiguous(data), (nnzb * c, r))
        lib.put_rows(made, at, rows)
    split = xp.permute_dims(lib.reshape(made, (total, bk, high, bm)), (2, 0, 3, 1))
    return lib.reshape(lib.contiguous(split), (high * total, bm, bk))
