"""What `compiling` reads: each instruction and each fault shows where it should, and only there."""

from __future__ import annotations

import pytest
import triton
import triton.language as tl

from sparseformats_kernels.triton.launch import Specimen, compile_for
from tests.kernels.triton.compiling import SHARED_MEMORY, Facts, facts

ARCHITECTURES = (80, 90, 100)
POINTERS = ("x", "y", "z")
STEPS = ("row", "K")


@triton.jit
def product(x, y, z, row, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(x + m[:, None] * row + start + k[None, :])
        b = tl.load(y + (start + k)[:, None] * row + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(z + m[:, None] * row + n[None, :], acc.to(z.dtype.element_ty))


@triton.jit
def total(x, y, z, row, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tl.atomic_add(z, tl.load(x + tl.program_id(0).to(tl.int64) * row))


def specimen(
    function: object = product, tile: tuple[int, int, int] = (64, 64, 64), **options: object
) -> Specimen:
    dtype = options.pop("dtype", "fp16")
    types = (*((name, f"*{dtype}") for name in POINTERS), *((name, "i32") for name in STEPS))
    constants = tuple(zip(("BM", "BN", "BK"), tile, strict=True))
    chosen = {"aligned": frozenset((*POINTERS, *STEPS)), "warps": 4, "stages": 3, **options}
    return Specimen(function, types, constants, **chosen)


def read(capability: int, **options: object) -> Facts:
    return facts(compile_for(specimen(**options), capability))


@pytest.mark.parametrize("capability", ARCHITECTURES)
def test_tensor_cores_and_asynchronous_copies(capability: int) -> None:
    found = read(capability, tile=(128, 128, 64))
    name = {80: "mma.sync", 90: "wgmma", 100: "tcgen05"}[capability]
    assert found.has(name), found
    assert found.has("cp.async"), found
    assert found.stack == 0
    assert 0 < found.shared <= SHARED_MEMORY[capability]


def test_without_alignment_there_is_no_asynchronous_copy() -> None:
    assert not read(80, aligned=frozenset(POINTERS)).has("cp.async")
    assert not read(80, aligned=frozenset()).has("cp.async")


def test_a_kernel_that_spills_has_a_stack() -> None:
    found = read(80, tile=(128, 128, 32), warps=2)
    assert found.stack > 0, found
    assert found.registers == 255


def test_atomics_show() -> None:
    assert read(90, function=total, dtype="fp32").has("atomic")
    assert not read(90).has("atomic")


def test_float32_is_ieee_unless_asked() -> None:
    found = read(80, dtype="fp32", tile=(32, 32, 32))
    assert found.has("tf32"), found  # Triton's own default, which our kernels must not take
