"""Reading the buffers of every format by plain loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from sparseformats import _arrays

__all__ = ["Content", "Host", "Slots", "content", "dense", "entries", "same_content", "slots"]

Host = np.ndarray[Any, np.dtype[Any]]
Bits = Mapping[tuple[int, int], bytes]


class Content(NamedTuple):
    """What a matrix says, whatever its format.

    Attributes
    ----------
    shape : tuple of int
        Logical shape (m, k).
    dtype : str
        Name of the value type.
    elements : mapping of (i, j) to bytes
        Value bits of every stored element, zeros included.
    """

    shape: tuple[int, int]
    dtype: str
    elements: Bits


@dataclass(frozen=True, eq=False)
class Slots:
    """Places of a matrix that meet a dense operand, as parallel arrays.

    Attributes
    ----------
    shape : tuple of int
        Logical shape (m, k).
    row, col : (s,) int64
        Logical position of each slot.
    values : (s,)
        Value in each slot.
    stored : (s,) bool
        Whether the slot holds a stored element; else it is fill of a stored block.
    grouped : bool
        Whether the matrix is n:m, where zeros may or may not meet a non-finite operand.
    """

    shape: tuple[int, int]
    row: Host
    col: Host
    values: Host
    stored: Host
    grouped: bool = False

    def transposed(self) -> Slots:
        """Slots of the transposed matrix."""
        return Slots(self.shape[::-1], self.col, self.row, self.values, self.stored, self.grouped)


def slots(A: Any) -> Slots:
    """Decode the buffers of `A`, of any format and library, by loops.

    Parameters
    ----------
    A : SparseMatrix
        A valid matrix.
    """
    return _DECODERS[A.family](A)


def entries(A: Any) -> dict[tuple[int, int], Host]:
    """Map positions to stored values, as 0-d arrays: they keep the bits of every value."""
    s = slots(A)
    found: dict[tuple[int, int], Host] = {}
    for at in range(s.row.size):
        if s.stored[at]:
            place = (int(s.row[at]), int(s.col[at]))
            if place in found:
                raise ValueError(f"{A.format} matrix stores element {place} twice")
            found[place] = s.values[at : at + 1].reshape(())
    return found


def content(A: Any) -> Content:
    """Logical shape, value type and stored bits of `A`."""
    bits = {place: value.tobytes() for place, value in entries(A).items()}
    return Content(tuple(A.shape), A.dtype_name, MappingProxyType(bits))


def same_content(A: Any, B: Any) -> bool:
    """Whether two matrices, of any formats and libraries, have the same content bit for bit."""
    return content(A) == content(B)


def dense(A: Any) -> Host:
    """Dense NumPy array (m, k) of the stored elements of `A`, +0.0 elsewhere."""
    D = np.zeros(A.shape, host_dtype(A.dtype_name))
    for place, value in entries(A).items():
        D[place] = value
    return D


def host(A: Any, array: Any) -> Host:
    """Bring an array of A's library to the host, as NumPy."""
    found: Host = A.lib.to_numpy(array)
    return found


