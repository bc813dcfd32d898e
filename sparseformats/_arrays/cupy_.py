"""CuPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats._arrays.base import Array, ArrayLibrary, Shape

__all__ = ["CuPyLibrary"]


class CuPyLibrary(ArrayLibrary):
    """CuPy arrays; the device of an array is made current while it is worked on by the caller."""

    name = "cupy"

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

    def asarray(self, obj: Any, dtype_name: str | None = None, device: str | None = None) -> Array:
        with self._on(device):
            return super().asarray(obj, dtype_name)

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

    def address(self, x: Array) -> int:
        return int(x.data.ptr)

    def facts(self, x: Array) -> tuple[Any, ...] | None:
        return x.shape, x.strides, x.dtype, x.data.ptr % 16, x.device.id

    def stream(self, device: str) -> int:
        with self._on(device):
            return int(self._np.cuda.get_current_stream().ptr)

    def capturing(self, device: str) -> bool:
        with self._on(device):
            return bool(self._np.cuda.get_current_stream().is_capturing())

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
