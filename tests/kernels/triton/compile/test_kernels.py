"""Every kernel of the backend compiles for three architectures, to the instructions it is for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from sparseformats_kernels.triton import RECORDS, launch
from sparseformats_kernels.triton.launch import Specimen, compile_for
from sparseformats_kernels.triton.specimens import specimens
from tests.kernels.triton.compiling import SHARED_MEMORY, Facts, facts
from tests.kernels.triton.kinds import GLUON, GROUPS, ROWS

CAPABILITIES = (80, 90, 100)
BYTES = {"i32": 4, "i64": 8, "fp32": 4, "*i32": 8, "*fp16": 8, "*bf16": 8, "*fp32": 8}
BYTES |= dict.fromkeys(("*i8", "*i16", "*i64", "*fp8e4nv", "*fp64", "fp64"), 8)
TENSOR_CORES = ("mma.sync", "wgmma", "tcgen05")
NEWEST = {80: "mma.sync", 90: "wgmma", 100: "tcgen05"}
# Bytes of stack a thread: results that are scaled, added to or activated hold a few values more
# than there are registers for; the loops over blocks hardly any.
SPILLS = {"plain": 64, "epilogue": 512}
FUSED = ("ALPHA", "BETA", "SCALE", "BIAS", "ACTIVATION", "RESIDUAL")
NARROW_BIAS = 64
TMEM_SPILLS = 256  # sm_100 moves accumulators through registers when a tile begins and ends


def listed(*, every: bool = False) -> list[Any]:
    return [
        pytest.param(capability, label, specimen, id=f"sm_{capability}-{label}")
        for capability in CAPABILITIES
        for label, specimen in specimens(capability, every=every)
    ]


def read(capability: int, specimen: Specimen) -> Facts:
    """Compile; what the driver will be handed must be what the machine code takes."""
    kernel = compile_for(specimen, capability)
    names, sizes = launch._names(kernel), launch.parameter_sizes(kernel.asm["ptx"])
    assert len(names) == len(sizes), f"{names} for parameters of {sizes} bytes"
    types = dict(specimen.types)
    for name, size in zip(names, sizes, strict=True):
        kind = types.get(name, "")
        assert size == BYTES.get(kind, 128 if kind.startswith("tensordesc") else size), name
    meta = kernel.metadata
    assert not meta.global_scratch_size
    assert not meta.profile_scratch_size
    return facts(kernel)


def check(capability: int, label: str, specimen: Specimen, found: Facts) -> None:
    """Hold one compiled kernel to what its label says that it is."""
    about = f"{label} on sm_{capability}: {found}"
    assert not found.has("atomic"), f"sums in no fixed order: {about}"
    assert found.has("wide-offset"), f"offsets of 32 bits: {about}"
    assert found.local == 0, about
    assert found.shared <= SHARED_MEMORY[capability], about
    if label.startswith(tuple(GLUON)):
        assert all(found.has(name) for name in ("wgmma", "tma.load", "tma.store")), about
        return
    if label.startswith(ROWS):
        check_rows(capability, label, specimen, found)
        return
    assert found.has("cp.async"), about
    if label.startswith(GROUPS):
        assert found.has("mma.sp"), about
        assert not found.has(*TENSOR_CORES), about
        assert found.stack == 0, about
        return
    constants = dict(specimen.constants)
    if "tf32" not in label:
        few = NARROW_BIAS if constants.get("BIAS") else 0  # a bias is read element by element
        assert found.counts["narrow"] <= few, f"loads of single elements: {about}"
    if "float32" in label and constants["PRECISION"] == "ieee":
        assert not found.has("tf32", *TENSOR_CORES), f"not IEEE float32: {about}"
        assert found.has("fma"), about
        return
    assert found.has("tf32") == ("tf32" in label), about
    # Tiles too small for the newest tensor instruction use the oldest.
    long = max(constants["BM"], constants["BN"]) >= 64 and "float32" not in label
    long = long and not ("int8" in label and capability == 100)  # Triton 3.6 has no such one
    names = (NEWEST[capability],) if long else (NEWEST[capability], "mma.sync")
    assert found.has(*names), about


def check_rows(capability: int, label: str, specimen: Specimen, found: Facts) -> None:
    """Rows of the operand come in vectors; nothing is rounded on the way, and nothing spills."""
    about = f"{label}: {found}"
    assert not found.has("tf32", *TENSOR_CORES, "cp.async"), about
    # The compiler for sm_100 may set a word aside while two thirds of the registers are free.
    assert found.stack <= (8 if capability == 100 and found.registers < 96 else 0), about
    types, constants = dict(specimen.types), dict(specimen.constants)
    if types["x"] not in ("*fp64", "*i8", "*i32") and "adding" not in label:
        assert found.has("fma"), about
    if constants.get("x_column") == 1 and constants["BN"] >= 16:
        assert found.has("wide-load"), about
    if "columns" in types:
        assert types["columns"] == ("*i64" if "int64" in label else "*i32")


@pytest.mark.parametrize(("capability", "label", "specimen"), listed())
def test_instructions_and_resources(capability: int, label: str, specimen: Specimen) -> None:
    found = read(capability, specimen)
    check(capability, label, specimen, found)
    constants = dict(specimen.constants)
    fuses = any(constants.get(name) for name in FUSED)
    allowed = SPILLS["epilogue" if fuses else "plain"]
    allowed = max(allowed, TMEM_SPILLS) if found.has("tcgen05") else allowed
    assert found.stack <= allowed, f"{label} on sm_{capability} spills: {found}"


@pytest.mark.nightly
@pytest.mark.parametrize(("capability", "label", "specimen"), listed(every=True))
def test_every_candidate(capability: int, label: str, specimen: Specimen) -> None:
    check(capability, label, specimen, read(capability, specimen))


def test_every_kernel_of_the_backend_is_compiled_for_what_it_serves() -> None:
    here = {
        (record.name, capability)
        for capability in CAPABILITIES
        for record in RECORDS
        if any(label.startswith(record.name) for label, _ in specimens(capability))
    }
    names = {record.name for record in RECORDS if record.op == "matmul"}
    everywhere = {(name, capability) for name in names - GLUON for capability in CAPABILITIES}
    everywhere.remove(("triton-tiles-fp8", 80))
    assert here == everywhere | {(name, 90) for name in GLUON & names}
    assert {name for name, _ in here} == names


@pytest.mark.parametrize(
    ("label", "specimen"), [pair for pair in specimens(89) if "tiles-fp8" in pair[0]]
)
def test_fp8_on_the_oldest_architecture_that_has_it(label: str, specimen: Specimen) -> None:
    found = read(89, specimen)
    assert found.has("mma.sync"), f"{label}: {found}"
    assert found.has("cp.async"), f"{label}: {found}"
    assert not found.stack


SUMS_IN_FLOAT32 = {89: "added", 90: "partial", 100: ""}


@pytest.mark.parametrize("capability", SUMS_IN_FLOAT32)
def test_sums_of_fp8_come_to_float32_where_tensor_cores_keep_too_few_bits(capability: int) -> None:
    """One addition for each sum and tile of columns, beside what is multiplied."""
    specimen = dict(specimens(capability))["triton-tiles-fp8-128x128-F-n4096-ieee-0"]
    constants = dict(specimen.constants)
    assert constants["PROMOTE"] == SUMS_IN_FLOAT32[capability]
    sums = constants["BM"] * constants["BN"] // (32 * specimen.warps)
    plain = {**constants, "PROMOTE": ""}
    additions = [
        len(re.findall(r"\badd(?:\.rn)?\.f32\b", compile_for(s, capability).asm["ptx"]))
        for s in (specimen, replace(specimen, constants=tuple(plain.items())))
    ]
    assert additions[0] >= additions[1] + (sums if constants["PROMOTE"] else 0)


def unaligned(specimen: Specimen) -> Specimen:
    return replace(specimen, aligned=frozenset())


def of_any_size(specimen: Specimen) -> Specimen:
    return replace(specimen, aligned=specimen.aligned - {"M", "N", "K"})


def rounding_to_tf32(specimen: Specimen) -> Specimen:
    constants = {**dict(specimen.constants), "PRECISION": "tf32"}
    return replace(specimen, constants=tuple(constants.items()))


@pytest.mark.parametrize(
    ("name", "plant", "text"),
    [
        ("triton-tiles-64x64-bfloat16-C-n4096-ieee-0", unaligned, "cp.async"),
        ("triton-tiles-64x64-bfloat16-C-n4096-ieee-0", of_any_size, "single elements"),
        ("triton-few-64x64-bfloat16-C-n16-ieee-0", of_any_size, "single elements"),
        ("triton-tiles-64x64-float32-C-n4096-ieee-0", rounding_to_tf32, "not IEEE float32"),
    ],
)
def test_a_planted_fault_is_rejected(name: str, plant: Any, text: str) -> None:
    specimen = dict(specimens(80))[name]
    check(80, name, specimen, read(80, specimen))
    with pytest.raises(AssertionError, match=text):
        check(80, name, specimen, read(80, plant(specimen)))
