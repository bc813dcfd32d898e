"""CSR to BSR for NumPy arrays: sorted blocks, one scatter of the values.

Three ways to find the blocks of a block row; which one is fastest depends on how many elements
share a block (times per element, float32, 8192 x 8192, one core of a 2-core x86-64):

- *bitmap*: mark block columns in a bitmap of each block row, number the marks, look each
  element's block up: 4-9 ns, but every cell of the bitmap costs about 0.15 ns.
- *direct*: SciPy's ``csr_tobsr`` meets blocks in the order of scalar rows; a counting sort of
  the blocks repairs it: 15 ns, moves the whole output twice, so only for small blocks.
- *sorting*: sort each block row's block columns: 40 ns, memory in proportion to the elements
  whatever the shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import _sparsetools as sparsetools

from sparseformats._dtypes import INT32_MAX, index_width
from sparseformats_kernels.cpu.convert._bits import (
    CHUNK,
    Array,
    as_bits,
    nonzero,
    ranges,
    to_width,
)

__all__ = ["csr_to_bsr"]

# Above this many bitmap cells an element, other ways win: measured crossover at 8 to 16.
BITMAP_CELLS = 12
# Blocks up to this size are cheaper to move twice than to be found by sorting.
DIRECT_BYTES = 256
# So few elements, and bytes of blocks, that the number of calls decides.
SMALL, SMALL_BYTES = 4096, 1 << 18
# SciPy allocates a pointer for each block column; not more of them than this for one element.
DIRECT_COLUMNS = 1
# Elements of a block row from which a copy of whole rows beats the scatter.
WHOLE_ROW = 1024


@dataclass(frozen=True, slots=True)
class _Grid:
    """A CSR matrix seen as block rows; `rows` points into its elements."""

    indices: Array
    indptr: Array  # (brows * R + 1,): ragged rows are empty rows
    rows: Array  # (brows + 1,)
    bcols: int
    R: int
    C: int

    def chunks(self) -> Iterator[tuple[int, int]]:
        return ranges(self.rows, CHUNK)

    def block_columns(self, first: int, last: int) -> Array:
        """Block column of each element of the block rows first..last."""
        return self.indices[self.rows[first] : self.rows[last]] // self.C

    def row_offsets(self, first: int, last: int) -> Array:
        """Where the scalar row of each element begins inside its block."""
        counts = np.diff(self.indptr[first * self.R : last * self.R + 1])
        begin = np.arange(self.R, dtype=np.int64) * self.C
        if self.R * self.C <= INT32_MAX:
            begin = begin.astype(np.int32)
        return np.repeat(np.tile(begin, last - first), counts)


def csr_to_bsr(
    data: Array,
    indices: Array,
    indptr: Array,
    shape: tuple[int, int],
    blocksize: tuple[int, int],
) -> tuple[Array, Array, Array, Array | None]:
    """Convert canonical CSR to canonical BSR.

    Parameters
    ----------
    data, indices, indptr : arrays
    shape : (m, n)
    blocksize : (R, C)

    Returns
    -------
    data : (nnzb, R, C) array
    indices, indptr : (nnzb,), (brows + 1,) arrays
    zeros : int64 array or None
        Ascending flat positions of stored elements whose value is zero.
    """
    (m, n), (R, C) = shape, blocksize
    brows, bcols = -(-m // R), -(-n // C)
    name = index_width(str(indices.dtype), bcols)
    work = index_width(name, brows * R, bcols * C)  # SciPy is told the padded shape
    indices, indptr = to_width(indices, work), _padded(to_width(indptr, work), brows * R)
    rows = np.ascontiguousarray(indptr[::R])
    grid = _Grid(indices, indptr, rows, bcols, R, C)
    stored = _stored_zeros(data)
    if _direct(grid, data):
        blocks, index, pointers = _convert_directly(grid, as_bits(data))
        marks = None
        if stored is not None:
            flags, _, _ = _convert_directly(grid, stored.view(np.int8))
            marks = np.flatnonzero(flags)
    else:
        index, pointers, ranks = _find_blocks(grid)
        blocks = np.zeros((len(index), R, C), as_bits(data).dtype)
        marks = _scatter(grid, as_bits(data), index, pointers, ranks, stored, blocks)
    return blocks.view(data.dtype), to_width(index, name), to_width(pointers, name), marks


def _find_blocks(grid: _Grid) -> tuple[Array, Array, Array | None]:
    """Sorted block columns, block pointers, and perhaps the block number of each element."""
    cells = (len(grid.rows) - 1) * grid.bcols
    if cells <= BITMAP_CELLS * len(grid.indices) and grid.bcols <= INT32_MAX:
        return *_blocks_by_bitmap(grid), None
    return _blocks_by_sorting(grid)


def _padded(indptr: Array, rows: int) -> Array:
    missing = rows + 1 - len(indptr)
    return np.concatenate([indptr, np.repeat(indptr[-1:], missing)]) if missing else indptr


def _stored_zeros(data: Array) -> Array | None:
    """Mask of elements that are zero, None if there are none (the usual case)."""
    for start in range(0, len(data), CHUNK):
        if not nonzero(data[start : start + CHUNK]).all():
            return ~nonzero(data)
    return None


def _direct(grid: _Grid, data: Array) -> bool:
    """Tell whether SciPy's own routine, repaired, is the fastest way."""
    size, count = grid.R * grid.C, len(data)
    if data.dtype.itemsize == 16 or count * size > np.iinfo(grid.indices.dtype).max:
        return False  # it adds, which changes bits of complex128; its offsets have index width
    if grid.bcols > DIRECT_COLUMNS * count:
        return False
    if grid.R == 1:
        return True
    size *= data.dtype.itemsize
    if count <= SMALL and count * size <= SMALL_BYTES:
        return True
    cells = (len(grid.rows) - 1) * grid.bcols
    return size <= DIRECT_BYTES and cells > BITMAP_CELLS * count


