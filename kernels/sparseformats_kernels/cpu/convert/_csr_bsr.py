"""CSR to BSR for NumPy arrays: sorted blocks, one scatter of the values.

Three ways to find the blocks of a block row; which one is fastest depends on how many elements
share a block (times per element, float32, 8192 x 8192, one core of a 2-core x86-64):

- *bitmap*: mark block columns in a bitmap of each block row, number the marks, look each
  element's block up: 4-9 ns, but every cell of the bitmap costs about 0.15 ns.
- *direct*: SciPy's ``csr_tobsr`` meets blocks in the order of scalar rows; a counting sort of
  the blocks repairs it: 15 ns, moves the whole output twice, so only for small blocks, or where
  a sample (of a band, say) is met in order anyhow.
- *sorting*: sort each block row's block columns: 40 ns, memory in proportion to the elements
  whatever the shape.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import _sparsetools as sparsetools

from sparseformats import _arrays
from sparseformats._dtypes import INT32_MAX, index_width
from sparseformats_kernels.cpu.convert import _grid
from sparseformats_kernels.cpu.convert._bits import (
    CHUNK,
    Array,
    as_bits,
    nonzero,
    row_units,
    to_width,
)
from sparseformats_kernels.cpu.convert._grid import Grid, find_blocks
from sparseformats_kernels.cpu.convert._scratch import LIMIT, scratch

__all__ = ["csr_to_bsr"]

# Blocks up to this size are cheaper to move twice than to be found by sorting.
DIRECT_BYTES = 256
# So few elements, and bytes of blocks, that the number of calls decides.
SMALL, SMALL_BYTES = 4096, 1 << 18
# Blocks a block row below which sorting each row beats counting sorts of all.
SHORT_ROWS = 8
# Block rows whose order is looked at before SciPy is trusted with large blocks.
SAMPLE_ROWS = 64
# SciPy allocates a pointer for each block column; not more of them than this for one element.
DIRECT_COLUMNS = 1
# Bytes of an output before which free memory is looked at: asking takes as long as a small one.
LARGE = 1 << 26
# Elements of a block row from which a copy of whole rows beats the scatter.
WHOLE_ROW = 1024


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
    grid = Grid(indices, indptr, rows, bcols, R, C)
    stored = _stored_zeros(data)
    if _direct(grid, data):
        blocks, index, pointers = _convert_directly(grid, as_bits(data))
        marks = None
        if stored is not None:
            flags, _, _ = _convert_directly(grid, stored.view(np.int8))
            marks = np.flatnonzero(flags)
    else:
        index, pointers, ranks = find_blocks(grid)
        bits = as_bits(data)
        _ensure_fits(len(index), grid, bits)
        blocks = np.zeros((len(index), R, C), bits.dtype)
        marks = _scatter(grid, bits, index, pointers, ranks, stored, blocks)
    return blocks.view(data.dtype), to_width(index, name), to_width(pointers, name), marks


def _ensure_fits(blocks: int, grid: Grid, bits: Array) -> None:
    """Refuse blocks that memory cannot hold before they are made."""
    nbytes = blocks * grid.R * grid.C * bits.dtype.itemsize
    if nbytes > LARGE:
        what = f"BSR form with {blocks:,} blocks of {grid.R} x {grid.C}"
        _arrays.library("numpy").ensure_fits(nbytes, "cpu", what)


def _padded(indptr: Array, rows: int) -> Array:
    missing = rows + 1 - len(indptr)
    return np.concatenate([indptr, np.repeat(indptr[-1:], missing)]) if missing else indptr


def _stored_zeros(data: Array) -> Array | None:
    """Mask of elements that are zero, None if there are none (the usual case)."""
    for start in range(0, len(data), CHUNK):
        if not nonzero(data[start : start + CHUNK]).all():
            return ~nonzero(data)
    return None


def _direct(grid: Grid, data: Array) -> bool:
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
    if cells <= _grid.BITMAP_CELLS * count:
        return False
    return size <= DIRECT_BYTES or _meets_blocks_in_order(grid)


def _meets_blocks_in_order(grid: Grid) -> bool:
    """Judge by block rows in the middle; bands and other local patterns pass."""
    first = max(0, (len(grid.rows) - 1 - SAMPLE_ROWS) // 2)
    rows = grid.rows[first : first + SAMPLE_ROWS + 1]
    lines = grid.indptr[first * grid.R : (first + len(rows) - 1) * grid.R + 1] - rows[0]
    part = Grid(grid.indices[rows[0] : rows[-1]], lines, rows - rows[0], grid.bcols, grid.R, grid.C)
    count = len(part.rows) - 1, len(part.indices)
    pointers, index = np.empty(count[0] + 1, rows.dtype), np.empty(count[1], rows.dtype)
    # As blocks of one column the pattern is as good, and nothing large is written.
    narrow = part.indices // part.C
    shape = (count[0] * part.R, part.bcols)
    flags, room = np.ones(count[1], np.int8), np.zeros(count[1] * part.R, np.int8)
    sparsetools.csr_tobsr(*shape, part.R, 1, lines, narrow, flags, pointers, index, room)
    return bool(sparsetools.csr_has_sorted_indices(count[0], pointers, index))


def _convert_directly(grid: Grid, bits: Array) -> tuple[Array, Array, Array]:
    R, C, name = grid.R, grid.C, grid.indices.dtype
    shape, brows = (len(grid.indptr) - 1, grid.bcols * C), len(grid.rows) - 1
    count = sparsetools.csr_count_blocks(*shape, R, C, grid.indptr, grid.indices)
    pointers, index = np.empty(brows + 1, name), np.empty(count, name)
    _ensure_fits(count, grid, bits)
    size = count * R * C
    # Blocks of one row are met in order; taller ones are probably moved once more.
    final = R == 1 or size * bits.itemsize > LIMIT
    flat = np.zeros(size, bits.dtype) if final else scratch("blocks", size, bits.dtype)
    if not final:
        flat.fill(0)
    sparsetools.csr_tobsr(*shape, R, C, grid.indptr, grid.indices, bits, pointers, index, flat)
    blocks = flat.reshape(count, R, C)
    if sparsetools.csr_has_sorted_indices(brows, pointers, index):
        return blocks if final else blocks.copy(), index, pointers
    order = scratch("order", count, name)
    order[:] = np.arange(count, dtype=name)
    if count < SHORT_ROWS * brows:
        sparsetools.csr_sort_indices(brows, pointers, index, order)
        return np.take(blocks, order, axis=0), index, pointers
    # Two counting sorts order the blocks by column, then, stably, by row.
    column, rows = np.empty(grid.bcols + 1, name), scratch("rows", count, name)
    by_column = scratch("columns", count, name)
    sparsetools.csr_tocsc(brows, grid.bcols, pointers, index, order, column, rows, by_column)
    sparsetools.csr_tocsc(grid.bcols, brows, column, rows, by_column, pointers, index, order)
    return np.take(blocks, order, axis=0), index, pointers


def _scatter(
    grid: Grid,
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
        if end - begin == (top - base) * size and stored is None:
            _copy_full(grid, bits, pointers, range(first, last), blocks)
            continue
        place = _places(grid, index, pointers, ranks, first, last)
        flat[base * size : top * size][place] = bits[begin:end]
        if stored is not None:
            marks.append(np.sort(place[stored[begin:end]]) + base * size)
    return np.concatenate(marks) if marks else None


def _places(
    grid: Grid, index: Array, pointers: Array, ranks: Array | None, first: int, last: int
) -> Array:
    """Position of each element among the slots of the block rows first..last."""
    rows, size = last - first, grid.R * grid.C
    begin, end = (int(grid.rows[row]) for row in (first, last))
    blocks = int(pointers[last] - pointers[first])
    wide = max(rows, blocks) * size > INT32_MAX
    columns, name = grid.block_columns(first, last), np.int64 if wide else np.int32
    place, keys = scratch("place", end - begin, name), scratch("keys", end - begin, np.int64)
    if ranks is None:
        cells = grid.rows_of(first, last, grid.rows, "rows")
        cells = cells if rows * grid.bcols <= INT32_MAX else cells.astype(np.int64)
        cells *= grid.bcols
        cells += columns
        keys[:] = cells  # NumPy indexes with int64 three times as fast
        table = _table(grid, index, pointers, first, last).astype(name, copy=False)
        np.take(table, keys, out=place, mode="clip")  # other modes make a copy first
    else:
        brow = grid.rows_of(first, last, grid.rows, "rows")
        np.subtract(ranks[begin:end] - pointers[first], brow, out=place, casting="same_kind")
    place *= size
    # The scalar row counts from `first`, not within its block: hence blocks less block rows above.
    lines = grid.rows_of(first * grid.R, last * grid.R, grid.indptr, "rows")
    lines = lines.astype(name, copy=False)
    lines *= grid.C
    place += lines
    columns *= grid.C
    place += np.subtract(grid.indices[begin:end], columns, out=columns)
    keys[:] = place
    return keys


def _table(grid: Grid, index: Array, pointers: Array, first: int, last: int) -> Array:
    """By block position: the block's number less its row's, both from 0 within the chunk."""
    rows = last - first
    brow = grid.rows_of(first, last, pointers, "brow")
    some = index[pointers[first] : pointers[last]]
    table = scratch("table", rows * grid.bcols, np.int32)
    cells = brow.astype(np.int64)
    cells *= grid.bcols
    cells += some
    number = np.arange(len(some), dtype=np.int32)
    number -= brow
    table[cells] = number
    return table


def _copy_full(grid: Grid, bits: Array, pointers: Array, rows: range, blocks: Array) -> None:
    """Copy block rows whose blocks are all full: the same values in another order."""
    begin, end = (int(grid.rows[row]) for row in (rows.start, rows.stop))
    if end - begin >= WHOLE_ROW * len(rows):
        for row in rows:
            part = bits[grid.rows[row] : grid.rows[row + 1]].reshape(grid.R, -1, grid.C)
            blocks[pointers[row] : pointers[row + 1]] = part.transpose(1, 0, 2)
        return
    # Each C neighbours stay together. SciPy's bsr_tocsr, let loose on their numbers, tells where.
    base, top = (int(pointers[row]) for row in (rows.start, rows.stop))
    count, name = (top - base) * grid.R, pointers.dtype
    local = pointers[rows.start : rows.stop + 1] - pointers[rows.start]
    lines, waste = np.empty(len(rows) * grid.R + 1, name), np.zeros(count, name)
    order = scratch("keys", count, np.int64)
    sparsetools.bsr_tocsr(
        *(len(rows), grid.bcols, grid.R, 1, local, waste[: top - base]),
        *(np.arange(count), lines, np.empty_like(waste), order),
    )
    into = row_units(blocks[base:top].reshape(-1), grid.C)
    into[order] = row_units(bits[begin:end], grid.C)
