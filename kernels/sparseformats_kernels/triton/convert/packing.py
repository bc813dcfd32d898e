"""From a dense array straight to 2:4: values are read once, judged and written in one pass."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["pack"]


@triton.jit
def pack(
    dense,
    row_step,
    column_step,
    data,
    indices,
    crowded,
    K,
    GROUPS,
    TOTAL,
    FLAT: tl.constexpr,
    WHOLE: tl.constexpr,
    SIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Two slots for each of TOTAL groups of four; all values are seen as integers.

    SIGN is the bit that a zero may have, 0 for integers. With FLAT the groups lie one behind the
    other, else there are GROUPS of them in a row of K columns, all of them WHOLE or not.
    ``crowded`` counts the groups that have more than two non-zeros, and keeps the greatest distance
    of one from the end.
    """
    g = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = g < TOTAL
    j = tl.arange(0, 4)
    if FLAT:
        v = tl.load(dense + g[:, None] * 4 + j[None, :], mask=inside[:, None], other=0)
    else:
        column = (g % GROUPS * 4)[:, None] + j[None, :]
        at = (g // GROUPS)[:, None] * row_step + column * column_step
        there = inside[:, None] if WHOLE else inside[:, None] & (column < K)
        v = tl.load(dense + at, mask=there, other=0)
    even, odd = tl.split(v.reshape(BLOCK, 2, 2))
    v0, v2 = tl.split(even)
    v1, v3 = tl.split(odd)
    u0, u1 = (v0 | SIGN) != SIGN, (v1 | SIGN) != SIGN
    u2, u3 = (v2 | SIGN) != SIGN, (v3 | SIGN) != SIGN
    count = u0.to(tl.int32) + u1.to(tl.int32) + u2.to(tl.int32) + u3.to(tl.int32)
    # The non-zeros' positions, and the smallest free ones where they are fewer than two.
    i0 = tl.where(u0 | (count < 2), 0, tl.where(u1, 1, 2))
    i1 = tl.where(u3, 3, tl.where(u2, 2, 1))
    zero = tl.zeros_like(v0)
    w0 = tl.where(i0 == 0, tl.where(u0, v0, zero), tl.where(u1, v1, v2))
    w1 = tl.where(u3, v3, tl.where(u2, v2, tl.where(u1, v1, zero)))
    slot = g[:, None] * 2 + tl.arange(0, 2)[None, :]
    tl.store(data + slot, tl.join(w0, w1), mask=inside[:, None])
    tl.store(indices + slot, tl.join(i0, i1).to(tl.int8), mask=inside[:, None])
    bad = inside & (count > 2)
    many = tl.sum(bad.to(tl.int32), axis=0)
    if many > 0:
        tl.atomic_add(crowded, many.to(tl.int64))
        tl.atomic_max(crowded + 1, tl.max(tl.where(bad, TOTAL - g, 0), axis=0))
