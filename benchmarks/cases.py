"""Fixed shapes, seeds and goals of the CPU conversion benchmark (goal V-cpu).

A case is data; `benchmarks.conversions` turns it into two calls. Nothing here is tuned to a result.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CONVERSIONS", "GROWTH", "GROWTH_NNZ", "MEMORY", "SIZE", "Case"]

SIZE = 8192
SEED = 20250
DENSITIES = (0.001, 0.01, 0.1)
GROWTH_NNZ = (100_000, 50_000_000)


@dataclass(frozen=True)
class Case:
    """One conversion of one matrix.

    Attributes
    ----------
    source, target : str
        Formats, or ``"dense"``.
    pattern : str
        ``"scattered"``: elements anywhere; ``"blocks"``: full blocks of `blocksize`.
    density : float
        Share of elements, or of blocks.
    blocksize : int
        Edge of the blocks of the source or target, 0 where neither has any.
    goal : str
        ``"1.15x + 50 us"``, ``"8x faster"`` or ``"never slower"``.
    """

    source: str
    target: str
    pattern: str
    density: float
    blocksize: int = 0
    goal: str = "1.15x + 50 us"

    @property
    def id(self) -> str:
        """Name of the row."""
        blocks = f"-{self.blocksize}" if self.blocksize else ""
        return f"V-cpu-{self.source}-{self.target}{blocks}-{self.pattern}-{self.density:g}"

    @property
    def workload(self) -> str:
        """The case in words."""
        edge = f"{self.source} -> {self.target}"
        blocks = f", blocks {self.blocksize}" if self.blocksize else ""
        return f"{edge}, float32 {SIZE}x{SIZE}, {self.pattern}, density {self.density:g}{blocks}"


_ELEMENTS = (
    *(("coo", "csr"), ("csr", "coo"), ("csr", "csc"), ("csc", "csr"), ("coo", "csc")),
    *(("csc", "coo"), ("coo", "dense"), ("csr", "dense"), ("csc", "dense")),
    *(("dense", "coo"), ("dense", "csr"), ("dense", "csc")),
)
_BLOCKS = (
    *(("csr", "bsr"), ("bsr", "csr"), ("coo", "bsr"), ("csc", "bsr"), ("bsr.T", "bsr")),
    ("bsr", "dense"),
)
_MORE_BLOCKS = (("csr", "bsr"), ("bsr", "csr"))


def _conversions() -> tuple[Case, ...]:
    found = []
    for density in DENSITIES:
        found += [Case(*edge, "scattered", density) for edge in _ELEMENTS]
        found += [Case(*edge, "scattered", density, 16) for edge in _BLOCKS]
        found += [Case(*edge, "scattered", density, b) for edge in _MORE_BLOCKS for b in (2, 4, 64)]
        found += [Case(*edge, "blocks", density, b) for edge in _BLOCKS for b in (16, 64)]
        for b in (16, 64):
            found.append(Case("dense", "bsr", "blocks", density, b, "8x faster"))
            found.append(Case("dense", "bsr", "scattered", density, b, "never slower"))
    return tuple(found)


CONVERSIONS = _conversions()

# Peak memory: everything above that is not trivially small in its temporaries.
MEMORY = tuple(case for case in CONVERSIONS if case.density == 0.01)

# Growth from 1e5 to 5e7 stored elements: full 16 x 16 blocks, a tenth of them, so that the matrix
# exists in every format at both sizes (scattered elements would need blocks of 20 GB).
GROWTH = tuple(
    Case(*edge, "blocks", 0.1, 16)
    for edge in (("coo", "csr"), ("csr", "coo"), ("csr", "csc"), ("csr", "bsr"), ("bsr", "csr"))
)
