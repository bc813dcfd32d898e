"""Blocks into larger blocks; elements are blocks of 1 x 1.

CSR is nothing but BSR with 1 x 1 blocks that are all stored, so CSR -> BSR and BSR -> BSR are one
algorithm: name the large block of each small one, number the large blocks that occur, and write
each small block to its place.
"""

from __future__ import annotations

from typing import NamedTuple

from sparseformats._arrays import Array
from sparseformats._dtypes import itemsize
from sparseformats.convert.blocks import Part, as_bsr, inside_count, joined_pointers, rows_of
from sparseformats.convert.chunks import row_chunks
from sparseformats.convert.numbering import number
from sparseformats.convert.options import Options
from sparseformats.formats import ALL, BSR
from sparseformats.formats.canonical import expand
from sparseformats.formats.slots import slots_inside

__all__ = ["merge"]


class _Placed(NamedTuple):
    """Large blocks of some rows, and where the small ones go.

    ``line`` is the place of the first row of each small block, counted in rows of a small block
    of all the data to come; its further rows follow at a distance of C / h.
    """

    indices: Array
    indptr: Array
    line: Array


def merge(a: BSR, size: tuple[int, int], options: Options) -> BSR:
    """`a` in blocks of `size`, a multiple of its own block size.

    Stored zeros stay marked; the mark "all" stays where the large blocks are full.
    """
    lib, (r, c), blocks = a.lib, size, 0
    chunks = row_chunks(lib, a.indptr, a.nnzb, step=r // a.blocksize[0])
    smalls = [rows_of(a, chunk) for chunk in chunks]
    places = []
    for small in smalls:
        places.append(_places(small, size, blocks))
        blocks += int(places[-1].indices.shape[0])
    # Only now it is known how many there are: the data are made once, and not chunk by chunk.
    nbytes = blocks * r * c * itemsize(a.dtype_name)
    lib.ensure_fits(nbytes, a.device, f"BSR form with {blocks:,} blocks of {r} x {c}")
    data = lib.zeros((blocks, r, c), a.dtype_name, a.device)
    marks: list[Array] = []
    for small, place in zip(smalls, places, strict=True):
        _write(small, place.line, data)
        marks += _marks(small, place.line, c // a.blocksize[1])
    zeros = lib.concat(marks) if marks else None
    indices = lib.concat([place.indices for place in places])
    part = Part(data, indices, joined_pointers(lib, [p.indptr for p in places]), zeros)
    full = zeros is not None and _is_full(a, part, size)
    return as_bsr(lib, part, ALL if full else zeros, a.shape, options)


def _places(a: BSR, size: tuple[int, int], before: int) -> _Placed:
    """Large blocks of the rows `a`, with `before` ones above them."""
    lib, (g, h), (r, c) = a.lib, a.blocksize, size
    p, q = r // g, c // h
    grid = -(-a.shape[0] // r), -(-a.shape[1] // c)
    if not a.nnzb:
        pointers = lib.zeros(grid[0] + 1, "int64", a.device)
        return _Placed(a.indices, pointers, lib.zeros(0, "int64", a.device))
    row = expand(lib, a.indptr, a.nnzb)
    brow, bcol = (row // p if p > 1 else row), (a.indices // q if q > 1 else a.indices)
    large = number(lib, brow, bcol, grid, ordered=p == 1)
    line = (large.owner + before) * (r * q)
    line += lib.astype(row - brow * p, "int64") * (g * q)
    line += a.indices - bcol * q
    return _Placed(lib.astype(large.indices, lib.dtype_name(a.indices)), large.indptr, line)


def _write(a: BSR, line: Array, out: Array) -> None:
    """Write small blocks to their lines in the data of the large ones."""
    lib, (g, h), size = a.lib, a.blocksize, int(out.shape[0]) * int(out.shape[1])
    q = int(out.shape[2]) // h
    if g > 1:
        below = lib.arange(g, device=a.device) * q
        line = lib.xp.reshape(line[:, None] + below[None, :], (-1,))
    if h == 1:
        lib.put(out, line, lib.xp.reshape(a.data, (a.nnzb * g,)))
    else:
        lines = lib.xp.reshape(out, (size * q, h))
        lib.put_rows(lines, line, lib.xp.reshape(a.data, (a.nnzb * g, h)))


def _marks(a: BSR, line: Array, q: int) -> list[Array]:
    """Positions of stored zeros in the large blocks, ascending; nothing where there are none."""
    lib, (g, h) = a.lib, a.blocksize
    zeros = a.zeros
    if isinstance(zeros, str):
        zeros = lib.flatnonzero(_stored_zeros(a))
    if zeros is None or not int(zeros.shape[0]):
        return []
    if g * h == 1:
        moved = lib.take(line, zeros)
    else:
        within = zeros % (g * h)
        moved = (lib.take(line, zeros // (g * h)) + within // h * q) * h + within % h
    return [lib.take(moved, lib.argsort(moved))]


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
