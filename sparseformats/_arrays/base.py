"""The primitives, spoken in NumPy, which CuPy mirrors."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

import numpy as np

from sparseformats._arrays.sums import segment_sum
from sparseformats._dtypes import bits_name, itemsize, kind

__all__ = ["Array", "ArrayLibrary", "Shape"]

Array = Any
Shape = int | tuple[int, ...]
F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def _numpy_name(dtype: Any) -> str:
    return str(np.dtype(dtype).name)  # the name is put together anew each time it is asked for


class ArrayLibrary:
    """Operations on arrays of one library; the base speaks NumPy, which CuPy mirrors."""

    name: str = "numpy"
    addressed: bool = False
    """Whether `facts` tell how an array is aligned, and its address is quick to read."""
    switches: bool = False
    """Whether it computes on the current device only, see `sparseformats._arrays.placing`."""

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

    def allows_tf32(self, x: Array) -> bool:
        """Whether the library's own switch lets products of float32 arrays like `x` round to TF32.

        True on CUDA devices only; `facts` tell calls apart by it.
        """
        return False

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

    def is_stand_in(self, x: Array) -> bool:
        """Whether `x` has no memory, or more to it than its values, under a transformation."""
        return False

    def overlaps(self, a: Array, b: Array) -> bool:
        """Whether the address ranges of two arrays meet."""
        (low, high), (start, end) = self.extent(a), self.extent(b)
        return low < end and start < high

    def extent(self, x: Array) -> tuple[int, int]:
        """First address of an array's memory and the one after its last; (0, 0) if it is empty."""
        if 0 in x.shape:
            return 0, 0
        low = high = self.address(x)
        for step, size in zip(self.strides(x), x.shape, strict=True):
            reach = step * (int(size) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high + itemsize(self.dtype_name(x))

    # Where work goes.

    def on(self, device: str) -> AbstractContextManager[Any]:
        """Make a device the current one within a block, for libraries that compute there only."""
        return nullcontext()

    def here(self, device: str, function: F) -> F:
        """`function` to be called on a device; itself where a library finds the way by itself."""
        return function

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

    def is_spread(self, x: Array) -> bool:
        """Whether the first two of three axes cannot be seen as one without a copy."""
        if len(x.shape) != 3 or 0 in x.shape or 1 in x.shape[:2]:
            return False
        steps = self.strides(x)
        return steps[0] != steps[1] * int(x.shape[1])

    def strides(self, x: Array) -> tuple[int, ...]:
        """Bytes between neighbours along each axis."""
        return tuple(x.strides)

    def address(self, x: Array) -> int:
        """Where the first element lies in its device's memory."""
        return int(x.__array_interface__["data"][0])

    def pointer(self) -> Callable[[Array], int]:
        """The quickest function that does as `address`."""
        return self.address

    def is_lazy(self, x: Array) -> bool:
        """Whether the memory of `x` holds other values than those that one reads from it."""
        return False

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

    def maker(self, shape: Shape, dtype_name: str, device: str) -> Callable[[], Array]:
        """What `empty` of these arguments makes, without looking anything up at each call."""
        return lambda: self.empty(shape, dtype_name, device)

    def reshape(self, x: Array, shape: Shape) -> Array:
        """`x` in another shape: a view where there is one, else a copy."""
        return self.xp.reshape(x, shape)

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

    def take_into(self, x: Array, index: Array, out: Array) -> Array:
        """Write rows of `x` to all of `out`, of any strides, and return that."""
        out[...] = self.take(x, index)
        return out

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

    def add(self, a: Array, b: Array) -> Array:
        """``a + b`` of one dtype."""
        return a + b

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

    def segment_sum(self, values: Array, starts: Array, counts: Array) -> Array:
        """Sum runs of `values` along the first axis, see `sparseformats._arrays.sums`."""
        return segment_sum(self, values, starts, counts)

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

    def is_small(self, nbytes: int, device: str) -> bool:
        """Whether asking for free memory would cost more than an allocation that fails."""
        return False

    def ensure_fits(self, nbytes: int, device: str, what: str) -> None:
        """Refuse an output that memory cannot hold, before any of it is allocated.

        Raises
        ------
        MemoryError
        """
        if self.is_small(nbytes, device):
            return
        free = self.free_bytes(device)
        if free is not None and nbytes > free:
            raise MemoryError(
                f"{what} needs {nbytes:,} bytes on {device!r}, {free:,} bytes are free"
            )
