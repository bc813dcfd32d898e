"""What may follow a product: elementwise, in the dtype that the sums are kept in."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import kind

__all__ = ["ACTIVATIONS", "activate", "check_activation"]


def _relu(lib: ArrayLibrary, y: Array) -> Array:
    return lib.where(y < 0, lib.zeros(1, lib.dtype_name(y), lib.device(y)), y)  # NaN stays NaN


def _gelu(lib: ArrayLibrary, y: Array) -> Array:
    return 0.5 * y * (1 + lib.erf(y * math.sqrt(0.5)))


def _silu(lib: ArrayLibrary, y: Array) -> Array:
    return y / (1 + lib.xp.exp(-y))


ACTIVATIONS: dict[str, Callable[[ArrayLibrary, Array], Array]] = {
    "relu": _relu,
    "gelu": _gelu,
    "silu": _silu,
}
"""By name, as torch defines them by default: gelu is the exact one, ``y * Phi(y)``."""


def check_activation(name: str | None, dtype: str) -> None:
    """Refuse an activation that is unknown or that results of `dtype` do not have.

    Raises
    ------
    ValueError, TypeError
    """
    if name is None:
        return
    if name not in ACTIVATIONS:
        known = ", ".join(map(repr, ACTIVATIONS))
        raise ValueError(f"activation must be None or one of {known}, got {name!r}")
    if kind(dtype) not in ("iuf" if name == "relu" else "f"):
        raise TypeError(f"activation {name!r} has no meaning for a result of {dtype}")


def activate(lib: ArrayLibrary, y: Array, name: str | None) -> Array:
    """Apply an activation by name; None is none."""
    if name is None:
        return y
    with np.errstate(all="ignore"):
        return ACTIVATIONS[name](lib, y)
