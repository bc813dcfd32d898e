"""Measured times of kernels: the seam through which selection reads tuned tables.

A table knows measured microseconds by kernel for calls like the query. Where it knows any of the
eligible kernels, the fastest of those is chosen; else the cost model decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from sparseformats.dispatch.query import Query
from sparseformats.dispatch.registry import REGISTRY

__all__ = ["FILES", "Measured", "Timings", "find", "install", "measured", "temporary"]

TABLE = "measured table"


class Measured(NamedTuple):
    """What a table knows about calls like a query.

    Attributes
    ----------
    times : mapping of str to float
        Measured microseconds by kernel name.
    source : str
        Where they come from, for explanations; begins with ``"measured table"``.
    rough : bool
        They are those of other sizes nearby: good for a choice, not as times of this call.
    """

    times: Mapping[str, float]
    source: str = TABLE
    rough: bool = False


class Timings(Protocol):
    """A table of measured times.

    One that has ``find(query) -> Measured | None`` too is asked by that, and explanations show the
    source that it names.
    """

    def lookup(self, query: Query) -> Mapping[str, float] | None:
        """Return measured microseconds by kernel name for calls like this one, or None."""
        ...


class _Unread:
    """Stands for the tables in files until somebody asks."""

    def lookup(self, query: Query) -> Mapping[str, float] | None:
        from sparseformats.dispatch.measurements import installed_tables

        global _table  # noqa: PLW0603 - read once a process
        found = installed_tables()
        if _table is self:
            _table = found
        return None if found is None else found.lookup(query)

    def find(self, query: Query) -> Measured | None:
        self.lookup(query)  # puts the tables in this one's place, where there are any
        return None if _table is self or _table is None else find(query)


FILES: Final = _Unread()
"""The tables in files: those of the user, and those that come with the library."""

_table: Timings | None = FILES


def install(table: Timings | None) -> None:
    """Use this table from now on; None for no table, `FILES` for those in files."""
    global _table  # noqa: PLW0603 - one table a process, as one registry
    _table = table
    REGISTRY.bump()


@contextmanager
def temporary(table: Timings | None) -> Iterator[None]:
    """Use this table within a ``with`` block, for tests and the tuner."""
    before = _table
    install(table)
    try:
        yield
    finally:
        install(before)


def find(query: Query) -> Measured:
    """Return what was measured for calls like this one, and where; no times if nothing was."""
    table = _table
    richer = getattr(table, "find", None)
    if richer is not None:
        return richer(query) or Measured({})
    return Measured((table.lookup(query) if table is not None else None) or {})


def measured(query: Query) -> Mapping[str, float]:
    """Return measured microseconds by kernel name; empty where nothing was measured."""
    return find(query).times
