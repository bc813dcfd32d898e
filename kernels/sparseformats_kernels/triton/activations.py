"""The activations that a product's epilogue may end with, in float32."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["ACTIVATIONS", "activate"]

ACTIVATIONS = (None, "relu", "gelu", "silu")


@triton.jit
def activate(x, NAME: tl.constexpr):
    """``relu``, ``gelu`` (by the error function), ``silu``, or nothing."""
    if NAME == "relu":
        # Not a maximum: that would turn NaN into 0.
        x = tl.where(x < 0, 0.0, x)
    elif NAME == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif NAME == "silu":
        x = x / (1.0 + tl.exp(-x))
    return x
