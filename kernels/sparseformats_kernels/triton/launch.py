"""Compiled kernels, and launching them with few words.

`compiled` compiles a kernel for exactly the types, constants and alignments that are named: there
is no guessing from arguments, so what is tested by compiling alone is what runs. `Launch` holds the
parameters of one kernel in memory and hands them to the driver.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from threading import Lock
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

from sparseformats._dtypes import itemsize
from sparseformats_kernels.triton import driver

__all__ = ["Launch", "Specimen", "compile_for", "compiled"]

_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+[^,\n]*?_param_\d+(?:\[(\d+)\])?"
)
_SIZES = {"b8": 1, "u8": 1, "s8": 1, "u16": 2, "b16": 2, "u32": 4, "b32": 4, "f32": 4, "s32": 4}
_SIZES |= {"u64": 8, "b64": 8, "f64": 8, "s64": 8}
_WARP = 32


@dataclass(frozen=True)
class Specimen:
    """Everything that decides the machine code of a kernel.

    Attributes
    ----------
    function : JITFunction
    types : tuple of (name, type)
        Triton's names of the parameters' types, in order.
    constants : tuple of (name, value)
    aligned : frozenset of str
        Parameters that are multiples of 16.
    warps, stages : int
    """

    function: Any
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: frozenset[str] = frozenset()
    warps: int = 4
    stages: int = 3

    def source(self) -> Any:
        """What `triton.compile` takes."""
        types, constants = dict(self.types), dict(self.constants)
        names = self.function.arg_names
        signature = {n: types.get(n, "constexpr") for n in names}
        places = {(i,): constants[n] for i, n in enumerate(names) if n in constants}
        attributes = {
            (i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n in self.aligned
        }
        kind = GluonASTSource if isinstance(self.function, GluonJITFunction) else ASTSource
        return kind(self.function, signature, places, attributes)


def compile_for(specimen: Specimen, capability: int) -> Any:
    """Compile for a compute capability, written as ``90``; needs no device."""
    options = {
        "num_warps": specimen.warps,
        "num_stages": specimen.stages,
        "enable_fp_fusion": True,
    }
    target = GPUTarget("cuda", capability, _WARP)
    return triton.compile(specimen.source(), target=target, options=options)


@lru_cache(maxsize=512)
def compiled(specimen: Specimen, capability: int, device: int) -> Any:
    """A compiled kernel, loaded on a device, which must be the current one."""
    kernel = compile_for(specimen, capability)
    kernel._init_handles()
    return kernel


def parameter_sizes(ptx: str) -> list[int]:
    """Bytes of each parameter of the one entry of a module."""
    entry = ptx[ptx.index(".entry") :]
    head = entry[: entry.index(")")]
    return [_SIZES[kind] * int(count or 1) for _, kind, count in _PARAMETER.findall(head)]


@dataclass
class Launch:
    """One compiled kernel and its parameters.

    Calls from several threads take turns; each hands its own parameters to the driver, which
    copies them before it returns.
    """

    kernel: Any
    grid: int
    device: int
    keep: tuple[Any, ...] = ()  # arrays whose addresses the parameters hold
    taken: bool = False  # somebody calls it
    _slots: dict[str, tuple[int, Any]] = field(default_factory=dict)
    _maps: dict[str, tuple[int, tuple[int, ...], int]] = field(default_factory=dict)
    lock: Any = field(default_factory=Lock)

    def __post_init__(self) -> None:
        sizes = parameter_sizes(self.kernel.asm["ptx"])
        names = _names(self.kernel)
        if len(sizes) != len(names):
            raise RuntimeError(
                f"Triton {triton.__version__} passes {len(sizes)} parameters to a kernel where "
                f"{len(names)} were expected; this release is not known to us"
            )
        meta = self.kernel.metadata
        if meta.global_scratch_size or meta.profile_scratch_size:
            raise RuntimeError(f"{meta.name} wants scratch memory, which a plan does not give")
        room = sum(-(-size // 128) * 128 for size in sizes) + 128
        self._memory = ctypes.create_string_buffer(room)
        start = -(-ctypes.addressof(self._memory) // 128) * 128
        places, descriptions = [], list(getattr(meta, "tensordesc_meta", None) or [])
        for name, size in zip(names, sizes, strict=True):
            places.append(start)
            if size == 128:
                about = descriptions.pop(0)
                self._maps[name] = start, tuple(about["block_size"]), int(about["swizzle"])
            else:
                self._slots[name] = (start, size)
            start += -(-size // 128) * 128
        self._pointers = (ctypes.c_void_p * len(places))(*places)
        self._config = driver.LaunchConfig(
            gridX=self.grid,
            gridY=1,
            gridZ=1,
            blockX=_WARP * meta.num_warps,
            blockY=1,
            blockZ=1,
            sharedMemBytes=meta.shared,
        )
        self._call = driver.library().cuLaunchKernelEx
        self._args = (
            ctypes.byref(self._config),
            ctypes.c_void_p(self.kernel.function),
            self._pointers,
            None,
        )

    def resize(self, programs: int) -> None:
        """Let the next launches have so many programs."""
        self._config.gridX = programs

    def slot(self, name: str) -> Any:
        """A pointer among the parameters, as an object whose ``value`` can be set quickly."""
        return ctypes.c_uint64.from_address(self._slots[name][0])

    def set(self, **values: int | float) -> None:
        """Set scalars and pointers by name."""
        for name, value in values.items():
            where, size = self._slots[name]
            kind: Any = (_FLOATS if isinstance(value, float) else _INTEGERS)[size]
            slot = kind.from_address(where)
            slot.value = value
            if isinstance(value, int) and slot.value != value and value < 1 << 63:
                raise OverflowError(f"parameter {name} of a kernel cannot hold {value}")

    def writer(self, kinds: Mapping[str, str]) -> Callable[..., None]:
        """What sets parameters at one stroke.

        Parameters
        ----------
        kinds : mapping
            Triton's type of each scalar and pointer that the kernel takes, in its order.

        Returns
        -------
        callable
            Takes a value for each of `kinds`.
        """
        start, end, text = ctypes.addressof(self._memory), 0, "<"
        for name, kind in kinds.items():
            where, size = self._slots[name]
            text += f"{where - start - end}x{_CODES.get(kind, 'q')}"
            end = where - start + size
        return partial(struct.Struct(text).pack_into, self._memory, 0)

    def mapped(
        self, name: str, dtype: str, shape: tuple[int, int], step: int
    ) -> Callable[[int], None]:
        """Let a descriptor name matrices of this shape, of `step` elements from row to row.

        Returns
        -------
        callable
            Takes the address of the matrix, a multiple of 16.
        """
        where, box, swizzle = self._maps[name]
        for axis in range(2):
            for part, value in (("shape", shape), ("stride", (step, 1))):
                start, size = self._slots[f"{name}.{part}{axis}"]
                _INTEGERS[size].from_address(start).value = value[axis]

        def encode(address: int, row_bytes: int = step * itemsize(dtype)) -> None:
            driver.encode_tiled(where, dtype, address, shape, row_bytes, box, swizzle)

        return encode

    def __call__(self, stream: int) -> None:
        """Launch on a stream; hold `lock` from setting parameters until here."""
        self._config.hStream = stream
        status = self._call(*self._args)
        if status:
            if status == driver.INVALID_CONTEXT:
                driver.enter_context(self.device)
                status = self._call(*self._args)
            driver.check(status, f"launch of {self.kernel.metadata.name}")


_CODES = {"i8": "b", "i16": "h", "i32": "i", "fp32": "f"}  # of `struct`; all others have 8 bytes

_FLOATS: dict[int, Any] = {4: ctypes.c_float, 8: ctypes.c_double}
_INTEGERS: dict[int, Any] = {
    1: ctypes.c_int8,
    2: ctypes.c_int16,
    4: ctypes.c_int32,
    8: ctypes.c_int64,
}


def _names(kernel: Any) -> list[str]:
    """Names of a kernel's parameters as the driver sees them, sizes of descriptors among them."""
    names = []
    for name, kind in kernel.src.signature.items():
        if kind == "constexpr":
            continue
        names.append(name)
        if kind.startswith("tensordesc"):
            rank = kind[kind.index("[") + 1 : kind.index("]")].count(",") + 1
            names += [f"{name}.shape{i}" for i in range(rank)]
            names += [f"{name}.stride{i}" for i in range(rank)]
    return [*names, "global_scratch", "profile_scratch"]
