"""What bounds the error of ``activation(X @ W.T + bias)`` that was rounded once."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from sparseformats import reference
from sparseformats.testing import assert_product, error_bound

__all__ = ["assert_layer"]

# Largest slope of each activation, and the error of computing it in float32 relative to its value.
SLOPES = {None: 1.0, "relu": 1.0, "gelu": 1.13, "silu": 1.1}
ROUNDING = 16 * 2.0**-24


def _activated(z: Any, name: str | None) -> Any:
    with np.errstate(all="ignore"):
        if name == "relu":
            return np.where(z < 0, 0, z)
        if name == "gelu":
            return 0.5 * z * (1 + np.vectorize(math.erf)(z * math.sqrt(0.5)))
        if name == "silu":
            return z / (1 + np.exp(-z))
    return z


def _scales(lib: Any, scale: Any, column: bool) -> Any:
    """Scales as they meet the product, in float64."""
    if scale is None or isinstance(scale, float):
        return 1.0 if scale is None else scale
    found = lib.to_numpy(scale).astype(np.float64).reshape(-1)
    return found[:, None] if column else found


def assert_layer(
    Y: Any,
    X: Any,
    W: Any,
    bias: Any,
    activation: str | None,
    *,
    residual: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    dtype: str | None = None,
    factor: float = 1.0,
) -> None:
    """Check a layer against float64: the bound of the sums, through the activation, rounded once.

    Parameters
    ----------
    residual, scale_a, scale_b
        As in `sparseformats.linear`; scales are numbers or arrays.
    dtype : str, optional
        That the result must have; by default that of the product.
    factor : float
        `Tolerance.factor` of the kernel.

    Raises
    ------
    AssertionError
        With the worst element.
    """
    lib = W.lib
    flat = lib.xp.reshape(X, (-1, int(X.shape[-1])))
    product = reference.rmatmul(flat, W.T)
    dtype = dtype or product.dtype
    assert lib.dtype_name(Y) == dtype
    with np.errstate(all="ignore"):
        scale = _scales(lib, scale_a, True) * _scales(lib, scale_b, False)
        shift = 0.0 if bias is None else lib.to_numpy(bias).astype(np.float64)
        z = scale * product.value.astype(np.float64) + shift
        sums = replace(product, magnitude=np.abs(scale) * product.magnitude, value=z)
        summed = error_bound(replace(sums, dtype="float32"), factor=factor)
        exact = _activated(z, activation)
        # Where gelu and silu vanish, the factor of z that does so has an error of its own.
        slack = SLOPES[activation] * (summed + ROUNDING * (np.abs(z) + np.abs(shift)))
        if residual is not None:
            added = lib.to_numpy(residual).astype(np.float64).reshape(exact.shape)
            exact, slack = exact + added, slack + ROUNDING * (np.abs(exact) + np.abs(added))
    found = lib.to_numpy(Y)
    assert found.shape == (*X.shape[:-1], W.shape[0])
    size = 2.0**24 * slack  # as if it were the magnitude of one float32 term
    none = np.zeros_like(product.length)
    judged = replace(product, value=exact, magnitude=size, length=none, dtype=dtype)
    assert_product(found.reshape(exact.shape), judged)
