"""CSR seen as block rows, and which blocks each of them has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import _sparsetools as sparsetools

from sparseformats._dtypes import INT32_MAX
from sparseformats_kernels.cpu.convert._bits import CHUNK, Array, ranges
from sparseformats_kernels.cpu.convert._scratch import scratch

__all__ = ["BITMAP_CELLS", "Grid", "find_blocks"]

# Above this many bitmap cells an element, other ways win: measured crossover at 8 to 16.
BITMAP_CELLS = 12


@dataclass(frozen=True, slots=True)
class Grid:
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
        some = self.indices[self.rows[first] : self.rows[last]]
        return np.floor_divide(some, self.C, out=scratch("columns", len(some), some.dtype))

    def rows_of(self, first: int, last: int, pointers: Array, what: str) -> Array:
        """Row, from 0, of each element; `pointers` are those of the rows first..last."""
        rows, local = last - first, pointers[first : last + 1] - pointers[first]
        found = scratch(what, int(local[-1]), local.dtype)
        sparsetools.expandptr(rows, local, found)
        return found


def find_blocks(grid: Grid) -> tuple[Array, Array, Array | None]:
    """Sorted block columns, block pointers, and perhaps the block number of each element."""
    cells = (len(grid.rows) - 1) * grid.bcols
    if cells <= BITMAP_CELLS * len(grid.indices) and grid.bcols <= INT32_MAX:
        return *_blocks_by_bitmap(grid), None
    return _blocks_by_sorting(grid)


def _blocks_by_bitmap(grid: Grid) -> tuple[Array, Array]:
    """Sorted block columns and block pointers."""
    pointers = np.zeros_like(grid.rows)
    parts = [grid.indices[:0]]
    for first, last in grid.chunks():
        rows, columns = last - first, grid.block_columns(first, last)
        bitmap = scratch("bitmap", rows * grid.bcols, np.bool_)
        ones = scratch("ones", len(columns), np.bool_)
        bitmap.fill(False)
        ones.fill(True)
        local = grid.rows[first : last + 1] - grid.rows[first]
        # SciPy's "or" of ones into the bitmap: a scatter without a row number for each element.
        sparsetools.csr_todense(rows, grid.bcols, local, columns, ones, bitmap)
        marked = np.flatnonzero(bitmap)
        edges = np.searchsorted(marked, np.arange(rows + 1) * grid.bcols)
        pointers[first + 1 : last + 1] = edges[1:] + pointers[first]
        marked -= np.repeat(np.arange(rows) * grid.bcols, np.diff(edges))
        parts.append(marked.astype(grid.indices.dtype))
    return np.concatenate(parts), pointers


def _blocks_by_sorting(grid: Grid) -> tuple[Array, Array, Array]:
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
        parts.append(columns[fresh[:-1]])  # a copy
    return np.concatenate(parts), pointers, ranks
