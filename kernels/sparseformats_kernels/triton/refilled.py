"""What lies in room of a fixed size, times a dense array: rows are bounded by the device's memory.

One program makes one tile of the result and adds in a fixed order. Where the room was too small
for what was to go into it, every element of the result is NaN and nothing in the room is read.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["multiply_blocks", "multiply_elements"]


@triton.jit
def multiply_blocks(
    values,
    indices,
    starts,
    ends,
    overflow,
    x,
    x_row_step,
    x_column_step,
    out,
    out_row_step,
    out_column_step,
    M,
    N,
    K,
    wide,
    R: tl.constexpr,
    C: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """``out <- A @ x``: blocks ``starts[i]:ends[i]``, of R x C, make rows i R to i R + R.

    The columns of a row of blocks lie side by side, BK of them are multiplied at a time.
    """
    PARTS: tl.constexpr = (R + BM - 1) // BM
    tile_row, tile_column = tl.program_id(0) // wide, tl.program_id(0) % wide
    block_row = tile_row // PARTS
    begin, end = tl.load(starts + block_row), tl.load(ends + block_row)
    spoiled = tl.load(overflow) != 0
    end = tl.where(spoiled, begin, end)
    down = tile_row % PARTS * BM + tl.arange(0, BM)
    ns = tile_column * BN + tl.arange(0, BN)
    length = (end - begin) * C
    n_offsets = (ns.to(tl.int64) * x_column_step)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, length, BK):
        q = start + tl.arange(0, BK)
        inside = q < length
        block, c = begin + q // C, q % C
        column = tl.load(indices + block, mask=inside, other=0)
        a_offsets = (block.to(tl.int64) * (R * C) + c)[None, :] + (down * C)[:, None]
        here = inside[None, :] & (down < R)[:, None]
        a = tl.load(values + a_offsets, mask=here, other=0.0)
        k = column.to(tl.int64) * C + c
        there = (inside & (k < K))[:, None] & (ns < N)[None, :]
        b = tl.load(x + (k * x_row_step)[:, None] + n_offsets, mask=there, other=0.0)
        if UPCAST:
            # The interpreter multiplies the bits of bfloat16 as if they were integers.
            a, b = a.to(tl.float32), b.to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    acc = tl.where(spoiled, float("nan"), acc)
    row = block_row * R + down
    target = ((down < R) & (row < M))[:, None] & (ns < N)[None, :]
    at = (row.to(tl.int64) * out_row_step)[:, None] + (ns.to(tl.int64) * out_column_step)[None, :]
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=target)


@triton.jit
def multiply_elements(
    values,
    indices,
    starts,
    ends,
    overflow,
    x,
    x_row_step,
    x_column_step,
    out,
    out_row_step,
    out_column_step,
    N,
    wide,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """``out <- A @ x``: elements ``starts[i]:ends[i]`` make row i, BK of them at a time."""
    row, tile_column = tl.program_id(0) // wide, tl.program_id(0) % wide
    begin, end = tl.load(starts + row), tl.load(ends + row)
    spoiled = tl.load(overflow) != 0
    end = tl.where(spoiled, begin, end)
    ns = tile_column * BN + tl.arange(0, BN)
    n_offsets = (ns.to(tl.int64) * x_column_step)[None, :]
    acc = tl.zeros((BK, BN), tl.float32)
    for start in range(begin, end, BK):
        at = start + tl.arange(0, BK)
        inside = at < end
        a = tl.load(values + at, mask=inside, other=0.0).to(tl.float32)
        k = tl.load(indices + at, mask=inside, other=0).to(tl.int64)
        there = inside[:, None] & (ns < N)[None, :]
        b = tl.load(x + (k * x_row_step)[:, None] + n_offsets, mask=there, other=0.0)
        acc += a[:, None] * b.to(tl.float32)
    total = tl.where(spoiled, float("nan"), tl.sum(acc, axis=0))
    place = out + tl.cast(row, tl.int64) * out_row_step + ns.to(tl.int64) * out_column_step
    tl.store(place, total.to(out.dtype.element_ty), mask=ns < N)
