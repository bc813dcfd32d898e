"""Kernels that find stored elements and move them: bits in, bits out, nothing is added.

Values come as integers of their width. One program writes what no other one writes; positions
are counted in 64 bits wherever they number elements.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["count_stored", "flag_blocks", "flag_columns", "gather_blocks", "name_blocks"]
__all__ += ["place_elements", "scatter_blocks", "write_stored"]

PLAIN = tl.constexpr(0)  # integers: zero is zero
SIGNED = tl.constexpr(1)  # floating: zero of either sign
PAIRED = tl.constexpr(2)  # two float32 in one


@triton.jit
def _is_nonzero(bits, KIND: tl.constexpr):
    if KIND == SIGNED:
        bits = bits << 1  # without the sign
    if KIND == PAIRED:
        bits = bits & 0x7FFFFFFF7FFFFFFF
    return bits != 0


@triton.jit
def flag_blocks(
    dense,
    row_step,
    column_step,
    flags,
    m,
    n,
    columns,
    strips,
    R: tl.constexpr,
    C: tl.constexpr,
    G: tl.constexpr,
    RB: tl.constexpr,
    KIND: tl.constexpr,
):
    """``flags[i, j]`` becomes whether block (i, j) of R x C has a non-zero.

    One program looks at G blocks side by side, RB rows at a time.
    """
    block_row, strip = tl.program_id(0) // strips, tl.program_id(0) % strips
    column = strip * (G * C) + tl.arange(0, G * C)
    found = tl.zeros((G * C,), tl.int32)
    column_at = column.to(tl.int64) * column_step
    for start in range(0, R, RB):
        down = start + tl.arange(0, RB)
        row = block_row * R + down
        inside = ((down < R) & (row < m))[:, None] & (column < n)[None, :]
        at = (row.to(tl.int64) * row_step)[:, None] + column_at[None, :]
        bits = tl.load(dense + at, mask=inside, other=0)
        found |= tl.max(_is_nonzero(bits, KIND).to(tl.int32), axis=0)
    block = tl.max(tl.reshape(found, (G, C)), axis=1)
    j = strip * G + tl.arange(0, G)
    place = flags + tl.cast(block_row, tl.int64) * columns + j
    tl.store(place, block.to(tl.int8), mask=j < columns)


@triton.jit
def name_blocks(flags, rank, kept, indices, table, columns, E: tl.constexpr):
    """Of each flagged place of a table: its number into ``kept``, its column into ``indices``."""
    place = tl.program_id(0) * E + tl.arange(0, E)
    inside = place < table
    flagged = tl.load(flags + place, mask=inside, other=0) != 0
    number = tl.load(rank + place, mask=flagged, other=1) - 1
    tl.store(kept + number, place.to(kept.dtype.element_ty), mask=flagged)
    tl.store(indices + number, (place % columns).to(indices.dtype.element_ty), mask=flagged)


@triton.jit
def gather_blocks(
    dense,
    row_step,
    column_step,
    kept,
    data,
    m,
    n,
    columns,
    count,
    parts,
    R: tl.constexpr,
    C: tl.constexpr,
    NB: tl.constexpr,
    E: tl.constexpr,
):
    """Copy the blocks numbered in `kept`, row by row, into ``data (count, R, C)``.

    One program copies one of so many parts, of E elements, of NB blocks.
    """
    block = tl.program_id(0) // parts * NB + tl.arange(0, NB)
    element = tl.program_id(0) % parts * E + tl.arange(0, E)
    number = tl.load(kept + block, mask=block < count, other=0).to(tl.int64)
    row = (number // columns * R)[:, None] + (element // C)[None, :]
    column = (number % columns * C)[:, None] + (element % C)[None, :]
    inside = (block < count)[:, None] & (element < R * C)[None, :]
    there = inside & (row < m) & (column < n)
    bits = tl.load(dense + row * row_step + column * column_step, mask=there, other=0)
    at = (block.to(tl.int64) * (R * C))[:, None] + element[None, :]
    tl.store(data + at, bits, mask=inside)


@triton.jit
def scatter_blocks(
    data,
    rows,
    indices,
    dense,
    m,
    n,
    count,
    parts,
    R: tl.constexpr,
    C: tl.constexpr,
    NB: tl.constexpr,
    E: tl.constexpr,
    KIND: tl.constexpr,
    FILL: tl.constexpr,
):
    """Write blocks to their places in ``dense (m, n)``, which holds zeros.

    With FILL zeros of either sign are left out: what only fills a block becomes +0.0. One program
    writes one of so many parts, of E elements, of NB blocks.
    """
    block = tl.program_id(0) // parts * NB + tl.arange(0, NB)
    element = tl.program_id(0) % parts * E + tl.arange(0, E)
    inside = (block < count)[:, None] & (element < R * C)[None, :]
    at = (block.to(tl.int64) * (R * C))[:, None] + element[None, :]
    bits = tl.load(data + at, mask=inside, other=0)
    top = tl.load(rows + block, mask=block < count, other=0).to(tl.int64) * R
    left = tl.load(indices + block, mask=block < count, other=0).to(tl.int64) * C
    row = top[:, None] + (element // C)[None, :]
    column = left[:, None] + (element % C)[None, :]
    if FILL:
        bits = tl.where(_is_nonzero(bits, KIND), bits, 0)
    tl.store(dense + row * n + column, bits, mask=inside & (row < m) & (column < n))


@triton.jit
def _stored(
    data, marked, first, end, down, R: tl.constexpr, C: tl.constexpr, G: tl.constexpr, KIND,
    MARKED: tl.constexpr,
):  # fmt: skip
    """Rows `down` of G blocks side by side: their bits and which of them are stored."""
    q = tl.arange(0, G * C)
    block = first + q // C
    inside = (down < R)[:, None] & (block < end)[None, :]
    at = (block.to(tl.int64) * (R * C) + q % C)[None, :] + (down * C)[:, None]
    bits = tl.load(data + at, mask=inside, other=0)
    if MARKED:
        stored = tl.load(marked + at, mask=inside, other=0) != 0
    else:
        stored = _is_nonzero(bits, KIND)
    return bits, stored


@triton.jit
def count_stored(
    data,
    marked,
    indptr,
    counts,
    m,
    parts,
    R: tl.constexpr,
    C: tl.constexpr,
    G: tl.constexpr,
    RB: tl.constexpr,
    KIND: tl.constexpr,
    MARKED: tl.constexpr,
):
    """Stored elements of each row; one program counts RB rows of a block row."""
    block_row, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    begin, end = tl.load(indptr + block_row), tl.load(indptr + block_row + 1)
    down = part * RB + tl.arange(0, RB)
    count = tl.zeros((RB,), tl.int32)
    for first in range(begin, end, G):
        _, stored = _stored(data, marked, first, end, down, R, C, G, KIND, MARKED)
        count += tl.sum(stored.to(tl.int32), axis=1)
    row = block_row * R + down
    tl.store(counts + row, count, mask=(down < R) & (row < m))


@triton.jit
def write_stored(
    data,
    marked,
    indices,
    indptr,
    starts,
    values,
    columns,
    m,
    parts,
    R: tl.constexpr,
    C: tl.constexpr,
    G: tl.constexpr,
    RB: tl.constexpr,
    KIND: tl.constexpr,
    MARKED: tl.constexpr,
):
    """Write the stored elements of each row from ``starts[row]`` on, with their columns."""
    block_row, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    begin, end = tl.load(indptr + block_row), tl.load(indptr + block_row + 1)
    down = part * RB + tl.arange(0, RB)
    row = block_row * R + down
    at = tl.load(starts + row, mask=(down < R) & (row < m), other=0).to(tl.int64)
    q = tl.arange(0, G * C)
    for first in range(begin, end, G):
        bits, stored = _stored(data, marked, first, end, down, R, C, G, KIND, MARKED)
        count = stored.to(tl.int32)
        place = at[:, None] + (tl.cumsum(count, axis=1) - count)
        block = first + q // C
        column = tl.load(indices + block, mask=block < end, other=0) * C + q % C
        tl.store(values + place, bits, mask=stored)
        wide = tl.broadcast_to(column[None, :], (RB, G * C))
        tl.store(columns + place, wide.to(columns.dtype.element_ty), mask=stored)
        at += tl.sum(count, axis=1)


@triton.jit
def flag_columns(
    data,
    indices,
    indptr,
    flags,
    zeros,
    m,
    columns,
    R: tl.constexpr,
    C: tl.constexpr,
    E: tl.constexpr,
    KIND: tl.constexpr,
):
    """Flag the blocks that the elements of each block row lie in; and rows with stored zeros."""
    block_row = tl.program_id(0)
    begin = tl.load(indptr + block_row * R)
    end = tl.load(indptr + tl.minimum((block_row + 1) * R, m))
    row_flags = flags + tl.cast(block_row, tl.int64) * columns
    some = tl.zeros((E,), tl.int32)
    for start in range(begin, end, E):
        at = start + tl.arange(0, E)
        inside = at < end
        j = tl.load(indices + at, mask=inside, other=0) // C
        bits = tl.load(data + at, mask=inside, other=1)
        before = tl.load(indices + at - 1, mask=inside & (at > begin), other=-1) // C
        fresh = inside & ((at == begin) | (j != before))  # once a run is enough
        tl.store(row_flags + j, (some * 0 + 1).to(tl.int8), mask=fresh)
        some |= (inside & (_is_nonzero(bits, KIND) == 0)).to(tl.int32)
    tl.store(zeros + block_row, tl.max(some, axis=0).to(tl.int8))


@triton.jit
def place_elements(
    data,
    indices,
    indptr,
    rank,
    blocks,
    columns,
    R: tl.constexpr,
    C: tl.constexpr,
    E: tl.constexpr,
):
    """Write the elements of a row into their blocks; block (i, j) has number ``rank[i, j] - 1``."""
    row = tl.program_id(0)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    row_rank = rank + tl.cast(row // R, tl.int64) * columns
    for start in range(begin, end, E):
        at = start + tl.arange(0, E)
        inside = at < end
        j = tl.load(indices + at, mask=inside, other=0)
        block = tl.load(row_rank + j // C, mask=inside, other=1).to(tl.int64) - 1
        bits = tl.load(data + at, mask=inside, other=0)
        tl.store(blocks + block * (R * C) + (row % R) * C + j % C, bits, mask=inside)
