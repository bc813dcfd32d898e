"""torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from sparseformats._arrays.base import Array, ArrayLibrary, Shape
from sparseformats._arrays.numpy_ import NumPyLibrary
from sparseformats._dtypes import bits_name

__all__ = ["TorchLibrary", "tf32_switch"]


def tf32_switch(torch: Any) -> Callable[[], bool]:
    """What tells whether torch's float32 products may round to TF32 on CUDA devices.

    Read through the new ``fp32_precision`` where torch has it: the old getters raise after both
    were used to set it. ``torch.set_float32_matmul_precision`` sets the same switch everywhere.
    """
    getter = getattr(torch._C, "_get_fp32_precision_getter", None)
    if getter is not None:  # the attribute's own reader: 100 ns instead of 850
        return lambda: bool(getter("cuda", "matmul") == "tf32")
    settings = torch.backends.cuda.matmul
    if hasattr(settings, "fp32_precision"):
        return lambda: bool(settings.fp32_precision == "tf32")
    return lambda: bool(settings.allow_tf32)


class TorchLibrary(ArrayLibrary):
    """torch tensors on any device."""

    name = "torch"
    addressed = True

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._kinds: frozenset[type] = frozenset()  # learnt late: torch may still be importing
        self._memory: dict[str, int] = {}  # of each device

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

    def pointer(self) -> Callable[[Array], int]:
        return self._np.Tensor.data_ptr  # type: ignore[no-any-return]

    def reshape(self, x: Array, shape: Shape) -> Array:
        return x.reshape(shape)

    def facts(self, x: Array) -> tuple[Any, ...] | None:
        # Each attribute takes 50 to 100 ns: none is read that another one answers.
        kind_ = type(x)
        if kind_ not in self._kinds and kind_ not in self._learn():
            return None
        if self._forward_ad._current_level >= 0:
            return None  # it may carry a tangent
        try:
            place, shape, steps = x.data_ptr() % 16, x.shape, x.stride()
        except RuntimeError:
            return None  # sparse, nested, or a stand-in under a transformation of torch's
        dtype, grad = x.dtype, x.requires_grad
        return (
            shape,
            steps,
            dtype,
            x.device,
            place,
            grad,
            kind_,
            grad and self._grad_enabled(),
            dtype in self._complex and x.is_conj(),
            x.is_neg(),
            self._is_deterministic(),
            dtype is self._float32 and x.is_cuda and self._tf32_allowed(),
        )

    def _learn(self) -> frozenset[type]:
        """Look up once what every call asks of torch."""
        if not self._kinds:
            torch = self._np
            self._forward_ad = torch.autograd.forward_ad
            self._grad_enabled = torch.is_grad_enabled
            self._is_deterministic = torch.are_deterministic_algorithms_enabled
            self._is_deterministic = getattr(
                torch._C, "_get_deterministic_algorithms", self._is_deterministic
            )
            self._complex = frozenset((torch.complex32, torch.complex64, torch.complex128))
            self._float32 = torch.float32
            self._tf32_allowed = tf32_switch(torch)
            self._kinds = frozenset((torch.Tensor, torch.nn.Parameter))
        return self._kinds

    def allows_tf32(self, x: Array) -> bool:
        self._learn()
        return bool(x.dtype is self._float32 and x.is_cuda and self._tf32_allowed())

    def is_stand_in(self, x: Array) -> bool:
        if type(x).__torch_dispatch__ is not self._np.Tensor.__torch_dispatch__:
            return True  # its operations are its own
        try:
            x.data_ptr()
        except RuntimeError:
            return True
        forward = self._np.autograd.forward_ad
        return forward._current_level >= 0 and forward.unpack_dual(x).tangent is not None

    def deterministic(self) -> bool:
        return bool(self._np.are_deterministic_algorithms_enabled())

    def is_native(self, x: Array) -> bool:
        return type(x) is self._np.Tensor and not (x.requires_grad or x.is_conj() or x.is_neg())

    def is_lazy(self, x: Array) -> bool:
        return bool(x.is_conj() or x.is_neg())

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
        if not device.startswith("cuda"):
            return False
        cuda = self._np.cuda
        with cuda.device(device):  # torch asks about the current device's stream only
            return bool(cuda.is_current_stream_capturing())

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

    def maker(self, shape: Shape, dtype_name: str, device: str) -> Callable[[], Array]:
        torch = self._np
        return partial(
            torch.empty, shape, dtype=self.dtype(dtype_name), device=torch.device(device)
        )

    def astype(self, x: Array, dtype_name: str) -> Array:
        return x.to(self.dtype(dtype_name))

    def to_numpy(self, x: Array) -> np.ndarray[Any, Any]:
        x = x.detach().cpu().resolve_conj().resolve_neg()
        name = self.dtype_name(x)
        if name == "bfloat16" or name.startswith("float8"):
            host = NumPyLibrary(np)
            return np.asarray(host.from_bits(self.bits(x).numpy(), name))
        return np.asarray(x.numpy())

    def from_numpy(self, x: np.ndarray[Any, Any], device: str | None = None) -> Array:
        name = x.dtype.name
        if name == "bfloat16" or name.startswith("float8"):
            host = NumPyLibrary(np)
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

    def take_into(self, x: Array, index: Array, out: Array) -> Array:
        if not out.is_contiguous():
            return super().take_into(x, index, out)
        self._np.index_select(self._movable(x), 0, index, out=self._movable(out))
        return out

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

    def add(self, a: Array, b: Array) -> Array:
        if not a.is_complex():
            return a + b
        # torch multiplies b by a complex 1 first, which makes NaN of an infinite part.
        real = self._np.view_as_real
        return self._np.view_as_complex(real(a.resolve_conj()) + real(b.resolve_conj()))

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

    def is_small(self, nbytes: int, device: str) -> bool:
        # The driver and the allocator's statistics take some 0.3 ms, as long as a conversion.
        if not device.startswith("cuda"):
            return False
        total = self._memory.get(device)
        if total is None:
            total = int(self._np.cuda.get_device_properties(device).total_memory)
            self._memory[device] = total
        return nbytes <= total >> 7

    def free_bytes(self, device: str) -> int | None:
        if not device.startswith("cuda"):
            return super().free_bytes(device)
        cuda = self._np.cuda
        cached = int(cuda.memory_reserved(device)) - int(cuda.memory_allocated(device))
        return int(cuda.mem_get_info(device)[0]) + cached
