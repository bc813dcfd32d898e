"""Elements of a product of two dense matrices, at stored blocks or at stored elements alone."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["sample_blocks", "sample_elements"]


@triton.jit
def sample_blocks(
    x,
    x_row_step,
    x_column_step,
    y,
    y_row_step,
    y_column_step,
    rows,
    columns,
    slots,
    values,
    m,
    n,
    k,
    high,
    wide,
    alpha,
    R: tl.constexpr,
    C: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """``values[slots[b]] <- alpha * (x[rows of b] @ y[:, columns of b])`` for each block b.

    One program makes one BM x BN tile, of high x wide in a block. The sums run over `n`.
    """
    block = tl.program_id(0) // (high * wide)
    tile = tl.program_id(0) % (high * wide)
    down = tile // wide * BM + tl.arange(0, BM)
    right = tile % wide * BN + tl.arange(0, BN)
    row = tl.load(rows + block).to(tl.int64) * R + down
    column = tl.load(columns + block).to(tl.int64) * C + right
    in_rows, in_columns = (down < R) & (row < m), (right < C) & (column < k)
    x_rows = (row * x_row_step)[:, None]
    y_columns = (column * y_column_step)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, n, BK):
        inner = start + tl.arange(0, BK)
        here = inner < n
        along = inner.to(tl.int64)
        a_at = x + x_rows + (along * x_column_step)[None, :]
        b_at = y + (along * y_row_step)[:, None] + y_columns
        a = tl.load(a_at, mask=in_rows[:, None] & here[None, :], other=0.0)
        b = tl.load(b_at, mask=here[:, None] & in_columns[None, :], other=0.0)
        if UPCAST:
            # The interpreter multiplies the bits of bfloat16 as if they were integers.
            a, b = a.to(tl.float32), b.to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    at = tl.load(slots + block).to(tl.int64) * (R * C) + (down * C)[:, None] + right[None, :]
    made = (acc * alpha).to(values.dtype.element_ty)
    tl.store(values + at, made, mask=(down < R)[:, None] & (right < C)[None, :])


@triton.jit
def sample_elements(
    x,
    x_row_step,
    x_column_step,
    y,
    y_row_step,
    y_column_step,
    rows,
    columns,
    values,
    n,
    count,
    alpha,
    E: tl.constexpr,
    BK: tl.constexpr,
):
    """``values[e] <- alpha * (x[rows[e]] . y[:, columns[e]])``, E of them a program."""
    element = tl.cast(tl.program_id(0), tl.int64) * E + tl.arange(0, E)
    inside = element < count
    row = tl.load(rows + element, mask=inside, other=0).to(tl.int64) * x_row_step
    column = tl.load(columns + element, mask=inside, other=0).to(tl.int64) * y_column_step
    acc = tl.zeros((E, BK), tl.float32)
    for start in range(0, n, BK):
        inner = start + tl.arange(0, BK)
        here = inside[:, None] & (inner < n)[None, :]
        along = inner.to(tl.int64)[None, :]
        a = tl.load(x + row[:, None] + along * x_column_step, mask=here, other=0.0)
        b = tl.load(y + column[:, None] + along * y_row_step, mask=here, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)
    made = (tl.sum(acc, axis=1) * alpha).to(values.dtype.element_ty)
    tl.store(values + element, made, mask=inside)
