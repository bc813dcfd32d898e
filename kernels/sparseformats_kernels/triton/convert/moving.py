"""Kernels that move stored elements to their places: bits in, bits out, nothing is added.

Values come as integers of their width. One program writes what no other one writes; positions
are counted in 64 bits wherever they number elements.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.convert.finding import is_nonzero, stored_slots

__all__ = ["clear_blocks", "gather_blocks", "place_elements", "write_dense", "write_stored"]


@triton.jit
def gather_blocks(
    dense,
    row_step,
    column_step,
    kept,
    data,
    indices,
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

    One program copies one of so many parts, of E elements, of NB blocks; with the first part it
    says their block columns.
    """
    block = tl.program_id(0) // parts * NB + tl.arange(0, NB)
    part = tl.program_id(0) % parts
    element = part * E + tl.arange(0, E)
    short = tl.load(kept + block, mask=block < count, other=0)
    named = (short % columns).to(indices.dtype.element_ty)
    tl.store(indices + block, named, mask=(block < count) & (part == 0))
    row = ((short // columns).to(tl.int64) * R)[:, None] + (element // C)[None, :]
    column = ((short % columns).to(tl.int64) * C)[:, None] + (element % C)[None, :]
    inside = (block < count)[:, None] & (element < R * C)[None, :]
    there = inside & (row < m) & (column < n)
    bits = tl.load(dense + row * row_step + column * column_step, mask=there, other=0)
    at = (block.to(tl.int64) * (R * C))[:, None] + element[None, :]
    tl.store(data + at, bits, mask=inside)


@triton.jit
def clear_blocks(
    kept,
    blocks,
    indices,
    columns,
    count,
    parts,
    R: tl.constexpr,
    C: tl.constexpr,
    NB: tl.constexpr,
    E: tl.constexpr,
):
    """Zeros into ``blocks (count, R, C)``, and the columns of the blocks numbered in `kept`."""
    block = tl.program_id(0) // parts * NB + tl.arange(0, NB)
    part = tl.program_id(0) % parts
    element = part * E + tl.arange(0, E)
    first = (block < count) & (part == 0)
    named = tl.load(kept + block, mask=first, other=0) % columns
    tl.store(indices + block, named.to(indices.dtype.element_ty), mask=first)
    inside = (block < count)[:, None] & (element < R * C)[None, :]
    at = (block.to(tl.int64) * (R * C))[:, None] + element[None, :]
    tl.store(blocks + at, tl.zeros((NB, E), blocks.dtype.element_ty), mask=inside)


@triton.jit
def write_dense(
    data,
    indices,
    indptr,
    dense,
    m,
    n,
    strips,
    parts,
    R: tl.constexpr,
    C: tl.constexpr,
    G: tl.constexpr,
    RB: tl.constexpr,
    KIND: tl.constexpr,
    FILL: tl.constexpr,
):
    """Write all of ``dense (m, n)``: blocks where there are some, zeros elsewhere.

    With FILL what only fills a block becomes +0.0. One program writes RB rows of G places for
    blocks side by side, and searches the block row for the blocks that lie there.
    """
    strip = tl.program_id(0) % strips
    part = tl.program_id(0) // strips % parts
    block_row = tl.program_id(0) // strips // parts
    begin, end = tl.load(indptr + block_row), tl.load(indptr + block_row + 1)
    j = strip * G + tl.arange(0, G)
    low, high = begin + tl.zeros_like(j), end + tl.zeros_like(j)
    left = end - begin
    while left > 0:
        middle = low + (high - low) // 2
        open = low < high
        before = tl.load(indices + middle, mask=open, other=0) < j
        low, high = tl.where(open & before, middle + 1, low), tl.where(before, high, middle)
        left = left // 2
    found = (low < end) & (tl.load(indices + low, mask=low < end, other=-1) == j)
    q = tl.arange(0, C)
    column = (j * C)[:, None] + q[None, :]
    source = (low.to(tl.int64) * (R * C))[:, None] + q[None, :]
    for k in tl.static_range(RB):
        down = part * RB + k
        row = block_row * R + down
        bits = tl.load(data + source + down * C, mask=found[:, None] & (down < R), other=0)
        if FILL:
            bits = tl.where(is_nonzero(bits, KIND), bits, 0)
        line = dense + tl.cast(row, tl.int64) * n
        tl.store(line + column, bits, mask=(down < R) & (row < m) & (column < n))


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
    """Write the stored elements of each row from ``starts[row]`` on, with their columns.

    One program writes RB rows of a block row.
    """
    block_row, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    begin, end = tl.load(indptr + block_row), tl.load(indptr + block_row + 1)
    down = part * RB + tl.arange(0, RB)
    row = block_row * R + down
    done = tl.load(starts + row, mask=(down < R) & (row < m), other=0).to(tl.int64)
    # Neighbours go to neighbouring lanes, one each: whole vectors would be stored in pieces, each
    # of which touches all the memory that a warp writes.
    q = tl.max_contiguous(tl.arange(0, G * C), 1)
    for first in range(begin, end, G):
        bits, stored = stored_slots(data, marked, first, end, down, R, C, q, KIND, MARKED)
        count = stored.to(tl.int32)
        place = done[:, None] + (tl.cumsum(count, axis=1) - count)
        block = first + q // C
        column = tl.load(indices + block, mask=block < end, other=0) * C + q % C
        tl.store(values + place, bits, mask=stored)
        wide = tl.broadcast_to(column[None, :], (RB, G * C))
        tl.store(columns + place, wide.to(columns.dtype.element_ty), mask=stored)
        done += tl.sum(count, axis=1)


@triton.jit
def place_elements(
    data,
    indices,
    indptr,
    kept,
    blocks,
    columns,
    table,
    R: tl.constexpr,
    C: tl.constexpr,
    E: tl.constexpr,
):
    """Write the elements of a row into their blocks.

    Block (i, j) has number ``rank[i, j] - 1``; these ranks are behind what is `kept` of the table.
    """
    row = tl.program_id(0)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    row_rank = kept + tl.cast(table, tl.int64) + tl.cast(row // R, tl.int64) * columns
    for start in range(begin, end, E):
        at = start + tl.max_contiguous(tl.arange(0, E), 1)  # as in `write_stored`
        inside = at < end
        j = tl.load(indices + at, mask=inside, other=0)
        block = tl.load(row_rank + j // C, mask=inside, other=1).to(tl.int64) - 1
        bits = tl.load(data + at, mask=inside, other=0)
        tl.store(blocks + block * (R * C) + (row % R) * C + j % C, bits, mask=inside)
