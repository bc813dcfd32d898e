"""Elements of rows times dense: rows of any lengths, side by side, with no atomics.

One program makes a few rows of one tile of columns. Of each row it multiplies as many elements at a
time, each by the row of the operand that its column names, in lanes that are added at the end. The
rows of a program are of about one length; of one that would keep it busy after all others have
ended it makes a part, and `add_parts` adds the parts of such rows in the order of their elements.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.ending import finish

__all__ = ["add_parts", "multiply_rows"]


@triton.jit
def multiply_rows(
    values,
    columns,
    rows,
    begins,
    ends,
    numbers,
    items,
    partial,
    x,
    x_row,
    x_column,
    out,
    out_row,
    out_column,
    bias,
    residual,
    residual_row,
    residual_column,
    alpha,
    beta,
    M,
    N,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    CUT: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
):
    """``out <- activation(alpha * (A @ x) + beta * out + bias) + residual``.

    ``items`` holds (first entry, tile column, steps, 0): the BM entries from that one on are made,
    none of which has more than ``steps * BK`` elements. Entry i is row ``rows[i]`` of `out`, from
    elements ``begins[i]:ends[i]``, whose ``columns`` name rows of `x`. With CUT some entries are
    parts of rows: where ``numbers[i]`` is not -1 the sums are row ``numbers[i]`` of ``partial``.
    """
    item = items + tl.program_id(0) * 4
    first, tile_column, steps = tl.load(item), tl.load(item + 1), tl.load(item + 2)
    entry = tl.multiple_of(first, BM) + tl.arange(0, BM)
    row = tl.load(rows + entry)
    end = tl.load(ends + entry)[:, None]
    at = tl.load(begins + entry)[:, None] + tl.arange(0, BK)[None, :]
    ns = tile_column * BN + tl.arange(0, BN)
    # Offsets of 64 bits: the operand and the result may hold more than 2**31 elements.
    n_offsets = (ns.to(tl.int64) * x_column)[None, None, :]
    in_columns = (ns < N)[None, None, :]
    SUM: tl.constexpr = _sums_of(x.dtype.element_ty)
    acc = tl.zeros((BM, BK, BN), SUM)
    k = tl.load(columns + at, mask=at < end, other=0)
    for _ in range(steps):
        # What an element that is not there meets is not read, nor are the columns of the next step
        # waited for.
        here = at < end
        a = tl.load(values + at, mask=here, other=0)
        k_offsets = (k.to(tl.int64) * x_row)[:, :, None]
        b = tl.load(x + (k_offsets + n_offsets), mask=here[:, :, None] & in_columns, other=0)
        at += BK
        k = tl.load(columns + at, mask=at < end, other=0)
        acc += a.to(SUM)[:, :, None] * b.to(SUM)
    total = tl.sum(acc, axis=1)
    made, cols = row[:, None], ns[None, :]
    inside = (made < M) & (cols < N)
    if CUT:
        number = tl.load(numbers + entry)[:, None]
        place = partial + number.to(tl.int64) * N + cols
        tl.store(place, total, mask=inside & (number >= 0))
        inside &= number < 0
    finish(
        *(total, made, cols, inside, M, tl.cast(0, tl.int64), N, out, out_row, out_column, bias),
        *(None, 0, None, 0, residual, residual_row, residual_column, 0, alpha, beta),
        *(ALPHA, BETA, False, BIAS, ACTIVATION, RESIDUAL),
    )


@triton.constexpr_function
def _sums_of(dtype):
    """What products of numbers of this type are summed in."""
    if dtype == tl.int8:
        return tl.int32
    return tl.float64 if dtype == tl.float64 else tl.float32


@triton.jit
def add_parts(
    items,
    x,
    x_row,
    x_column,
    out,
    out_row,
    out_column,
    bias,
    residual,
    residual_row,
    residual_column,
    alpha,
    beta,
    M,
    N,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
):
    """``out <- activation(alpha * (sum of parts) + beta * out + bias) + residual``, of cut rows.

    ``items`` holds (row, tile column, begin, end): rows ``begin:end`` of `x` are the row's parts.
    """
    item = items + tl.program_id(0) * 4
    row, tile_column = tl.load(item), tl.load(item + 1)
    begin, end = tl.load(item + 2), tl.load(item + 3)
    ns = tile_column * BN + tl.arange(0, BN)
    n_offsets = (ns.to(tl.int64) * x_column)[None, :]
    acc = tl.zeros((BK, BN), x.dtype.element_ty)
    for first in range(begin, end, BK):
        part = (first + tl.arange(0, BK))[:, None]
        there = (part < end) & (ns < N)[None, :]
        acc += tl.load(x + (part.to(tl.int64) * x_row + n_offsets), mask=there, other=0)
    total = tl.sum(acc, axis=0)[None, :]
    made, cols = row + tl.zeros((1, 1), tl.int32), ns[None, :]
    finish(
        *(total, made, cols, cols < N, M, tl.cast(0, tl.int64), N, out, out_row, out_column, bias),
        *(None, 0, None, 0, residual, residual_row, residual_column, 0, alpha, beta),
        *(ALPHA, BETA, False, BIAS, ACTIVATION, RESIDUAL),
    )
