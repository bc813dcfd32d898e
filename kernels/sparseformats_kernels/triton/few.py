"""Stored blocks times a few columns: bound by the bytes of the blocks, so all of them at once.

One program makes a few rows of the result, in slices of its row of blocks that are multiplied side
by side, one to each warp, and added in a fixed order at the end. So every multiprocessor has the
whole of what it needs on the way at the same time, and no second launch has to add parts.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.adding import dot
from sparseformats_kernels.triton.ending import finish

__all__ = ["multiply_few"]


@triton.jit
def multiply_few(
    values,
    columns,
    places,
    items,
    tiles,
    x,
    x_row,
    x_column,
    x_piece,
    out,
    out_row,
    out_column,
    out_piece,
    bias,
    row_scale,
    row_scale_step,
    column_scale,
    column_scale_step,
    residual,
    residual_row,
    residual_column,
    residual_piece,
    alpha,
    beta,
    M,
    N,
    K,
    R: tl.constexpr,
    C: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    INDIRECT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SLICES: tl.constexpr,
    RUN: tl.constexpr,
    SIDE: tl.constexpr,
    PIECES: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    SCALE: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    PRECISION: tl.constexpr,
    UPCAST: tl.constexpr,
    PROMOTE: tl.constexpr,
    INTEGER: tl.constexpr,
):
    """``out <- activation(alpha * scales * (A @ x) + beta * out + bias) + residual``.

    ``items`` holds (row, tile column, begin, end): blocks ``begin:end``, of R x C as they are
    multiplied, make the BM rows of `out` from that row on, as far as their block row goes.
    ``columns`` names the block columns; block i lies at ``places[i]`` where INDIRECT, else at i,
    and is stored transposed where TRANSPOSED. Of the columns of a row of blocks, put side by side,
    each slice takes BK at a time; RUN of them lie side by side, from a multiple of RUN on. Of the
    rows of a tile each SIDE, from a multiple of SIDE on, belong to `out` all or none. With PIECES
    there is a batch of operands and results at even distances, and `items` lists the tiles of each.
    """
    number, piece = tl.program_id(0), tl.cast(0, tl.int64)
    if PIECES:
        piece = tl.cast(number // tiles, tl.int64)
        number %= tiles
        x += piece * x_piece
        out += piece * out_piece
    item = items + number * 4
    row, tile_column = tl.load(item), tl.load(item + 1)
    begin, end = tl.load(item + 2), tl.load(item + 3)
    row = tl.multiple_of(row, SIDE)
    top = row % R + tl.arange(0, BM)
    last = tl.minimum((row // R + 1) * R, M)
    ns = tile_column * BN + tl.arange(0, BN)
    # Offsets of 64 bits: values, operand and result may hold more than 2**31 elements.
    n_offsets = (ns.to(tl.int64) * x_column)[None, None, :]
    m_offsets = (top * (1 if TRANSPOSED else C))[None, :, None]
    lane = tl.arange(0, SLICES)[:, None] * BK + tl.arange(0, BK)[None, :]
    length = (end - begin) * C
    SUM: tl.constexpr = tl.int32 if INTEGER else tl.float32
    acc = tl.zeros((SLICES, BM, BN), SUM)
    for start in range(0, length, SLICES * BK):
        q = start + lane
        inside = q < length
        block, c = begin + q // C, q % C
        place = block
        if INDIRECT:
            place = tl.load(places + block, mask=inside, other=0)
        column = tl.load(columns + block, mask=inside, other=0)
        a_offsets = place.to(tl.int64) * (R * C) + c * (R if TRANSPOSED else 1)
        here = inside[:, None, :] & (top < R)[None, :, None]
        a = tl.load(values + a_offsets[:, None, :] + m_offsets, mask=here, other=0.0)
        k = column * C + c
        there = (inside & (k < K))[:, :, None] & (ns < N)[None, None, :]
        if RUN > 1:
            k = tl.max_contiguous(tl.multiple_of(k, (1, RUN)), (1, RUN))
        k_offsets = (k.to(tl.int64) * x_row)[:, :, None]
        b = tl.load(x + k_offsets + n_offsets, mask=there, other=0.0)
        acc = dot(a, b, acc, PRECISION, UPCAST, PROMOTE)
    total = tl.sum(acc, axis=0)
    rows, cols = (row + tl.arange(0, BM))[:, None], ns[None, :]
    target = tl.max_constancy(rows < last, (SIDE, 1)) & (cols < N)
    finish(
        *(total, rows, cols, target, last, piece, N, out, out_row, out_column, bias),
        *(row_scale, row_scale_step, column_scale, column_scale_step),
        *(residual, residual_row, residual_column, residual_piece, alpha, beta),
        *(ALPHA, BETA, SCALE, BIAS, ACTIVATION, RESIDUAL),
    )
