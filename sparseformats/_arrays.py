"""The one place that tells NumPy, torch and CuPy arrays apart.

Algorithms are written once against the array API (`ArrayLibrary.xp`) and the dozen primitives
that it lacks: scatter, bit views, stable lexicographic sorting, segment sums and a few more.
Nothing here imports torch or CuPy: a library is asked only when the caller already loaded it.

Values move by gather and scatter, never through arithmetic, so that NaN payloads and signs of
zero survive. What a value *is* (zero or not) is read from its bits: a process that flushes
subnormals to zero must not make them vanish.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from sparseformats._dtypes import accumulator, bits_name, itemsize, kind

__all__ = ["Array", "ArrayLibrary", "NumPyLibrary", "is_array", "known", "library", "of"]
__all__ += ["register"]

Array = Any
Shape = int | tuple[int, ...]

_LOW = 0xFFFFFFFF


@functools.cache
def _numpy_name(dtype: Any) -> str:
    return str(np.dtype(dtype).name)  # the name is put together anew each time it is asked for


class ArrayLibrary:
    """Operations on arrays of one library; the base speaks NumPy, which CuPy mirrors."""

    name: str = "numpy"

    def __init__(self, module: Any) -> None:
        self._np = module

    @property
    def xp(self) -> Any:
        """Array API namespace of the library."""
        return self._np

    # What an array is.

    def owns(self, x: object) -> bool:
        return isinstance(x, self._np.ndarray) and not isinstance(x, np.ma.MaskedArray)

    def device(self, x: Array) -> str:
        return "cpu"

    def dtype_name(self, x: Array) -> str:
        """Name of an array's dtype or of a dtype object."""
        return _numpy_name(getattr(x, "dtype", x))

    def dtype(self, name: str) -> Any:
        if name == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        if name.startswith("float8"):
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, name))
        return np.dtype(name)

    def result_dtype(self, a: str, b: str) -> str:
        """The library's own promotion of two value dtypes."""
        return str(np.result_type(self.dtype(a), self.dtype(b)).name)

    def requires_grad(self, x: Array) -> bool:
        """Whether autograd would record what is done with `x` now."""
        return False

    def version(self, x: Array) -> int | None:
        """Counter of in-place writes, where the library keeps one."""
        return None

    # What plans are told apart by.

    def facts(self, x: Array) -> tuple[Any, ...] | None:
        """All facts of an array upon which a call depends, but its values; None if not known.

        Shape, strides, dtype, device, alignment and the library's own switches: hashable, and made
        within a microsecond. Byte order, laziness and writeability are among them.
        """
        return None

    def deterministic(self) -> bool:
        """Whether the user asked the library for the same bits on every run."""
        return False

    def is_native(self, x: Array) -> bool:
        """Whether `native` would give `x` itself, as far as its facts tell."""
        return False

    def watch(self, arrays: Iterable[Array]) -> Callable[[], bool] | None:
        """Return what tells whether none of `arrays` was written to since; None where nothing can.

        What it returns holds the arrays.
        """
        return None

    def parts(self, x: Array) -> list[Array]:
        """The arrays with memory that make up `x`: several for a sparse tensor of the library."""
        return [x]

    def overlaps(self, a: Array, b: Array) -> bool:
        """Whether the address ranges of two arrays meet."""
        (low, high), (start, end) = self._extent(a), self._extent(b)
        return low < end and start < high

    def _extent(self, x: Array) -> tuple[int, int]:
        if 0 in x.shape:
            return 0, 0
        low = high = self.address(x)
        for step, size in zip(self.strides(x), x.shape, strict=True):
            reach = step * (int(size) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high + itemsize(self.dtype_name(x))

    def stream(self, device: str) -> int:
        """Number of the current stream of a device, 0 where there are none."""
        return 0

    def capturing(self, device: str) -> bool:
        """Whether what is called now is recorded into a graph instead of being run."""
        return False

    # Making arrays.

    def asarray(self, obj: Any, dtype_name: str | None = None, device: str | None = None) -> Array:
        dtype = None if dtype_name is None else self.dtype(dtype_name)
        return self._np.asarray(obj, dtype=dtype)

    def native(self, x: Array) -> Array:
        """`x` in native byte order and free of lazy views; `x` itself where it is already."""
        x = self._np.asarray(x)
        return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))

    def copy(self, x: Array) -> Array:
        """C-contiguous copy that shares nothing with `x`."""
        return self._np.array(x, order="C", copy=True)

    def compact(self, x: Array) -> Array:
        """`x`, or a copy where pickling `x` would drag a larger array along."""
        return x

    def contiguous(self, x: Array) -> Array:
        return self._np.ascontiguousarray(x).reshape(x.shape)

    def is_contiguous(self, x: Array) -> bool:
        return bool(x.flags.c_contiguous)

    def strides(self, x: Array) -> tuple[int, ...]:
        """Bytes between neighbours along each axis."""
        return tuple(x.strides)

    def address(self, x: Array) -> int:
        """Where the first element lies in its device's memory."""
        return int(x.__array_interface__["data"][0])

    def is_writeable(self, x: Array) -> bool:
        return bool(x.flags.writeable)

    def capability(self, device: str) -> tuple[int, int] | None:
        """Compute capability of a CUDA device, None elsewhere."""
        return None

    def readonly(self, x: Array) -> Array:
        """Read-only view where the library has such a thing, else `x`."""
        return x

    def empty(self, shape: Shape, dtype_name: str, device: str | None = None) -> Array:
        return self._np.empty(shape, dtype=self.dtype(dtype_name))

    def zeros(self, shape: Shape, dtype_name: str, device: str | None = None) -> Array:
        return self._np.zeros(shape, dtype=self.dtype(dtype_name))

    def full(self, shape: Shape, value: Any, dtype_name: str, device: str | None = None) -> Array:
        return self._np.full(shape, value, dtype=self.dtype(dtype_name))

    def arange(self, n: int, dtype_name: str = "int64", device: str | None = None) -> Array:
        return self._np.arange(n, dtype=self.dtype(dtype_name))

    def astype(self, x: Array, dtype_name: str) -> Array:
        return x.astype(self.dtype(dtype_name), copy=False)

    def to_numpy(self, x: Array) -> np.ndarray[Any, Any]:
        """The array on the host, as NumPy; may share memory."""
        return np.asarray(x)

    def from_numpy(self, x: np.ndarray[Any, Any], device: str | None = None) -> Array:
        """The reverse of `to_numpy`, on `device`; may share memory."""
        return x

    def to_device(self, x: Array, device: str) -> Array:
        if device != self.device(x):
            raise ValueError(f"{self.name} arrays live on 'cpu' only, asked for {device!r}")
        return x

    # Bits.

    def bits(self, x: Array) -> Array:
        """View of `x` as integers of the same width; complex128 stays as it is."""
        return x.view(self.dtype(bits_name(self.dtype_name(x))))

    def from_bits(self, x: Array, dtype_name: str) -> Array:
        return x.view(self.dtype(dtype_name))

    def nonzero_mask(self, x: Array) -> Array:
        """True where a value is not a zero of either sign, judged by its bits."""
        name = self.dtype_name(x)
        if kind(name) == "c":
            return self.nonzero_mask(x.real) | self.nonzero_mask(x.imag)
        bits = self.bits(x)
        if kind(name) == "f":
            bits = bits & (2 ** (8 * itemsize(name) - 1) - 1)  # without the sign
        return bits != 0

    def equal_bits(self, a: Array, b: Array) -> bool:
        """Whether dtype, shape and every bit agree."""
        if tuple(a.shape) != tuple(b.shape) or self.dtype_name(a) != self.dtype_name(b):
            return False
        if self.dtype_name(a) == "complex128":
            return self.equal_bits(a.real, b.real) and self.equal_bits(a.imag, b.imag)
        return bool((self.bits(a) == self.bits(b)).all())

    # Gather, scatter, sort, count.

    def take(self, x: Array, index: Array, axis: int = 0) -> Array:
        return self._np.take(x, index, axis=axis)

    def put(self, out: Array, index: Array, values: Any) -> None:
        """Write `values` at flat C-order positions of the contiguous array `out`."""
        out.reshape(-1)[index] = values

    def put_rows(self, out: Array, index: Array, rows: Array) -> None:
        """Write `rows` at positions `index` of the first axis of `out`."""
        out[index] = rows

    def scatter(self, shape: Shape, index: Array, values: Array) -> Array:
        """New zero-filled array with `values` at the flat positions `index`."""
        out = self.zeros(shape, self.dtype_name(values), self.device(values))
        self.put(out, index, values)
        return out

    def flatnonzero(self, mask: Array) -> Array:
        return self.astype(self._np.flatnonzero(mask), "int64")

    def count_nonzero(self, mask: Array) -> int:
        """Number of true elements of a boolean array; synchronises."""
        return int(self._np.count_nonzero(mask))

    def cumsum(self, x: Array) -> Array:
        """Inclusive running sum of a 1-D array in int64."""
        return self._np.cumsum(x, dtype=self.dtype("int64"))

    def bincount(self, x: Array, minlength: int) -> Array:
        return self.astype(self._np.bincount(x, minlength=minlength), "int64")

    def repeat(self, x: Array, counts: Array | int, total: int | None = None) -> Array:
        """Repeat elements; `total`, when known, spares a device synchronisation."""
        return self._np.repeat(x, counts)

    def searchsorted(self, sorted_: Array, values: Array, side: str = "left") -> Array:
        return self.astype(self._np.searchsorted(sorted_, values, side=side), "int64")

    def argsort(self, x: Array) -> Array:
        """Stable ascending permutation, int64."""
        return self.astype(self._np.argsort(x, kind="stable"), "int64")

    def lexsort(self, primary: Array, secondary: Array) -> Array:
        """Stable permutation that sorts by `primary`, then by `secondary`."""
        inner = self.argsort(secondary)
        return self.take(inner, self.argsort(self.take(primary, inner)))

    def concat(self, parts: Sequence[Array], axis: int = 0) -> Array:
        return self._np.concatenate(list(parts), axis=axis)

    def where(self, mask: Array, a: Any, b: Any) -> Array:
        return self._np.where(mask, a, b)

    def erf(self, x: Array) -> Array:
        """The error function of a floating array."""
        from scipy.special import erf

        return erf(x)

    def any(self, mask: Array) -> bool:
        """Whether any element is true; synchronises."""
        return bool(mask.any())

    def item(self, x: Array) -> Any:
        """The only element as a Python scalar; synchronises."""
        return x.item()

    def max_int(self, x: Array, default: int = 0) -> int:
        """Largest element of an integer array, `default` when empty; synchronises."""
        return int(x.max()) if x.size else default

    # Sums of equal positions.

    def segment_sum(self, values: Array, starts: Array, counts: Array) -> Array:
        """Sum runs of `values` along the first axis.

        Parameters
        ----------
        values : (N, ...) array
        starts, counts : (S,) int64 arrays
            Run s is ``values[starts[s] : starts[s] + counts[s]]``; ``counts >= 1``.

        Returns
        -------
        (S, ...) array of the same dtype. A run of one element keeps its bits. Half types are
        summed in float32, bool by *or*.

        Raises
        ------
        OverflowError
            An integer sum does not fit its dtype.
        """
        out = self.take(values, starts)
        many = self.flatnonzero(counts > 1)
        if not many.shape[0]:
            return out
        runs = self.take(counts, many)
        first = self.take(starts, many) - (self.cumsum(runs) - runs)
        total = int(self.item(runs.sum()))
        index = self.repeat(first, runs, total) + self.arange(total, device=self.device(values))
        sums = self._sum_runs(self.take(values, index), runs)
        out = self.copy(out)
        out[many, ...] = sums
        return out

    def _sum_runs(self, values: Array, counts: Array) -> Array:
        name = self.dtype_name(values)
        if kind(name) in "iu":
            return self._sum_integer_runs(values, counts)
        if kind(name) == "b":
            return self._halve(self.astype(values, "int64"), counts) > 0
        return self.astype(self._halve(self.astype(values, accumulator(name)), counts), name)

    def _halve(self, values: Array, counts: Array) -> Array:
        """Sum adjacent pairs of each run until one element a run is left (fixed order)."""
        device = self.device(values)
        while self.max_int(counts) > 1:
            ends = self.cumsum(counts)
            total = int(values.shape[0])
            within = self.arange(total, device=device) - self.repeat(ends - counts, counts, total)
            even = self.flatnonzero(within % 2 == 0)
            partner = self.take(self.repeat(counts, counts, total) - within, even) > 1
            summed = self.take(values, even)
            has = self.flatnonzero(partner)
            summed[has, ...] = self.take(summed, has) + self.take(values, self.take(even, has) + 1)
            values, counts = summed, (counts + 1) // 2
        return values

    def _sum_integer_runs(self, values: Array, counts: Array) -> Array:
        """Exact integer sums by 32-bit halves, so that no order of addition can overflow."""
        name = self.dtype_name(values)
        bits = 8 * itemsize(name)
        signed = kind(name) == "i"
        wide = self.bits(values) if name == "uint64" else self.astype(values, "int64")
        high = wide >> 32 if signed else (wide >> 32) & _LOW
        low = self._halve(wide & _LOW, counts)
        high = self._halve(high, counts) + (low >> 32)
        low = low & _LOW
        if bits == 64:
            limit = 2**31 if signed else 2**32
            bad = (high >= limit) | (high < (-limit if signed else 0))
            total = (high << 32) | low
        else:
            total = (high << 32) | low
            limit = 2 ** (bits - signed)
            bad = (total >= limit) | (total < (-limit if signed else 0))
        if self.any(bad):
            raise OverflowError(f"the sum of duplicate entries does not fit {name}")
        return self.from_bits(total, name) if bits == 64 else self.astype(total, name)

    # Memory.

    def free_bytes(self, device: str) -> int | None:
        """Memory that an allocation on `device` could take now, None where unknown."""
        with suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return 1024 * int(line.split()[1])
        with suppress(OSError, ValueError, AttributeError):
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return None

    def ensure_fits(self, nbytes: int, device: str, what: str) -> None:
        """Refuse an output that memory cannot hold, before any of it is allocated."""
        free = self.free_bytes(device)
        if free is not None and nbytes > free:
            raise MemoryError(
                f"{what} needs {nbytes:,} bytes on {device!r}, {free:,} bytes are free"
            )


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


