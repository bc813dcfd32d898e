"""Launches in a row, prepared once: what changes from call to call is where a few arrays lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple, final

import triton

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled
from sparseformats_kernels.triton.sending import Sender

__all__ = ["Prepared", "Step", "value_of"]

_ALIGNED = 16
_INT32 = 2**31 - 1
_MOST_PROGRAMS = 2**31 - 1  # of one launch, along the first axis
_TYPES = {"int8": "i8", "uint8": "i8", "int16": "i16", "int32": "i32", "int64": "i64"}
_TYPES |= {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


class Step(NamedTuple):
    """One launch.

    Attributes
    ----------
    function : JITFunction
    programs : int
    given : mapping
        Arrays and whole numbers by parameter.
    constants : mapping
    reads : mapping
        For parameters that calls name an array for: by which name. What is `given` for them are
        examples.
    warps : int
    """

    function: Any
    programs: int
    given: Mapping[str, Any]
    constants: Mapping[str, Any]
    reads: Mapping[str, str] = MappingProxyType({})
    warps: int = 4

    def specimen(self, lib: ArrayLibrary) -> Specimen:
        """What is compiled for arguments of these types and alignments.

        A step of 1, of a parameter whose name ends so, is compiled in.
        """
        steps = {name: x for name, x in self.given.items() if name.endswith("_step")}
        constants = {**self.constants, **{name: 1 for name, x in steps.items() if x == 1}}
        types, aligned = {}, set()
        for name, x in self.given.items():
            if name not in constants:
                types[name] = _type(lib, x)
                aligned |= {name} if value_of(lib, x) % _ALIGNED == 0 else set()
        names = self.function.arg_names
        return Specimen(
            self.function,
            tuple((name, types[name]) for name in names if name in types),
            tuple((name, constants[name]) for name in names if name in constants),
            frozenset(aligned),
            self.warps,
        )


def value_of(lib: ArrayLibrary, x: Any) -> int:
    """What a kernel is handed: a number itself, and where an array lies."""
    return x if isinstance(x, int) else lib.address(x)


def _type(lib: ArrayLibrary, x: Any) -> str:
    if isinstance(x, int):
        return "i32" if -_INT32 <= x <= _INT32 else "i64"
    return f"*{_TYPES[lib.dtype_name(x)]}"


@final
class Prepared:
    """Steps that are launched one after the other, each compiled and filled in already.

    Parameters
    ----------
    lib : ArrayLibrary
    beside : array
        One of the arrays, on the device where all are.
    steps : sequence of Step
        Launches without programs are left out.
    keeps : iterable of array
        What nobody but us could keep from being given back while a stream still uses it.

    Raises
    ------
    RuntimeError
        A CUDA graph is being recorded: to compile would end that. Or there is no device.
    OverflowError
        More programs than a launch can have.
    """

    def __init__(
        self,
        lib: ArrayLibrary,
        beside: Array,
        steps: Sequence[Step],
        keeps: Iterable[Array],
    ) -> None:
        self._lib = lib
        self._steps = tuple(step for step in steps if step.programs)
        self._lock = Lock()
        self._device: Device | None = None
        if lib.device(beside) == "cpu":
            if not triton.knobs.runtime.interpret:
                raise RuntimeError("Triton runs on a CPU only under its interpreter")
            return
        self._device = device = device_of(beside, lib)
        if device.capture(device.stream()):
            raise RuntimeError(
                "plan_conversion: prepare before capture: arrays that lie like these were not met "
                "before; make the same call of the plan once before the graph is recorded"
            )
        major, minor = lib.capability(device.place) or (9, 0)
        self._capability = 10 * major + minor
        with device.here():
            made = [self._launch(step, device.index) for step in self._steps]
        self._changing = tuple(
            (launch.slot(parameter), name)
            for step, launch in zip(self._steps, made, strict=True)
            for parameter, name in step.reads.items()
        )
        self._send = Sender(device, made, keeps)
        self._steps = ()  # they hold the examples, which are the caller's to give back

    def _launch(self, step: Step, device: int) -> Launch:
        if step.programs > _MOST_PROGRAMS:
            raise OverflowError(f"{step.programs:,} programs, {_MOST_PROGRAMS:,} are possible")
        specimen = step.specimen(self._lib)
        launch = Launch(compiled(specimen, self._capability, device), step.programs, device)
        constant = dict(specimen.constants)
        values = {name: x for name, x in step.given.items() if name not in constant}
        launch.set(**{name: value_of(self._lib, x) for name, x in values.items()})
        return launch

    def __call__(self, **arrays: Array) -> None:
        """Launch everything, with arrays of the examples' types, steps and alignments."""
        if self._device is None:
            for step in self._steps:
                given = {**step.given, **{key: arrays[name] for key, name in step.reads.items()}}
                step.function[(step.programs,)](**given, **step.constants)
            return
        at = {name: self._lib.address(x) for name, x in arrays.items()}
        with self._lock:
            for slot, name in self._changing:
                slot.value = at[name]
            self._send()
