"""Adding one product of tiles to the sums so far."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["dot"]


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr, UPCAST: tl.constexpr, PROMOTE: tl.constexpr):
    """``acc + a @ b``, of matrices or of stacks of them."""
    if UPCAST:
        # The interpreter multiplies the bits of bfloat16 and fp8 as if they were integers.
        a, b = a.to(tl.float32), b.to(tl.float32)
    if PROMOTE == "partial":
        # Tensor cores keep too few bits of sums of fp8: they sum up one tile, in a register of its
        # own, and float32 arithmetic adds that up.
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=a.shape[-1])
    elif PROMOTE == "added":
        # The same where the compiler has no such register; the limit keeps it from folding the sum.
        acc += tl.dot(a, b, max_num_imprecise_acc=a.shape[-1])
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=acc.dtype)
    return acc
