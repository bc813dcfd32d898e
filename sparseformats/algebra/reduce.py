"""Diagonals and sums: dense arrays out of stored elements."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import accumulator, itemsize, kind
from sparseformats.algebra.common import as_csr, cast, coordinates, refuse_grad
from sparseformats.convert import convert
from sparseformats.formats import CSR, SparseMatrix

__all__ = ["diagonal", "sum_dtype", "total"]


@placed
def diagonal(A: SparseMatrix, k: int = 0) -> Array:
    """Elements (i, i + k) as a dense vector; see `SparseMatrix.diagonal`."""
    k = _integer("diagonal", "k", k)
    refuse_grad("diagonal", A.lib, *A.value_buffers())
    coo, lib, (m, n) = coordinates(A), A.lib, A.shape
    row, col = lib.astype(coo.row, "int64"), lib.astype(coo.col, "int64")
    length = max(0, min(m, n - k) if k >= 0 else min(m + k, n))
    on = lib.flatnonzero(col - row == k) if length else lib.zeros(0, "int64", A.device)
    place = lib.take(row if k >= 0 else col, on)
    return lib.scatter(length, place, lib.take(coo.data, on))


@placed
def total(A: SparseMatrix, axis: int | None = None) -> Any:
    """Sum of stored elements, over one axis or both; see `SparseMatrix.sum`."""
    if axis is not None:
        axis = _integer("sum", "axis", axis)
        if axis not in (-2, -1, 0, 1):
            raise ValueError(f"sum: axis must be None, 0 or 1, got {axis}")
    lib = A.lib
    refuse_grad("sum", lib, *A.value_buffers())
    name = sum_dtype(lib, A.dtype_name)
    with np.errstate(all="ignore"):
        if axis is None:
            data = _widened(lib, coordinates(A).data, name)
            return lib.astype(lib.xp.sum(data, dtype=data.dtype), name)
        rows = as_csr(A) if axis in (1, -1) else convert(A, "csc").T
        assert isinstance(rows, CSR)
        return _row_sums(rows, name)


def sum_dtype(lib: ArrayLibrary, name: str) -> str:
    """Dtype of sums of dtype `name`: as of a product with ones, but bool is counted in int64."""
    if kind(name) == "b":
        return "int64"
    if kind(name) in "iu" and itemsize(name) < 4:
        if kind(name) == "i":
            return "int32"
        return "uint32" if lib.name != "torch" else "int64"
    return name


def _widened(lib: ArrayLibrary, x: Array, name: str) -> Array:
    return cast(lib, x, accumulator(name))


def _row_sums(A: CSR, name: str) -> Array:
    lib = A.lib
    data, indptr = _widened(lib, A.data, name), lib.astype(A.indptr, "int64")
    if kind(name) in "iu":
        return _wrapped_sums(lib, data, indptr, name)
    starts, counts = indptr[:-1], indptr[1:] - indptr[:-1]
    filled = lib.flatnonzero(counts > 0)
    sums = lib.segment_sum(data, lib.take(starts, filled), lib.take(counts, filled))
    return lib.scatter(A.shape[0], filled, lib.astype(sums, name))


def _wrapped_sums(lib: ArrayLibrary, data: Array, indptr: Array, name: str) -> Array:
    """Differences of running sums: exact modulo 2**64, so a narrower sum wraps as NumPy's."""
    wide = lib.bits(data) if name == "uint64" else lib.astype(data, "int64")
    running = lib.concat([lib.zeros(1, "int64", lib.device(data)), lib.cumsum(wide)])
    sums = lib.take(running, indptr[1:]) - lib.take(running, indptr[:-1])
    return lib.from_bits(sums, name) if name == "uint64" else lib.astype(sums, name)


def _integer(what: str, name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{what}: {name} must be an integer, got {value!r}") from error
