"""What the CPU's product kernels share: the dtype they compute in, and how a result is delivered.

A kernel multiplies in `compute_dtype` and hands its raw product to `deliver`, which scales, adds,
rounds once and writes. So alpha, beta, `out` and half types behave alike in every kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import accumulator
from sparseformats.dispatch.query import Query

__all__ = ["Host", "Run", "compute_dtype", "deliver", "gemm", "host", "is_plain", "unhost"]

Run = Callable[[Array, "Array | None", Any, Any], Array]
"""``(x, out, alpha, beta) -> y``, what a kernel's ``bind`` returns."""

Host = np.ndarray[Any, np.dtype[Any]]


def compute_dtype(out_dtype: str | None) -> str:
    """Dtype in which a product with results of `out_dtype` is computed."""
    if out_dtype is None:
        raise ValueError("a product's query must name the dtype of its result")
    return accumulator(out_dtype)


def is_plain(query: Query, computes: str) -> bool:
    """Whether a raw product in `computes` is the result: nothing to cast, scale or add."""
    return query.x_dtype == query.out_dtype == computes and query.alpha_one and query.beta_zero


def host(x: Array, dtype: str) -> Host:
    """NumPy view of an array in the CPU's memory, cast to `dtype` where it has another."""
    lib = _arrays.of(x)
    return lib.to_numpy(lib.astype(x, dtype))


def unhost(lib: ArrayLibrary, y: Host) -> Array:
    """Array of `lib` over the memory of a new NumPy array."""
    if lib.name != "torch":
        return y
    import torch

    return torch.from_numpy(y)


def gemm(lib: ArrayLibrary, a: Array, b: Array, out: Array | None = None) -> Array:
    """``a @ b`` of one dtype, in that dtype, written to `out` where it is given.

    Under torch's autocast a new tensor would have another dtype, and less precision; where torch
    is told where to write, operands stay as they are.
    """
    if lib.name == "torch":
        import torch

        y = a.new_empty((*a.shape[:-1], b.shape[-1])) if out is None else out
        return torch.matmul(a, b, out=y)
    product = np.matmul(a, b)  # into strided memory NumPy would multiply without BLAS
    if out is None:
        return product
    out[...] = product
    return out


def deliver(
    lib: ArrayLibrary, y: Array, out: Array | None, alpha: Any, beta: Any, dtype: str
) -> Array:
    """``alpha * y + beta * out`` rounded to `dtype`, written to `out` where it is given.

    Parameters
    ----------
    y : (m, n) array
        Product in the dtype of computation; not used by anyone else.
    out : (m, n) array or None
        Read only if `beta` is not 0.
    """
    boolean = lib.dtype_name(y) == "bool"
    with np.errstate(all="ignore"):
        if alpha != 1:
            y *= alpha
        if out is not None and beta != 0:
            summand = lib.astype(out, lib.dtype_name(y))
            y = y | summand if boolean else y + beta * summand
        y = lib.astype(y, dtype)
    if out is None:
        return y
    out[...] = y
    return out
