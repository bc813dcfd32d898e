"""Runs a Gluon kernel's own source on NumPy, for kernels whose tensors have one row a thread.

No interpreter of Triton's runs Gluon. Here the kernel's functions are executed with a stand-in for
Gluon's language: tensors are arrays, pointers are a buffer and offsets, and every access must lie
in its buffer. Copies into shared memory happen as late as the kernel's waiting allows. Inline
instructions are given each thread's elements of a row and are executed as the PTX ISA documents
them (`ptx`). What this cannot show is whether Triton maps rows to threads as the kernel assumes.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.kernels.triton import ptx

__all__ = ["OutOfBounds", "launch"]

Host = np.ndarray[Any, np.dtype[Any]]


class OutOfBounds(AssertionError):
    """An access beyond a buffer."""


class Tensor:
    """An array with the methods that kernels use; integers wrap as those of a device."""

    __array_ufunc__ = None

    def __init__(self, a: Any) -> None:
        self.a: Host = np.asarray(a)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.a.shape

    def to(self, dtype: Any) -> Tensor:
        return Tensor(self.a.astype(dtype))

    def reshape(self, shape: Sequence[int]) -> Tensor:
        return Tensor(self.a.reshape(shape))

    def permute(self, order: Sequence[int]) -> Tensor:
        return Tensor(self.a.transpose(order))

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        return Tensor(np.broadcast_to(self.a, shape))

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self.a[index])

    def __index__(self) -> int:
        return int(self.a)


def _operator(name: str) -> Callable[[Tensor, Any], Any]:
    def apply(self: Tensor, other: Any) -> Any:
        if isinstance(other, Pointer):
            return NotImplemented
        b = other.a if isinstance(other, Tensor) else self.a.dtype.type(other)
        found = getattr(self.a, f"__{name}__")(b)
        return Tensor(found)

    return apply


for _name in ("add", "sub", "mul", "mod", "floordiv", "lshift", "and", "or", "lt", "ge", "gt"):
    setattr(Tensor, f"__{_name}__", _operator(_name))
    setattr(Tensor, f"__r{_name}__", _operator(f"r{_name}"))


class Pointer:
    """A buffer, and where in it: offsets in elements of `dtype`."""

    def __init__(self, buffer: Host, offset: Any = 0, dtype: Any = None) -> None:
        self.buffer, self.offset = buffer, np.asarray(offset, np.int64)
        self.type = np.dtype(buffer.dtype if dtype is None else dtype)
        self.dtype = types.SimpleNamespace(element_ty=self.type)

    def __add__(self, other: Any) -> Pointer:
        step = other.a if isinstance(other, Tensor) else other
        return Pointer(self.buffer, self.offset + step, self.type)

    __radd__ = __add__

    def to(self, dtype: Any, bitcast: bool) -> Pointer:
        assert bitcast
        assert self.offset.ndim == 0
        assert self.offset == 0
        return Pointer(self.buffer, 0, dtype)

    def at(self, mask: Any) -> tuple[Host, Host, Host]:
        """The buffer's elements, where, and whether."""
        elements = self.buffer.reshape(-1).view(self.type)
        chosen = np.broadcast_to(True if mask is None else mask.a, self.offset.shape)
        inside = (self.offset >= 0) & (self.offset < elements.size)
        if not inside[chosen].all():
            bad = self.offset[chosen & ~inside][0]
            raise OutOfBounds(f"element {bad} of a buffer of {elements.size}")
        return elements, np.where(chosen, self.offset, 0), chosen


class Shared:
    """Shared memory, which holds NaN or nonsense before it is written."""

    def __init__(self, a: Host) -> None:
        self.a = a

    def index(self, i: Any) -> Shared:
        return Shared(self.a[int(i)])

    def slice(self, start: int, length: int, dim: int) -> Shared:
        return Shared(np.moveaxis(np.moveaxis(self.a, dim, 0)[start : start + length], 0, dim))

    def load(self, layout: Any) -> Tensor:
        return Tensor(self.a.copy())

    def store(self, value: Tensor) -> None:
        self.a[...] = value.a


class Copies:
    """Asynchronous copies, made when they must be."""

    def __init__(self) -> None:
        self.groups: list[list[tuple[Shared, Pointer, Tensor]]] = [[]]

    def copy_in(self, shared: Shared, pointer: Pointer, mask: Tensor) -> None:
        self.groups[-1].append((shared, pointer, mask))

    def commit_group(self) -> None:
        self.groups.append([])

    def wait_group(self, left: int) -> None:
        while len(self.groups) - 1 > left:
            for shared, pointer, mask in self.groups.pop(0):
                elements, place, chosen = pointer.at(mask)
                shared.a[...] = np.where(chosen, elements[place] if elements.size else 0, 0)


