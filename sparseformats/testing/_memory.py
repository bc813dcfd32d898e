"""Which arrays an object holds, whether arrays overlap, and whether they were written to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparseformats import _arrays, _dtypes

__all__ = ["arrays_of", "shares_memory", "unchanged"]


def arrays_of(x: Any) -> dict[str, Any]:
    """Every array that `x` holds: a matrix, an array, or a mapping or sequence of them."""
    if _arrays.is_array(x):
        return {"array": x}
    if isinstance(x, Mapping):
        parts = list(x.items())
    elif isinstance(x, Sequence):
        parts = [] if isinstance(x, str) else list(enumerate(x))
    else:
        return dict(x.buffers()) if hasattr(x, "buffers") else {}
    return {
        f"{key}.{name}": found for key, part in parts for name, found in arrays_of(part).items()
    }


def shares_memory(x: Any, y: Any) -> bool:
    """Whether two arrays, of any libraries, have a byte in common."""
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return bool(np.shares_memory(x, y))
    if 0 in x.shape or 0 in y.shape:
        return False
    (start, stop), (other_start, other_stop) = _span(x), _span(y)
    return start < other_stop and other_start < stop


def _span(x: Any) -> tuple[int, int]:
    """First and last byte address of an array, whose strides are taken as positive."""
    lib = _arrays.of(x)
    size = _dtypes.itemsize(lib.dtype_name(x))
    if hasattr(x, "data_ptr"):
        start, steps = int(x.data_ptr()), [size * step for step in x.stride()]
    elif hasattr(x, "__cuda_array_interface__"):
        start = int(x.__cuda_array_interface__["data"][0])
        steps = list(x.strides)
    else:
        host = lib.to_numpy(x)
        start, steps = int(host.__array_interface__["data"][0]), list(host.strides)
    return start, start + size + sum((n - 1) * s for n, s in zip(x.shape, steps, strict=True))


@contextmanager
def unchanged(*objects: Any) -> Iterator[None]:
    """Raise AssertionError if the block changes a byte of any array in `objects`.

    Parameters
    ----------
    *objects : SparseMatrix, array, or mapping or sequence of them
        What must stay as it is: sources, operands, the caller's own arrays.
    """
    before = {name: (x, _image(x)) for name, x in arrays_of(list(objects)).items()}
    yield
    for name, (x, image) in before.items():
        if _image(x) != image:
            raise AssertionError(f"inputs untouched: {name} was changed, it is now\n{x}")


def _image(x: Any) -> tuple[tuple[int, ...], bytes]:
    host = _arrays.of(x).to_numpy(x)
    if math.prod(host.shape) and not any(host.strides):
        host = host[(slice(0, 1),) * host.ndim]  # one element, broadcast to any size
    return tuple(x.shape), host.tobytes()