_TORCH_SIGNATURE = ("int8", "int16", "int32", "int64")


class TorchLibrary(ArrayLibrary):
    """torch tensors on any device."""

    name = "torch"

    @property
    def xp(self) -> Any:
        import array_api_compat.torch

        return array_api_compat.torch

    def owns(self, x: object) -> bool:
        return isinstance(x, self._np.Tensor)

    def device(self, x: Array) -> str:
        return str(x.device)

    def dtype_name(self, x: Array) -> str:
        return str(getattr(x, "dtype", x)).removeprefix("torch.")

    def dtype(self, name: str) -> Any:
        return getattr(self._np, name)

    def result_dtype(self, a: str, b: str) -> str:
        if a == b:
            return a  # fp8 has no promotion of its own
        return self.dtype_name(self._np.promote_types(self.dtype(a), self.dtype(b)))

    def requires_grad(self, x: Array) -> bool:
        return bool(x.requires_grad and self._np.is_grad_enabled())

    def version(self, x: Array) -> int | None:
        return None if x.is_inference() else int(x._version)

    def asarray(self, obj: Any, dtype_name: str | None = None, device: str | None = None) -> Array:
        dtype = None if dtype_name is None else self.dtype(dtype_name)
        return self._np.as_tensor(obj, dtype=dtype, device=device)

    def native(self, x: Array) -> Array:
        return x.detach().resolve_conj().resolve_neg()

    def copy(self, x: Array) -> Array:
        return x.detach().clone(memory_format=self._np.contiguous_format)

    def compact(self, x: Array) -> Array:
        size = x.numel() * x.element_size()
        return x if x.untyped_storage().nbytes() <= size else self.copy(x)

    def contiguous(self, x: Array) -> Array:
        return x.contiguous()

    def is_contiguous(self, x: Array) -> bool:
        return bool(x.is_contiguous())

    def strides(self, x: Array) -> tuple[int, ...]:
        size = x.element_size()
        return tuple(step * size for step in x.stride())

    def address(self, x: Array) -> int:
        return int(x.data_ptr())

    def facts(self, x: Array) -> tuple[Any, ...] | None:
        torch = self._np
        if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.layout is not torch.strided:
            return None  # a sparse tensor has no strides
        try:
            place = x.data_ptr() % 16
        except RuntimeError:
            return None  # a stand-in without memory, under a transformation of torch's
        return (
            *(x.shape, x.stride(), x.dtype, x.device, place, x.requires_grad),
            *(torch.is_grad_enabled(), x.is_conj(), x.is_neg(), type(x)),
            torch.are_deterministic_algorithms_enabled(),
        )

    def deterministic(self) -> bool:
        return bool(self._np.are_deterministic_algorithms_enabled())

    def is_native(self, x: Array) -> bool:
        return type(x) is self._np.Tensor and not (x.requires_grad or x.is_conj() or x.is_neg())

    def parts(self, x: Array) -> list[Array]:
        if x.layout is self._np.strided:
            return [x]
        if x.layout is self._np.sparse_coo:
            return [x._indices(), x._values()]
        rows = x.layout in (self._np.sparse_csr, self._np.sparse_bsr)
        pointers = (
            (x.crow_indices(), x.col_indices()) if rows else (x.ccol_indices(), x.row_indices())
        )
        return [x.values(), *pointers]

    def watch(self, arrays: Iterable[Array]) -> Callable[[], bool] | None:
        watched = [(x, x._version) for x in arrays if not x.is_inference()]

        def is_current() -> bool:
            for x, version in watched:  # noqa: SIM110 - all() takes twice as long
                if x._version != version:
                    return False
            return True

        return is_current if watched else None

    def stream(self, device: str) -> int:
        if not device.startswith("cuda"):
            return 0
        return int(self._np.cuda.current_stream(device).cuda_stream)

    def capturing(self, device: str) -> bool:
        return device.startswith("cuda") and bool(self._np.cuda.is_current_stream_capturing())

    def is_writeable(self, x: Array) -> bool:
        return True

    def capability(self, device: str) -> tuple[int, int] | None:
        if not device.startswith("cuda"):
            return None
        major, minor = self._np.cuda.get_device_capability(device)
        return int(major), int(minor)

    def empty(self, shape: Shape, dtype_name: str, device: str | None = None) -> Array:
        return self._np.empty(shape, dtype=self.dtype(dtype_name), device=device)

    def zeros(self, shape: Shape, dtype_name: str, device: str | None = None) -> Array:
        return self._np.zeros(shape, dtype=self.dtype(dtype_name), device=device)

    def full(self, shape: Shape, value: Any, dtype_name: str, device: str | None = None) -> Array:
        shape = (shape,) if isinstance(shape, int) else shape
        return self._np.full(shape, value, dtype=self.dtype(dtype_name), device=device)

    def arange(self, n: int, dtype_name: str = "int64", device: str | None = None) -> Array:
        return self._np.arange(n, dtype=self.dtype(dtype_name), device=device)

    def astype(self, x: Array, dtype_name: str) -> Array:
        return x.to(self.dtype(dtype_name))

    def to_numpy(self, x: Array) -> np.ndarray[Any, Any]:
        x = x.detach().cpu().resolve_conj().resolve_neg()
        name = self.dtype_name(x)
        if name == "bfloat16" or name.startswith("float8"):
            host = library("numpy")
            return np.asarray(host.from_bits(self.bits(x).numpy(), name))
        return np.asarray(x.numpy())

    def from_numpy(self, x: np.ndarray[Any, Any], device: str | None = None) -> Array:
        name = x.dtype.name
        if name == "bfloat16" or name.startswith("float8"):
            host = library("numpy")
            bits = self._np.from_numpy(np.array(host.bits(x)))
            return self.from_bits(bits, name).to(device or "cpu")
        # torch warns about read-only memory and would let a caller write to it.
        return self._np.from_numpy(np.array(x, order="C")).to(device or "cpu")

    def to_device(self, x: Array, device: str) -> Array:
        return x.to(device)

    def bits(self, x: Array) -> Array:
        name = self.dtype_name(x)
        if name == "complex64" and not x.is_contiguous():
            x = x.contiguous()
        return x.view(self.dtype(bits_name(name)))

    def from_bits(self, x: Array, dtype_name: str) -> Array:
        return x.view(self.dtype(dtype_name))

    def equal_bits(self, a: Array, b: Array) -> bool:
        return a.device == b.device and super().equal_bits(a, b)

    def _movable(self, x: Array) -> Array:
        """fp8 tensors lack indexing on some devices; their bits do not."""
        return self.bits(x) if self.dtype_name(x).startswith("float8") else x

    def take(self, x: Array, index: Array, axis: int = 0) -> Array:
        moved = self._movable(x)
        flat = moved.index_select(axis, index.reshape(-1))
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        return self.from_bits(flat, self.dtype_name(x)).reshape(shape)

    def put(self, out: Array, index: Array, values: Any) -> None:
        if isinstance(values, self._np.Tensor):
            values = self._movable(values)
        self._movable(out).view(-1)[index] = values

    def put_rows(self, out: Array, index: Array, rows: Array) -> None:
        self._movable(out).index_copy_(0, index, self._movable(rows))

    def flatnonzero(self, mask: Array) -> Array:
        return self._np.nonzero(mask.reshape(-1)).reshape(-1)

    def count_nonzero(self, mask: Array) -> int:
        return int(self._np.count_nonzero(mask))

    def cumsum(self, x: Array) -> Array:
        return self._np.cumsum(x, 0, dtype=self._np.int64)

    def bincount(self, x: Array, minlength: int) -> Array:
        return self._np.bincount(x, minlength=minlength)

    def repeat(self, x: Array, counts: Array | int, total: int | None = None) -> Array:
        return self._np.repeat_interleave(x, counts, output_size=total)

    def searchsorted(self, sorted_: Array, values: Array, side: str = "left") -> Array:
        return self._np.searchsorted(sorted_.contiguous(), values.contiguous(), side=side)

    def erf(self, x: Array) -> Array:
        return self._np.erf(x)

    def argsort(self, x: Array) -> Array:
        return self._np.argsort(x, stable=True)

    def concat(self, parts: Sequence[Array], axis: int = 0) -> Array:
        moved = self._np.cat([self._movable(p) for p in parts], dim=axis)
        return self.from_bits(moved, self.dtype_name(parts[0]))

    def where(self, mask: Array, a: Any, b: Any) -> Array:
        return self._np.where(mask, a, b)

    def max_int(self, x: Array, default: int = 0) -> int:
        return int(x.max()) if x.numel() else default

    def free_bytes(self, device: str) -> int | None:
        if not device.startswith("cuda"):
            return super().free_bytes(device)
        cuda = self._np.cuda
        cached = int(cuda.memory_reserved(device)) - int(cuda.memory_allocated(device))
        return int(cuda.mem_get_info(device)[0]) + cached


