"""Tables of measured times in files: JSON with provenance, written by a tuner.

One file holds rows of one machine::

    {"version": 1,
     "provenance": {"device": "…", "versions": {…}, "commit": "…", "date": "…",
                    "repetitions": 7, "spread": 0.04},
     "rows": [{"facts": {"op": "matmul", "format": "bsr", "blocksize": [16, 16], "n": 64},
               "times_us": {"numpy-blocks": 120.0, "scipy-bsr": 510.0}}]}

`facts` are attributes of a `Query`. Sizes (m, k, n, nnz, nbytes) agree when they fall into the same
power of two; every other fact agrees when it is equal. Of the rows that agree the one with the
most facts counts, then the earlier one.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparseformats.dispatch.places import shipped_tables, user_directory
from sparseformats.dispatch.query import Query, size_bucket
from sparseformats.errors import KernelLoadWarning

__all__ = ["PROVENANCE", "MeasuredTable", "installed_tables", "read_table"]

VERSION = 1
PROVENANCE = ("device", "versions", "commit", "date", "repetitions", "spread")
_SIZES = ("m", "k", "n", "nnz", "nbytes")


class MeasuredTable:
    """Rows of one or more files; what `tuning.install` takes.

    Parameters
    ----------
    rows : sequence of (facts, times)
        Facts by attribute of `Query`, and microseconds by kernel name.
    """

    def __init__(self, rows: list[tuple[dict[str, Any], dict[str, float]]]) -> None:
        # Stable: among rows of as many facts the earlier one stays first.
        self._rows = sorted(rows, key=lambda row: -len(row[0]))

    def __len__(self) -> int:
        return len(self._rows)

    def lookup(self, query: Query) -> Mapping[str, float] | None:
        """Measured microseconds by kernel name for calls like this one, or None."""
        for facts, times in self._rows:
            if all(_agrees(name, fact, getattr(query, name)) for name, fact in facts.items()):
                return times
        return None


def _agrees(name: str, fact: Any, found: Any) -> bool:
    if name in _SIZES and isinstance(fact, int) and isinstance(found, int):
        return size_bucket(fact) == size_bucket(found)
    return bool(fact == found)


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
    except ValueError as error:
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
    return MeasuredTable([_row(path, number, row) for number, row in enumerate(rows)])


def _row(path: Path, number: int, row: Any) -> tuple[dict[str, Any], dict[str, float]]:
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
    return made, {kernel: float(time) for kernel, time in times.items()}


def _is_time(time: float) -> bool:
    return math.isfinite(time) and time > 0


def installed_tables() -> MeasuredTable | None:
    """The user's own tables, then those that come with the library; None where there are none.

    A file that is no table is left out with one warning.
    """
    rows: list[tuple[dict[str, Any], dict[str, float]]] = []
    for folder in (user_directory() / "tables", shipped_tables()):
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            try:
                rows += read_table(path)._rows
            except (ValueError, OSError) as error:
                message = f"a table of measured times is not used: {error}"
                warnings.warn(message, KernelLoadWarning, stacklevel=2)
    return MeasuredTable(rows) if rows else None
