"""Tables of measured times in files: JSON with provenance, written by a tuner.

One file holds rows of one machine::

    {"version": 1,
     "provenance": {"device": "NVIDIA H200", "versions": {…}, "commit": "…", "date": "…",
                    "repetitions": 7, "spread": 0.04},
     "rows": [{"facts": {"op": "matmul", "format": "bsr", "blocksize": [64, 64], "m": 8192,
                         "k": 8192, "n": 512, "density": 3, "a_dtype": "bfloat16",
                         "device": "cuda", "capability": [9, 0]},
               "times_us": {"triton-blocks": 120.0, "cusparse-bsr": 510.0}}]}

`facts` are attributes of a `Query`. A row is about the device that it names: without a name that is
the CPU, and one about a CUDA device names its compute capability too.

**Sizes** are m, k, n, nnz, nnzb, nbytes and density; every other fact of a row must be equal to the
query's. Sizes agree when they fall into the same power of two (density buckets: when equal). Of the
rows that agree the one with the most facts counts, then the nearest, then the earlier one. Where
none agrees, the nearest row counts whose sizes are all within a factor of `REACH` of the query's,
in the sum of the logarithms; beyond that nothing was measured, and the cost model decides.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sparseformats.dispatch.places import shipped_tables, user_directory
from sparseformats.dispatch.query import Query, size_bucket
from sparseformats.dispatch.tuning import Measured
from sparseformats.errors import KernelLoadWarning

__all__ = ["PROVENANCE", "REACH", "SIZES", "MeasuredTable", "Row", "installed_tables", "read_table"]

VERSION = 1
PROVENANCE = ("device", "versions", "commit", "date", "repetitions", "spread")
SIZES = ("m", "k", "n", "nnz", "nnzb", "nbytes", "density")
"""Facts of which a near one will do."""
REACH = 4
"""How many times larger or smaller each size of a nearby row may be."""


class Row(NamedTuple):
    """Times of one kind of call, and where they were measured.

    Attributes
    ----------
    facts : dict
        By attribute of `Query`.
    times : dict of str to float
        Microseconds by kernel name.
    file, device : str
        Name of the file, and of the device as its provenance has it; empty where unknown.
    """

    facts: dict[str, Any]
    times: dict[str, float]
    file: str = ""
    device: str = ""


class _Near(NamedTuple):
    """How far a row is from a query: the best one is the smallest."""

    rank: int  # 0: all sizes agree
    fewer: int  # minus the number of facts, where all agree
    octaves: float
    order: int


class MeasuredTable:
    """Rows of one or more files; what `tuning.install` takes.

    Parameters
    ----------
    rows : sequence of Row, or of (facts, times)
    """

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = tuple(Row(*row) for row in rows)
        self._by_op: dict[Any, list[tuple[int, Row]]] = {}
        for order, row in enumerate(self.rows):
            self._by_op.setdefault(row.facts.get("op"), []).append((order, row))

    def __len__(self) -> int:
        return len(self.rows)

    def lookup(self, query: Query) -> Mapping[str, float] | None:
        """Measured microseconds by kernel name for calls like this one, or None."""
        found = self.find(query)
        return None if found is None else found.times

    def find(self, query: Query) -> Measured | None:
        """Do as `lookup`, and tell which row it was."""
        best: tuple[_Near, Row] | None = None
        for order, row in (*self._by_op.get(query.op, ()), *self._by_op.get(None, ())):
            near = _nearness(row, query, order)
            if near is not None and (best is None or near < best[0]):
                best = near, row
        return None if best is None else _measured(best[1], query)


def _nearness(row: Row, query: Query, order: int) -> _Near | None:
    """How near a row is; None where another fact differs or a size is out of reach."""
    octaves, agree = 0.0, True
    for name, fact in row.facts.items():
        found = getattr(query, name)
        if name not in SIZES or fact is None or found is None:
            if fact != found:
                return None
            continue
        away = _octaves(name, fact, found)
        if away > math.log2(REACH):
            return None
        octaves += away
        agree = agree and _agree(name, fact, found)
    return _Near(not agree, -len(row.facts) if agree else 0, octaves, order)


def _octaves(name: str, a: int, b: int) -> float:
    """Doublings between two sizes; a density is the number of its halvings already."""
    if name == "density" or a == b:
        return float(abs(a - b))
    return abs(math.log2(a / b)) if min(a, b) > 0 else math.inf


def _agree(name: str, a: int, b: int) -> bool:
    return a == b if name == "density" else size_bucket(a) == size_bucket(b)


def _measured(row: Row, query: Query) -> Measured:
    others = [
        f"{name} {fact} for {getattr(query, name)}"
        for name, fact in row.facts.items()
        if name in SIZES and fact is not None and not _agree(name, fact, getattr(query, name))
    ]
    parts = [part for part in (row.file, row.device) if part]
    if others:
        parts.append(f"nearest bucket: {', '.join(others)}")
    source = f"measured table ({', '.join(parts)})" if parts else "measured table"
    return Measured(row.times, source, bool(others))


def read_table(path: Path) -> MeasuredTable:
    """Read one file.

    Raises
    ------
    ValueError
        It is no table of this version; the text names the file and what is wrong.
    OSError
        It cannot be read.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    found = document.get("version") if isinstance(document, dict) else None
    if found != VERSION:
        raise ValueError(f"{path}: expected a table of version {VERSION}, got version {found!r}")
    given = document.get("provenance")
    missing = [name for name in PROVENANCE if not isinstance(given, dict) or name not in given]
    if missing:
        raise ValueError(f"{path}: the provenance lacks {', '.join(missing)}")
    rows = document.get("rows")
    if not isinstance(rows, list):
        raise ValueError(f"{path}: rows must be a list, got {type(rows).__name__}")
    device = str(given["device"])
    return MeasuredTable([_row(path, device, number, row) for number, row in enumerate(rows)])


