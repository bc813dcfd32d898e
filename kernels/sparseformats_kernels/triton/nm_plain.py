"""The same product as `nm_fragments` from the same tiles in plain Triton, for the interpreter.

Slow on a device: every value is asked four times whether it belongs to a position.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.activations import activate

__all__ = ["multiply"]


@triton.jit
def _dot(a, b, acc, UPCAST: tl.constexpr):
    if UPCAST:
        # The interpreter multiplies the bits of bfloat16 as if they were integers.
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def multiply(
    packed,
    x,
    x_row,
    x_column,
    out,
    out_row,
    out_column,
    bias,
    alpha,
    beta,
    M,
    K,
    N,
    TILES,
    BN: tl.constexpr,
    WORDS: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """``out <- activation(alpha * (A @ x) + beta * out + bias)``, 16 x BN elements a program."""
    row_tile, column_tile = tl.program_id(0), tl.program_id(1)
    rows, groups = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    ns = column_tile * BN + tl.arange(0, BN)[None, :]
    # Where `nm_packing` puts a row and a group of four columns, bit by bit.
    instruction, p2, p1, p0 = groups // 8, groups // 4 % 2, groups // 2 % 2, groups % 2
    low, high = rows % 8, rows // 8
    lane = 4 * low + 2 * p0 + p2
    word = instruction * 128 + lane * 4 + 2 * p1 + high
    place = 256 + 4 * low + 2 * instruction + p1
    shift = 4 * (4 * high + 2 * p0 + p2)
    halves = packed.to(tl.pointer_type(x.dtype.element_ty))
    ks = tl.arange(0, 16)[:, None] * 4
    acc = tl.zeros((16, BN), tl.float32)
    for tile in range(TILES):
        at = (tl.cast(row_tile, tl.int64) * TILES + tile) * WORDS
        first = tl.load(halves + 2 * (at + word))
        second = tl.load(halves + 2 * (at + word) + 1)
        positions = tl.load(packed + at + place) >> shift
        zero = tl.zeros_like(first)
        for j in tl.static_range(4):
            a = tl.where((positions & 3) == j, first, zero)
            a = tl.where((positions >> 2 & 3) == j, second, a)
            k = tile * 64 + ks + j
            at_x = k.to(tl.int64) * x_row + ns.to(tl.int64) * x_column
            b = tl.load(x + at_x, mask=(k < K) & (ns < N), other=0.0)
            acc = _dot(a, b, acc, UPCAST)
    m = row_tile * 16 + rows
    inside = (m < M) & (ns < N)
    at_out = out + m.to(tl.int64) * out_row + ns.to(tl.int64) * out_column
    if ALPHA:
        acc = acc * alpha
    if BETA:
        acc += beta * tl.load(at_out, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        acc += tl.load(bias + m, mask=m < M, other=0.0).to(tl.float32)
    acc = activate(acc, ACTIVATION)
    tl.store(at_out, acc.to(out.dtype.element_ty), mask=inside)
