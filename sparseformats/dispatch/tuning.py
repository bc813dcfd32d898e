"""Measured times of kernels: the seam through which selection reads tuned tables.

A table knows measured microseconds by kernel for calls like the query. Where it knows any of the
eligible kernels, the fastest of those is chosen; else the cost model decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from sparseformats.dispatch.query import Query
from sparseformats.dispatch.registry import REGISTRY

__all__ = ["FILES", "Timings", "install", "measured", "temporary"]


class Timings(Protocol):
    """A table of measured times."""

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


def measured(query: Query) -> Mapping[str, float]:
    """Return measured microseconds by kernel name; empty where nothing was measured."""
    return (_table.lookup(query) if _table is not None else None) or {}
