"""Kernels that convert into room of a fixed size: what they find stays on the device.

Nothing here is launched by how much there is: grids follow the shape and the room, and the kernels
read from the device how much was found before. What has no place in the room is not written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.convert.finding import is_nonzero

__all__ = ["clear", "count_chosen", "count_flags", "flag_lists", "gather_named", "name_flags"]
__all__ += ["number_rows", "place_named", "widest_row", "write_chosen"]


@triton.jit
def clear(room, size, E: tl.constexpr):
    """Make zeros of an array of integers."""
    at = tl.cast(tl.program_id(0), tl.int64) * E + tl.arange(0, E)
    tl.store(room + at, tl.zeros((E,), room.dtype.element_ty), mask=at < size)


@triton.jit
def flag_lists(
    indices, indptr, flags, m, columns, R: tl.constexpr, C: tl.constexpr, E: tl.constexpr
):
    """Flag the blocks that the elements of each row of blocks lie in; flags are zeros before."""
    block_row = tl.program_id(0)
    begin = tl.load(indptr + block_row * R)
    end = tl.load(indptr + tl.minimum((block_row + 1) * R, m))
    line = flags + tl.cast(block_row, tl.int64) * columns
    one = tl.full((E,), 1, tl.int8)
    for start in range(begin, end, E):
        at = start + tl.arange(0, E)
        inside = at < end
        j = tl.load(indices + at, mask=inside, other=0) // C
        before = tl.load(indices + at - 1, mask=inside & (at > begin), other=-1) // C
        fresh = inside & ((at == begin) | (j != before))  # once a run is enough
        tl.store(line + j, one, mask=fresh)


@triton.jit
def count_flags(flags, counts, columns, E: tl.constexpr):
    """``counts[i]`` becomes how many flags row i of a table has."""
    row = tl.program_id(0)
    line = flags + tl.cast(row, tl.int64) * columns
    found = tl.zeros((E,), tl.int32)
    for start in range(0, columns, E):
        j = start + tl.arange(0, E)
        found += (tl.load(line + j, mask=j < columns, other=0) != 0).to(tl.int32)
    tl.store(counts + row, tl.sum(found, axis=0))


@triton.jit
def number_rows(counts, indptr, count, overflow, rows, capacity, E: tl.constexpr):
    """Turn counts of rows into pointers, none beyond the capacity. One program.

    ``count`` becomes how many there are, ``overflow`` whether that is more than the capacity.
    """
    lane = tl.arange(0, E)
    total = tl.zeros((E,), tl.int64)  # the same in every lane
    tl.store(indptr + lane, tl.zeros((E,), indptr.dtype.element_ty), mask=lane == 0)
    for start in range(0, rows, E):
        row = start + lane
        found = tl.load(counts + row, mask=row < rows, other=0).to(tl.int64)
        ends = total + tl.cumsum(found, axis=0)
        kept = tl.minimum(ends, capacity)
        tl.store(indptr + 1 + row, kept.to(indptr.dtype.element_ty), mask=row < rows)
        total += tl.sum(found, axis=0)
    tl.store(count + lane, total, mask=lane == 0)
    tl.store(overflow + lane, (total > capacity).to(tl.int8), mask=lane == 0)


@triton.jit
def widest_row(counts, starts, ends, count, overflow, rows, capacity, E: tl.constexpr):
    """Let each row begin at a multiple of the capacity and end within it. One program.

    ``count`` becomes what the longest row has, ``overflow`` whether that is more.
    """
    lane = tl.arange(0, E)
    most = tl.zeros((E,), tl.int64)
    for start in range(0, rows, E):
        row = start + lane
        found = tl.load(counts + row, mask=row < rows, other=0).to(tl.int64)
        first = row.to(tl.int64) * capacity
        last = first + tl.minimum(found, capacity)
        tl.store(starts + row, first.to(starts.dtype.element_ty), mask=row < rows)
        tl.store(ends + row, last.to(ends.dtype.element_ty), mask=row < rows)
        most = tl.maximum(most, found)
    longest = tl.max(most, axis=0) + tl.zeros((E,), tl.int64)
    tl.store(count + lane, longest, mask=lane == 0)
    tl.store(overflow + lane, (longest > capacity).to(tl.int8), mask=lane == 0)


@triton.jit
def name_flags(
    flags,
    starts,
    kept,
    indices,
    ranks,
    columns,
    capacity,
    E: tl.constexpr,
    RANKED: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Number the flags of each row of a table from ``starts[row]`` on.

    ``kept`` gets the place in the table and ``indices`` the column of each number, ``ranks``, where
    RANKED, the number of each flagged place, -1 where there is no room for it. Rows share a room of
    the capacity; where PADDED each has its own, and what is left of it is named -1.
    """
    row = tl.program_id(0)
    line = tl.cast(row, tl.int64) * columns
    first = tl.load(starts + row).to(tl.int64)
    end = tl.cast(capacity, tl.int64)
    if PADDED:
        end += first
    lane = tl.arange(0, E)
    at = first + tl.zeros((E,), tl.int64)
    for start in range(0, columns, E):
        j = start + lane
        flagged = tl.load(flags + line + j, mask=j < columns, other=0) != 0
        one = flagged.to(tl.int32)
        number = at + (tl.cumsum(one, axis=0) - one)
        fits = flagged & (number < end)
        tl.store(kept + number, (line + j).to(kept.dtype.element_ty), mask=fits)
        tl.store(indices + number, j.to(indices.dtype.element_ty), mask=fits)
        if RANKED:
            rank = tl.where(number < end, number, -1)
            tl.store(ranks + line + j, rank.to(ranks.dtype.element_ty), mask=flagged)
        at += tl.sum(one, axis=0)
    if PADDED:
        for start in range(0, capacity, E):
            number = first + start + lane
            empty = (number >= at) & (number < end)
            nothing = tl.zeros((E,), tl.int32) - 1
            tl.store(kept + number, nothing.to(kept.dtype.element_ty), mask=empty)
            tl.store(indices + number, nothing.to(indices.dtype.element_ty), mask=empty)


