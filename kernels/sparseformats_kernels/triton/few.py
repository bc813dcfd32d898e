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
def _meeting(
    values,
    x,
    x_row,
    named,
    placed,
    q,
    length,
    top,
    m_offsets,
    n_offsets,
    in_columns,
    K,
    R: tl.constexpr,
    C: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    KNOWN: tl.constexpr,
    BK: tl.constexpr,
    SLICES: tl.constexpr,
    RUN: tl.constexpr,
):
    """Columns `q` of a row of blocks, (BK,) or (SLICES, BK) of them, and the rows they meet.

    What names the blocks is in registers already: nothing here waits for a load to know where to
    load from, so that the loads of several steps can be on their way together.
    """
    inside = q < length
    c = q % C
    which = tl.reshape(tl.minimum(q // C, KNOWN - 1), (SLICES * BK,))
    column = tl.reshape(tl.gather(named, which, 0), q.shape)
    place = tl.reshape(tl.gather(placed, which, 0), q.shape)
    block = place * (R * C)
    if RUN > 1:
        if SLICES == 1:
            block = tl.multiple_of(tl.max_constancy(block, RUN), RUN)
        else:
            block = tl.multiple_of(tl.max_constancy(block, (1, RUN)), (1, RUN))
    a_offsets = block + c * (R if TRANSPOSED else 1)
    here = tl.expand_dims(inside, -2) & (top < R)[:, None]
    a = tl.load(values + (tl.expand_dims(a_offsets, -2) + m_offsets), mask=here, other=0.0)
    k = column * C + c
    there = tl.expand_dims(inside & (k < K), -1) & in_columns[None, :]
    if RUN > 1:
        if SLICES == 1:
            k = tl.max_contiguous(tl.multiple_of(k, RUN), RUN)
        else:
            k = tl.max_contiguous(tl.multiple_of(k, (1, RUN)), (1, RUN))
    b = tl.load(x + (tl.expand_dims(k.to(tl.int64) * x_row, -1) + n_offsets), mask=there, other=0.0)
    return a, b


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
    KNOWN: tl.constexpr,
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
    rows of a tile each SIDE, from a multiple of SIDE on, belong to `out` all or none. KNOWN blocks
    of a row are named at a time. With PIECES there is a batch of operands and results at even
    distances, and `items` lists the tiles of each.
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
    n_offsets = (ns.to(tl.int64) * x_column)[None, :]
    m_offsets = (top * (1 if TRANSPOSED else C))[:, None]
    SUM: tl.constexpr = tl.int32 if INTEGER else tl.float32
    if SLICES == 1:
        lane = tl.arange(0, BK)
        acc = tl.zeros((BM, BN), SUM)
    else:
        lane = tl.arange(0, SLICES)[:, None] * BK + tl.arange(0, BK)[None, :]
        acc = tl.zeros((SLICES, BM, BN), SUM)
    for first in range(begin, end, KNOWN):
        some = first + tl.arange(0, KNOWN)
        named = tl.load(columns + some, mask=some < end, other=0)
        placed = some.to(tl.int64)
        if INDIRECT:
            placed = tl.load(places + some, mask=some < end, other=0).to(tl.int64)
        length = tl.minimum(end - first, KNOWN) * C
        for start in range(0, length, SLICES * BK):
            a, b = _meeting(
                *(values, x, x_row, named, placed, start + lane, length, top, m_offsets),
                *(n_offsets, ns < N, K, R, C, TRANSPOSED, KNOWN, BK, SLICES, RUN),
            )
            acc = dot(a, b, acc, PRECISION, UPCAST, PROMOTE)
    total = acc
    if SLICES > 1:
        total = tl.sum(acc, axis=0)
    rows, cols = (row + tl.arange(0, BM))[:, None], ns[None, :]
    target = tl.max_constancy(rows < last, (SIDE, 1)) & (cols < N)
    finish(
        *(total, rows, cols, target, last, piece, N, out, out_row, out_column, bias),
        *(row_scale, row_scale_step, column_scale, column_scale_step),
        *(residual, residual_row, residual_column, residual_piece, alpha, beta),
        *(ALPHA, BETA, SCALE, BIAS, ACTIVATION, RESIDUAL),
    )