def _row(path: Path, device: str, number: int, row: Any) -> Row:
    place = f"{path}: rows[{number}]"
    facts = row.get("facts") if isinstance(row, dict) else None
    times = row.get("times_us") if isinstance(row, dict) else None
    if not isinstance(facts, dict) or "op" not in facts or not isinstance(times, dict):
        raise ValueError(f"{place}: expected an object of facts, with an op, and times_us")
    unknown = sorted(set(facts) - set(Query.__slots__))
    if unknown:
        raise ValueError(f"{place}: unknown facts {', '.join(unknown)}")
    for kernel, time in times.items():
        if isinstance(time, bool) or not isinstance(time, int | float) or not _is_time(time):
            raise ValueError(f"{place}: {kernel} needs positive microseconds, got {time!r}")
    made = {name: tuple(x) if isinstance(x, list) else x for name, x in facts.items()}
    _check_facts(place, made)
    found = {kernel: float(time) for kernel, time in times.items()}
    return Row(made, found, path.name, device)


def _check_facts(place: str, facts: dict[str, Any]) -> None:
    """Name the device where a row leaves it out; refuse one that would fit any CUDA device."""
    device = facts.setdefault("device", "cpu")
    if (device == "cuda") != (facts.get("capability") is not None):
        raise ValueError(
            f"{place}: expected device 'cuda' with its capability such as [9, 0], or neither, got "
            f"device {device!r} and capability {facts.get('capability')!r}"
        )
    for name in SIZES:
        size = facts.get(name)
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
            raise ValueError(f"{place}: {name} must be a whole number >= 0, got {size!r}")


def _is_time(time: float) -> bool:
    return math.isfinite(time) and time > 0


def installed_tables() -> MeasuredTable | None:
    """The user's own tables, then those that come with the library; None where there are none.

    A file that is no table is left out with one warning.
    """
    rows: list[Row] = []
    for folder in (user_directory() / "tables", shipped_tables()):
        for path in _tables_in(folder):
            try:
                rows += read_table(path).rows
            except (ValueError, OSError) as error:
                message = f"a table of measured times is not used: {error}"
                warnings.warn(message, KernelLoadWarning, stacklevel=2)
    return MeasuredTable(rows) if rows else None


def _tables_in(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.json")) if folder.is_dir() else []
    except OSError:  # a folder above it may not be looked into
        return []
