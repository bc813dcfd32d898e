"""Kernels that find what is stored, count it and number it: so that each piece knows its place.

Values come as integers of their width. One program writes what no other one writes.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["add_up", "count_stored", "flag_blocks", "flag_columns", "name_blocks", "point"]

PLAIN = tl.constexpr(0)  # integers: zero is zero
SIGNED = tl.constexpr(1)  # floating: zero of either sign
PAIRED = tl.constexpr(2)  # two float32 in one
CLEAR = tl.constexpr(2048)  # flags that are cleared at a time


@triton.jit
def is_nonzero(bits, KIND: tl.constexpr):
    """Whether values are no zeros, or of OR-ed values whether any of them is none."""
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
    BY_ROWS: tl.constexpr,
):
    """``flags[i, j]`` becomes whether block (i, j) of R x C has a non-zero.

    One program looks at G blocks side by side, RB rows at a time: where rows lie in one piece, each
    thread at whole vectors of all of them, so that only what is left after the last row goes from
    thread to thread.
    """
    block_row, strip = tl.program_id(0) // strips, tl.program_id(0) % strips
    column = strip * (G * C) + tl.arange(0, G * C)
    found = tl.zeros((G * C,), dense.dtype.element_ty)
    for start in range(0, R, RB):
        if BY_ROWS:
            for k in tl.static_range(RB):
                row = block_row * R + start + k
                inside = (start + k < R) & (row < m) & (column < n)
                line = dense + tl.cast(row, tl.int64) * row_step
                found |= tl.load(line + column, mask=inside, other=0)
        else:
            down = start + tl.arange(0, RB)
            row = block_row * R + down
            inside = ((down < R) & (row < m))[:, None] & (column < n)[None, :]
            across = (column.to(tl.int64) * column_step)[None, :]
            at = (row.to(tl.int64) * row_step)[:, None] + across
            bits = tl.load(dense + at, mask=inside, other=0)
            some = tl.max(is_nonzero(bits, KIND).to(tl.int32), axis=0)
            found |= (-some).to(found.dtype)
    block = tl.max(tl.reshape(is_nonzero(found, KIND).to(tl.int32), (G, C)), axis=1)
    j = strip * G + tl.arange(0, G)
    place = flags + tl.cast(block_row, tl.int64) * columns + j
    tl.store(place, block.to(tl.int8), mask=j < columns)


@triton.jit
def flag_columns(
    data,
    indices,
    indptr,
    flags,
    m,
    columns,
    table,
    R: tl.constexpr,
    C: tl.constexpr,
    E: tl.constexpr,
    KIND: tl.constexpr,
):
    """Flag the blocks that the elements of each block row lie in; and rows with stored zeros.

    The latter flags are behind the ``table`` of the former.
    """
    block_row = tl.program_id(0)
    begin = tl.load(indptr + block_row * R)
    end = tl.load(indptr + tl.minimum((block_row + 1) * R, m))
    row_flags = flags + tl.cast(block_row, tl.int64) * columns
    for start in range(0, columns, CLEAR):
        j = start + tl.arange(0, CLEAR)
        tl.store(row_flags + j, tl.zeros((CLEAR,), tl.int8), mask=j < columns)
    tl.debug_barrier()  # what other threads have cleared is flagged below
    some = tl.zeros((E,), tl.int32)
    for start in range(begin, end, E):
        at = start + tl.arange(0, E)
        inside = at < end
        j = tl.load(indices + at, mask=inside, other=0) // C
        bits = tl.load(data + at, mask=inside, other=1)
        tl.store(row_flags + j, tl.full((E,), 1, tl.int8), mask=inside)
        some |= (inside & (is_nonzero(bits, KIND) == 0)).to(tl.int32)
    tl.store(flags + tl.cast(table, tl.int64) + block_row, tl.max(some, axis=0).to(tl.int8))


@triton.jit
def stored_slots(
    data, marked, first, end, down, R: tl.constexpr, C: tl.constexpr, q, KIND,
    MARKED: tl.constexpr,
):  # fmt: skip
    """Rows `down` of slots `q` of blocks side by side: their bits and which of them are stored."""
    block = first + q // C
    inside = (down < R)[:, None] & (block < end)[None, :]
    at = (block.to(tl.int64) * (R * C) + q % C)[None, :] + (down * C)[:, None]
    bits = tl.load(data + at, mask=inside, other=0)
    if MARKED:
        stored = tl.load(marked + at, mask=inside, other=0) != 0
    else:
        stored = is_nonzero(bits, KIND)
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
    q = tl.arange(0, G * C)
    count = tl.zeros((RB,), tl.int32)
    for first in range(begin, end, G):
        _, stored = stored_slots(data, marked, first, end, down, R, C, q, KIND, MARKED)
        count += tl.sum(stored.to(tl.int32), axis=1)
    row = block_row * R + down
    tl.store(counts + row, count, mask=(down < R) & (row < m))


@triton.jit
def add_up(counts, sums, size, span, E: tl.constexpr):
    """Sum of each `span` of counts, a multiple of E."""
    first = tl.program_id(0) * span
    total = tl.zeros((E,), tl.int64)
    for start in range(0, span, E):
        place = first + start + tl.arange(0, E)
        total += tl.load(counts + place, mask=place < size, other=0).to(tl.int64)
    tl.store(sums + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def _before(sums, E: tl.constexpr):
    """The sum of all spans before the program's own."""
    total = tl.zeros((E,), tl.int64)
    for start in range(0, tl.program_id(0), E):
        at = start + tl.arange(0, E)
        total += tl.load(sums + at, mask=at < tl.program_id(0), other=0)
    return tl.sum(total, axis=0)


