"""A kernel that only reads a buffer from the second-level cache, again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["reader"]

BLOCK = 8192  # elements that a program reads at a time


@triton.jit  # type: ignore[untyped-decorator]
def _read(source: Any, target: Any, blocks: int, reads: int, size: tl.constexpr) -> None:
    """Each program reads every block, in an order of its own: no two need the same one at once."""
    program = tl.program_id(0)
    lanes = tl.arange(0, size)
    total = tl.zeros((size,), tl.int32)
    for step in range(reads):
        block = (program + step * 97) % blocks
        total ^= tl.load(source + block * size + lanes, cache_modifier=".cg")
    tl.store(target + program, tl.reduce(total, 0, _xor))


@triton.jit  # type: ignore[untyped-decorator]
def _xor(a: Any, b: Any) -> Any:
    return a ^ b


def reader(device: str, nbytes: int, times: int) -> tuple[Callable[[], Any], float]:
    """A call that reads `nbytes` of cache about `times` over, and the bytes that it reads."""
    source = torch.randint(0, 1 << 30, (nbytes // 4,), dtype=torch.int32, device=device)
    blocks = nbytes // 4 // BLOCK
    programs = 2 * torch.cuda.get_device_properties(device).multi_processor_count
    target = torch.empty(programs, dtype=torch.int32, device=device)
    reads = blocks * times // programs

    def call() -> None:
        _read[(programs,)](source, target, blocks, reads, size=BLOCK, num_warps=8)

    return call, 4.0 * BLOCK * reads * programs
