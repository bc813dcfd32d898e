"""Blocks into larger blocks; elements are blocks of 1 x 1.

CSR is nothing but BSR with 1 x 1 blocks that are all stored, so CSR -> BSR and BSR -> BSR are one
algorithm: name the large block of each small one, number the large blocks that occur, and write
each small block to its place. The numbers come from a bitmap of block positions, or from a sort
where such a bitmap would be larger than the matrix; never from an m x n array.
"""

from __future__ import annotations

from typing import NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import INT32_MAX
from sparseformats.convert.blocks import Part, as_bsr, inside_count, joined, rows_of
from sparseformats.convert.chunks import row_chunks
from sparseformats.convert.options import Options
from sparseformats.convert.pointers import bounds, run_starts, sorted_pointers
from sparseformats.formats import ALL, BSR
from sparseformats.formats.canonical import expand
from sparseformats.formats.slots import slots_inside

__all__ = ["merge"]

_BITMAP = 4  # bytes of bitmap a small block that are still cheaper than sorting
_ALWAYS = 4096  # and what is small enough whatever the number of blocks
_INT64_MAX = 2**63 - 1


class _Large(NamedTuple):
    """Large blocks that occur, and which of them each small block belongs to."""

    indices: Array
    indptr: Array
    owner: Array


def merge(a: BSR, size: tuple[int, int], options: Options) -> BSR:
    """`a` in blocks of `size`, a multiple of its own block size.

    Stored zeros stay marked; the mark "all" stays where the large blocks are full.
    """
    chunks = row_chunks(a.lib, a.indptr, a.nnzb, step=size[0] // a.blocksize[0])
    part = joined(a.lib, [_merge_rows(rows_of(a, chunk), size) for chunk in chunks])
    full = part.zeros is not None and _is_full(a, part, size)
    return as_bsr(a.lib, part, ALL if full else part.zeros, a.shape, options)


def _merge_rows(a: BSR, size: tuple[int, int]) -> Part:
    lib, (g, h), (r, c) = a.lib, a.blocksize, size
    p, q = r // g, c // h
    grid = -(-a.shape[0] // r), -(-a.shape[1] // c)
    name = lib.dtype_name(a.indices)
    if not a.nnzb:
        data = lib.zeros((0, r, c), a.dtype_name, a.device)
        return Part(data, a.indices, lib.zeros(grid[0] + 1, "int64", a.device), None)
    row = expand(lib, a.indptr, a.nnzb)
    brow, bcol = (row // p if p > 1 else row), (a.indices // q if q > 1 else a.indices)
    large = _number(lib, brow, bcol, grid, ordered=p == 1)
    line = large.owner * (r * q)
    line += lib.astype(row - brow * p, "int64") * (g * q)
    line += a.indices - bcol * q
    count = int(large.indices.shape[0])
    data = _placed(a, line, (count, r, c), q)
    return Part(data, lib.astype(large.indices, name), large.indptr, _marks(a, line, q))


def _number(
    lib: ArrayLibrary, brow: Array, bcol: Array, grid: tuple[int, int], *, ordered: bool
) -> _Large:
    """Number the large blocks; `ordered` says that small blocks already come in their order."""
    rows, cols = grid
    if ordered:
        owner, starts = run_starts(lib, brow, bcol)
        kept = lib.take(brow, starts)
        indptr = sorted_pointers(lib, kept, rows, "int64")
        return _Large(lib.take(bcol, starts), indptr, owner)
    if rows * cols <= _BITMAP * int(brow.shape[0]) + _ALWAYS:
        return _number_by_bitmap(lib, brow, bcol, grid)
    return _number_by_sort(lib, brow, bcol, grid)


def _number_by_bitmap(lib: ArrayLibrary, brow: Array, bcol: Array, grid: tuple[int, int]) -> _Large:
    rows, cols = grid
    if rows * cols > INT32_MAX:
        brow = lib.astype(brow, "int64")
    key = brow * cols + bcol
    mask = lib.zeros(rows * cols, "bool", lib.device(key))
    lib.put(mask, key, True)
    keys = lib.flatnonzero(mask)
    rank = lib.cumsum(mask) - 1
    return _Large(keys % cols, bounds(lib, keys, rows, cols), lib.take(rank, key))


def _number_by_sort(lib: ArrayLibrary, brow: Array, bcol: Array, grid: tuple[int, int]) -> _Large:
    rows, cols = grid
    if rows * cols <= _INT64_MAX:
        key = lib.astype(brow, "int64") * cols + bcol
        order = lib.argsort(key)
        runs, starts = run_starts(lib, lib.take(key, order))
    else:
        order = lib.lexsort(brow, bcol)
        runs, starts = run_starts(lib, lib.take(brow, order), lib.take(bcol, order))
    first = lib.take(order, starts)
    indptr = sorted_pointers(lib, lib.take(brow, first), rows, "int64")
    owner = lib.scatter(int(order.shape[0]), order, runs)
    return _Large(lib.take(bcol, first), indptr, owner)


def _placed(a: BSR, line: Array, shape: tuple[int, int, int], q: int) -> Array:
    """Data of the large blocks.

    `line` is where the first row of each small block goes, counted in rows of a small block; its
    further rows follow at a distance of q.
    """
    lib, (g, h) = a.lib, a.blocksize
    if g > 1:
        below = lib.arange(g, device=a.device) * q
        line = lib.xp.reshape(line[:, None] + below[None, :], (-1,))
    if h == 1:
        return lib.scatter(shape, line, lib.xp.reshape(a.data, (-1,)))
    out = lib.zeros((shape[0] * shape[1] * q, h), a.dtype_name, a.device)
    lib.put_rows(out, line, lib.xp.reshape(a.data, (a.nnzb * g, h)))
    return lib.xp.reshape(out, shape)


def _marks(a: BSR, line: Array, q: int) -> Array | None:
    """Positions of stored zeros in the large blocks, ascending; None where there are none."""
    lib, (g, h) = a.lib, a.blocksize
    zeros = a.zeros
    if isinstance(zeros, str):
        zeros = lib.flatnonzero(_stored_zeros(a))
    if zeros is None or not int(zeros.shape[0]):
        return None
    if g * h == 1:
        moved = lib.take(line, zeros)
    else:
        within = zeros % (g * h)
        moved = (lib.take(line, zeros // (g * h)) + within // h * q) * h + within % h
    return lib.take(moved, lib.argsort(moved))


def _stored_zeros(a: BSR) -> Array:
    """Mask of stored zeros of a matrix marked "all"."""
    lib = a.lib
    mask = ~lib.nonzero_mask(a.data)
    if a.blocksize == (1, 1):
        return mask
    row = expand(lib, a.indptr, a.nnzb)
    inside = slots_inside(lib, row, a.indices, a.blocksize, a.shape)
    return mask if inside is None else mask & inside


def _is_full(a: BSR, part: Part, size: tuple[int, int]) -> bool:
    """Whether every slot of the large blocks inside the shape is stored, cheaply known."""
    if not isinstance(a.zeros, str):
        return False
    given = inside_count(a.lib, a.indptr, a.indices, a.blocksize, a.shape)
    return given == inside_count(a.lib, part.indptr, part.indices, size, a.shape)
