"""What is remembered beside a matrix for as long as it lives."""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from weakref import ReferenceType, ref

__all__ = ["ByMatrix"]

V = TypeVar("V")


class ByMatrix(Generic[V]):
    """Small facts by matrix and key. Matrices are told apart by identity, as they refuse ``==``.

    Parameters
    ----------
    most : int
        Keys that are kept of a matrix; one more, and those before are forgotten.
    """

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int) -> None:
        self._kept: dict[int, tuple[ReferenceType[Any], dict[Any, V]]] = {}
        self._most = most

    def get(self, matrix: object, key: Any) -> V | None:
        """What was put there, None where nothing was."""
        found = self._kept.get(id(matrix))
        return found[1].get(key) if found is not None and found[0]() is matrix else None

    def put(self, matrix: object, key: Any, value: V) -> V:
        """Keep a value that does not refer to the matrix itself; returns it."""
        kept, number = self._kept, id(matrix)
        found = kept.get(number)
        if found is None or found[0]() is not matrix:

            def forget(gone: ReferenceType[Any]) -> None:
                if number in kept and kept[number][0] is gone:
                    del kept[number]

            found = kept[number] = (ref(matrix, forget), {})
        values = found[1]
        if len(values) >= self._most:
            values.clear()
        values[key] = value
        return value

    def __len__(self) -> int:
        return len(self._kept)
