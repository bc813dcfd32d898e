"""NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats._arrays.base import Array, ArrayLibrary, Shape

__all__ = ["NumPyLibrary"]


class NumPyLibrary(ArrayLibrary):
    """NumPy proper: the only library that can protect its arrays."""

    def facts(self, x: Array) -> tuple[Any, ...] | None:
        # The flags tell layout, alignment and writeability; an address takes 20 times as long.
        # Bit 2 says who owns the memory, which nobody asks.
        return x.shape, x.strides, x.dtype, x.flags.num | 4, type(x)

    def is_native(self, x: Array) -> bool:
        return type(x) is np.ndarray and x.dtype.isnative

    def overlaps(self, a: Array, b: Array) -> bool:
        return np.may_share_memory(a, b)

    def reshape(self, x: Array, shape: Shape) -> Array:
        return x.reshape(shape)

    def readonly(self, x: Array) -> Array:
        if x.flags.writeable:
            x = x.view()
            x.flags.writeable = False
        return x

    def take(self, x: Array, index: Array, axis: int = 0) -> Array:
        if x.flags.c_contiguous:
            return x.take(index, axis=axis)
        # ndarray.take would first copy all of a strided or broadcast array.
        return np.ascontiguousarray(x[(slice(None),) * axis + (index,)])

    def lexsort(self, primary: Array, secondary: Array) -> Array:
        return np.lexsort((secondary, primary)).astype(np.int64, copy=False)
