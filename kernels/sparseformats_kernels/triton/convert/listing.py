"""Kernels that list elements by rows, from dense arrays, and by columns, from lists by rows.

Values come as integers of their width. One program writes what no other one writes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.convert.finding import is_nonzero

__all__ = ["count_columns", "count_pieces", "place_columns", "stack_counts", "write_pieces"]

CLEAR = tl.constexpr(2048)  # counts that are cleared at a time


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
    KIND: tl.constexpr,
):
    """Write the non-zeros of a piece of E columns of a row from ``starts[piece]`` on, W at a time.

    Pieces in which there is nothing are not read again.
    """
    row, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    begin, end = tl.load(starts + tl.program_id(0)), tl.load(starts + tl.program_id(0) + 1)
    line = dense + tl.cast(row, tl.int64) * row_step
    if end > begin:
        done = begin.to(tl.int64)
        for k in tl.static_range(E // W):
            # One a lane, as in `moving.write_stored`.
            column = part * E + k * W + tl.max_contiguous(tl.arange(0, W), 1)
            bits = tl.load(line + column, mask=column < n, other=0)
            stored = is_nonzero(bits, KIND)
            count = stored.to(tl.int32)
            place = done + (tl.cumsum(count, axis=0) - count)
            tl.store(values + place, bits, mask=stored)
            tl.store(columns + place, column.to(columns.dtype.element_ty), mask=stored)
            done += tl.sum(count, axis=0)


@triton.jit
def count_columns(indices, indptr, table, m, n, ROWS: tl.constexpr, E: tl.constexpr):
    """``table[i, j]`` becomes how many of the ROWS rows from ``i ROWS`` on have column j."""
    mine = table + tl.program_id(0).to(tl.int64) * n
    for first_column in range(0, n, CLEAR):
        column = first_column + tl.arange(0, CLEAR)
        tl.store(mine + column, tl.zeros((CLEAR,), tl.int32), mask=column < n)
    tl.debug_barrier()  # each row reads what other threads wrote
    first = tl.program_id(0) * ROWS
    for row in range(first, tl.minimum(first + ROWS, m)):
        begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
        for start in range(begin, end, E):
            at = start + tl.arange(0, E)
            j = tl.load(indices + at, mask=at < end, other=0)
            count = tl.load(mine + j, mask=at < end, other=0)
            tl.store(mine + j, count + 1, mask=at < end)
        tl.debug_barrier()


@triton.jit
def stack_counts(table, totals, chunks, n, T: tl.constexpr, W: tl.constexpr):
    """Each count of ``table (chunks, n)`` becomes the sum of those above it."""
    column = tl.program_id(0) * W + tl.arange(0, W)
    done = tl.zeros((W,), tl.int32)
    for start in range(0, chunks, T):
        line = start + tl.arange(0, T)
        inside = (line < chunks)[:, None] & (column < n)[None, :]
        at = table + (line.to(tl.int64) * n)[:, None] + column[None, :]
        count = tl.load(at, mask=inside, other=0)
        tl.store(at, done[None, :] + tl.cumsum(count, axis=0) - count, mask=inside)
        done += tl.sum(count, axis=0)
    tl.store(totals + column, done, mask=column < n)


@triton.jit
def place_columns(
    data,
    indices,
    indptr,
    table,
    starts,
    values,
    rows,
    m,
    n,
    ROWS: tl.constexpr,
    E: tl.constexpr,
):
    """Write the elements of ROWS rows by columns, row after row.

    Column j begins at ``starts[j]``; ``table[i, j]`` of its elements are in rows before these, and
    is counted on.
    """
    mine = table + tl.program_id(0).to(tl.int64) * n
    first = tl.program_id(0) * ROWS
    for row in range(first, tl.minimum(first + ROWS, m)):
        begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
        for start in range(begin, end, E):
            at = start + tl.arange(0, E)
            inside = at < end
            j = tl.load(indices + at, mask=inside, other=0)
            bits = tl.load(data + at, mask=inside, other=0)
            count = tl.load(mine + j, mask=inside, other=0)
            tl.store(mine + j, count + 1, mask=inside)
            place = tl.load(starts + j, mask=inside, other=0).to(tl.int64) + count
            tl.store(values + place, bits, mask=inside)
            number = (row + tl.zeros((E,), tl.int32)).to(rows.dtype.element_ty)
            tl.store(rows + place, number, mask=inside)
        tl.debug_barrier()  # the next row goes on where other threads ended
