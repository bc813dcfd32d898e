"""Integer views, zero tests by bits, and ranges of work that fit the cache.

Values move as integers of their own width: SciPy's C++ then admits float16 and bfloat16, and its
``0 + x`` keeps -0.0 and the payload of every NaN. complex128 has no such integer; it is moved by
code that only copies, or as two int64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sparseformats_kernels.cpu.convert._scratch import scratch

__all__ = ["CHUNK", "as_bits", "nonzero", "ranges", "row_units", "to_width", "units"]

Array: TypeAlias = NDArray[Any]

# Elements handled together. Measured on 8192 x 8192 float32: temporaries of 2**16 elements stay in
# a 1 MiB L2 cache; 2**15 and 2**17 were within 10 %, 2**13 lost 30 % to NumPy's call overhead.
CHUNK = 1 << 16

_MAGNITUDE = {2: 0x7FFF, 4: 0x7FFF_FFFF, 8: 0x7FFF_FFFF_FFFF_FFFF}
_SCALARS = {1: "i1", 2: "i2", 4: "i4", 8: "i8", 16: "c16"}
_COMPLEX64 = 0x7FFF_FFFF_7FFF_FFFF


def as_bits(data: Array) -> Array:
    """Integers with the same bits; complex128 comes back as it is."""
    size = data.dtype.itemsize
    return data if size == 16 else data.view(f"i{size}")


def units(data: Array) -> tuple[Array, int]:
    """View the last axis as integers: those of one element lie together; their number is second.

    Only complex128 needs two.
    """
    return (data.view("i8"), 2) if data.dtype.itemsize == 16 else (as_bits(data), 1)


def nonzero(data: Array, out: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """Tell what is not zero, by bits: NaN and subnormals are not, zeros of both signs are.

    A comparison of floats would call subnormals zero where the processor flushes them.
    """
    kind, size = data.dtype.kind, data.dtype.itemsize
    if kind in "biu":
        return np.asarray(np.not_equal(as_bits(data), 0, out=out))
    if size == 16:
        parts = np.bitwise_and(data[..., None].view("i8"), _MAGNITUDE[8])
        return np.asarray(np.not_equal(parts[..., 0] | parts[..., 1], 0, out=out))
    # Half types of ml_dtypes have kind "V"; every one of them is a float of two bytes here.
    magnitude = _COMPLEX64 if kind == "c" else _MAGNITUDE[size]
    bits = as_bits(data)
    words = scratch("magnitude", bits.size, bits.dtype).reshape(bits.shape)
    np.bitwise_and(bits, magnitude, out=words)
    return np.asarray(np.not_equal(words, 0, out=out))


def ranges(pointers: Array, limit: int) -> Iterator[tuple[int, int]]:
    """Split ``len(pointers) - 1`` rows into runs of at most `limit` elements, at least one row."""
    rows, first = len(pointers) - 1, 0
    end = int(pointers[-1])
    while first < rows:
        reach, last = int(pointers[first]) + limit, rows
        if reach < end:
            # In the dtype of the pointers: otherwise NumPy converts all of them at each search.
            bound = pointers.dtype.type(reach)
            last = max(int(np.searchsorted(pointers, bound, side="right")) - 1, first + 1)
        yield first, last
        first = last


def row_units(array: Array, C: int) -> Array:
    """Rows of C elements, as scalars where there is a type of their size, else ``(rows, C)``."""
    rows = array.reshape(-1, C)
    scalar = _SCALARS.get(C * array.dtype.itemsize)
    return rows.view(scalar).reshape(-1) if scalar else rows


def to_width(index: Array, name: str) -> Array:
    """Index array of the given width, the same object where it has it."""
    return index.astype(name, copy=False)
