"""What conversion plans launch compiles everywhere, as it will be launched."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sparseformats import _arrays
from sparseformats.dispatch import Query
from sparseformats.ops.room import room_for
from sparseformats_kernels.triton import driver, launch, prepared, spmm_refilled
from sparseformats_kernels.triton.convert import refill, refilling
from sparseformats_kernels.triton.launch import compile_for
from sparseformats_kernels.triton.prepared import Step
from tests.kernels.triton.compile.test_kernels import CAPABILITIES, read
from tests.kernels.triton.compiling import SHARED_MEMORY

LIB = _arrays.library("torch")
SHAPE = (256, 512)
TARGETS = {
    "dense->csr": (refill.dense_to_csr, "csr", None),
    "dense->bsr": (refill.dense_to_bsr, "bsr", (64, 64)),
    "dense->blocked_ell": (refill.dense_to_blocked_ell, "blocked_ell", (64, 64)),
    "csr->bsr": (refill.csr_to_bsr, "bsr", (64, 64)),
}
STREAMS = ("flag_blocks", "gather_named", "count_chosen", "clear")
"""Kernels that read or write whole vectors of a dense array or of blocks."""


def steps(op: str, dtype: str, masked: bool) -> list[Step]:
    """The launches of a conversion, as they are made for a device."""
    target, format, block = TARGETS[op]
    marked = masked or op.startswith("csr")
    room = room_for(LIB, ("cpu", dtype), format, SHAPE, block, 32, "int32", marked=marked)
    made = target(room, Query(f"plan_conversion:{op}"))
    if op.startswith("csr"):
        index = torch.zeros(SHAPE[0] + 1, dtype=torch.int32)
        sources = {"data": torch.ones(64), "indices": index[:64].clone(), "indptr": index}
    else:
        sources = {"dense": torch.ones(SHAPE)}
    sources = {
        k: x.to(getattr(torch, dtype)) if x.is_floating_point() else x for k, x in sources.items()
    }
    if masked:
        sources["mask"] = torch.ones(SHAPE, dtype=torch.bool)
    bits = {name: LIB.bits(x) for name, x in sources.items()}
    found: list[Step] = made._steps(room, made._scratch, bits)
    return found


CASES = [
    (op, masked) for op in TARGETS for masked in (False, True) if op != "csr->bsr" or not masked
]


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize(("op", "masked"), CASES)
def test_conversions(op: str, masked: bool, capability: int) -> None:
    dtype = "float32" if masked else "bfloat16"
    for step in steps(op, dtype, masked):
        specimen = step.specimen(LIB)
        found = read(capability, specimen)
        about = f"{step.function.__name__} on sm_{capability}: {found}"
        assert set(step.reads) <= {name for name, _ in specimen.types}, about
        assert found.stack == found.local == 0, about
        assert not found.has("atomic"), about
        assert found.shared <= SHARED_MEMORY[capability], about
        if step.function.__name__ in STREAMS and not masked:
            assert not found.has("narrow"), about


def test_every_kernel_is_among_them() -> None:
    seen = {step.function.__name__ for op, masked in CASES for step in steps(op, "float32", masked)}
    assert set(refilling.__all__) <= seen


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize(("dtype", "n"), [("bfloat16", 1), ("bfloat16", 512), ("float32", 64)])
@pytest.mark.parametrize("format", ["csr", "bsr", "blocked_ell"])
def test_products(format: str, n: int, dtype: str, capability: int) -> None:
    block = None if format == "csr" else (64, 64)
    room = room_for(LIB, ("cpu", dtype), format, SHAPE, block, 32, "int32", marked=False)
    kind = getattr(torch, dtype)
    X, out = torch.ones(SHAPE[1], n, dtype=kind), torch.ones(SHAPE[0], n, dtype=kind)
    step = spmm_refilled.Product(room)._step(X, out)
    if "UPCAST" in step.constants:  # set, as the room is on a CPU
        step = step._replace(constants={**step.constants, "UPCAST": False})
    specimen = step.specimen(LIB)
    found = read(capability, specimen)
    about = f"{step.function.__name__} on sm_{capability}: {found}"
    assert set(step.reads) <= {name for name, _ in specimen.types}, about
    assert found.local == 0, about
    assert found.stack <= 64, about
    assert not found.has("atomic"), about
    assert found.has("wide-offset"), about
    assert found.shared <= SHARED_MEMORY[capability], about
    if format != "csr":
        tensor_cores = found.has("mma.sync", "wgmma", "tcgen05")
        assert tensor_cores == (dtype == "bfloat16"), about
        assert not found.has("tf32"), about


def test_a_step_that_is_not_known_shows() -> None:
    """Else the test above would pass whatever was loaded."""
    (step,) = (s for s in steps("dense->bsr", "bfloat16", False) if "slots" in s.given)
    loose = step._replace(given={**step.given, "column_step": 2})
    assert read(90, loose.specimen(LIB)).has("narrow")


class Host:
    """Stands for a device: launches are written down."""

    index, place = 0, "cuda:0"

    def __init__(self, recording: bool = False) -> None:
        self.recording, self.shared = recording, 0

    def here(self) -> Any:
        return nullcontext()

    def is_current(self) -> bool:
        return True

    def stream(self) -> int:
        return 7

    def capture(self, stream: int) -> int:
        return int(self.recording)

    def share(self, arrays: tuple[Any, ...]) -> None:
        self.shared += len(arrays)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """A device of compute capability 9.0 that this machine does not have."""
    made = Host()

    def compiled(specimen: Any, capability: int, device: int) -> Any:
        assert (capability, device) == (90, 0)
        kernel = compile_for(specimen, capability)
        return SimpleNamespace(asm=kernel.asm, metadata=kernel.metadata, src=kernel.src, function=1)

    monkeypatch.setattr(_arrays.TorchLibrary, "device", lambda self, x: "cuda:0")
    monkeypatch.setattr(_arrays.TorchLibrary, "capability", lambda self, device: (9, 0))
    monkeypatch.setattr(prepared, "device_of", lambda x, lib: made)
    monkeypatch.setattr(prepared, "compiled", compiled)
    library = SimpleNamespace(cuLaunchKernelEx=lambda *args: 0)
    monkeypatch.setattr(driver, "library", lambda: library)
    return made


@pytest.mark.parametrize(("op", "masked"), CASES)
def test_every_parameter_is_filled_in(
    op: str, masked: bool, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, dict[str, int], int]] = []

    def written(self: launch.Launch, stream: int) -> None:
        assert stream == 7
        held = {
            name: int.from_bytes(ctypes.string_at(at, size), "little")
            for name, (at, size) in self._slots.items()
        }
        seen.append((self.kernel.metadata.name, held, self._config.gridX))

    monkeypatch.setattr(launch.Launch, "__call__", written)
    made, kept = steps(op, "float32", masked), torch.ones(1)
    run = prepared.Prepared(LIB, kept, made, [kept])
    names = {name for step in made for name in step.reads.values()}
    arrays = {name: torch.ones(8) for name in names}
    for _ in range(2):
        seen.clear()
        run(**arrays)
        assert [name for name, _, _ in seen] == [step.function.__name__ for step in made]
        for step, (_, held, programs) in zip(made, seen, strict=True):
            assert programs == step.programs
            for name, x in step.given.items():
                if name in held:
                    x = arrays[step.reads[name]] if name in step.reads else x
                    assert held[name] == prepared.value_of(LIB, x), (step.function, name)
    assert host.shared == 1  # once a stream
    assert not run._steps  # which hold the examples


def test_nothing_is_compiled_while_a_graph_is_recorded(host: Host) -> None:
    host.recording = True
    kept = torch.ones(1)
    with pytest.raises(RuntimeError, match="prepare before capture: arrays that lie like these"):
        prepared.Prepared(LIB, kept, steps("dense->csr", "float32", False), [kept])


def test_what_cannot_be_launched(host: Host) -> None:
    kept = torch.ones(1)
    step = steps("dense->csr", "float32", False)[0]._replace(programs=2**31)
    with pytest.raises(OverflowError, match="2,147,483,648 programs, 2,147,483,647 are possible"):
        prepared.Prepared(LIB, kept, [step], [kept])


def test_there_is_no_device() -> None:
    with pytest.raises(RuntimeError, match="on a CPU only under its interpreter"):
        prepared.Prepared(LIB, torch.ones(1), steps("dense->csr", "float32", False), [])


def test_what_is_no_multiple_of_16_is_not_said_to_be() -> None:
    memory = torch.zeros(4096, dtype=torch.int8)
    for array, size, aligned in (
        (memory, 64, {"room", "size"}),
        (memory[1:], 64, {"size"}),
        (memory[16:], 65, {"room"}),
        (memory[8:], 8, set()),
    ):
        given = {"room": array, "size": size}
        assert Step(refilling.clear, 1, given, {"E": 64}).specimen(LIB).aligned == aligned
