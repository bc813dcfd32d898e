"""The end of a tile of sums: scaled, added to, activated, rounded once, and written."""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.activations import activate

__all__ = ["finish"]


@triton.jit
def finish(
    acc,
    rows,
    cols,
    inside,
    last,
    piece,
    N,
    out,
    out_row,
    out_column,
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
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    SCALE: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
):
    """``out <- activation(alpha * scales * acc + beta * out + bias) + residual``.

    `rows` and `cols` are those of the result, one of them as a column, the other as a row; `inside`
    says which of them are to be written. Of `rows` those below `last` exist, and N columns do.
    A step of 0 lets one scale serve all. `piece` numbers the pieces of a batch; `out` is its own.
    """
    place = out + rows.to(tl.int64) * out_row + cols.to(tl.int64) * out_column
    if out.dtype.element_ty.is_floating() and acc.dtype.is_int():
        acc = acc.to(tl.float32)
    if ALPHA:
        acc = acc * alpha
    if SCALE:
        acc *= tl.load(row_scale + rows * row_scale_step, mask=rows < last, other=0.0)
        token = piece * N + cols
        acc *= tl.load(column_scale + token * column_scale_step, mask=cols < N, other=0.0)
    if BETA:
        acc += beta * tl.load(place, mask=inside, other=0.0).to(acc.dtype)
    if BIAS:
        acc += tl.load(bias + rows, mask=rows < last, other=0.0).to(acc.dtype)
    acc = activate(acc, ACTIVATION)
    if RESIDUAL:
        summand = residual + piece * residual_piece
        summand += rows.to(tl.int64) * residual_row + cols.to(tl.int64) * residual_column
        acc += tl.load(summand, mask=inside, other=0.0).to(acc.dtype)
    if out.dtype.element_ty == tl.float8e4nv:
        # The instruction saturates, infinities too. What is too large is NaN instead, so that it
        # shows: 464 is half-way from the largest number to where the next would be.
        acc = tl.where(tl.abs(acc) > 464.0, float("nan"), acc)
    tl.store(place, acc.to(out.dtype.element_ty), mask=inside)
