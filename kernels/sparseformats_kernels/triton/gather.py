"""Packed tiles times dense, for blocks of any size, any strides and every architecture.

One program makes one tile of the result: it runs over the packed tiles of one block row and gathers
the rows of the dense operand that their columns name. Where a tile has no column nothing is read.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.adding import dot
from sparseformats_kernels.triton.ending import finish

__all__ = ["multiply"]


@triton.jit
def multiply(
    values,
    columns,
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
    R: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    RUN: tl.constexpr,
    SIDE: tl.constexpr,
    SWAP: tl.constexpr,
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

    ``items`` holds (row, tile column, begin, end): ``values[begin:end]``, each BM x BK, make the
    BM x BN tile of `out` that begins at that row and ends with its block row of R rows. ``columns``
    names the rows of `x` that they meet, of which each RUN lie side by side, from a multiple of RUN
    on. Of the rows of a tile each SIDE, from a multiple of SIDE on, belong to `out` all or none.
    SWAP computes the transpose of each tile. With PIECES there is a batch of operands and results
    at even distances, and `items` lists the tiles of each of them. INTEGER sums are of 32 bits.
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
    ks = tl.arange(0, BK)
    ms = row + tl.arange(0, BM)
    last = tl.minimum((row // R + 1) * R, M)
    ns = tile_column * BN + tl.arange(0, BN)
    # Offsets of 64 bits: the operand and the result may hold more than 2**31 elements.
    n_offsets = ns.to(tl.int64) * x_column
    inner = tl.arange(0, BM)[:, None] * BK + ks[None, :]
    SUM: tl.constexpr = tl.int32 if INTEGER else tl.float32
    if SWAP:
        acc = tl.zeros((BN, BM), SUM)
    else:
        acc = tl.zeros((BM, BN), SUM)
    k = tl.load(columns + begin * BK + ks, mask=begin + ks * 0 < end, other=-1)
    for step in range(begin, end):
        a = tl.load(values + tl.cast(step, tl.int64) * (BM * BK) + inner)
        named = k >= 0
        # A column that is not there must not make an address that is no multiple of a vector's.
        k_offsets = tl.where(named, k, 0).to(tl.int64)
        if RUN > 1:
            # Tiles name whole runs or -1 all along: a vector is read as a whole or not at all. The
            # compiler takes no hint about what a loop carries, and drops those about a choice.
            named = tl.max_constancy(named, RUN)
            k_offsets = tl.max_contiguous(tl.multiple_of(k_offsets, RUN), RUN)
        k_offsets = k_offsets * x_row
        if SWAP:
            there = (ns[:, None] < N) & named[None, :]
            b = tl.load(x + n_offsets[:, None] + k_offsets[None, :], mask=there, other=0.0)
        else:
            there = named[:, None] & (ns[None, :] < N)
            b = tl.load(x + k_offsets[:, None] + n_offsets[None, :], mask=there, other=0.0)
        k = tl.load(columns + (step + 1) * BK + ks, mask=step + 1 + ks * 0 < end, other=-1)
        if SWAP:
            acc = dot(b, tl.trans(a), acc, PRECISION, UPCAST, PROMOTE)
        else:
            acc = dot(a, b, acc, PRECISION, UPCAST, PROMOTE)
    made = tl.max_constancy(ms < last, SIDE)
    if SWAP:
        rows, cols, inside = ms[None, :], ns[:, None], made[None, :]
    else:
        rows, cols, inside = ms[:, None], ns[None, :], made[:, None]
    inside &= cols < N
    finish(
        *(acc, rows, cols, inside, last, piece, N, out, out_row, out_column, bias),
        *(row_scale, row_scale_step, column_scale, column_scale_step),
        *(residual, residual_row, residual_column, residual_piece, alpha, beta),
        *(ALPHA, BETA, SCALE, BIAS, ACTIVATION, RESIDUAL),
    )