class Language:
    """What stands for ``triton.experimental.gluon.language``, and ``triton.language``."""

    int32, int64, uint16, float32 = np.int32, np.int64, np.uint16, np.float32

    def __init__(self, program: int) -> None:
        self.program = program

    def program_id(self, axis: int) -> Tensor:
        assert axis == 0
        return Tensor(np.int32(self.program))

    def constexpr(self, value: Any) -> Any:
        return value

    def pointer_type(self, dtype: Any) -> Any:
        return dtype

    def layout(self, *_: Any) -> None:
        return None

    BlockedLayout = SliceLayout = SwizzledSharedLayout = layout

    def arange(self, start: int, end: int, layout: Any) -> Tensor:
        return Tensor(np.arange(start, end, dtype=np.int32))

    def zeros(self, shape: Sequence[int], dtype: Any, layout: Any) -> Tensor:
        return Tensor(np.zeros(shape, dtype))

    def static_range(self, *bounds: int) -> range:
        return range(*bounds)

    def convert_layout(self, x: Tensor, layout: Any, assert_trivial: bool = False) -> Tensor:
        return x

    def minimum(self, a: Tensor, b: Tensor) -> Tensor:
        return Tensor(np.minimum(a.a, b.a))

    def where(self, mask: Tensor, a: Any, b: Any) -> Tensor:
        a, b = (x.a if isinstance(x, Tensor) else x for x in (a, b))
        kind = a.dtype if isinstance(a, np.ndarray) else b.dtype
        return Tensor(np.where(mask.a, a, b).astype(kind))

    def exp(self, x: Tensor) -> Tensor:
        return Tensor(np.exp(x.a))

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        assert x.shape[-1] == 2
        return Tensor(x.a[..., 0]), Tensor(x.a[..., 1])

    def load(self, pointer: Pointer, mask: Any = None, other: Any = 0, **_: Any) -> Tensor:
        elements, place, chosen = pointer.at(mask)
        found = elements[place] if elements.size else np.zeros(place.shape, elements.dtype)
        return Tensor(np.where(chosen, found, elements.dtype.type(other)))

    def store(self, pointer: Pointer, value: Tensor, mask: Any = None) -> None:
        elements, place, chosen = pointer.at(mask)
        elements[place[chosen]] = np.broadcast_to(value.a, place.shape)[chosen]

    def allocate_shared_memory(self, dtype: Any, shape: Sequence[int], layout: Any) -> Shared:
        nonsense = np.nan if np.dtype(dtype).kind == "f" else 0x7FC07FC0
        return Shared(np.full(shape, nonsense, dtype))

    def inline_asm_elementwise(
        self, text: str, constraints: str, args: Sequence[Tensor], dtype: Any, **how: Any
    ) -> Tensor:
        pack, shape = how["pack"], args[0].shape
        assert all(x.shape == shape for x in args)
        rows = [x.a.reshape(shape[0], -1, pack) for x in args]
        made = np.empty(rows[0].shape, dtype)
        outputs = constraints.count("=")
        assert outputs == pack
        for i in range(rows[0].shape[1]):
            inputs = [row[:, i, j] for row in rows for j in range(pack)]
            assert len(inputs) == constraints.count(",") + 1 - outputs
            found = ptx.execute(text, outputs, inputs)
            made[:, i] = np.stack([x.view(dtype) for x in found], axis=1)
        return Tensor(made.reshape(shape))


_JITTED = ("GluonJITFunction", "JITFunction", "InterpretedFunction")


def _bound(function: Any, stand_ins: dict[str, Any], env: dict[str, Any]) -> Any:
    """A kernel's function, whose names mean the stand-ins."""
    plain = function.fn
    for name, value in plain.__globals__.items():
        if name in stand_ins:
            env[name] = stand_ins[name]
        elif type(value).__name__ in _JITTED:
            if name not in env:
                env[name] = None
                env[name] = _bound(
                    value, stand_ins, {} if value.fn.__module__ != plain.__module__ else env
                )
        elif type(value).__name__ == "ConstexprFunction":
            env[name] = value.fn
        elif type(value).__name__ == "constexpr":
            env[name] = value.value
    env.setdefault("__builtins__", __builtins__)
    return types.FunctionType(plain.__code__, env, plain.__name__, plain.__defaults__)


def launch(kernel: Any, programs: int, **arguments: Any) -> None:
    """Run every program of a launch; arrays of NumPy are buffers."""
    given = {
        name: Pointer(x) if isinstance(x, np.ndarray) else Tensor(np.int32(x)) if _counts(x) else x
        for name, x in arguments.items()
    }
    for program in range(programs):
        language, copies = Language(program), Copies()
        stand_ins = {"gl": language, "tl": language, "async_copy": copies}
        stand_ins |= {"copy_in": copies.copy_in, "barrier": lambda: None}
        run = _bound(kernel, stand_ins, {"range": lambda *b: range(*map(int, b))})
        with np.errstate(all="ignore"):
            run(**{**given, "num_warps": arguments["num_warps"]})


def _counts(x: Any) -> bool:
    return isinstance(x, np.integer)


assert ml_dtypes.bfloat16  # NumPy learns the dtype by this import
