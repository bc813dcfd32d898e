"""Handles: one for each thread and device, destroyed when nobody refers to it any more."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final, final

from sparseformats_kernels.cusparselt.api import Api

__all__ = ["Handle", "handle"]


_RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@final
class Handle:
    """A context of the library for one thread and device; the device must be current.

    Attributes
    ----------
    address : int
    """

    __slots__ = ("_api", "_struct", "address")

    def __init__(self, api: Api) -> None:
        self._api = api
        struct = api.opaque()
        with _taking_memory():
            api.call("cusparseLtInit", struct.address)
        self._struct = struct
        self.address = struct.address

    def __del__(self) -> None:
        # At the end of the process the driver may be gone, and takes everything with it.
        if hasattr(self, "_struct") and not sys.is_finalizing():
            self._api.function("cusparseLtDestroy")(self.address)


@contextmanager
def _taking_memory() -> Iterator[None]:
    """Let this thread take memory of the device even while it records a graph.

    The library takes some for a handle, which is no part of the graph. See
    "cuThreadExchangeStreamCaptureMode" in the reference of the driver's interface.
    """
    cuda, mode = _driver(), ctypes.c_int(_RELAXED)
    if cuda is not None:
        cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        if cuda is not None:
            cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


@lru_cache(maxsize=1)
def _driver() -> Any:
    with suppress(OSError):
        return ctypes.CDLL("libcuda.so.1")
    return None


class _Local(threading.local):
    def __init__(self) -> None:
        self.handles: dict[tuple[int, int], Handle] = {}


_local = _Local()


def handle(api: Api, index: int) -> Handle:
    """The calling thread's handle for a device, which must be current."""
    key = (id(api), index)
    found = _local.handles.get(key)
    if found is None:
        found = _local.handles[key] = Handle(api)
    return found
