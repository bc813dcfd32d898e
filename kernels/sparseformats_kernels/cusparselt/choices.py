"""Algorithms that were found to be the quickest: in memory, in the user's file, in tables we ship.

A row is about one device, one version of the library, one matrix's shape and types, and a bucket of
columns, since ids of algorithms mean nothing elsewhere. The user's file is
``cusparselt/algorithms.json`` in the folder that ``SPARSEFORMATS_CACHE`` names (by default
``~/.cache/sparseformats``); it is read once a process, and again when it is written after a search,
so that processes keep each other's rows, but for two that write at once. A file that cannot be read
is left alone, and a row whose algorithm no search would try is not used.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, final

from sparseformats.dispatch.places import user_directory
from sparseformats.errors import KernelLoadWarning
from sparseformats_kernels.cusparselt.plans import DEFAULT, Algorithm
from sparseformats_kernels.cusparselt.searching import Found, is_tried, trusted

__all__ = ["CHOICES", "FACTS", "SEARCH", "Choices", "searches", "user_file"]

SEARCH = "SPARSEFORMATS_CUSPARSELT_SEARCH"
"""Name of the variable in the environment that turns searches off where it is ``0``."""

FACTS = ("device", "version", "dtype", "gives", "m", "k", "n", "x_order", "y_order", "same_bits")
"""What a row is about, in the order of a key."""

_VERSION = 1
_Key = tuple[Any, ...]
_Rows = dict[_Key, dict[str, Any]]


def searches() -> bool:
    """Whether algorithms that nobody has measured yet are searched for."""
    return os.environ.get(SEARCH, "").strip() != "0"


def user_file() -> Path:
    """The user's own file; not made by asking."""
    return user_directory() / "cusparselt" / "algorithms.json"


@final
class Choices:
    """What was chosen by whom."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[_Key, tuple[Algorithm, str]] = {}
        self._is_read = False
        self._rows: _Rows | None = None  # of the user's file; None where it must be left alone

    def find(self, facts: Mapping[str, Any]) -> Algorithm | None:
        """The algorithm for a product of these facts, None where nobody has searched."""
        found = self._found(facts)
        return None if found is None else found[0]

    def source(self, facts: Mapping[str, Any]) -> str:
        """Where it comes from, for people."""
        found = self._found(facts)
        return "the library's own choice until a search" if found is None else found[1]

    def keep(self, facts: Mapping[str, Any], found: Found) -> None:
        """Remember the outcome of a search, in the user's file too where that can be written."""
        key = _key(facts)
        row = {"facts": dict(facts), "config": found.algorithm._asdict(), "us": round(found.us, 2)}
        if math.isfinite(found.default_us):
            row["default_us"] = round(found.default_us, 2)
        with self._lock:
            self._read()
            self._known[key] = found.algorithm, "searched in this process"
            mine, others = self._rows, _rows_of_user()
            if mine is not None and others is not None:
                self._rows = {**mine, **others, key: row}
                _write(user_file(), self._rows.values())

    def forget(self) -> None:
        """Forget what is in memory; files are read again."""
        with self._lock:
            self._known, self._rows, self._is_read = {}, None, False

    def _found(self, facts: Mapping[str, Any]) -> tuple[Algorithm, str] | None:
        with self._lock:
            self._read()
            return self._known.get(_key(facts))

    def _read(self) -> None:
        """Take in the tables that we ship, then the user's file, once."""
        if self._is_read:
            return
        for path in sorted((Path(__file__).parent / "tables").glob("*.json")):
            self._admit(_rows_of(path).values(), path.name)
        self._is_read = True
        self._rows = _rows_of_user(warn=True)
        self._admit((self._rows or {}).values(), str(user_file()))

    def _admit(self, rows: Iterable[dict[str, Any]], source: str) -> None:
        for row in rows:
            algorithm, facts = Algorithm(**row["config"]), row["facts"]
            known = algorithm == DEFAULT or trusted(facts["dtype"], facts["gives"]) > 0
            if known and is_tried(algorithm):
                self._known[_key(facts)] = algorithm, source


CHOICES = Choices()
"""Those of this process."""


def _key(facts: Mapping[str, Any]) -> _Key:
    return tuple(facts[name] for name in FACTS)


def _rows_of_user(*, warn: bool = False) -> _Rows | None:
    """Rows of the user's file; None where it must be left alone."""
    path = user_file()
    try:
        return _rows_of(path) if path.is_file() else {}
    except (OSError, ValueError) as error:
        if warn:
            message = f"a table of cuSPARSELt's algorithms is not used: {error}"
            warnings.warn(message, KernelLoadWarning, stacklevel=3)
        return None


def _rows_of(path: Path) -> _Rows:
    """Rows of a file, by what they are about.

    Raises
    ------
    ValueError
        It is no table of this version.
    OSError
        It cannot be read.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    found = document.get("version") if isinstance(document, dict) else None
    if found != _VERSION:
        raise ValueError(f"{path}: expected a table of version {_VERSION}, got version {found!r}")
    rows = document.get("rows")
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise ValueError(
            f"{path}: expected rows, each of facts ({', '.join(FACTS)}) and a config (id, split_k, "
            "mode)"
        )
    return {_key(row["facts"]): row for row in rows}


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    facts, config = row.get("facts"), row.get("config")
    if not isinstance(facts, dict) or not isinstance(config, dict):
        return False
    whole = all(isinstance(number, int) for number in config.values())
    plain = all(isinstance(fact, (str, int)) for fact in facts.values())
    known = set(config) == set(Algorithm._fields) and set(facts) == set(FACTS)
    return known and whole and plain


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write the user's file in one step; nobody reads half of it. What cannot be is let be."""
    text = json.dumps({"version": _VERSION, "rows": list(rows)}, indent=1)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
