"""Compiling GPU kernels without a GPU, and reading what came out.

``facts(compiled)`` counts instructions of the PTX and the machine code, and reads registers, stack
and shared memory with the tools that Triton ships. Nothing here launches anything.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import triton

__all__ = ["SHARED_MEMORY", "Facts", "facts", "resources"]

# Shared memory that a program may have, by compute capability (CUDA C programming guide,
# "Technical specifications per compute capability").
SHARED_MEMORY = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}

# What to look for in PTX, or with a leading "sass:" in the machine code.
PATTERNS = {
    "mma.sync": r"\bmma\.sync\.",
    "mma.sp": r"\bmma\.sp::ordered_metadata\.sync\.",
    "wgmma": r"\bwgmma\.mma_async\.",
    "tcgen05": r"\btcgen05\.mma\b",
    "cp.async": r"\bcp\.async\.c[ag]\.",
    # Loads of single elements, by themselves or into shared memory.
    "narrow": r"\bld\.global\.b(?:16|8)\b|\bcp\.async\.ca\S* \[[^]]*\], \[[^]]*\], 0x4,",
    "tma.load": r"\bcp\.async\.bulk\.tensor\.\S*shared\S*\.global",
    "tma.store": r"\bcp\.async\.bulk\.tensor\.\S*global\S*\.shared",
    "wide-load": r"\bld\.global\.v[24]\.b(?:32|64)\b",
    "fma": r"\bfma\.rn\.f32\b|\bfma\.rn\.f32x2\b",
    "atomic": r"\batom\.|\bred\.global",
    "wide-offset": r"\b(?:mul|mad)\.(?:wide\.s32|lo\.s64)\b|\bcvt\.s64\.s32\b",
    "local": r"\b(?:ld|st)\.local\b",
    "tf32": r"\btf32\b",
}


@dataclass(frozen=True)
class Facts:
    """What a compiled kernel is made of.

    Attributes
    ----------
    counts : dict
        Occurrences of each of `PATTERNS` in the PTX.
    registers, stack, local : int
        As ``cuobjdump -res-usage`` says: registers a thread, bytes of stack (spills), local memory.
    shared : int
        Bytes of shared memory a program, as Triton asks for them.
    warps : int
    """

    counts: dict[str, int]
    registers: int
    stack: int
    local: int
    shared: int
    warps: int

    def has(self, *names: str) -> bool:
        """Whether any of the instructions occurs."""
        return any(self.counts[name] for name in names)

    def __str__(self) -> str:
        found = ", ".join(f"{name} {count}" for name, count in self.counts.items() if count)
        return (
            f"{self.registers} registers, stack {self.stack}, local {self.local}, "
            f"shared {self.shared}, {self.warps} warps; {found}"
        )


@lru_cache(maxsize=1)
def tools() -> Path:
    """Folder of the NVIDIA tools that came with Triton."""
    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    if not (folder / "cuobjdump").exists():
        raise FileNotFoundError(f"expected cuobjdump in {folder}; Triton's wheel brings it")
    return folder


def resources(cubin: bytes) -> dict[str, int]:
    """Registers, stack, shared and local memory of the one kernel of a module."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tools() / "cuobjdump"), "-res-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", text)}
    missing = {"REG", "STACK", "LOCAL"} - set(found)
    if missing:
        raise ValueError(f"expected {sorted(missing)} from cuobjdump -res-usage, got {text!r}")
    return found


def facts(kernel: Any) -> Facts:
    """Read a kernel that `triton.compile` made."""
    ptx, used = kernel.asm["ptx"], resources(kernel.asm["cubin"])
    counts = {name: len(re.findall(pattern, ptx)) for name, pattern in PATTERNS.items()}
    meta = kernel.metadata
    return Facts(counts, used["REG"], used["STACK"], used["LOCAL"], meta.shared, meta.num_warps)
