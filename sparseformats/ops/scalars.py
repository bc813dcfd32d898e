"""Rules about the types of a product: its dtype, and which scalars may scale it."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from sparseformats._arrays import ArrayLibrary
from sparseformats._dtypes import itemsize, kind

__all__ = ["Scalar", "as_scalar", "result_dtype"]

Scalar = bool | int | float | complex


def result_dtype(lib: ArrayLibrary, a: str, x: str) -> str:
    """Dtype of a product of dtypes `a` and `x` in library `lib`.

    The library's promotion, with room for sums of narrow integers: int8 and int16 give int32,
    uint8 and uint16 give uint32 (int64 in torch, which lacks it), mixed signs give int64.

    Raises
    ------
    TypeError
        The library does not promote the two.

    Examples
    --------
    >>> from sparseformats import _arrays
    >>> result_dtype(_arrays.library("numpy"), "int8", "int16")
    'int32'
    """
    try:
        promoted = lib.result_dtype(a, x)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"{lib.name} has no common dtype for a product of {a} and {x}; convert one operand"
        ) from error
    if kind(promoted) not in "iu":
        return promoted
    signs = {kind(a), kind(x)} - {"b"}
    if signs == {"i", "u"}:
        return "int64"
    if itemsize(promoted) > 2:
        return promoted
    if signs == {"i"}:
        return "int32"
    return "uint32" if lib.name != "torch" else "int64"


def as_scalar(value: Any, name: str, dtype: str) -> Scalar:
    """`value` as a Python number that can scale a result of `dtype` without changing it.

    Raises
    ------
    TypeError
        Not a number, or of a kind that the dtype cannot hold (a float for integers).
    ValueError
        An integer out of the dtype's range.
    """
    if not isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        raise TypeError(f"{name} must be a Python number, got {type(value).__name__}")
    found = value.item() if isinstance(value, np.generic) else value
    what = kind(dtype)
    if what == "c":
        return found if isinstance(found, complex) else float(found)
    if isinstance(found, complex):
        raise TypeError(f"{name}={value!r} is complex, but the result is {dtype}")
    if what == "f":
        return float(found)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if isinstance(found, float):
        raise TypeError(f"{name}={value!r} is no integer, but the result is {dtype}")
    number = _in_range(operator.index(found), name, dtype)
    return bool(number) if what == "b" else number


def _in_range(value: int, name: str, dtype: str) -> int:
    bits = 8 * itemsize(dtype)
    low, high = {
        "b": (0, 1),
        "u": (0, 2**bits - 1),
        "i": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1),
    }[kind(dtype)]
    if not low <= value <= high:
        raise ValueError(f"{name}={value} is not within {low} … {high}, the range of {dtype}")
    return value
