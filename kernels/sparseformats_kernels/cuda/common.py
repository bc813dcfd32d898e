"""What product kernels on CUDA devices share: scaling, and how a result is delivered."""

from __future__ import annotations

from typing import Any

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import accumulator

__all__ = ["deliver", "scaled", "without_terms"]


def scaled(lib: ArrayLibrary, x: Array, factor: Any) -> Array:
    """``factor * x`` in the dtype of computation."""
    x = lib.astype(x, accumulator(lib.dtype_name(x)))
    return x if factor == 1 else x * factor


def deliver(lib: ArrayLibrary, y: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
    """``alpha * y + beta * out``, rounded once to the dtype of `out`, in `out`.

    Parameters
    ----------
    y : (m, n) array
        Product in the dtype of computation.
    out : (m, n) array or None
        Read only if `beta` is not 0. None gives `y`, scaled.
    """
    y = scaled(lib, y, alpha)
    if out is None:
        return y
    if beta != 0:
        y = y + scaled(lib, out, beta)
    out[...] = lib.astype(y, lib.dtype_name(out))
    return out


def without_terms(
    lib: ArrayLibrary, shape: tuple[int, int], out: Array | None, beta: Any, like: tuple[str, str]
) -> Array:
    """The product of a matrix without elements: ``beta * out``, or zeros of dtype and device."""
    if out is None:
        return lib.zeros(shape, *like)
    if 0 in shape or beta == 1:
        return out
    out[...] = lib.astype(scaled(lib, out, beta), like[0]) if beta != 0 else 0
    return out
