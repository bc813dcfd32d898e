"""Kernels that cut blocks into smaller ones, and join them to larger ones: bits in, bits out.

Values come as integers of their width. One program writes what no other one writes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.convert.finding import CLEAR, is_nonzero

__all__ = ["cut_blocks", "flag_cuts", "flag_joins", "join_blocks", "point_cuts"]


@triton.jit
def _row_of(indptr, rows, block):
    """The row that each block lies in."""
    low, high = tl.zeros_like(block), rows + tl.zeros_like(block)
    left = rows
    while left > 0:
        middle = low + (high - low) // 2
        open = low < high
        before = tl.load(indptr + middle + 1, mask=open, other=0) <= block
        low, high = tl.where(open & before, middle + 1, low), tl.where(before, high, middle)
        left = left // 2
    return low


@triton.jit
def flag_cuts(
    data,
    indices,
    indptr,
    flags,
    sources,
    rows,
    lines,
    m,
    n,
    P: tl.constexpr,
    Q: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
    NB: tl.constexpr,
    RB: tl.constexpr,
    KIND: tl.constexpr,
    ALL: tl.constexpr,
):
    """Flag the small blocks of R x C with a non-zero, or with ALL those inside ``(m, n)``.

    Blocks are cut into P lines of Q small ones. Flags come in the order of the result: line by line
    through all blocks of a row. ``sources[line]`` becomes which of the given `lines`, those of the
    first block, then those of the second, lies there. One program looks at NB of these, RB rows at
    a time.
    """
    line = tl.program_id(0) * NB + tl.arange(0, NB)
    inside = line < lines
    block, down = tl.where(inside, line // P, 0), line % P
    row = _row_of(indptr, rows, block)
    begin = tl.load(indptr + row, mask=inside, other=0).to(tl.int64)
    end = tl.load(indptr + row + 1, mask=inside, other=0).to(tl.int64)
    at = begin * P + down * (end - begin) + (block - begin)
    tl.store(sources + at, line, mask=inside)
    if ALL:
        column = tl.load(indices + block, mask=inside, other=0).to(tl.int64) * (Q * C)
        short = (row.to(tl.int64) * P + down) * R < m
        found = short[:, None] & (column[:, None] + (tl.arange(0, Q) * C)[None, :] < n)
        flag = found.to(tl.int8)
    else:
        lane = tl.arange(0, NB * Q * C)
        given = tl.program_id(0) * NB + lane // (Q * C)
        first = given.to(tl.int64) * (R * Q * C) + lane % (Q * C)
        some = tl.zeros((NB * Q * C,), data.dtype.element_ty)
        for start in range(0, R, RB):
            for k in tl.static_range(RB):
                mask = (given < lines) & (start + k < R)
                some |= tl.load(data + first + (start + k) * (Q * C), mask=mask, other=0)
        wide = tl.reshape(is_nonzero(some, KIND).to(tl.int32), (NB, Q, C))
        flag = tl.max(wide, axis=2).to(tl.int8)
    place = (at * Q)[:, None] + tl.arange(0, Q)[None, :]
    tl.store(flags + place, flag, mask=inside[:, None])


@triton.jit
def point_cuts(
    indptr,
    kept,
    starts,
    table,
    rows,
    P: tl.constexpr,
    Q: tl.constexpr,
    E: tl.constexpr,
):
    """Where the `rows` of small blocks begin, from their ranks, behind what is `kept`."""
    row = tl.program_id(0) * E + tl.arange(0, E)
    begin = tl.load(indptr + row // P, mask=row < rows, other=0).to(tl.int64)
    end = tl.load(indptr + row // P + 1, mask=row < rows, other=0).to(tl.int64)
    last = (begin * P + (row % P + 1) * (end - begin)) * Q - 1
    ranks = kept + tl.cast(table, tl.int64)
    count = tl.load(ranks + last, mask=(row < rows) & (last >= 0), other=0)
    tl.store(starts + row + 1, count.to(starts.dtype.element_ty), mask=row < rows)
    if tl.program_id(0) == 0:
        tl.store(starts, 0)


@triton.jit
def cut_blocks(
    data,
    indices,
    sources,
    kept,
    values,
    columns,
    count,
    parts,
    P: tl.constexpr,
    Q: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
    NB: tl.constexpr,
    E: tl.constexpr,
):
    """Copy the small blocks numbered in `kept` into ``values (count, R, C)``; say their columns.

    One program copies one of so many parts, of E elements, of NB blocks.
    """
    block = tl.program_id(0) // parts * NB + tl.arange(0, NB)
    part = tl.program_id(0) % parts
    first = (block < count) & (part == 0)
    place = tl.load(kept + block, mask=block < count, other=0)
    line = tl.load(sources + place // Q, mask=block < count, other=0)
    named = tl.load(indices + line // P, mask=first, other=0) * Q + place % Q
    tl.store(columns + block, named.to(columns.dtype.element_ty), mask=first)
    element = part * E + tl.arange(0, E)
    inside = (block < count)[:, None] & (element < R * C)[None, :]
    start = line.to(tl.int64) * (R * Q * C) + place % Q * C
    source = start[:, None] + (element // C * (Q * C) + element % C)[None, :]
    bits = tl.load(data + source, mask=inside, other=0)
    at = (block.to(tl.int64) * (R * C))[:, None] + element[None, :]
    tl.store(values + at, bits, mask=inside)


@triton.jit
def flag_joins(
    indices,
    indptr,
    flags,
    rows,
    columns,
    P: tl.constexpr,
    Q: tl.constexpr,
    E: tl.constexpr,
):
    """Flag the large blocks, of P x Q given ones, in which there is one; a program flags a row."""
    large = tl.program_id(0)
    begin = tl.load(indptr + large * P)
    end = tl.load(indptr + tl.minimum((large + 1) * P, rows))
    row_flags = flags + tl.cast(large, tl.int64) * columns
    for start in range(0, columns, CLEAR):
        j = start + tl.arange(0, CLEAR)
        tl.store(row_flags + j, tl.zeros((CLEAR,), tl.int8), mask=j < columns)
    tl.debug_barrier()  # what other threads have cleared is flagged below
    for start in range(begin, end, E):
        at = start + tl.arange(0, E)
        j = tl.load(indices + at, mask=at < end, other=0) // Q
        tl.store(row_flags + j, tl.full((E,), 1, tl.int8), mask=at < end)


@triton.jit
def join_blocks(
    data,
    indices,
    indptr,
    kept,
    values,
    names,
    rows,
    columns,
    count,
    parts,
    P: tl.constexpr,
    Q: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
    NB: tl.constexpr,
    RB: tl.constexpr,
):
    """Write all of the large blocks numbered in `kept`, and their columns.

    They consist of P x Q given blocks of R x C, or zeros where there is none. One program writes RB
    rows of NB of them, and searches a row of given blocks for those that lie there.
    """
    part, strips = tl.program_id(0) % parts, tl.cdiv(R, RB)
    down, start = part // strips, part % strips * RB
    lane = tl.arange(0, NB * Q)
    block, across = tl.program_id(0) // parts * NB + lane // Q, lane % Q
    inside = block < count
    place = tl.load(kept + block, mask=inside, other=0)
    named = place % columns
    tl.store(
        names + block, named.to(names.dtype.element_ty), mask=inside & (part == 0) & (across == 0)
    )
    j, row = named * Q + across, place // columns * P + down
    inside_rows = inside & (row < rows)
    low = tl.load(indptr + row, mask=inside_rows, other=0)
    end = tl.load(indptr + row + 1, mask=inside_rows, other=0)
    high, left = end, tl.max(end - low, axis=0)
    while left > 0:
        middle = low + (high - low) // 2
        open = low < high
        before = tl.load(indices + middle, mask=open, other=0) < j
        low, high = tl.where(open & before, middle + 1, low), tl.where(before, high, middle)
        left = left // 2
    found = (low < end) & (tl.load(indices + low, mask=low < end, other=-1) == j)
    q = tl.arange(0, C)
    source = (low.to(tl.int64) * (R * C))[:, None] + q[None, :]
    target = (block.to(tl.int64) * (P * R * Q * C) + across * C)[:, None] + q[None, :]
    for k in tl.static_range(RB):
        y = start + k
        bits = tl.load(data + source + y * C, mask=found[:, None] & (y < R), other=0)
        at = target + (down * R + y) * (Q * C)
        tl.store(values + at, bits, mask=inside[:, None] & (y < R))
