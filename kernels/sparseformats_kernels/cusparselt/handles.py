"""Handles: one for each thread and device, destroyed when nobody refers to it any more."""

from __future__ import annotations

import sys
import threading
from typing import final

from sparseformats_kernels.cusparselt.api import Api

__all__ = ["Handle", "handle"]


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
        api.call("cusparseLtInit", struct.address)
        self._struct = struct
        self.address = struct.address

    def __del__(self) -> None:
        # At the end of the process the driver may be gone, and takes everything with it.
        if hasattr(self, "_struct") and not sys.is_finalizing():
            self._api.function("cusparseLtDestroy")(self.address)


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
