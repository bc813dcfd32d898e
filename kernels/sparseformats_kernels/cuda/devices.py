"""Current streams, graph capture and memory of a CUDA device, as torch or CuPy manage them.

A library that is called by address must launch on the caller's current stream, with the array's
device current, and take its workspace from the allocator that knows about that stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

from sparseformats._arrays import Array, ArrayLibrary, library

__all__ = ["CuPyDevice", "Device", "TorchDevice", "device_of"]


class Device:
    """One CUDA device seen through one array library; the base says what both offer."""

    __slots__ = ("index", "lib", "place")

    def __init__(self, index: int, name: str) -> None:
        self.index = index
        self.lib: ArrayLibrary = library(name)
        self.place = f"cuda:{index}"

    def here(self) -> AbstractContextManager[Any]:
        """Make the device current; nothing where it is already."""
        raise NotImplementedError

    def is_current(self) -> bool:
        """Whether the device is the calling thread's current one."""
        raise NotImplementedError

    def stream(self) -> int:
        """Handle of the calling thread's current stream of this device."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until the current stream has done what was asked of it."""
        raise NotImplementedError

    def steps(self, x: Array) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""
        raise NotImplementedError

    def stepping(self) -> Callable[[Array], tuple[int, ...]]:
        """The quickest function that does as `steps`."""
        return self.steps

    def copying(self) -> Callable[[Array, Array], Any]:
        """The quickest function that fills an array with another one's numbers: ``(to, x)``."""
        return _fill

    def quiet(self) -> int | None:
        """The current stream, if the device is current and nothing is recorded on that stream."""
        if not self.is_current():
            return None
        stream = self.stream()
        return None if self.capture(stream) else stream

    def share(self, arrays: tuple[Array, ...]) -> None:
        """Keep the memory of `arrays` from being reused before the current stream is done."""

    def can_allocate_in_capture(self) -> bool:
        """Whether memory taken while a graph is recorded belongs to that graph."""
        return False

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """New array on this device."""
        return self.lib.empty(shape, dtype, self.place)

    def capture(self, stream: int) -> int:
        """Number of the graph that is being recorded on a stream, 0 if none is."""
        return _capture(stream) if stream else 0  # the default stream cannot be recorded


def _fill(to: Array, x: Array) -> None:
    to[...] = x


@final
class TorchDevice(Device):
    """A device through torch."""

    __slots__ = ("_current", "_recording", "_stream", "_torch")

    def __init__(self, index: int) -> None:
        import torch

        super().__init__(index, "torch")
        self._torch = torch
        # The public functions build objects on each call; a plan's warm call has no time for that.
        self._stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._current = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
        name = "_cuda_isCurrentStreamCapturing"
        self._recording = getattr(torch._C, name, torch.cuda.is_current_stream_capturing)

    def here(self) -> AbstractContextManager[Any]:
        if self.is_current():
            return nullcontext()
        return self._torch.cuda.device(self.index)  # type: ignore[no-any-return]

    def is_current(self) -> bool:
        return bool(self._current() == self.index)

    def stream(self) -> int:
        if self._stream is not None:
            return int(self._stream(self.index))
        return int(self._torch.cuda.current_stream(self.index).cuda_stream)

    def settle(self) -> None:
        self._torch.cuda.current_stream(self.index).synchronize()

    def steps(self, x: Array) -> tuple[int, ...]:
        return x.stride()  # type: ignore[no-any-return]

    def stepping(self) -> Callable[[Array], tuple[int, ...]]:
        return self._torch.Tensor.stride  # type: ignore[no-any-return]

    def copying(self) -> Callable[[Array, Array], Any]:
        return self._torch.Tensor.copy_  # type: ignore[no-any-return]

    def quiet(self) -> int | None:
        if self._current() != self.index:
            return None
        stream = self.stream()
        return None if stream and self._recording() else stream

    def share(self, arrays: tuple[Array, ...]) -> None:
        stream = self._torch.cuda.current_stream(self.index)
        for x in arrays:
            x.record_stream(stream)

    def can_allocate_in_capture(self) -> bool:
        return True


@final
class CuPyDevice(Device):
    """A device through CuPy."""

    __slots__ = ("_cuda",)

    def __init__(self, index: int) -> None:
        import cupy

        super().__init__(index, "cupy")
        self._cuda = cupy.cuda

    def here(self) -> AbstractContextManager[Any]:
        if self.is_current():
            return nullcontext()
        return self._cuda.Device(self.index)  # type: ignore[no-any-return]

    def is_current(self) -> bool:
        return bool(self._cuda.runtime.getDevice() == self.index)

    def stream(self) -> int:
        if self.is_current():
            return int(self._cuda.get_current_stream().ptr)
        with self.here():
            return int(self._cuda.get_current_stream().ptr)

    def quiet(self) -> int | None:
        if self._cuda.runtime.getDevice() != self.index:
            return None
        stream = self._cuda.get_current_stream()
        number = int(stream.ptr)
        return None if number and stream.is_capturing() else number

    def settle(self) -> None:
        with self.here():
            self._cuda.get_current_stream().synchronize()

    def steps(self, x: Array) -> tuple[int, ...]:
        size = x.itemsize
        return tuple(step // size for step in x.strides)


def device_of(x: Array, lib: ArrayLibrary) -> Device:
    """Device on which an array of torch or CuPy lies."""
    index = int(lib.device(x).partition(":")[2] or 0)
    return TorchDevice(index) if lib.name == "torch" else CuPyDevice(index)


def _find_capture_info() -> Callable[..., int] | None:
    """The driver's question; the driver is there wherever there is a CUDA array."""
    try:
        return ctypes.CDLL("libcuda.so.1").cuStreamGetCaptureInfo_v2
    except (OSError, AttributeError):
        return None


_capture_info: Callable[..., int] | None = None
_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE


def _capture(stream: int) -> int:
    global _capture_info  # noqa: PLW0603 - found once a process
    if _capture_info is None:
        _capture_info = _find_capture_info()
        if _capture_info is None:
            raise RuntimeError(
                "needs libcuda.so.1 with cuStreamGetCaptureInfo_v2 (CUDA driver 11.3 or later) to "
                "tell whether a graph is being recorded; the driver of this device has none"
            )
    status, number = ctypes.c_int(), ctypes.c_uint64()
    found = _capture_info(
        ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number), None, None, None
    )
    return number.value if found == 0 and status.value == _ACTIVE else 0