def _convert_directly(grid: _Grid, bits: Array) -> tuple[Array, Array, Array]:
    R, C, name = grid.R, grid.C, grid.indices.dtype
    shape, brows = (len(grid.indptr) - 1, grid.bcols * C), len(grid.rows) - 1
    count = sparsetools.csr_count_blocks(*shape, R, C, grid.indptr, grid.indices)
    pointers, index = np.empty(brows + 1, name), np.empty(count, name)
    blocks = np.zeros((count, R, C), bits.dtype)
    sparsetools.csr_tobsr(
        *shape, R, C, grid.indptr, grid.indices, bits, pointers, index, blocks.reshape(-1)
    )
    if sparsetools.csr_has_sorted_indices(brows, pointers, index):
        return blocks, index, pointers
    order = np.arange(count, dtype=name)
    # Two counting sorts order the blocks by column, then, stably, by row.
    column, rows = np.empty(grid.bcols + 1, name), np.empty(count, name)
    by_column, sorted_index = np.empty(count, name), np.empty(count, name)
    sparsetools.csr_tocsc(brows, grid.bcols, pointers, index, order, column, rows, by_column)
    sparsetools.csr_tocsc(grid.bcols, brows, column, rows, by_column, pointers, sorted_index, order)
    return np.take(blocks, order, axis=0), sorted_index, pointers


def _blocks_by_bitmap(grid: _Grid) -> tuple[Array, Array]:
    """Sorted block columns and block pointers."""
    pointers = np.zeros_like(grid.rows)
    parts = [grid.indices[:0]]
    for first, last in grid.chunks():
        rows, columns = last - first, grid.block_columns(first, last)
        bitmap = np.zeros((rows, grid.bcols), np.bool_)
        local = grid.rows[first : last + 1] - grid.rows[first]
        # SciPy's "or" of ones into the bitmap: a scatter without a row number for each element.
        ones = np.ones(len(columns), np.bool_)
        sparsetools.csr_todense(rows, grid.bcols, local, columns, ones, bitmap.reshape(-1))
        marked = np.flatnonzero(bitmap)
        edges = np.searchsorted(marked, np.arange(rows + 1) * grid.bcols)
        pointers[first + 1 : last + 1] = edges[1:] + pointers[first]
        marked -= np.repeat(np.arange(rows) * grid.bcols, np.diff(edges))
        parts.append(marked.astype(grid.indices.dtype))
    return np.concatenate(parts), pointers


