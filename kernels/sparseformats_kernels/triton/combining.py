"""Adding up the parts of rows that were cut: in a fixed order, so that bits do not vary."""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.activations import activate

__all__ = ["combine"]


@triton.jit
def combine(
    partial,
    split,
    out,
    out_row,
    out_column,
    bias,
    alpha,
    beta,
    M,
    N,
    COLUMNS,
    BM: tl.constexpr,
    BN: tl.constexpr,
    ROWS: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """``out <- activation(alpha * (sum of parts) + beta * out + bias)`` for the rows in `split`.

    ``partial`` holds BM x BN tiles, COLUMNS side by side for each part; ``split`` holds (tile row,
    first part, parts). One program makes ROWS rows of one tile.
    """
    STRIPS: tl.constexpr = BM // ROWS
    tile = tl.program_id(0) // STRIPS
    strip = tl.program_id(0) % STRIPS
    row = split + (tile // COLUMNS) * 3
    column = tile % COLUMNS
    tile_row, first, count = tl.load(row), tl.load(row + 1), tl.load(row + 2)
    ms = strip * ROWS + tl.arange(0, ROWS)[:, None]
    ns = tl.arange(0, BN)[None, :]
    acc = tl.zeros((ROWS, BN), tl.float32)
    for part in range(count):
        number = tl.cast(first + part, tl.int64) * COLUMNS + column
        acc += tl.load(partial + number * (BM * BN) + ms * BN + ns)
    ms += tile_row * BM
    ns += column * BN
    inside = (ms < M) & (ns < N)
    place = out + ms.to(tl.int64) * out_row + ns.to(tl.int64) * out_column
    if ALPHA:
        acc = acc * alpha
    if BETA:
        acc += beta * tl.load(place, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        acc += tl.load(bias + ms, mask=ms < M, other=0.0).to(tl.float32)
    acc = activate(acc, ACTIVATION)
    tl.store(place, acc.to(out.dtype.element_ty), mask=inside)