_KNOWN: dict[str, tuple[str, type[ArrayLibrary]]] = {
    "numpy": ("numpy", NumPyLibrary),
    "torch": ("torch", TorchLibrary),
    "cupy": ("cupy", CuPyLibrary),
}
_LOADED: dict[str, ArrayLibrary] = {"numpy": NumPyLibrary(np)}
_BY_TYPE: dict[type, ArrayLibrary] = {}


def register(name: str, module: str, cls: type[ArrayLibrary]) -> None:
    """Teach the library another kind of array (used by `sparseformats.testing`)."""
    _KNOWN[name] = (module, cls)


def _already_loaded() -> Iterable[ArrayLibrary]:
    for name, (module, cls) in _KNOWN.items():
        if name not in _LOADED and module in sys.modules:
            _LOADED[name] = cls(sys.modules[module])
        if name in _LOADED:
            yield _LOADED[name]


def library(name: str) -> ArrayLibrary:
    """Look a library up by name, importing it when it is asked for by name.

    Raises
    ------
    ValueError
        The name is none of ``"numpy"``, ``"torch"``, ``"cupy"``.
    ImportError
        The library is not installed.
    """
    if name not in _KNOWN:
        raise ValueError(f"unknown array library {name!r}, expected one of {sorted(_KNOWN)}")
    if name not in _LOADED:
        import importlib

        module, cls = _KNOWN[name]
        _LOADED[name] = cls(importlib.import_module(module))
    return _LOADED[name]


