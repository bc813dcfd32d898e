"""Fixed shapes, seeds and goals of the CPU product benchmarks. Nothing is tuned to a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["BLOCKS", "HOST", "REGRET", "BlockCase", "HostCase", "RegretCase"]


@dataclass(frozen=True)
class HostCase:
    """A warm call whose time beyond SciPy's own is limited."""

    id: str
    how: str
    text: str
    columns: int
    goal_us: float


HOST = tuple(
    HostCase(f"{id}-{n}", how, text, n, goal)
    for n in (1, 16)
    for id, how, text, goal in (
        ("O-matmul", "matmul", "A @ X", 6.0),
        ("O-plan", "plan", "plan(X, out=Y)", 4.0),
    )
)


@dataclass(frozen=True)
class BlockCase:
    """A block format times dense, against one of SciPy's."""

    format: str
    blocksize: int
    density: float
    columns: int
    baseline: str
    limit: float
    size: int = 8192

    @property
    def id(self) -> str:
        """Name of the row."""
        shape = f"{self.format}-{self.blocksize}-{self.density:g}-{self.columns}"
        return f"M-cpu-{shape}-vs-{self.baseline}"

    @property
    def workload(self) -> str:
        """The case in words."""
        return (
            f"{self.format} @ dense, float32 {self.size}x{self.size}, blocks {self.blocksize}, "
            f"{self.density:g} of the blocks, N={self.columns}"
        )

    @property
    def goal(self) -> str:
        """What is aimed for."""
        return "never slower" if self.columns == 1 else f"{1 / self.limit:.3g}x faster"


def _blocks() -> tuple[BlockCase, ...]:
    found = []
    for format in ("bsr", "blocked_ell"):
        for blocksize, factor in ((16, 5), (64, 12)):
            for density in (0.01, 0.1):
                shape = (format, blocksize, density)
                for n in (64, 128):
                    found.append(BlockCase(*shape, n, "bsr", 1 / factor))
                    found.append(BlockCase(*shape, n, "csr", 1.0))
                found += [BlockCase(*shape, 1, baseline, 1.0) for baseline in ("bsr", "csr")]
    return tuple(found)


BLOCKS = _blocks()
"""At N=1 the goal is "never slower", although both sides may run the same compiled loop."""


@dataclass(frozen=True)
class RegretCase:
    """A product that several kernels can compute."""

    format: str
    library: str
    dtype: str
    size: int
    density: float
    columns: int
    blocksize: int = 1

    @property
    def id(self) -> str:
        """Name of the case."""
        blocks = f"-{self.blocksize}" if self.blocksize > 1 else ""
        what = f"{self.format}{blocks}-{self.density:g}-{self.dtype}"
        return f"{self.library}-{what}-{self.size}-{self.columns}"

    def operands(self) -> tuple[Any, Any]:
        """The matrix and the dense operand."""
        import sparseformats as sf

        rng = np.random.default_rng(7)
        edge = self.blocksize
        count = self.size // edge
        flags = rng.random((count, count)) < self.density
        D = np.kron(flags, np.ones((edge, edge), np.bool_)) * rng.integers(
            1, 100, (count * edge, count * edge)
        )
        D = D.astype(self.dtype)
        if self.format == "2:4":
            D.reshape(-1, 4)[:, 2:] = 0
        blocked = self.format in ("bsr", "blocked_ell")
        options = {"blocksize": (edge, edge)} if blocked else {}
        X = rng.integers(-9, 9, (self.size, self.columns)).astype(self.dtype)
        A = sf.from_dense(D, self.format, **options).to_library(self.library)
        if self.library == "torch":
            import torch

            return A, torch.from_numpy(X)
        return A, X


def _regret() -> tuple[RegretCase, ...]:
    found = []
    for library in ("numpy", "torch"):
        for n in (1, 8, 64, 256):
            large = (library, "float32", 2048)
            found += [RegretCase("csr", *large, d, n) for d in (0.001, 0.01, 0.1, 0.4)]
            found += [RegretCase("bsr", *large, d, n, b) for b in (4, 16, 64) for d in (0.02, 0.2)]
            found.append(RegretCase("blocked_ell", library, "float32", 2048, 0.1, n, 32))
            found.append(RegretCase("2:4", library, "float32", 2048, 0.6, n))
            found.append(RegretCase("csc", library, "float64", 1024, 0.01, n))
            found.append(RegretCase("bsr", library, "float64", 1024, 0.1, n, 16))
            found.append(RegretCase("csr", library, "int32", 1024, 0.05, n))
            found.append(RegretCase("csr", library, "float32", 256, 0.05, n))
            found.append(RegretCase("bsr", library, "float32", 256, 0.2, n, 16))
    return tuple(found)


REGRET = _regret()