def _blocks_by_sorting(grid: _Grid) -> tuple[Array, Array, Array]:
    """Sorted block columns, block pointers, and the block number of each element."""
    name = grid.indices.dtype
    pointers = np.zeros_like(grid.rows)
    ranks = np.empty_like(grid.indices)
    parts = [grid.indices[:0]]
    for first, last in grid.chunks():
        columns = grid.block_columns(first, last)
        local = grid.rows[first : last + 1] - grid.rows[first]
        order = np.arange(len(columns), dtype=name)
        sparsetools.csr_sort_indices(last - first, local, columns, order)
        fresh = np.ones(len(columns) + 1, np.bool_)  # the last one only keeps edges in range
        np.not_equal(columns[1:], columns[:-1], out=fresh[1:-1])
        fresh[local] = True
        numbers = np.cumsum(fresh) - 1
        base = pointers[first]
        pointers[first + 1 : last + 1] = numbers[local[1:]] + base
        ranks[grid.rows[first] : grid.rows[last]][order] = numbers[:-1] + base
        parts.append(columns[fresh[:-1]])
    return np.concatenate(parts), pointers, ranks


def _scatter(
    grid: _Grid,
    bits: Array,
    index: Array,
    pointers: Array,
    ranks: Array | None,
    stored: Array | None,
    blocks: Array,
) -> Array | None:
    """Fill the blocks; return the positions of stored zeros."""
    size, flat, marks = grid.R * grid.C, blocks.reshape(-1), []
    for first, last in grid.chunks():
        begin, end = (int(grid.rows[row]) for row in (first, last))
        base, top = (int(pointers[row]) for row in (first, last))
        if begin == end:
            continue
        whole = end - begin == (top - base) * size and stored is None
        if whole and end - begin >= WHOLE_ROW * (last - first):
            _copy_rows(grid, bits, pointers, range(first, last), blocks)
            continue
        columns = grid.block_columns(first, last)
        if ranks is None:
            place = _look_up(grid, index, pointers, first, last, columns)
        else:
            place = ranks[begin:end] - ranks.dtype.type(base)
        if (top - base) * size > INT32_MAX:
            place = place.astype(np.int64)
        place *= size
        place += grid.row_offsets(first, last)
        columns *= grid.C
        place += grid.indices[begin:end] - columns
        place = place.astype(np.int64)  # NumPy indexes with int64 three times as fast
        flat[base * size : top * size][place] = bits[begin:end]
        if stored is not None:
            marks.append(np.sort(place[stored[begin:end]]) + base * size)
    return np.concatenate(marks) if marks else None


def _look_up(
    grid: _Grid, index: Array, pointers: Array, first: int, last: int, columns: Array
) -> Array:
    """Number, from 0 within the chunk, of the block of each element."""
    rows = last - first
    name = np.int32 if rows * grid.bcols <= INT32_MAX else np.int64
    some = index[pointers[first] : pointers[last]]
    cells, keys = some.astype(np.int64), columns
    if rows > 1:
        begin = np.arange(rows, dtype=name) * grid.bcols
        cells += np.repeat(begin, np.diff(pointers[first : last + 1]))
        keys = np.repeat(begin, np.diff(grid.rows[first : last + 1])) + columns
    table = np.empty(rows * grid.bcols, np.int32)
    table[cells] = np.arange(len(some), dtype=np.int32)
    return table.take(keys)


def _copy_rows(grid: _Grid, bits: Array, pointers: Array, rows: range, blocks: Array) -> None:
    """Copy block rows whose blocks are all full: the same values in another order."""
    for row in rows:
        part = bits[grid.rows[row] : grid.rows[row + 1]].reshape(grid.R, -1, grid.C)
        blocks[pointers[row] : pointers[row + 1]] = part.transpose(1, 0, 2)
