"""Values of every type, bit by bit: the special ones that conversions like to lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sparseformats import _arrays, _dtypes

__all__ = ["Draw", "Host", "host_dtype", "scalars", "value_arrays"]

Draw = Callable[[Any], Any]
Host = np.ndarray[Any, np.dtype[Any]]

# Exponent and mantissa bits of each floating type.
_LAYOUT = {
    "float8_e4m3fn": (4, 3),
    "float8_e5m2": (5, 2),
    "float16": (5, 10),
    "bfloat16": (8, 7),
    "float32": (8, 23),
    "float64": (11, 52),
}
_PLAIN = (1, 2, 3, 0, -1, -2, -3, 0.5)
_PARTS = {"complex64": "float32", "complex128": "float64"}


def host_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of this name (of ml_dtypes for the small floats)."""
    found: np.dtype[Any] = _arrays.library("numpy").dtype(name)
    return found


def scalars(dtype: str, values: str = "any") -> Any:
    """Strategy of 0-d arrays of one type.

    Parameters
    ----------
    dtype : str
        Name of the type.
    values : {"any", "moderate", "small"}
        ``"any"``: every bit pattern, NaN payloads, infinities, subnormals and signed zeros often.
        ``"moderate"``: finite, of modest size, so that sums do not overflow.
        ``"small"``: integers of at most 3 in size and both zeros: sums of a few are exact.
    """
    kind = _dtypes.kind(dtype)
    if kind == "b":
        return st.sampled_from([True, False]).map(np.asarray)
    if kind == "c":
        return st.tuples(scalars(_PARTS[dtype], values), scalars(_PARTS[dtype], values)).map(
            lambda parts: _complex(dtype, *parts)
        )
    pool = _plain(dtype) + ([] if values == "small" else _special(dtype, values == "any"))
    choices = st.sampled_from(pool)
    if values == "any":
        choices = st.one_of(choices, _patterns(dtype))
    return choices.map(lambda bits: _from_bits(dtype, bits))


def value_arrays(dtype: str, size: int, values: Any = "any") -> Any:
    """Strategy of arrays (size,) of one type.

    Parameters
    ----------
    dtype : str
        Name of the type.
    size : int
        Number of elements.
    values : str or strategy
        A kind that `scalars` knows, or a strategy of Python numbers.
    """
    one = scalars(dtype, values) if isinstance(values, str) else values
    return st.lists(one, min_size=size, max_size=size).map(
        lambda found: _stack(found, host_dtype(dtype))
    )


def _stack(found: list[Any], dtype: np.dtype[Any]) -> Host:
    array = np.zeros(len(found), dtype)
    for at, value in enumerate(found):
        array[at] = value  # of the same type: the bits move unchanged
    return array


def _complex(dtype: str, real: Host, imag: Host) -> Host:
    value = np.zeros((), host_dtype(dtype))
    value.real[...], value.imag[...] = real, imag
    return value


def _from_bits(dtype: str, bits: int) -> Host:
    width = _dtypes.itemsize(dtype)
    return np.array(bits, f"u{width}").view(host_dtype(dtype))


def _to_bits(dtype: str, value: float) -> int:
    array = np.array(value).astype(host_dtype(dtype))
    return int(array.view(f"u{_dtypes.itemsize(dtype)}"))


def _plain(dtype: str) -> list[int]:
    kind = _dtypes.kind(dtype)
    numbers = [v for v in _PLAIN if kind == "f" or (v == int(v) and (v >= 0 or kind == "i"))]
    zero = [1 << (8 * _dtypes.itemsize(dtype) - 1)] if kind == "f" else []  # -0.0
    return [_to_bits(dtype, v) for v in numbers if v != 0.5] + [_to_bits(dtype, 0), *zero]


def _special(dtype: str, everything: bool) -> list[int]:
    """Bits of extreme values; only those that leave sums finite unless `everything`."""
    width = 8 * _dtypes.itemsize(dtype)
    if _dtypes.kind(dtype) != "f":
        extremes = [2 ** (width - 1) - 1, 2 ** (width - 1), 2**width - 1]
        return extremes if everything else [7]
    exponent, mantissa = _LAYOUT[dtype]
    sign, top = 1 << (width - 1), (1 << exponent) - 1
    subnormals = [1, (1 << mantissa) - 1, sign | 1, 1 << mantissa]
    if not everything:
        return [*subnormals, _to_bits(dtype, 0.75), _to_bits(dtype, -1.25)]
    if dtype == "float8_e4m3fn":  # no infinity and one NaN a sign
        return [*subnormals, 0x7F, 0xFF, 0x7E, 0xFE]
    infinity, quiet = top << mantissa, 1 << (mantissa - 1)
    nans = [quiet, quiet | 1, quiet | 1 | sign, 1, 1 | sign]  # the last two are signalling
    return [
        *subnormals,
        *(infinity | payload for payload in nans),
        infinity,
        sign | infinity,
        infinity - 1,  # the largest finite value
    ]


def _patterns(dtype: str) -> Any:
    return st.integers(0, 2 ** (8 * _dtypes.itemsize(dtype)) - 1)
