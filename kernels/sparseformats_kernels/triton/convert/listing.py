"""Kernels that list elements by rows, from dense arrays, and by columns, from lists by rows.

Values come as integers of their width. One program writes what no other one writes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.convert.finding import is_nonzero

__all__ = ["count_pieces", "mark_rows", "place_columns", "stack_marks", "write_pieces"]


@triton.jit
def count_pieces(
    dense,
    row_step,
    counts,
    m,
    n,
    parts,
    RB: tl.constexpr,
    E: tl.constexpr,
    KIND: tl.constexpr,
):
    """Non-zeros of each piece of E columns of a row; one program counts pieces of RB rows."""
    block_row, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    row = block_row * RB + tl.arange(0, RB)
    column = part * E + tl.arange(0, E)
    at = (row.to(tl.int64) * row_step)[:, None] + column[None, :]
    inside = (row < m)[:, None] & (column < n)[None, :]
    bits = tl.load(dense + at, mask=inside, other=0)
    count = tl.sum(is_nonzero(bits, KIND).to(tl.int32), axis=1)
    tl.store(counts + row.to(tl.int64) * parts + part, count, mask=row < m)


@triton.jit
def write_pieces(
    dense,
    row_step,
    starts,
    values,
    columns,
    n,
    parts,
    E: tl.constexpr,
    W: tl.constexpr,
    V: tl.constexpr,
    KIND: tl.constexpr,
):
    """Write the non-zeros of a piece of E columns of a row from ``starts[piece]`` on, W at a time.

    Each lane looks at V neighbours. Pieces in which there is nothing are not read again, and W
    columns in which there is nothing cost no more than that look.
    """
    row, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    begin, end = tl.load(starts + tl.program_id(0)), tl.load(starts + tl.program_id(0) + 1)
    line = dense + tl.cast(row, tl.int64) * row_step
    if end > begin:
        done = begin.to(tl.int64)
        column = part * E + tl.arange(0, W // V)[:, None] * V + tl.arange(0, V)[None, :]
        ahead = tl.load(line + column, mask=column < n, other=0)
        for k in tl.static_range(E // W):
            bits = ahead
            if k + 1 < E // W:
                ahead = tl.load(line + (column + W), mask=column + W < n, other=0)
            stored = is_nonzero(bits, KIND)
            count = stored.to(tl.int32)
            mine = tl.sum(count, axis=1)
            found = tl.sum(mine, axis=0)
            if found > 0:
                before = (tl.cumsum(mine, axis=0) - mine)[:, None]
                place = before + (tl.cumsum(count, axis=1) - count)
                tl.store(values + done + place, bits, mask=stored)
                named = column.to(columns.dtype.element_ty)
                tl.store(columns + done + place, named, mask=stored)
            done += found
            column += W


@triton.jit
def mark_rows(indices, indptr, marks, n, ROWS: tl.constexpr, E: tl.constexpr):
    """Bit r of ``marks[i, j]`` becomes whether row ``i ROWS + r`` has column j; one row a program.

    Bits are set by atomic OR: in which order does not show.
    """
    row = tl.program_id(0)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    mine = marks + (row // ROWS).to(tl.int64) * n
    bit = tl.full((E,), 1, tl.int32) << (row % ROWS)
    for start in range(begin, end, E):
        at = start + tl.arange(0, E)
        j = tl.load(indices + at, mask=at < end, other=0)
        tl.atomic_or(mine + j, bit, mask=at < end, sem="relaxed")


@triton.jit
def bits_set(x):
    """How many bits of 32-bit integers are set."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return (x + (x >> 8) + (x >> 16) + (x >> 24)) & 0x3F


@triton.jit
def stack_marks(marks, above, totals, chunks, n, T: tl.constexpr, W: tl.constexpr):
    """``above[i, j]`` becomes how many bits are set above ``marks[i, j]``, of (chunks, n)."""
    column = tl.program_id(0) * W + tl.arange(0, W)
    done = tl.zeros((W,), tl.int32)
    for start in range(0, chunks, T):
        line = start + tl.arange(0, T)
        inside = (line < chunks)[:, None] & (column < n)[None, :]
        at = (line.to(tl.int64) * n)[:, None] + column[None, :]
        count = bits_set(tl.load(marks + at, mask=inside, other=0))
        tl.store(above + at, done[None, :] + tl.cumsum(count, axis=0) - count, mask=inside)
        done += tl.sum(count, axis=0)
    tl.store(totals + column, done, mask=column < n)


@triton.jit
def place_columns(
    data,
    indices,
    indptr,
    marks,
    above,
    starts,
    values,
    rows,
    m,
    n,
    parts,
    ROWS: tl.constexpr,
    E: tl.constexpr,
):
    """Write the elements of ROWS rows by columns; one of so many programs takes a part of each row.

    Column j begins at ``starts[j]``; ``above[i, j]`` of its elements are in rows before these, and
    bits of ``marks[i, j]`` say which of these have one.
    """
    chunk, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    down = tl.arange(0, ROWS)
    row = chunk * ROWS + down
    begin = tl.load(indptr + row, mask=row < m, other=0)
    end = tl.load(indptr + row + 1, mask=row < m, other=0)
    line = tl.cast(chunk, tl.int64) * n
    earlier = (tl.full((ROWS,), 1, tl.int32) << down) - 1
    # Neighbouring lanes take rows: of blocks they write what lies side by side.
    for first in range(part * E, tl.max(end - begin, axis=0), parts * E):
        at = begin[None, :] + (first + tl.arange(0, E))[:, None]
        inside = at < end[None, :]
        j = tl.load(indices + at, mask=inside, other=0)
        bits = tl.load(data + at, mask=inside, other=0)
        marked = tl.load(marks + line + j, mask=inside, other=0)
        before = tl.load(above + line + j, mask=inside, other=0)
        rank = before + bits_set(marked & earlier[None, :])
        place = tl.load(starts + j, mask=inside, other=0).to(tl.int64) + rank
        tl.store(values + place, bits, mask=inside)
        number = tl.broadcast_to(row[None, :], (E, ROWS)).to(rows.dtype.element_ty)
        tl.store(rows + place, number, mask=inside)
