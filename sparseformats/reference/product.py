"""Products by plain loops over rows, with what bounds the error of any other kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparseformats import _dtypes
from sparseformats.reference.decoding import Host, Slots, host, host_dtype, is_nonzero, slots

__all__ = ["Product", "matmul", "multiply", "product_dtype", "rmatmul"]

Array = Any  # of any library


@dataclass(frozen=True, eq=False)
class Product:
    """A product and what is needed to judge another computation of it.

    Attributes
    ----------
    dtype : str
        Type that the result must have.
    value : (m, n)
        The result in a wider type than `dtype` (or in `dtype`'s own wrapped integers).
    magnitude : (m, n) float64
        Sum of ``|alpha| |a| |x|`` over finite terms, plus ``|beta| |out|``.
    length : (m, 1) int64
        Number of terms of each row's dot products.
    unspecified : (m, n) bool
        Where an n:m matrix leaves open whether a non-finite operand is skipped.
    """

    dtype: str
    value: Host
    magnitude: Host
    length: Host
    unspecified: Host

    def rounded(self) -> Host:
        """Round the result to the type that it must have."""
        with np.errstate(all="ignore"):
            return self.value.astype(host_dtype(self.dtype))


def product_dtype(A: Any, X: Array) -> str:
    """Name of the type of ``A @ X``: the library's promotion, with room for sums of small integers.

    Products of 8 and 16 bit integers are int32 (uint32 if both are unsigned, int64 in torch, which
    has none), and int64 where signed meets unsigned.
    """
    a, x = A.dtype_name, A.lib.dtype_name(X)
    promoted: str = A.lib.result_dtype(a, x)
    kinds = {_dtypes.kind(a), _dtypes.kind(x)} - {"b"}
    if _dtypes.kind(promoted) not in "iu":
        return promoted
    if kinds == {"i", "u"}:
        return "int64"
    if _dtypes.itemsize(promoted) > 2:
        return promoted
    if kinds == {"i"}:
        return "int32"
    return "int64" if A.library == "torch" else "uint32"


def matmul(A: Any, X: Array, *, alpha: Any = 1, beta: Any = 0, out: Array = None) -> Product:
    """Compute ``alpha * (A @ X) + beta * out`` and what bounds the error of any other kernel.

    Parameters
    ----------
    A : SparseMatrix
        Matrix (m, k).
    X : array of A's library
        Operand (k,), (k, n) or (..., k, n).
    alpha, beta : scalar
        Factors; `out` is not read when `beta` is 0.
    out : array of A's library, optional
        Summand of the result's shape; never written.
    """
    summand = None if out is None else host(A, out)
    return multiply(slots(A), host(A, X), product_dtype(A, X), alpha, beta, summand)


def rmatmul(X: Array, A: Any, *, alpha: Any = 1, beta: Any = 0, out: Array = None) -> Product:
    """Compute ``alpha * (X @ A) + beta * out``, as `matmul` does for the other side.

    Parameters
    ----------
    X : array of A's library
        Operand (m,), (n, m) or (..., n, m).
    A : SparseMatrix
        Matrix (m, k).
    alpha, beta : scalar
        Factors; `out` is not read when `beta` is 0.
    out : array of A's library, optional
        Summand of the result's shape; never written.
    """
    left, summand = _swapped(host(A, X)), None if out is None else _swapped(host(A, out))
    p = multiply(slots(A).transposed(), left, product_dtype(A, X), alpha, beta, summand)
    arrays = (_swapped(a) for a in (p.value, p.magnitude, p.length, p.unspecified))
    return Product(p.dtype, *arrays)


def multiply(
    s: Slots, X: Host, dtype: str, alpha: Any = 1, beta: Any = 0, out: Host | None = None
) -> Product:
    """`matmul` on decoded slots and NumPy arrays, with a given type of the result."""
    if X.ndim == 0 or X.shape[max(X.ndim - 2, 0)] != s.shape[1]:
        raise ValueError(f"a {s.shape} matrix cannot multiply an operand of shape {X.shape}")
    with np.errstate(all="ignore"):
        sums = _sums(s, _columns(X), dtype)
        value, magnitude, length, unspecified = (_uncolumned(a, X) for a in sums)
        value, magnitude = _scaled(value, alpha), magnitude * abs(alpha)
        if out is not None and beta != 0:
            summand = out.astype(value.dtype)
            value = _added(value, _scaled(summand, beta))
            magnitude = magnitude + abs(beta) * _size(summand)
    return Product(dtype, value, magnitude, length, unspecified)


def _swapped(a: Host) -> Host:
    return a if a.ndim < 2 else np.swapaxes(a, -1, -2)


def _columns(X: Host) -> Host:
    """Operand as (k, every column of every batch)."""
    if X.ndim == 1:
        return X[:, None]
    columns = int(np.prod(X.shape[:-2])) * X.shape[-1]
    return np.moveaxis(X, -2, 0).reshape(X.shape[-2], columns)


def _uncolumned(Y: Host, X: Host) -> Host:
    """Undo `_columns` on a result (m, columns) of operand `X`."""
    if X.ndim == 1:
        return Y[:, 0]
    return np.moveaxis(Y.reshape(Y.shape[0], *X.shape[:-2], X.shape[-1]), 0, -2)


def _wide(dtype: str) -> np.dtype[Any]:
    """Type to accumulate in: wider than any kernel's, or 64 bits that wrap."""
    kind = _dtypes.kind(dtype)
    if kind in "fc":
        widest = {"float64": np.longdouble, "complex128": np.clongdouble}
        return np.dtype(widest.get(dtype, np.float64 if kind == "f" else np.complex128))
    return np.dtype({"b": np.bool_, "i": np.int64, "u": np.uint64}[kind])


def _size(x: Host) -> Host:
    """Absolute value where finite, 0 elsewhere; bools and integers as numbers."""
    size = np.abs(x.astype(np.float64) if x.dtype.kind in "biu" else x)
    return np.where(np.isfinite(size), size, 0).astype(np.float64)


def _scaled(value: Host, factor: Any) -> Host:
    if value.dtype.kind == "b":
        return value & bool(factor)
    return value if factor == 1 else value * np.asarray(factor).astype(value.dtype)


def _added(value: Host, summand: Host) -> Host:
    total: Host = value | summand if value.dtype.kind == "b" else value + summand
    return total


def _sums(s: Slots, X: Host, dtype: str) -> tuple[Host, Host, Host, Host]:
    """Value, magnitude, length and unspecified places of the dot product of every row."""
    wide, shape = _wide(dtype), (s.shape[0], X.shape[1])
    value, magnitude = np.zeros(shape, wide), np.zeros(shape, np.float64)
    length, unspecified = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    a, x = s.values.astype(wide), X.astype(wide)
    nonfinite = ~np.isfinite(x)
    met = np.flatnonzero(is_nonzero(s.values)) if s.grouped else np.arange(s.row.size)
    by_row = met[np.argsort(s.row[met], kind="stable")]
    starts = np.searchsorted(s.row[by_row], np.arange(s.shape[0] + 1))
    for i in range(s.shape[0]):
        mine = by_row[starts[i] : starts[i + 1]]
        at = s.col[mine]
        terms = a[mine][:, None] * x[at]  # of bools, `*` is "and"
        value[i] = terms.any(axis=0) if wide == np.bool_ else terms.sum(axis=0)
        magnitude[i] = (_size(a[mine])[:, None] * _size(x[at])).sum(axis=0)
        length[i] = mine.size
        if s.grouped:
            unspecified[i] = nonfinite[at].sum(axis=0) < nonfinite.sum(axis=0)
    return value, magnitude, length, unspecified