def _find(x: object) -> ArrayLibrary | None:
    # Whether a library owns an array depends on its type alone, and each call asks many times.
    found = _BY_TYPE.get(type(x))
    if found is None:
        found = next((lib for lib in _already_loaded() if lib.owns(x)), None)
        if found is not None:
            _BY_TYPE[type(x)] = found
    return found


def known(x: object) -> ArrayLibrary | None:
    """Library of an array if one of its type was seen before: one look into a table."""
    return _BY_TYPE.get(type(x))


def is_array(x: object) -> bool:
    """Whether `x` is a dense array of a library that is loaded (lists are not)."""
    return _find(x) is not None


def of(*arrays: Array) -> ArrayLibrary:
    """Library that all `arrays` belong to.

    Raises
    ------
    TypeError
        An argument is no array, or the arguments belong to different libraries.
    """
    found: ArrayLibrary | None = None
    for x in arrays:
        lib = _find(x)
        if lib is None:
            raise TypeError(f"expected a NumPy, torch or CuPy array, got {type(x).__name__}")
        if found is not None and lib is not found:
            raise TypeError(
                f"arrays of one call must come from one library, got {found.name} and {lib.name}; "
                "convert one side first, for example with to_library()"
            )
        found = lib
    if found is None:
        raise TypeError("expected at least one array")
    return found
