"""The products that are tuned, the shapes of the goals first."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.cases import Case

__all__ = ["grid"]

SQUARE = 4096
BLOCKS = ((128, 128), (64, 64), (32, 32), (16, 16), (256, 256), (16, 64), (64, 16))
DENSITIES = (0.1, 0.2, 0.05, 0.5, 0.02, 0.8)
COLUMNS = (8192, 4096, 512, 128, 16)


def grid() -> tuple[Case, ...]:
    """What is tuned, the shapes of the goals first."""
    found = []
    for n in COLUMNS:
        for linear in (False, True) if n in (4096, 512) else (False,):
            size = max(n, SQUARE)
            for block in BLOCKS:
                found += [_case(size, n, block, d, linear=linear) for d in DENSITIES]
    for block in BLOCKS[:4]:
        found += [_case(SQUARE, SQUARE, block, d, dtype="float32") for d in (0.1, 0.5)]
    for n in COLUMNS[:2]:
        for block in BLOCKS[:4]:
            options = {"format": "blocked_ell", "pattern": "even"}
            found += [_case(n, n, block, d, **options) for d in (0.05, 0.1, 0.2, 0.5)]
    for dtype in ("float32", "float16"):
        for n in (16, 128, 1024):
            for d in (0.001, 0.01, 0.1, 0.4):
                found.append(_case(8192, n, (1, 1), d, format="csr", dtype=dtype))
    return tuple(found)


def _case(size: int, n: int, block: tuple[int, int], density: float, **options: Any) -> Case:
    case = Case("", size, size, n, block, density, graph=n <= 512, **options)
    layout = "F" if case.linear else "C"
    name = f"{case.format}-{block[0]}x{block[1]}-{density:g}-{case.dtype}-{size}-{n}-{layout}"
    return Case(name, size, size, n, block, density, graph=n <= 512, **options)