def host_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of this name."""
    found: np.dtype[Any] = _arrays.library("numpy").dtype(name)
    return found


def is_nonzero(values: Host) -> Host:
    """Where a value is not a zero of either sign, read from its bits: NaN and subnormals are not.

    A comparison would not do: a process that treats subnormals as zero calls them equal to 0.
    """
    if values.dtype.kind == "c":
        return is_nonzero(values.real) | is_nonzero(values.imag)
    bits: Host = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    if values.dtype.kind not in "biu":
        bits = bits << bits.dtype.type(1)  # without the sign
    return np.not_equal(bits, 0)


def _collect(A: Any, parts: list[tuple[Any, ...]], grouped: bool = False) -> Slots:
    """Slots from (row, col, values, stored) parts, each broadcast to the shape of its values."""
    rows, cols, values, stored = [], [], [np.zeros(0, host_dtype(A.dtype_name))], []
    for row, col, value, mark in parts:
        rows.append(np.broadcast_to(row, value.shape).reshape(-1))
        cols.append(np.broadcast_to(col, value.shape).reshape(-1))
        values.append(value.reshape(-1))
        stored.append(np.broadcast_to(mark, value.shape).reshape(-1))
    ints, marks = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    return Slots(
        shape=tuple(A.shape),
        row=np.concatenate([ints, *rows]).astype(np.int64),
        col=np.concatenate([ints, *cols]).astype(np.int64),
        values=np.concatenate(values),
        stored=np.concatenate([marks, *stored]),
        grouped=grouped,
    )


def _coo(A: Any) -> Slots:
    return _collect(A, [(host(A, A.row), host(A, A.col), host(A, A.data), True)])


def _csr(A: Any) -> Slots:
    data, indices, indptr = (host(A, x) for x in (A.data, A.indices, A.indptr))
    parts = []
    for i in range(A.shape[0]):
        mine = slice(int(indptr[i]), int(indptr[i + 1]))
        if mine.start < mine.stop:
            parts.append((i, indices[mine], data[mine], True))
    return _collect(A, parts)


def _csc(A: Any) -> Slots:
    data, indices, indptr = (host(A, x) for x in (A.data, A.indices, A.indptr))
    parts = []
    for j in range(A.shape[1]):
        mine = slice(int(indptr[j]), int(indptr[j + 1]))
        if mine.start < mine.stop:
            parts.append((indices[mine], j, data[mine], True))
    return _collect(A, parts)


def _stored_slots(A: Any, data: Host) -> Host:
    """Which slots of `data` hold a stored element, as far as values and marks tell."""
    if isinstance(A.zeros, str):
        return np.ones(data.shape, np.bool_)
    stored = is_nonzero(data)
    if A.zeros is not None:
        for flat in host(A, A.zeros):
            stored[np.unravel_index(int(flat), data.shape)] = True
    return stored


def _block(A: Any, block: Host, top: int, left: int, stored: Host) -> tuple[Any, ...]:
    """One part: the places of a block that lie inside the logical shape."""
    height = min(block.shape[0], A.shape[0] - top)
    width = min(block.shape[1], A.shape[1] - left)
    rows = top + np.arange(height)[:, None]
    cols = left + np.arange(width)[None, :]
    return rows, cols, block[:height, :width], stored[:height, :width]


def _bsr(A: Any) -> Slots:
    data, indices, indptr = (host(A, x) for x in (A.data, A.indices, A.indptr))
    stored, (R, C) = _stored_slots(A, data), data.shape[1:]
    parts = []
    for block_row in range(indptr.size - 1):
        for at in range(int(indptr[block_row]), int(indptr[block_row + 1])):
            left = int(indices[at]) * C
            parts.append(_block(A, data[at], block_row * R, left, stored[at]))
    return _collect(A, parts)


def _blocked_ell(A: Any) -> Slots:
    data, col_indices = host(A, A.data), host(A, A.col_indices)
    stored, (block_rows, width, b) = _stored_slots(A, data), data.shape[:3]
    parts = []
    for block_row in range(block_rows):
        for at in range(width):
            block_col = int(col_indices[block_row, at])
            if block_col != -1:
                block, marks = data[block_row, at], stored[block_row, at]
                parts.append(_block(A, block, block_row * b, block_col * b, marks))
    return _collect(A, parts)


def _nm(A: Any) -> Slots:
    data, indices = host(A, A.data), host(A, A.indices)
    stored, (rows, groups, _) = _stored_slots(A, data), data.shape
    parts: list[tuple[Any, ...]] = []
    for i in range(rows):
        for g in range(groups):
            cols = g * A.m + indices[i, g].astype(np.int64)
            inside = cols < A.shape[1]
            parts.append((i, cols[inside], data[i, g][inside], stored[i, g][inside]))
    if A.side is not None:
        side = _coo(A.side)
        parts.append((side.row, side.col, side.values, True))
    return _collect(A, parts, grouped=True)


def _sum(A: Any) -> Slots:
    parts = [slots(part) for part in A.parts]
    marks = [(s.row, s.col, s.values, s.stored) for s in parts]
    return _collect(A, marks, grouped=any(s.grouped for s in parts))


def _transposed(A: Any) -> Slots:
    return slots(A.base).transposed()


_DECODERS: dict[str, Callable[[Any], Slots]] = {
    "coo": _coo,
    "csr": _csr,
    "csc": _csc,
    "bsr": _bsr,
    "blocked_ell": _blocked_ell,
    "n:m": _nm,
    "sum": _sum,
    "transposed": _transposed,
}
