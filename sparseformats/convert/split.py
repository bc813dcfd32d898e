"""Blocks into smaller blocks; elements are blocks of 1 x 1.

The lines of all blocks of a block row are first put side by side, as the dense block row would
have them; then small blocks without a stored element are left out. There is nothing to sort.
"""

from __future__ import annotations

from typing import NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.convert.blocks import Part, any_in_blocks, as_bsr, joined, rows_of
from sparseformats.convert.chunks import row_chunks
from sparseformats.convert.options import Options
from sparseformats.formats import BSR
from sparseformats.formats.canonical import expand

__all__ = ["split"]


class _Lines(NamedTuple):
    """Rows of small blocks across all blocks of a block row, as dense lines of g x C.

    ``source`` (L,) is the line's number in the block data, None where it is the same;
    ``first`` the first line of each row of small blocks, and L.
    """

    source: Array | None
    first: Array


def split(a: BSR, size: tuple[int, int], options: Options) -> BSR:
    """`a` in blocks of `size`, which divides its own block size.

    Small blocks without a stored element are dropped. The mark "all" stays.
    """
    (r, c), cols = a.blocksize, -(-a.shape[1] // size[1])
    width = options.width(a.lib.dtype_name(a.indices), cols)
    chunks = row_chunks(a.lib, a.indptr, a.nnzb, weight=r * c)
    part = joined(a.lib, [_split_rows(rows_of(a, chunk), size, width) for chunk in chunks])
    zeros = a.zeros if isinstance(a.zeros, str) else part.zeros
    return as_bsr(a.lib, part, zeros, a.shape, options)


def _split_rows(a: BSR, size: tuple[int, int], width: str) -> Part:
    lib, (r, c), (g, h) = a.lib, a.blocksize, size
    p, q = r // g, c // h
    count, rows = a.nnzb * p, -(-a.shape[0] // g)
    lines = _lines(a, p)
    data = lib.xp.reshape(a.data, (count, g * c))
    if lines.source is None:
        left = lib.astype(a.indices, width) * q
    else:
        left = lib.astype(lib.take(a.indices, lines.source // p), width) * q
        data = lib.take(data, lines.source)
    layout = (count, g, q, h)
    marked = _marked(a, lines, g * c)
    stored = _stored(a, data, lines, left, marked, layout)
    first = lines.first[: rows + 1] * q
    if stored is None:
        within = lib.arange(q, width, a.device)
        indices = lib.xp.reshape(left[:, None] + within[None, :], (-1,))
        return Part(_cut(lib, data, None, layout), indices, first, None)
    kept = lib.flatnonzero(any_in_blocks(lib, stored, layout))
    line = kept // q
    indices = lib.take(left, line) + lib.astype(kept - line * q, width)
    indptr = lib.searchsorted(kept, first)
    zeros = None if marked is None else _moved(lib, marked, kept, layout)
    return Part(_cut(lib, data, kept, layout), indices, indptr, zeros)


def _lines(a: BSR, p: int) -> _Lines:
    lib = a.lib
    indptr = lib.astype(a.indptr, "int64")
    if p == 1:
        return _Lines(None, indptr)
    brows, count = int(indptr.shape[0]) - 1, a.nnzb * p
    start, blocks = indptr[:-1], indptr[1:] - indptr[:-1]
    down = lib.arange(p, device=a.device)
    first = lib.xp.reshape(start[:, None] * p + blocks[:, None] * down[None, :], (brows * p,))
    first = lib.concat([first, lib.full(1, count, "int64", a.device)])
    brow = expand(lib, indptr * p, count)
    start, blocks = lib.take(start, brow), lib.take(blocks, brow)
    at = lib.arange(count, device=a.device) - start * p
    down = at // blocks
    return _Lines((start + at - down * blocks) * p + down, first)


def _marked(a: BSR, lines: _Lines, length: int) -> Array | None:
    """Positions of listed zeros in the lines; in any order."""
    if a.zeros is None or isinstance(a.zeros, str):
        return None
    if lines.source is None:
        return a.zeros
    lib, count = a.lib, int(lines.source.shape[0])
    line_of = lib.scatter(count, lines.source, lib.arange(count, device=a.device))
    return lib.take(line_of, a.zeros // length) * length + a.zeros % length


def _stored(
    a: BSR,
    data: Array,
    lines: _Lines,
    left: Array,
    marked: Array | None,
    layout: tuple[int, int, int, int],
) -> Array | None:
    """Mask (lines, g, q, h) of stored slots; None where every slot is stored."""
    lib, (m, n), (count, g, q, h) = a.lib, a.shape, layout
    if not isinstance(a.zeros, str):
        mask = lib.nonzero_mask(data)
        if marked is not None:
            lib.put(mask, marked, True)
        return lib.xp.reshape(mask, layout)
    if not (m % a.blocksize[0] or n % a.blocksize[1]):
        return None
    top = expand(lib, lines.first, count) * g
    row = top[:, None] + lib.arange(g, device=a.device)[None, :]
    inner = lib.arange(q * h, device=a.device)
    col = lib.astype(left, "int64")[:, None] * h + inner[None, :]
    inside_col = lib.xp.reshape(col < n, (count, 1, q, h))
    return (row < m)[:, :, None, None] & inside_col


def _cut(
    lib: ArrayLibrary, data: Array, kept: Array | None, layout: tuple[int, int, int, int]
) -> Array:
    """Small blocks (k, g, h) out of dense lines, all of them or those numbered in `kept`."""
    xp, (count, g, q, h) = lib.xp, layout
    if kept is None:
        blocks = xp.permute_dims(xp.reshape(data, layout), (0, 2, 1, 3))
        return xp.reshape(blocks, (count * q, g, h))
    number = int(kept.shape[0])
    if g * h == 1:
        return xp.reshape(lib.take(xp.reshape(data, (-1,)), kept), (number, 1, 1))
    if g > 1:
        line = kept // q
        down = lib.arange(g, device=lib.device(kept)) * q
        kept = xp.reshape((line * (g * q) + kept - line * q)[:, None] + down[None, :], (-1,))
    rows = lib.take(xp.reshape(data, (count * g * q, h)), kept)
    return xp.reshape(rows, (number, g, h))


def _moved(
    lib: ArrayLibrary, marked: Array, kept: Array, layout: tuple[int, int, int, int]
) -> Array:
    """Positions in the small blocks of marks that are positions in the lines, ascending."""
    _, g, q, h = layout
    line, within = marked // (g * q * h), marked % (g * q * h)
    row, col = within // (q * h), within % (q * h)
    block = lib.searchsorted(kept, line * q + col // h)
    moved = block * (g * h) + row * h + col % h
    return lib.take(moved, lib.argsort(moved))
