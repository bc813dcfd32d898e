"""Launch parameters: what a kernel's tiles look like for a given call.

A table of measured parameters comes first (`tables/*.json`, written by a tuner), by the nearest
bucket of sizes among those measured for the same kind of call; else a rule decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import lru_cache
from itertools import product
from math import log2
from pathlib import Path
from typing import Any

from sparseformats.dispatch.query import Query
from sparseformats_kernels.triton.config import RESERVED, SHARED, SMALL_SHARED, Config
from sparseformats_kernels.triton.rules import (
    RULES,
    block_of,
    few,
    gathered,
    grouped,
    rows,
    shared,
    specialised,
    width_of,
)

__all__ = ["BATCHED", "RESERVED", "RULES", "SHARED", "Config", "candidates", "choose", "facts_of"]
__all__ += ["few", "gathered", "grouped", "rows", "shared", "source", "specialised", "width_of"]
__all__ += ["with_config"]

FAR = 4.0  # powers of two in all sizes together beyond which a measured bucket says nothing

BATCHED = {"triton-tiles": 16, "triton-few": 8}
"""Columns of a piece from which on a batch is one launch; fewer leave most of a tile idle."""

_FORCED: dict[str, Config] = {}


def facts_of(query: Query) -> dict[str, Any]:
    """What tells kinds of calls apart in a table of launch parameters."""
    columns = query.x_layout == "F" or query.n == 1
    return {
        "blocksize": None if query.blocksize is None else list(block_of(query)),
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
