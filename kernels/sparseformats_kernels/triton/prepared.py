"""Launches in a row, prepared once: what changes from call to call is where a few arrays lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled
from sparseformats_kernels.triton.launching import Launcher, specimen_of, value_of
from sparseformats_kernels.triton.sending import Sender

__all__ = ["Prepared", "Step"]


class Step(NamedTuple):
    """One launch.

    Attributes
    ----------
    function : JITFunction
    programs : int
    given : mapping
        Arrays and numbers by parameter, as `Launcher` takes them.
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
        """What is compiled for it."""
        return specimen_of(lib, self.function, self.given, self.constants, self.warps)


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
        A CUDA graph is being recorded: to compile would end that.
    """

    def __init__(
        self,
        lib: ArrayLibrary,
        beside: Array,
        steps: Sequence[Step],
        keeps: Iterable[Array],
    ) -> None:
        self._launcher, self._lib = Launcher(lib, beside), lib
        self._steps = tuple(step for step in steps if step.programs)
        self._lock = Lock()
        self._device: Device | None = None
        if lib.device(beside) == "cpu":  # only under Triton's interpreter
            return
        self._device = device = device_of(beside, lib)
        if device.capture(device.stream()):
            raise RuntimeError(
                "plan_conversion: prepare before capture: arrays that lie like these were not met "
                "before; make the same call of the plan once before the graph is recorded"
            )
        with device.here():
            made = [self._launch(step, device.index) for step in self._steps]
        self._changing = tuple(
            (launch.slot(parameter), name)
            for step, launch in zip(self._steps, made, strict=True)
            for parameter, name in step.reads.items()
        )
        self._send = Sender(device, made, keeps)

    def _launch(self, step: Step, device: int) -> Launch:
        specimen = step.specimen(self._lib)
        code = compiled(specimen, self._launcher.capability, device)
        launch = Launch(code, self._launcher.programs(step.programs), device)
        constant = dict(specimen.constants)
        values = {name: x for name, x in step.given.items() if name not in constant}
        launch.set(**{name: value_of(self._lib, x) for name, x in values.items()})
        return launch

    def __call__(self, **arrays: Array) -> None:
        """Launch everything, with arrays of the examples' types, steps and alignments."""
        if self._device is None:
            for step in self._steps:
                given = {**step.given, **{key: arrays[name] for key, name in step.reads.items()}}
                self._launcher(step.function, step.programs, given, step.constants)
            return
        at = {name: self._lib.address(x) for name, x in arrays.items()}
        with self._lock:
            for slot, name in self._changing:
                slot.value = at[name]
            self._send()
