"""Launches of work that is done once: which code runs, and what numbers it is handed.

The driver is a stand-in that reads the parameters of each launch.
"""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from sparseformats import _arrays
from sparseformats_kernels.triton import driver, launching
from sparseformats_kernels.triton.launch import compile_for
from sparseformats_kernels.triton.launching import Launcher, Part


@triton.jit
def _copy(source, source_step, target, count, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + at * source_step, mask=at < count)
    tl.store(target + at, (x * scale).to(target.dtype.element_ty), mask=at < count)


class Device:
    """Stands where a CUDA device would."""

    index, current = 0, True

    def is_current(self) -> bool:
        return self.current

    def here(self) -> Any:
        return nullcontext()

    def stream(self) -> int:
        return 77


class Driver:
    """Keeps the grid, the stream and the parameters of each launch."""

    def __init__(self) -> None:
        self.launches: list[tuple[int, int, Any]] = []

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, _: Any) -> int:  # noqa: N802
        held = config._obj
        self.launches.append((held.gridX, held.hStream, list(pointers)))
        return 0


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Specimens that were compiled, in order, and the driver."""
    found = SimpleNamespace(specimens=[], driver=Driver(), device=Device())

    def compiled(specimen: Any, capability: int, device: int) -> Any:
        found.specimens.append(specimen)
        made = compile_for(specimen, 90)
        return SimpleNamespace(asm=made.asm, metadata=made.metadata, src=made.src, function=1)

    monkeypatch.setattr(driver, "library", lambda: found.driver)
    monkeypatch.setattr(launching, "compiled", compiled)
    monkeypatch.setattr(launching, "_found", lambda name, place: (found.device, 90))
    monkeypatch.setattr(launching, "_READY", {})
    return found


def numbers(seen: SimpleNamespace, kinds: str) -> list[Any]:
    """Parameters of the last launch, read as pointers, integers and floats."""
    types = {"p": ctypes.c_uint64, "i": ctypes.c_int32, "q": ctypes.c_int64, "f": ctypes.c_float}
    places = seen.driver.launches[-1][2]
    return [types[kind].from_address(at).value for kind, at in zip(kinds, places, strict=False)]


def launch(x: torch.Tensor, y: torch.Tensor, **given: Any) -> None:
    lib, bits = _arrays.of(x), given.pop("bits", False)
    numbers = {"source": x, "source_step": 2, "target": y, "count": 100, "scale": 1.5} | given
    Launcher(lib, x, bits=bits)(_copy, 3, numbers, {"BLOCK": 32})


def test_parameters_arrive(seen: SimpleNamespace) -> None:
    x, y = torch.zeros(64), torch.zeros(64)
    for step, count, scale in ((2, 100, 1.5), (-3, 7, -0.25)):
        launch(x, y, source_step=step, count=count, scale=scale)
        assert numbers(seen, "pipif") == [x.data_ptr(), step, y.data_ptr(), count, scale]
        assert seen.driver.launches[-1][:2] == (3, 77)
    launch(x, y, source_step=1)
    assert numbers(seen, "ppif") == [x.data_ptr(), y.data_ptr(), 100, 1.5]
    launch(x, y, count=2**40 + 5)
    assert numbers(seen, "pipqf") == [x.data_ptr(), 2, y.data_ptr(), 2**40 + 5, 1.5]


def test_equal_facts_are_looked_up_and_others_compiled(seen: SimpleNamespace) -> None:
    x, y = torch.zeros(65), torch.zeros(65)
    launch(x, y)
    launch(x, y, count=99, scale=-1.0)
    launch(torch.zeros(65), y)
    assert len(seen.specimens) == 1
    variants: list[tuple[torch.Tensor, torch.Tensor, dict[str, Any]]] = [
        (x[1:], y, {}),  # not aligned
        (x, y[1:], {}),
        (x, y, {"count": 96}),  # a multiple of 16
        (x, y, {"source_step": 1}),
        (x, y, {"count": 2**33}),  # beyond 32 bits
        (x.half(), y, {}),
        (x, y, {"bits": True}),
    ]
    for number, (a, b, given) in enumerate(variants):
        launch(a, b, **given)
        launch(a, b, **given)
        assert len(seen.specimens) == 2 + number, given
    assert len(set(seen.specimens)) == len(seen.specimens)
    assert dict(seen.specimens[-1].types)["source"] == "*i32"
    assert seen.specimens[0].aligned == {"source", "target"}
    assert len(seen.driver.launches) == 3 + 2 * len(variants)


def test_parts_of_one_piece_of_memory(seen: SimpleNamespace) -> None:
    lib, memory = _arrays.library("torch"), torch.arange(64, dtype=torch.int8)
    part = Part(memory, 16, 5, "int32")
    launch(torch.zeros(64), torch.zeros(64), source=part, bits=True)
    assert numbers(seen, "p") == [memory.data_ptr() + 16]
    assert dict(seen.specimens[-1].types)["source"] == "*i32"
    launch(torch.zeros(64), torch.zeros(64), source=part._replace(dtype="int64"), bits=True)
    assert dict(seen.specimens[-1].types)["source"] == "*i64"
    assert torch.equal(part.array(lib), memory.view(torch.int32)[4:9])
    assert part._replace(size=0).array(lib).shape == (0,)


def test_what_is_ready_is_bounded(seen: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "_MOST_READY", 2)
    x, y = torch.zeros(64), torch.zeros(64)
    for count in (100, 96, 2**33, 100):
        launch(x, y, count=count)
        assert len(launching._READY) <= 2


def test_another_device_is_made_current(seen: SimpleNamespace) -> None:
    seen.device.current = False
    launch(torch.zeros(64), torch.zeros(64))
    assert len(seen.driver.launches) == 1


def test_too_many_programs_and_none(seen: SimpleNamespace) -> None:
    x = torch.zeros(8)
    call = Launcher(_arrays.of(x), x)
    with pytest.raises(OverflowError, match="2,147,483,648 programs, 2,147,483,647 are possible"):
        call(_copy, 2**31, {}, {})
    call(_copy, 0, {}, {})
    assert not seen.driver.launches


def test_a_cpu_without_the_interpreter() -> None:
    x = torch.zeros(8)
    with pytest.raises(RuntimeError, match="interpreter"):
        Launcher(_arrays.of(x), x)
