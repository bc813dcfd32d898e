"""CuPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from sparseformats._arrays.base import Array, ArrayLibrary, Shape

__all__ = ["CuPyLibrary"]

F = TypeVar("F", bound=Callable[..., Any])


class CuPyLibrary(ArrayLibrary):
    """CuPy arrays. CuPy computes on the current device: who works on arrays makes theirs current.

    `on` does so for a block, `here` for a function; both cost one question where it is already.
    """

    name = "cupy"
    addressed = True
    switches = True

    @property
    def xp(self) -> Any:
        import array_api_compat.cupy

        return array_api_compat.cupy

    def owns(self, x: object) -> bool:
        return isinstance(x, self._np.ndarray)

    def device(self, x: Array) -> str:
        return f"cuda:{x.device.id}"

    def native(self, x: Array) -> Array:
        return x

    def _on(self, device: str | None) -> Any:
        current = self._np.cuda.Device()
        if device in (None, "cuda"):
            return current
        kind_, _, index = str(device).partition(":")
        if kind_ != "cuda":
            raise ValueError(f"cupy arrays live on 'cuda' devices only, asked for {device!r}")
        return self._np.cuda.Device(int(index))

    def _is_current(self, device: str) -> bool:
        index = device.partition(":")[2]
        return not index or self._np.cuda.runtime.getDevice() == int(index)

    def on(self, device: str) -> AbstractContextManager[Any]:
        if self._is_current(device):
            return nullcontext()
        return cast("AbstractContextManager[Any]", self._on(device))

    def here(self, device: str, function: F) -> F:
        index = int(device.partition(":")[2] or self._np.cuda.runtime.getDevice())
        current, switch = self._np.cuda.runtime.getDevice, self._np.cuda.Device

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if current() == index:
                return function(*args, **options)
            with switch(index):
                return function(*args, **options)

        return cast("F", call)

    def asarray(self, obj: Any, dtype_name: str | None = None, device: str | None = None) -> Array:
        with self._on(device):
            return super().asarray(obj, dtype_name)

    def copy(self, x: Array) -> Array:
        with self.on(self.device(x)):  # else the copy is made on the current device
            return super().copy(x)

    def empty(self, shape: Shape, dtype_name: str, device: str | None = None) -> Array:
        with self._on(device):
            return super().empty(shape, dtype_name)

    def zeros(self, shape: Shape, dtype_name: str, device: str | None = None) -> Array:
        with self._on(device):
            return super().zeros(shape, dtype_name)

    def full(self, shape: Shape, value: Any, dtype_name: str, device: str | None = None) -> Array:
        with self._on(device):
            return super().full(shape, value, dtype_name)

    def arange(self, n: int, dtype_name: str = "int64", device: str | None = None) -> Array:
        with self._on(device):
            return super().arange(n, dtype_name)

    def to_numpy(self, x: Array) -> np.ndarray[Any, Any]:
        return np.asarray(self._np.asnumpy(x))

    def from_numpy(self, x: np.ndarray[Any, Any], device: str | None = None) -> Array:
        return self.asarray(x, device=device)

    def to_device(self, x: Array, device: str) -> Array:
        with self._on(device):
            return self._np.asarray(x)

    def reshape(self, x: Array, shape: Shape) -> Array:
        with self.on(self.device(x)):  # it may have to copy
            return x.reshape(shape)

    def address(self, x: Array) -> int:
        return int(x.data.ptr)

    def facts(self, x: Array) -> tuple[Any, ...] | None:
        return x.shape, x.strides, x.dtype, x.data.ptr % 16, x.device.id

    def stream(self, device: str) -> int:
        # Each thread has current streams of its own, one a device; where the default stream is
        # that of the thread, the number is the same in all threads.
        return int(self._current_stream(device).ptr)

    def capturing(self, device: str) -> bool:
        with self.on(device):
            return bool(self._current_stream(device).is_capturing())

    def _current_stream(self, device: str) -> Any:
        index = device.partition(":")[2]
        return self._np.cuda.get_current_stream(*([int(index)] if index else []))

    def is_writeable(self, x: Array) -> bool:
        return True

    def capability(self, device: str) -> tuple[int, int] | None:
        digits = self._on(device).compute_capability
        return int(digits[:-1]), int(digits[-1])

    def repeat(self, x: Array, counts: Array | int, total: int | None = None) -> Array:
        if isinstance(counts, int):
            return self._np.repeat(x, counts)
        # cupy.repeat takes host counts only: place a run's index at its start and carry it on.
        ends = self.cumsum(counts)
        total = int(ends[-1]) if total is None and ends.size else total or 0
        position = self.arange(total, device=self.device(x))
        return self.take(x, self._np.searchsorted(ends, position, side="right"))

    def erf(self, x: Array) -> Array:
        from cupyx.scipy.special import erf

        return erf(x)

    def argsort(self, x: Array) -> Array:
        # cupy sorts stably only by lexsort's and argsort's documented default (radix/merge).
        return self.astype(self._np.argsort(x, kind="stable"), "int64")

    def free_bytes(self, device: str) -> int | None:
        with self._on(device):
            pool = self._np.get_default_memory_pool()
            return int(self._np.cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())