@triton.jit
def point(counts, sums, indptr, size, span, E: tl.constexpr):
    """``indptr[i + 1]`` becomes the sum of the counts up to i."""
    first, done = tl.program_id(0) * span, _before(sums, E)
    for start in range(0, span, E):
        place = first + start + tl.arange(0, E)
        count = tl.load(counts + place, mask=place < size, other=0).to(tl.int64)
        ends = (done + tl.cumsum(count, axis=0)).to(indptr.dtype.element_ty)
        tl.store(indptr + place + 1, ends, mask=place < size)
        done += tl.sum(count, axis=0)
    if tl.program_id(0) == 0:
        tl.store(indptr, 0)


@triton.jit
def name_blocks(
    flags,
    sums,
    kept,
    indptr,
    table,
    size,
    columns,
    span,
    spans,
    RANKED: tl.constexpr,
    E: tl.constexpr,
):
    """Number the flagged places of a table, and say where its rows begin.

    ``kept[number]`` becomes the place. With RANKED, what is behind `kept`, as long as the table,
    becomes how many flags there are up to each place. Behind the `spans` sums come the number of
    flags in the table and in all.
    """
    first, done = tl.program_id(0) * span, _before(sums, E).to(tl.int32)
    for start in range(0, span, E):
        place = first + start + tl.arange(0, E)
        flag = tl.load(flags + place, mask=place < size, other=0).to(tl.int32)
        rank = done + tl.cumsum(flag, axis=0)
        inside = place < table
        tl.store(kept + rank - 1, place, mask=inside & (flag != 0))
        if RANKED:
            tl.store(kept + tl.cast(table, tl.int64) + place, rank, mask=inside)
        row, last = place // columns, inside & (place % columns == columns - 1)
        tl.store(indptr + row + 1, rank.to(indptr.dtype.element_ty), mask=last)
        wide, found = rank.to(tl.int64), sums + spans + tl.zeros((E,), tl.int32)
        tl.store(found, wide, mask=place == table - 1)
        tl.store(found + 1, wide, mask=place == size - 1)
        done += tl.sum(flag, axis=0)
    if tl.program_id(0) == 0:
        tl.store(indptr, 0)
