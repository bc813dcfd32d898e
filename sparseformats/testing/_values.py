"""Values of every type, bit by bit: the special ones that conversions like to lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sparseformats import _arrays, _dtypes

__all__ = ["Draw", "Host", "host_dtype", "masks", "sizes", "value_arrays"]

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
_PLAIN = (1, 2, 0, -1, -3)
_PARTS = {"complex64": "float32", "complex128": "float64"}


def host_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of this name (of ml_dtypes for the small floats)."""
    found: np.dtype[Any] = _arrays.library("numpy").dtype(name)
    return found


def value_arrays(dtype: str, size: int, values: Any = "any") -> Any:
    """Strategy of arrays (size,) of one type.

    Drawn as bytes, one choice for the whole array: fast, and evenly spread over the pool.

    Parameters
    ----------
    dtype : str
        Name of the type.
    size : int
        Number of elements.
    values : {"any", "moderate", "small"} or strategy
        ``"any"``: every bit pattern, NaN payloads, infinities, subnormals and signed zeros often.
        ``"moderate"``: finite, of modest size, so that sums do not overflow.
        ``"small"``: integers of at most 3 in size and both zeros: sums of a few are exact.
        Or a strategy of Python numbers.
    """
    if not isinstance(values, str):
        numbers = st.lists(values, min_size=size, max_size=size)
        return numbers.map(lambda found: np.array(found, host_dtype(dtype)))
    real = _PARTS.get(dtype, dtype)
    count = size * (1 if real == dtype else 2)
    length = 1 + count * (1 + _dtypes.itemsize(real))
    return st.binary(min_size=length, max_size=length).map(
        lambda drawn: _decoded(drawn, real, count, values).view(host_dtype(dtype))
    )


def _decoded(drawn: bytes, dtype: str, count: int, values: str) -> Host:
    """Values from bytes: one for all, then each element's own and those of a random pattern.

    Hypothesis draws many bytes equal. The first byte spreads even those over the pool, and where
    it is 0, which examples shrink to, equal bytes are equal values.
    """
    width = _dtypes.itemsize(dtype)
    rows = np.frombuffer(drawn, np.uint8, offset=1).reshape(count, 1 + width)
    patterns = np.ascontiguousarray(rows[:, 1:])
    control = (rows[:, 0].astype(np.int64) + drawn[0] * np.arange(count)) % 256
    if _dtypes.kind(dtype) == "b":
        truth: Host = control % 2 == 0
        return truth
    pool = _plain(dtype) + ([] if values == "small" else _special(dtype, values == "any"))
    bits = np.array(pool, f"u{width}")[control % len(pool)]
    if values == "any":  # special values are the point, random bits a supplement
        bits = np.where(control >= 240, patterns.view(f"u{width}").reshape(count), bits)
    found: Host = bits.view(host_dtype(dtype))
    return found


def masks(size: int) -> Any:
    """Strategy of boolean arrays (size,); the simplest is true everywhere."""
    length = -(-size // 8)
    return st.binary(min_size=length, max_size=length).map(
        lambda drawn: np.unpackbits(np.frombuffer(drawn, np.uint8), count=size) == 0
    )


def _to_bits(dtype: str, value: float) -> int:
    array = np.array(value).astype(host_dtype(dtype))
    return int(array.view(f"u{_dtypes.itemsize(dtype)}"))


def _plain(dtype: str) -> list[int]:
    kind = _dtypes.kind(dtype)
    numbers = [v for v in _PLAIN if v >= 0 or kind != "u"]
    minus_zero = [1 << (8 * _dtypes.itemsize(dtype) - 1)] if kind == "f" else []
    return [_to_bits(dtype, v) for v in numbers] + 2 * minus_zero


def sizes(most: int) -> Any:
    """Strategy of counts up to `most`, 0 less often than the others."""
    return st.sampled_from([0, *range(1, most + 1), *range(1, most + 1)])


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
        rounded = [_to_bits(dtype, value) for value in (0.75, -1.25, 1 / 3, -5 / 7, 2.7, -0.1)]
        return [*rounded, *subnormals]
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
