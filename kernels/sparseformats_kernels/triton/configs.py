"""Launch parameters: what a kernel's tiles look like for a given call.

A table of measured parameters comes first (`tables/*.json`, written by a tuner), by the nearest
bucket of sizes among those measured for the same kind of call; else a rule decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import product
from math import log2
from pathlib import Path
from typing import Any

from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query

__all__ = ["BATCHED", "Config", "candidates", "choose", "facts_of", "gathered", "source"]
__all__ += ["rows", "specialised", "width_of", "with_config"]

SHARED = 227 * 1024  # bytes of shared memory of a multiprocessor of sm_90 that one program may have
RESERVED = 1024  # bytes for barriers and alignment
SMALL_SHARED = 96 * 1024  # what the gathering kernel may use on every architecture
FAR = 4.0  # powers of two in all sizes together beyond which a measured bucket says nothing

BATCHED = {"triton-tiles": 16, "triton-few": 8}
"""Columns of a piece from which on a batch is one launch; fewer leave most of a tile idle."""

_FORCED: dict[str, Config] = {}


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


def specialised(query: Query, processors: int) -> Config:
    """Parameters of the warp-specialised kernel.

    The wider a tile, the fewer times the values travel from the second cache; but there must be
    tiles for every processor, twice if possible, and rows of few blocks leave little to share.
    """
    r, c = _block(query)
    bm, bk = (next(size for size in (128, 64, r) if r % size == 0)), min(c, 64)
    rows = -(-query.m // bm)
    widest = {128: 256, 64: 512, 32: 512, 16: 1024}[bm]
    bn = min(widest, next((w for w in (64, 128, 256, 512) if query.n <= w), widest))
    while bn > 128 and rows * -(-query.n // bn) < _WAVES[bn, bm == 128] * processors:
        bn //= 2
    if bm >= 64 and bn > 128 and 0 < _row_length(query) <= _FEW * 64:
        bn = 256 if bm == 64 else 128
    return _shaped(bm, bn, bk)


# Tiles for each processor that a width should leave, of up to 64 rows and of 128.
_WAVES = {(256, False): 0.9, (256, True): 5.0, (512, False): 8.0, (1024, False): 6.0}
_FEW = 8  # columns of 64 in a row below which wide tiles do not pay


def _shaped(bm: int, bn: int, bk: int) -> Config:
    """Stages, warps and turns for tiles of a size."""
    groups = max(1, 32 // bk)
    if bm < 64:
        if bn >= 512:
            return Config(bm, bn, min(bk, 16384 // bn), 1, 10, warps=8, swap=True).fitted()
        return Config(bm, bn, bk, groups, 10, turns=2, warps=4, swap=True).fitted()
    if bn == 512:
        return Config(bm, bn, min(bk, 32), groups, 8, warps=8).fitted()
    if bn == 256 and bm == 128:
        return Config(bm, bn, bk, groups, 4, warps=8).fitted()
    pieces = 2 if bn == 256 else 1
    return Config(bm, bn, bk, groups, 8, turns=2, pieces=pieces, warps=4).fitted()


def _row_length(query: Query) -> float:
    """Stored columns of a mean block row; 0 where that is not known."""
    r, c = _block(query)
    return (query.nnzb or 0) * c / max(1, -(-query.m // r))


def shared(query: Query, processors: int) -> Config:
    """Parameters of the kernel whose block rows share what they read.

    Many columns of blocks a stage, since every stage is waited for once; block rows as the sums of
    each thread allow, fewer where that would leave processors without tiles.
    """
    r, c = _block(query)
    bn = next((w for w in (64, 128) if query.n <= w), 256)
    groups = 4 if r == 16 else 3
    rows = 2
    while rows > 1 and -(-query.m // (groups * rows * r)) * -(-query.n // bn) < 2 * processors:
        rows //= 2
    return Config(groups * rows * r, bn, c, max(1, 64 // c), 16, turns=groups, swap=True)


def gathered(query: Query, processors: int) -> Config:
    """Parameters of the gathering kernel."""
    r, _ = _block(query)
    if query.a_dtype in ("int8", "float8_e4m3fn"):
        return _narrow(query, r)
    half = query.a_dtype in ("float16", "bfloat16")
    bm = next((size for size in (16, 32, 64) if r <= size), 128 if half and r > 64 else 64)
    bn = 32 if query.n <= 32 else 64 if query.n <= 64 else 128
    if half and query.n > 128 and bm < 128:
        bn = 256 if bm < 64 else 128
    if half:
        return Config(bm, bn, 32, stages=4, warps=8 if bm * bn > 16384 else 4, swap=bm < 64)
    return Config(bm, min(bn, 64), 16 if query.precision is None else 32, stages=3, warps=4)


def _narrow(query: Query, r: int) -> Config:
    """Tiles of values of 8 bits, of which an instruction takes 32 columns at a time.

    Long tiles, so that sums of fp8 come to float32 seldom, where rows are long enough to fill them.
    """
    bm = next((size for size in (16, 32, 64) if r <= size), 128)
    bn = next((w for w in (32, 64) if query.n <= w), 128)
    bk = 128 if _row_length(query) >= 1024 else 64
    stages = min(4, SMALL_SHARED // ((bm + bn) * bk))
    return Config(bm, bn, bk, stages=stages, warps=8 if bm * bn > 8192 else 4, swap=bm < 64)


def few(query: Query, processors: int) -> Config:
    """Parameters of the kernel for a few columns.

    Rows of high blocks are made 64 or 32 at a time where that leaves more than a program for every
    processor and the operand's rows, which each program reads, are not too short to matter. Else
    one warp makes 16 rows where that gives every processor several; else a warp for each slice of
    a row of blocks, so that enough is on the way to keep memory busy. A long row is over soon only
    if the blocks of several steps are on their way at once.
    """
    r = (query.blocksize or (1, 1))[query.transposed]
    bn = next((w for w in (8, 16, 32) if query.n <= w), 64)
    columns, wide = -(-max(query.n, 1) // bn), query.a_dtype == "float32"
    bk = 32 if wide else 64
    if bn > 8 and not wide and -(-query.m // 64) * columns >= 1.5 * processors:
        if r % 64 == 0:
            return Config(64, bn, bk, 1, 6, warps=4)
        if r % 32 == 0 and bn > 16:
            return Config(32, bn, bk, 1, 5, warps=2)
    programs = -(-query.m // 16) * columns
    slices = 1 if programs >= 4 * processors else 2 if programs >= 2 * processors else 4
    return Config(16, bn, bk, slices, 4 if slices == 1 else 3, warps=slices)


def rows(query: Query, processors: int) -> Config:
    """Parameters of the kernel for elements by rows: BK elements of BM rows at a time.

    One warp holds two rows, which keeps its loads together; wide results of short rows leave it
    nothing to do for long, so there four warps share a tile. Rows of few elements leave room for
    more rows. The shapes are those that were the quickest for 16 and 164 elements a row.
    """
    size = itemsize(query.a_dtype or "float32")
    bn, mean = min(width_of(query.n), 512 // size), (query.nnz or 0) / max(1, query.m)
    if bn < 16 or size == 8:
        return _narrow_rows(bn, mean, size)
    many = mean >= 64
    if bn == 16:
        bm, bk, warps = (2, 16, 1) if many else (4, 8, 2)
    elif many:
        bm, bn, bk, warps = (2, min(bn, 64), 8, 1) if size < 4 else (4, 32, 16, 2)
    elif bn < 128:
        bm, bk, warps = 2, 8, 1
    elif size < 4:
        bm, bn, bk, warps = (4, 256, 4, 4) if query.n >= 256 else (2, 128, 4, 1)
    else:
        bm, bk, warps = 4, 4, 4
    while bk > 4 and bk >= 2 * mean:
        bm, bk = 2 * bm, bk // 2
    return Config(bm, bn, bk, stages=1, warps=warps)


def _narrow_rows(bn: int, mean: float, size: int) -> Config:
    """The same for few columns and for float64, where a thread holds up to 32 sums.

    With fewer elements at a time than threads, each thread reads the indices that it needs itself;
    more have to be exchanged at every step, which pays only where an element has no two threads.
    """
    bn = min(bn, 64)
    elements = 512 if bn < 4 else 128 if bn <= 16 // size else 64
    elements = min((2048 if size == 8 else 4096) // bn, elements)
    most, bk = 8 if bn >= 64 else 16 if bn >= 8 else 32, 4
    while bk < most and 2 * bk < mean:
        bk *= 2
    return Config(elements // bk, bn, bk, stages=1)


def width_of(n: int) -> int:
    """Columns of a tile that n columns are made in, of up to 128."""
    return min(128, 1 << (max(n, 1) - 1).bit_length())


def grouped(query: Query, processors: int) -> Config:
    """Parameters of the kernel for 2:4 matrices and few columns; its warps divide the columns.

    Every tile of rows reads the operand again, so 64 of them at a time where that leaves more than
    a program for every processor, two of which fit side by side; else 16, of which several do.
    """
    bn = next((w for w in (8, 16, 32) if query.n <= w), 64)
    columns, tiles = -(-max(1, query.n) // bn), max(1, -(-query.k // 64))
    enough = 0.9 * processors
    bm = 64 if -(-query.m // 64) * columns >= 1.5 * processors else 16
    programs = -(-query.m // bm) * columns
    warps = 4 if bm == 64 and bn > 16 else 8
    while warps > 1 and warps > tiles:
        warps //= 2
    parts = 1
    while programs * parts < enough and tiles >= 4 * warps * parts:
        parts *= 2
    return Config(bm, bn, 64, parts, 2 if bm == 64 and warps == 8 else 4, warps=warps)


RULES = {
    "triton-blocks": specialised,
    "triton-shared": shared,
    "triton-tiles": gathered,
    "triton-few": few,
    "triton-nm": grouped,
    "triton-csr": rows,
}


def facts_of(query: Query) -> dict[str, Any]:
    """What tells kinds of calls apart in a table of launch parameters."""
    columns = query.x_layout == "F" or query.n == 1
    return {
        "blocksize": None if query.blocksize is None else list(_block(query)),
        "dtype": query.a_dtype,
        "precision": query.precision,
        "x_columns": columns,
        "capability": None if query.capability is None else list(query.capability),
    }


def sizes_of(query: Query) -> dict[str, int]:
    """The sizes by which the nearest bucket is found."""
    return {"m": query.m, "k": query.k, "n": query.n, "density": 1 << (query.density or 0)}


def choose(kernel: str, query: Query, processors: int) -> Config:
    """Parameters of a kernel for a call: forced, measured, or by the rule."""
    forced = _FORCED.get(kernel)
    if forced is not None:
        return forced
    measured = _nearest(kernel, query)
    return RULES[kernel](query, processors) if measured is None else measured


def source(kernel: str, query: Query) -> str:
    """Where a call's launch parameters come from, for people."""
    found = _FORCED.get(kernel) or _nearest(kernel, query)
    return f"launch parameters: {'rule' if found is None else found.source}"


