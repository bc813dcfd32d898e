"""Elements of a product of two dense matrices, at stored blocks or at stored elements alone."""

from __future__ import annotations

import triton
import triton.language as tl

from sparseformats_kernels.triton.convert.finding import is_nonzero

__all__ = ["sample_blocks", "sample_elements", "sample_rows"]


@triton.jit
def _row_of(number, indptr, rows, G: tl.constexpr):
    """In which block row a group of G blocks is, and the place of its first block.

    The groups of row i are numbered from ``indptr[i] // G + i`` on: so no row has to know how many
    groups those before it need exactly, and a row has at most one number too many.
    """
    low, high = 0, rows
    while low + 1 < high:
        middle = (low + high) // 2
        if tl.load(indptr + middle) // G + middle <= number:
            low = middle
        else:
            high = middle
    begin = tl.load(indptr + low)
    return low, begin + (number - (begin // G + low)) * G


@triton.jit
def sample_blocks(
    x,
    x_row_step,
    x_column_step,
    y,
    y_row_step,
    y_column_step,
    indptr,
    columns,
    pattern,
    values,
    vanished,
    m,
    n,
    k,
    rows,
    width,
    groups,
    wide,
    alpha,
    R: tl.constexpr,
    C: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    G: tl.constexpr,
    ELL: tl.constexpr,
    MASKED: tl.constexpr,
    KIND: tl.constexpr,
    SWAP: tl.constexpr,
    PRECISION: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """``values[b] <- alpha * (x[rows of b] @ y[:, columns of b])`` for each block b.

    One program makes BM rows of G blocks of a row of blocks, or BN columns of them, of which there
    are `wide` in a block: so they share what they read of x. The sums run over `n`. With ELL each
    row has `width` places and `groups` groups, and a column of -1 is none. With MASKED only slots
    in which the pattern has a non-zero get a value, and ``vanished`` counts those that get a zero.
    With SWAP the tile is multiplied as its transpose, so that tensor cores see its longer edge.
    """
    number = tl.program_id(0) // wide
    if ELL:
        block_row = number // groups
        first = block_row * width + number % groups * G
        end = (block_row + 1) * width
    else:
        block_row, first = _row_of(number, indptr, rows, G)
        end = tl.load(indptr + block_row + 1)
    if first < end:
        lane = tl.arange(0, BN)
        block, right = first + lane // (BN // G), lane % (BN // G)
        right += tl.program_id(0) % wide * BN
        column = tl.load(columns + block, mask=block < end, other=-1).to(tl.int64)
        there = (column >= 0) & (right < C)
        column = column * C + right
        down = tl.arange(0, BM)
        for top in range(0, R, BM):
            row = tl.cast(block_row, tl.int64) * R + top + down
            in_rows = (top + down < R) & (row < m)
            in_columns = there & (column < k)
            acc = tl.zeros((BN, BM) if SWAP else (BM, BN), tl.float32)
            x_at = x + (row * x_row_step)[:, None]
            y_at = y + (column * y_column_step)[None, :]
            for start in range(0, n, BK):
                inner = start + tl.arange(0, BK)
                here = inner < n
                along = inner.to(tl.int64)
                a_at = x_at + (along * x_column_step)[None, :]
                b_at = y_at + (along * y_row_step)[:, None]
                a = tl.load(a_at, mask=in_rows[:, None] & here[None, :], other=0.0)
                b = tl.load(b_at, mask=here[:, None] & in_columns[None, :], other=0.0)
                if UPCAST:
                    # The interpreter multiplies the bits of bfloat16 as if they were integers.
                    a, b = a.to(tl.float32), b.to(tl.float32)
                if SWAP:
                    acc = tl.dot(tl.trans(b), tl.trans(a), acc, input_precision=PRECISION)
                else:
                    acc = tl.dot(a, b, acc, input_precision=PRECISION)
            product = tl.trans(acc) if SWAP else acc
            at = (block.to(tl.int64) * (R * C) + right)[None, :] + ((top + down) * C)[:, None]
            slots = (top + down < R)[:, None] & ((block < end) & (right < C))[None, :]
            stored = in_rows[:, None] & in_columns[None, :]
            made = (product * alpha).to(values.dtype.element_ty)
            if MASKED:
                stored &= is_nonzero(tl.load(pattern + at, mask=stored, other=0), KIND)
                zero = stored & (made.to(tl.float32) == 0.0)
                lost = tl.sum(tl.reshape(zero.to(tl.int32), (BM * BN,)), axis=0)
                if lost > 0:
                    tl.atomic_add(vanished, lost, sem="relaxed")
            tl.store(values + at, tl.where(stored, made, 0.0), mask=slots)


@triton.jit
def sample_rows(
    x,
    x_row_step,
    x_column_step,
    y,
    y_row_step,
    y_column_step,
    indptr,
    indices,
    values,
    n,
    parts,
    alpha,
    E: tl.constexpr,
    BK: tl.constexpr,
):
    """``values[e] <- alpha * (x[row] . y[:, indices[e]])``; one of so many programs of a row."""
    row, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    line = x + tl.cast(row, tl.int64) * x_row_step
    for first in range(begin + part * E, end, parts * E):
        element = first + tl.arange(0, E)
        inside = element < end
        column = tl.load(indices + element, mask=inside, other=0).to(tl.int64) * y_column_step
        acc = tl.zeros((E, BK), tl.float32)
        for start in range(0, n, BK):
            inner = start + tl.arange(0, BK)
            along = inner.to(tl.int64)
            a = tl.load(line + along * x_column_step, mask=inner < n, other=0.0)
            here = inside[:, None] & (inner < n)[None, :]
            b = tl.load(y + column[:, None] + (along * y_row_step)[None, :], mask=here, other=0.0)
            acc += a.to(tl.float32)[None, :] * b.to(tl.float32)
        made = (tl.sum(acc, axis=1) * alpha).to(values.dtype.element_ty)
        tl.store(values + element, made, mask=inside)


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