@triton.jit
def gather_named(
    dense,
    row_step,
    column_step,
    mask,
    mask_row_step,
    mask_column_step,
    kept,
    last,
    data,
    marked,
    m,
    n,
    columns,
    slots,
    parts,
    R: tl.constexpr,
    C: tl.constexpr,
    NB: tl.constexpr,
    E: tl.constexpr,
    KIND: tl.constexpr,
    MASKED: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Copy the blocks that `kept` names into ``data (slots, R, C)``.

    There are as many as `last` says, or, where PADDED, one for each slot, and those named -1 are
    zeros. Where MASKED what the mask leaves out becomes +0.0, and ``marked`` becomes where it
    selects a zero. One program copies one of so many parts, of E elements, of NB blocks.
    """
    block = tl.program_id(0) // parts * NB + tl.arange(0, NB)
    element = tl.program_id(0) % parts * E + tl.arange(0, E)
    if PADDED:
        there = block < slots
    else:
        there = block < tl.minimum(tl.load(last), slots)
    number = tl.load(kept + block, mask=there, other=-1).to(tl.int64)
    row = (number // columns * R)[:, None] + (element // C)[None, :]
    column = (number % columns * C)[:, None] + (element % C)[None, :]
    writes = there[:, None] & (element < R * C)[None, :]
    reads = writes & (number >= 0)[:, None] & (row < m) & (column < n)
    bits = tl.load(dense + row * row_step + column * column_step, mask=reads, other=0)
    at = (block.to(tl.int64) * (R * C))[:, None] + element[None, :]
    if MASKED:
        place = row * mask_row_step + column * mask_column_step
        chosen = tl.load(mask + place, mask=reads, other=0) != 0
        bits = tl.where(chosen, bits, 0)
        zero = chosen & (is_nonzero(bits, KIND) == 0)
        tl.store(marked + at, zero.to(tl.int8), mask=writes)
    tl.store(data + at, bits, mask=writes)


@triton.jit
def count_chosen(
    dense,
    row_step,
    column_step,
    counts,
    m,
    n,
    RB: tl.constexpr,
    E: tl.constexpr,
    KIND: tl.constexpr,
):
    """``counts[i]`` becomes how many non-zeros row i has; one program counts RB rows."""
    row = tl.program_id(0) * RB + tl.arange(0, RB)
    line = dense + (row.to(tl.int64) * row_step)[:, None]
    found = tl.zeros((RB, E), tl.int32)
    for start in range(0, n, E):
        j = start + tl.arange(0, E)
        inside = (row < m)[:, None] & (j < n)[None, :]
        bits = tl.load(line + (j.to(tl.int64) * column_step)[None, :], mask=inside, other=0)
        found += is_nonzero(bits, KIND).to(tl.int32)
    tl.store(counts + row, tl.sum(found, axis=1), mask=row < m)


@triton.jit
def write_chosen(
    dense,
    row_step,
    column_step,
    mask,
    mask_row_step,
    mask_column_step,
    indptr,
    data,
    indices,
    n,
    capacity,
    W: tl.constexpr,
    V: tl.constexpr,
    KIND: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Write the non-zeros of each row, or what the mask selects, from ``indptr[row]`` on.

    One program writes a row, W columns at a time, of which each lane looks at V neighbours; the
    next are on their way meanwhile, and where there is nothing no more is done.
    """
    row = tl.cast(tl.program_id(0), tl.int64)
    line, mask_line = dense + row * row_step, mask + row * mask_row_step
    done = tl.load(indptr + row).to(tl.int64)
    lane = tl.arange(0, W // V)[:, None] * V + tl.arange(0, V)[None, :]
    ahead = tl.load(line + lane.to(tl.int64) * column_step, mask=lane < n, other=0)
    chosen = ahead
    if MASKED:
        chosen = tl.load(mask_line + lane.to(tl.int64) * mask_column_step, mask=lane < n, other=0)
    for start in range(0, n, W):
        bits, picked, column = ahead, chosen, start + lane
        later = column + W
        ahead = tl.load(line + later.to(tl.int64) * column_step, mask=later < n, other=0)
        chosen = ahead
        if MASKED:
            place = mask_line + later.to(tl.int64) * mask_column_step
            chosen = tl.load(place, mask=later < n, other=0)
            one = (picked != 0).to(tl.int32)
        else:
            one = is_nonzero(bits, KIND).to(tl.int32)
        mine = tl.sum(one, axis=1)
        found = tl.sum(mine, axis=0)
        if found > 0:
            number = (tl.cumsum(mine, axis=0) - mine)[:, None] + (tl.cumsum(one, axis=1) - one)
            fits = (one != 0) & (done + number < capacity)
            tl.store(data + done + number, bits, mask=fits)
            tl.store(indices + done + number, column.to(indices.dtype.element_ty), mask=fits)
        done += found


@triton.jit
def place_named(
    data,
    indices,
    indptr,
    ranks,
    blocks,
    marked,
    columns,
    R: tl.constexpr,
    C: tl.constexpr,
    E: tl.constexpr,
    KIND: tl.constexpr,
):
    """Write the elements of a row into their blocks, and mark the zeros among them.

    Block (i, j) has number ``ranks[i, j]``; what is in one without a number has no place.
    """
    row = tl.program_id(0)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    line = ranks + tl.cast(row // R, tl.int64) * columns
    for start in range(begin, end, E):
        at = start + tl.arange(0, E)
        inside = at < end
        j = tl.load(indices + at, mask=inside, other=0)
        block = tl.load(line + j // C, mask=inside, other=-1).to(tl.int64)
        bits = tl.load(data + at, mask=inside, other=0)
        place = block * (R * C) + (row % R) * C + j % C
        fits = inside & (block >= 0)
        tl.store(blocks + place, bits, mask=fits)
        zero = is_nonzero(bits, KIND) == 0
        one = tl.full((E,), 1, tl.int8)
        tl.store(marked + place, one, mask=fits & zero)
