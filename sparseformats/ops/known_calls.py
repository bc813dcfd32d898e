"""Calls that were understood before: what was decided for operands of the same facts."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparseformats import _arrays
from sparseformats.dispatch import REGISTRY, Query, Selection, forcing
from sparseformats.formats import SparseMatrix
from sparseformats.formats.by_matrix import ByMatrix

__all__ = ["Decided", "find", "keep", "key_of"]

MOST = 32  # calls that are remembered of a matrix

Key = tuple[Any, ...]


class Decided(NamedTuple):
    """What a call comes to.

    Attributes
    ----------
    query : Query
    selection : Selection
        The kernel that was chosen.
    dtype : str
        Of the result.
    """

    query: Query
    selection: Selection
    dtype: str


_KNOWN: ByMatrix[Decided] = ByMatrix(MOST)


def key_of(A: Any, operands: tuple[Any, ...], *options: Any) -> Key | None:
    """What tells calls on a matrix apart; None where not all facts of the operands are known."""
    if not isinstance(A, SparseMatrix):
        return None
    found: list[Any] = []
    for x in operands:
        lib = _arrays.known(x)
        facts = None if lib is None else lib.facts(x)
        if facts is None:
            return None
        found.append(facts)
    return (*found, *options, forcing.state(), REGISTRY.generation)


def find(A: Any, key: Key | None) -> Decided | None:
    """What was decided for a call like this one."""
    return None if key is None else _KNOWN.get(A, key)


def keep(A: SparseMatrix, key: Key | None, decided: Decided) -> None:
    """Remember a decision for as long as the matrix lives."""
    if key is not None:
        _KNOWN.put(A, key, decided)
