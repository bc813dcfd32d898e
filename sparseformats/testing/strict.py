"""array-api-strict as one more array library, which keeps the library's own code honest.

Its arrays have the operators and functions of the array API standard and nothing else, so an
algorithm that leans on a NumPy method fails on them. Only the primitives of
`sparseformats._arrays`, which the standard lacks, are done on the NumPy array inside, and slices
are clipped to the array as Python, NumPy, torch and CuPy do (the standard leaves that open).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from sparseformats import _arrays

__all__ = ["StrictLibrary", "register_strict"]

_PRIMITIVES = (
    *("native", "copy", "contiguous", "is_contiguous", "astype", "bits", "nonzero_mask"),
    *("equal_bits", "take", "put", "put_rows", "flatnonzero", "count_nonzero", "cumsum"),
    *("bincount", "repeat", "searchsorted", "argsort", "lexsort", "concat", "where", "any"),
    *("item", "max_int", "segment_sum", "from_bits", "empty", "zeros", "full", "arange", "scatter"),
    *("strides", "address", "is_writeable"),
)


class StrictLibrary(_arrays.ArrayLibrary):
    """Arrays of array-api-strict."""

    name = "array_api_strict"

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        _clip_slices(type(module.zeros(0)))

    def owns(self, x: object) -> bool:
        """Whether `x` is an array of this library."""
        return isinstance(x, type(self._np.zeros(0)))

    def dtype_name(self, x: Any) -> str:
        """Name of an array's dtype or of a dtype object."""
        return str(getattr(x, "dtype", x)).removeprefix("array_api_strict.")

    def dtype(self, name: str) -> Any:
        """Dtype object of this name."""
        return self._np.bool if name == "bool" else getattr(self._np, name)

    def result_dtype(self, a: str, b: str) -> str:
        """Promotion of the standard; TypeError where it defines none."""
        return self.dtype_name(self._np.result_type(self.dtype(a), self.dtype(b)))

    def asarray(self, obj: Any, dtype_name: str | None = None, device: str | None = None) -> Any:
        """Make an array of anything that the standard's `asarray` takes."""
        dtype = None if dtype_name is None else self.dtype(dtype_name)
        return self._np.asarray(obj, dtype=dtype)

    def to_numpy(self, x: Any) -> np.ndarray[Any, Any]:
        """NumPy array inside `x`."""
        inside: np.ndarray[Any, Any] = x._array
        return inside

    def from_numpy(self, x: np.ndarray[Any, Any], device: str | None = None) -> Any:
        """Wrap a NumPy array."""
        return self._np.asarray(x)


def _clip_slices(array: Any) -> None:
    """Make the arrays' indexing clip slices instead of raising IndexError."""
    get, put = array.__getitem__, array.__setitem__

    def getitem(self: Any, key: Any) -> Any:
        return get(self, _inside(self, key))

    def setitem(self: Any, key: Any, value: Any) -> None:
        put(self, _inside(self, key), value)

    array.__getitem__, array.__setitem__ = getitem, setitem


def _inside(x: Any, key: Any) -> Any:
    """`key` with slices clipped to the shape of `x`."""
    keys = key if isinstance(key, tuple) else (key,)
    clipped, axis = [], 0
    for at, k in enumerate(keys):
        clipped.append(_clipped(k, x.shape[axis]) if isinstance(k, slice) else k)
        if k is ...:
            axis = x.ndim - sum(later is not None for later in keys[at + 1 :])
        elif k is not None:
            axis += 1
    return tuple(clipped) if isinstance(key, tuple) else clipped[0]


def _clipped(key: slice, size: int) -> slice:
    forward = key.step is None or key.step > 0
    return slice(*key.indices(size)) if forward else key


def _primitive(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(_arrays.NumPyLibrary, name))
    def method(self: StrictLibrary, *args: Any, **kwargs: Any) -> Any:
        def inside(x: Any) -> Any:
            if isinstance(x, list | tuple):
                return type(x)(inside(part) for part in x)
            return x._array if self.owns(x) else x

        found = getattr(_arrays.library("numpy"), name)(
            *map(inside, args), **{key: inside(value) for key, value in kwargs.items()}
        )
        return self._np.asarray(found) if isinstance(found, np.ndarray | np.generic) else found

    return method


for _name in _PRIMITIVES:
    setattr(StrictLibrary, _name, _primitive(_name))


def register_strict() -> None:
    """Let the library accept arrays of array-api-strict, if that package is installed."""
    _arrays.register("array_api_strict", "array_api_strict", StrictLibrary)
