"""Handles and descriptors: what the library makes, destroyed when nobody refers to it any more."""

from __future__ import annotations

import sys
import threading
from typing import Any, final

from sparseformats_kernels.cusparse.api import POINTER_MODE_HOST, Api

__all__ = ["Handle", "Owned", "handle"]


@final
class Owned:
    """A descriptor, with the function that destroys it."""

    __slots__ = ("_api", "_destroy", "pointer")

    def __init__(self, api: Api, create: str, destroy: str, *arguments: Any) -> None:
        self._api, self._destroy = api, destroy
        self.pointer = api.made(create, *arguments)

    def __del__(self) -> None:
        # At the end of the process the driver may be gone, and takes everything with it.
        if hasattr(self, "pointer") and not sys.is_finalizing():
            self._api.function(self._destroy)(self.pointer)


@final
class Handle:
    """A context of the library for one thread and device; the device must be current.

    Attributes
    ----------
    stream : int
        The stream on which it launches.
    """

    __slots__ = ("_api", "_owned", "pointer", "stream")

    def __init__(self, api: Api) -> None:
        self._api = api
        self._owned = Owned(api, "cusparseCreate", "cusparseDestroy")
        self.pointer = self._owned.pointer
        api.call("cusparseSetPointerMode", self.pointer, POINTER_MODE_HOST)
        self.stream = 0

    def on(self, stream: int) -> int:
        """Launch on `stream` from now on; the handle itself."""
        if stream != self.stream:
            self._api.call("cusparseSetStream", self.pointer, stream)
            self.stream = stream
        return self.pointer


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
