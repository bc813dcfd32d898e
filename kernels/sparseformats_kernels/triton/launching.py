"""Single launches, of work that is done once: nothing is prepared but the code.

What a launch needs beyond its numbers is looked up by one tuple: the kernel, its constants, and of
each argument its type, its alignment and the width that it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, final

import triton

from sparseformats._arrays import Array, ArrayLibrary, library
from sparseformats._dtypes import itemsize
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled

__all__ = ["Launcher", "Part"]

_ALIGNED = 16
_INT32 = 2**31 - 1
_TYPES = {"int8": "i8", "uint8": "i8", "bool": "i8", "int16": "i16", "int32": "i32", "int64": "i64"}
_TYPES |= {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_MOST_PROGRAMS = 2**31 - 1  # of one launch, along the first axis
_MOST_READY = 1024


class Part(NamedTuple):
    """Some bytes of an array as another one: several arrays in one piece of memory.

    Attributes
    ----------
    memory : array of int8
    start : int
        First byte, a multiple of 16.
    size : int
        Elements.
    dtype : str
    """

    memory: Array
    start: int
    size: int
    dtype: str

    def array(self, lib: ArrayLibrary) -> Array:
        """The same as an array of its own."""
        end = self.start + self.size * itemsize(self.dtype)
        return lib.from_bits(self.memory[self.start : end], self.dtype)


@final
class Launcher:
    """Launches kernels where an array lies: on its device, or under Triton's interpreter.

    Parameters
    ----------
    lib : ArrayLibrary
    beside : array
        One of the arrays.
    bits : bool
        Kernels see the arrays' values as integers of their width.
    """

    __slots__ = ("_address", "_bits", "_capability", "_device", "_lib")

    def __init__(self, lib: ArrayLibrary, beside: Array, *, bits: bool = False) -> None:
        self._lib, self._bits = lib, bits
        self._address = lib.pointer()
        self._device, self._capability = _found(lib.name, lib.device(beside))
        if self._device is None and not triton.knobs.runtime.interpret:
            raise RuntimeError("Triton runs on a CPU only under its interpreter")

    def __call__(
        self,
        function: Any,
        programs: int,
        given: Mapping[str, Any],
        constants: Mapping[str, Any],
        warps: int = 4,
    ) -> None:
        """Run so many programs of a kernel.

        Parameters
        ----------
        given : mapping
            Arrays, parts of arrays and numbers by parameter. A step of 1, of a parameter whose name
            ends so, is compiled in.

        Raises
        ------
        OverflowError
            More programs than a launch can have.
        """
        if not programs:
            return
        if programs > _MOST_PROGRAMS:
            raise OverflowError(f"{programs:,} programs, {_MOST_PROGRAMS:,} are possible")
        if self._device is None:
            function[(programs,)](**self._seen(given), **constants)
            return
        address = self._address
        # Kernels live as long as their modules, and their own hash is slow.
        key = [id(function), warps, self._bits, self._device.index, *given, *constants.items()]
        values: list[int | float] = []
        for x in given.values():
            if isinstance(x, int):
                values.append(x)
                key.append(_class(x))
            elif isinstance(x, Part):
                at = address(x.memory) + x.start
                values.append(at)
                key.append(x.dtype)
                key.append(at % _ALIGNED == 0)
            elif isinstance(x, float):
                values.append(x)
                key.append(float)
            else:
                at = address(x)
                values.append(at)
                key.append(x.dtype)
                key.append(at % _ALIGNED == 0)
        found = tuple(key)
        ready = _READY.get(found)
        if ready is None:
            ready = self._prepare(found, function, given, constants, warps)
        if self._device.is_current():
            ready(programs, values, self._device.stream())
            return
        with self._device.here():
            ready(programs, values, self._device.stream())

    def _seen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments for the interpreter."""
        seen = {n: x.array(self._lib) if isinstance(x, Part) else x for n, x in given.items()}
        if not self._bits:
            return seen
        bits = self._lib.bits
        return {n: x if isinstance(x, (int, float)) else bits(x) for n, x in seen.items()}

    def _prepare(
        self,
        key: tuple[Any, ...],
        function: Any,
        given: Mapping[str, Any],
        constants: Mapping[str, Any],
        warps: int,
    ) -> _Ready:
        device = self._device
        assert device is not None
        made = self.specimen(function, given, constants, warps)
        with device.here():
            launch = Launch(compiled(made, self._capability, device.index), 1, device.index)
        if len(_READY) >= _MOST_READY:
            _READY.clear()
        _READY[key] = ready = _Ready(launch, made, list(given))
        return ready

    def specimen(
        self, function: Any, given: Mapping[str, Any], constants: Mapping[str, Any], warps: int
    ) -> Specimen:
        """What is compiled for arguments of these types and alignments."""
        types, aligned = {}, set()
        steps = {name: 1 for name, x in given.items() if name.endswith("_step") and _is_one(x)}
        constants = {**constants, **steps}
        for name, x in given.items():
            if name in constants:
                continue
            if isinstance(x, float):
                types[name] = "fp32"
                continue
            if isinstance(x, int):
                types[name] = "i32" if -_INT32 <= x <= _INT32 else "i64"
                value = x
            else:
                part = x if isinstance(x, Part) else Part(x, 0, 0, self._lib.dtype_name(x))
                types[name] = f"*{self._type(part.dtype)}"
                value = self._lib.address(part.memory) + part.start
            if value % _ALIGNED == 0:
                aligned.add(name)
        names = function.arg_names
        return Specimen(
            function,
            tuple((name, types[name]) for name in names if name in types),
            tuple((name, constants[name]) for name in names if name in constants),
            frozenset(aligned),
            warps,
        )

    def _type(self, name: str) -> str:
        return f"i{8 * itemsize(name)}" if self._bits else _TYPES[name]


@final
class _Ready:
    """A loaded kernel and how numbers get into its parameters.

    Attributes
    ----------
    launch : Launch
    function : JITFunction
        Kept, since its id is part of the key.
    """

    __slots__ = ("_pick", "_write", "function", "launch")

    def __init__(self, launch: Launch, made: Specimen, given: list[str]) -> None:
        kinds = dict(made.types)
        self.launch, self.function = launch, made.function
        self._write = launch.writer(kinds)
        self._pick = _picker([given.index(name) for name in kinds])

    def __call__(self, programs: int, values: list[int | float], stream: int) -> None:
        launch = self.launch
        with launch.lock:
            launch.resize(programs)
            self._write(*self._pick(values))
            launch(stream)


def _picker(places: list[int]) -> Callable[[list[Any]], Any]:
    if len(places) == 1:
        return lambda values: (values[places[0]],)
    return itemgetter(*places)


def _class(x: int) -> int:
    """What code depends on of a number: whether it is 1, a multiple of 16, wider than 32 bits."""
    return (x == 1) + 2 * (x % _ALIGNED == 0) + 4 * (not -_INT32 <= x <= _INT32)


def _is_one(x: Any) -> bool:
    return isinstance(x, int) and x == 1


_READY: dict[tuple[Any, ...], _Ready] = {}


@lru_cache(maxsize=64)
def _found(name: str, place: str) -> tuple[Device | None, int]:
    """A device and its compute capability, written as ``90``."""
    if place == "cpu":
        return None, 90
    lib = library(name)
    major, minor = lib.capability(place) or (9, 0)
    return device_of(lib.empty(0, "int8", place), lib), 10 * major + minor
