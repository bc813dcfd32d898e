"""Single launches, of work that is done once: nothing is prepared but the code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, final

import triton

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled

__all__ = ["Launcher"]

_ALIGNED = 16
_INT32 = 2**31 - 1
_TYPES = {"int8": "i8", "uint8": "i8", "bool": "i8", "int16": "i16", "int32": "i32", "int64": "i64"}
_TYPES |= {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_MOST_PROGRAMS = 2**31 - 1  # of one launch, along the first axis


@final
class Launcher:
    """Launches kernels where an array lies: on its device, or under Triton's interpreter.

    Parameters
    ----------
    lib : ArrayLibrary
    beside : array
        One of the arrays.
    """

    def __init__(self, lib: ArrayLibrary, beside: Array) -> None:
        self._lib = lib
        place = lib.device(beside)
        self._device: Device | None = None if place == "cpu" else device_of(beside, lib)
        if self._device is None and not triton.knobs.runtime.interpret:
            raise RuntimeError("Triton runs on a CPU only under its interpreter")
        major, minor = lib.capability(place) or (9, 0)
        self._capability = 10 * major + minor

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
            Arrays and numbers by parameter. A step of 1, of a parameter whose name ends so, is
            compiled in.

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
            function[(programs,)](**given, **constants)
            return
        made = self.specimen(function, given, constants, warps)
        with self._device.here():
            launch = _launch(made, self._capability, self._device.index)
            with launch.lock:
                launch.resize(programs)
                constant = dict(made.constants)
                values = {name: x for name, x in given.items() if name not in constant}
                launch.set(**{name: self._value(x) for name, x in values.items()})
                launch(self._device.stream())

    def _value(self, x: Any) -> int | float:
        return x if isinstance(x, (int, float)) else self._lib.address(x)

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
                types[name] = "i32" if x <= _INT32 else "i64"
            else:
                types[name] = f"*{_TYPES[self._lib.dtype_name(x)]}"
            if self._value(x) % _ALIGNED == 0:
                aligned.add(name)
        names = function.arg_names
        return Specimen(
            function,
            tuple((name, types[name]) for name in names if name in types),
            tuple((name, constants[name]) for name in names if name in constants),
            frozenset(aligned),
            warps,
        )


def _is_one(x: Any) -> bool:
    return isinstance(x, int) and x == 1


@lru_cache(maxsize=256)
def _launch(specimen: Specimen, capability: int, device: int) -> Launch:
    """A kernel with room for its parameters; the device must be the current one."""
    return Launch(compiled(specimen, capability, device), 1, device)