def _nearest(kernel: str, query: Query) -> Config | None:
    facts, sizes = facts_of(query), sizes_of(query)
    best: tuple[float, Mapping[str, Any]] | None = None
    for row in _rows():
        if row["kernel"] != kernel or row["facts"] != facts:
            continue
        far = sum(abs(log2(max(size, 1) / max(row["sizes"][k], 1))) for k, size in sizes.items())
        if far <= FAR and (best is None or far < best[0]):
            best = far, row
    if best is None:
        return None
    where = ", ".join(f"{name} {size}" for name, size in best[1]["sizes"].items())
    return Config(**best[1]["config"], source=f"{best[1]['table']}: {where}")


@lru_cache(maxsize=1)
def _rows() -> tuple[Mapping[str, Any], ...]:
    """Rows of all tables beside this file."""
    rows: list[Mapping[str, Any]] = []
    for path in sorted((Path(__file__).parent / "tables").glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        rows += [{**row, "table": path.name} for row in document["rows"]]
    return tuple(rows)


def candidates(kernel: str, query: Query, processors: int) -> list[Config]:
    """Parameters worth measuring for a call, the rule's first."""
    first = RULES[kernel](query, processors)
    if kernel == "triton-shared":
        return [first]
    if kernel == "triton-nm":
        return list(dict.fromkeys([first, *_grouped(first)]))
    if kernel == "triton-csr":
        return list(dict.fromkeys([first, *_rowwise(first, query)]))
    if kernel == "triton-tiles":
        widths = [bn for bn in (32, 64, 128, 256) if bn <= max(64, 2 * query.n)]
        made = [replace(first, BN=bn, warps=w, stages=s) for bn in widths for w, s in _DEPTHS]
        return list(dict.fromkeys([first, *(c for c in made if _registers(c) <= 128)]))
    if kernel == "triton-few":
        made = [
            replace(first, BK=bk, G=slices, warps=slices, stages=stages)
            for bk in (32, 64, 128)
            for slices in (2, 4, 8, 16)
            for stages in (1, 2, 3)
            if slices * (16 + first.BN) * bk * 2 * stages <= SMALL_SHARED
        ]
        return list(dict.fromkeys([first, *made]))
    found = [first]
    for bn in (64, 128, 256, 512):
        for turns, pieces, warps in _SHAPES if bn <= max(64, 2 * query.n) else ():
            for bk, groups in {(first.BK, first.G), (first.BK, 1), (min(first.BK, 32), 1)}:
                parts = replace(first, BN=bn, BK=bk, G=groups, stages=12)
                made_of = replace(parts, turns=turns, pieces=pieces, warps=warps)
                found += [made_of.fitted()] if _is_possible(made_of) else []
    return list(dict.fromkeys(found))


def _grouped(first: Config) -> Iterator[Config]:
    """Heights, warps, stages and parts whose copies fit into shared memory."""
    for bm, warps, bk, stages, parts in product(
        (16, 32, 64), (4, 8, 16), (64, 128), (3, 4, 6, 8), (1, 2, 4)
    ):
        made = replace(first, BM=bm, BK=bk, G=parts, stages=stages, warps=warps)
        used = stages * warps * (bm // 16) * (bk // 64) * 1152  # bytes of tiles under way
        if 32 * 1024 <= used <= SHARED - RESERVED and bm * first.BN // 128 * warps <= 256:
            yield made


def _rowwise(first: Config, query: Query) -> Iterator[Config]:
    """Widths, elements at a time and rows whose sums fit into registers."""
    widths, most = (first.BN, first.BN // 2, 2 * first.BN), 32
    if query.a_dtype == "float64":
        most = 16  # of two registers each
    for bn, bk, bm, warps in product(widths, (4, 8, 16, 32), (1, 2, 4, 8), (1, 4)):
        made = replace(first, BM=bm, BN=bn, BK=bk, warps=warps)
        if bn and bn <= 256 and (bn <= query.n or bn == first.BN) and 8 <= _lanes(made) <= most:
            yield made


def _lanes(config: Config) -> int:
    """Sums of each thread of the kernel for elements by rows."""
    return _registers(config) * config.BK


_DEPTHS = ((4, 3), (4, 4), (8, 3))  # warps and stages
_SHAPES = ((1, 1, 4), (2, 1, 4), (2, 2, 4), (1, 2, 8), (1, 1, 8))  # turns, pieces, warps


def _registers(config: Config) -> int:
    """Of each thread, for the sums alone."""
    return config.BM * config.BN // (config.warps * 32)


def _is_possible(config: Config) -> bool:
    """Whether the warp-specialised kernel has room for these parameters."""
    if config.pieces == 2 and (config.swap or config.warps * 16 > config.BM):
        return False  # a half of a tile must lie within each warp
    long = config.BN if config.swap else config.BM
    if long < 64 or (config.swap and long < 16 * config.warps):
        return False
    room = config.fitted()
    used = room.turns * room.BM * room.BN // room.pieces * 2
    used += room.stages * room.G * (room.BM + room.BN) * room.BK * 2
    return used <= SHARED - RESERVED and 8 <= _registers(config) <= 128


@contextmanager
def with_config(kernel: str, config: Config | Mapping[str, Any]) -> Iterator[Config]:
    """Use these parameters for every call that is prepared within a ``with`` block."""
    made = config if isinstance(config, Config) else _made(config)
    before = _FORCED.get(kernel)
    _FORCED[kernel] = replace(made, source="forced")
    try:
        yield _FORCED[kernel]
    finally:
        _FORCED.pop(kernel)
        if before is not None:
            _FORCED[kernel] = before


def _made(config: Mapping[str, Any]) -> Config:
    unknown = sorted(set(config) - {f.name for f in fields(Config)})
    if unknown:
        raise ValueError(f"unknown launch parameters {', '.join(unknown)}")
    return Config(**config)


def as_row(config: Config) -> dict[str, Any]:
    """A configuration as a table keeps it."""
    return {name: value for name, value in asdict(config).items() if name != "source"}


def _block(query: Query) -> tuple[int, int]:
    """Block of the matrix that is multiplied."""
    if query.blocksize is None:
        raise ValueError("a block kernel's query must name the block size")
    r, c = query.blocksize
    return (c, r) if query.transposed else (r, c)
