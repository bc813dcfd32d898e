"""Temporaries that are kept from call to call.

Memory that is new to a process costs a page fault for every 4 KiB, 0.2 to 1.5 us each: more than
what is done with it. Temporaries of cache-sized runs are therefore taken from buffers of the
thread. No result shares memory with one.
"""

from __future__ import annotations

import threading
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["LIMIT", "scratch"]

Array: TypeAlias = NDArray[Any]

LIMIT = 1 << 21  # bytes of one buffer; a thread has at most as many as there are names


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.named: dict[str, Array] = {}


_buffers = _Buffers()


def scratch(name: str, count: int, dtype: DTypeLike) -> Array:
    """Uninitialised array ``(count,)``, valid until the thread asks for the name again."""
    kind: np.dtype[Any] = np.dtype(dtype)
    size = count * kind.itemsize
    if size > LIMIT:
        return np.empty(count, kind)
    buffer = _buffers.named.get(name)
    if buffer is None or len(buffer) < size:
        buffer = np.empty(1 << max(12, (size - 1).bit_length()), np.uint8)
        _buffers.named[name] = buffer
    part: Array = buffer[:size].view(kind)
    return part
