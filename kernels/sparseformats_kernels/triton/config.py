"""Launch parameters of one kernel, and what bounds them."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["RESERVED", "SHARED", "SMALL_SHARED", "Config"]

SHARED = 227 * 1024  # bytes of shared memory of a multiprocessor of sm_90 that one program may have
RESERVED = 1024  # bytes for barriers and alignment
SMALL_SHARED = 96 * 1024  # what the gathering kernel may use on every architecture


@dataclass(frozen=True)
class Config:
    """Launch parameters of one kernel.

    Attributes
    ----------
    BM, BN, BK : int
        Rows and columns of a tile of the result, and the columns of a block multiplied at a time.
    G : int
        Blocks of a stage; slices of a row that are multiplied side by side where there are few
        columns; of n:m matrices, parts of the columns that are summed apart.
    stages : int
        Depth of the pipeline of loads.
    turns : int
        Groups of warps that make tiles in turn.
    pieces : int
        Parts in which a tile is written.
    warps : int
        Of each group.
    swap : bool
        Tiles are computed transposed.
    source : str
        Where it comes from: ``"rule"``, ``"forced"``, or a table and its bucket.
    """

    BM: int
    BN: int
    BK: int
    G: int = 1
    stages: int = 4
    turns: int = 1
    pieces: int = 1
    warps: int = 4
    swap: bool = False
    source: str = "rule"

    def fitted(self, itemsize: int = 2, limit: int = SHARED - RESERVED) -> Config:
        """The same with no more stages than shared memory holds."""
        written = self.turns * self.BM * self.BN // self.pieces * itemsize
        stage = self.G * (self.BM + self.BN) * self.BK * itemsize
        return replace(self, stages=max(2, min(self.stages, (limit - written) // stage)))
