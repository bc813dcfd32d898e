"""Sums, differences and element-wise products of two matrices.

Both matrices become sorted coordinates. Positions of each occur once, so a position occurs at
most twice in both together, and then as neighbours once they are sorted.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import VALUE_DTYPES, kind
from sparseformats.algebra.common import (
    cast,
    coordinates,
    elementwise,
    is_boolean,
    is_whole,
    partwise,
    promoted,
    refuse_grad,
    restored,
    same_place,
    target_of,
)
from sparseformats.algebra.scaling import is_scalar, negated
from sparseformats.algebra.values import mapped
from sparseformats.errors import DeviceMismatchError, PatternError
from sparseformats.formats import COO, SparseMatrix, Sum

__all__ = ["add", "multiply", "subtract"]


@placed
def add(A: SparseMatrix, B: Any) -> Any:
    """``A + B``; A itself for ``A + 0``, so that Python's `sum` works.

    Returns
    -------
    SparseMatrix
        In A's format if B shares it and its block size, else CSR, as of a `Sum`. Stored where
        either stores; what one of them stores alone passes through untouched, and a sum that is
        zero is stored.

    Raises
    ------
    TypeError
        `B` is dense or a non-zero number; the libraries differ; no common dtype.
    ValueError
        The shapes differ.
    DeviceMismatchError
        The devices differ.
    PatternError
        The sum of two n:m matrices is none.
    """
    if not isinstance(B, SparseMatrix):
        return A if _is_nothing("+", B) else NotImplemented
    name = _checked("+", A, B)
    op = operator.or_ if is_boolean(name) else A.lib.add
    return _back("+", A, B, _union(coordinates(A), coordinates(B), op, name))


@placed
def subtract(A: SparseMatrix, B: Any) -> Any:
    """``A - B``: what B stores alone comes with the other sign; otherwise as `add`.

    Raises
    ------
    TypeError
        As of `add`, and for a bool result.
    """
    if not isinstance(B, SparseMatrix):
        return A if _is_nothing("-", B) else NotImplemented
    name = _checked("-", A, B)
    if is_boolean(name):
        raise TypeError("- of bool matrices has no meaning; use .astype first")
    lib = B.lib
    minus = mapped(coordinates(B), lambda x: negated(lib, cast(lib, x, name)))
    assert isinstance(minus, COO)
    return _back("-", A, B, _union(coordinates(A), minus, lib.add, name))


@placed
def multiply(A: SparseMatrix, B: Any) -> SparseMatrix:
    """Element by element; see `SparseMatrix.multiply`."""
    if is_scalar(B):
        raise TypeError("multiply takes a matrix or an array; use A * number")
    if not isinstance(B, SparseMatrix):
        return _times_dense(A, B)
    name = _checked("multiply", A, B)
    lib = A.lib
    both = _together(lib, coordinates(A), coordinates(B), name)
    op = operator.and_ if is_boolean(name) else operator.mul
    values = elementwise(
        lib, op, lib.take(both.data, both.second - 1), lib.take(both.data, both.second), name
    )
    row, col = lib.take(both.row, both.second), lib.take(both.col, both.second)
    made = COO.trusted(data=values, row=row, col=col, shape=A.shape)
    return _back("multiply", A, B, made)


class _Together(NamedTuple):
    """Elements of two matrices by position; `second` are those at the position before theirs."""

    data: Array
    row: Array
    col: Array
    second: Array
    fresh: Array  # mask of all others


def _together(lib: ArrayLibrary, a: COO, b: COO, name: str) -> _Together:
    wide = {lib.dtype_name(x.row) for x in (a, b)}
    width = "int64" if "int64" in wide else "int32"
    row = lib.concat([lib.astype(x.row, width) for x in (a, b)])
    col = lib.concat([lib.astype(x.col, width) for x in (a, b)])
    data = lib.concat([cast(lib, x.data, name) for x in (a, b)])
    order = lib.lexsort(row, col)  # stable: of two at one position a's is the first
    row, col, data = lib.take(row, order), lib.take(col, order), lib.take(data, order)
    same = (row[1:] == row[:-1]) & (col[1:] == col[:-1])
    first = lib.full(min(1, a.nnz + b.nnz), True, "bool", a.device)
    return _Together(data, row, col, lib.flatnonzero(same) + 1, lib.concat([first, ~same]))


def _union(a: COO, b: COO, op: Any, name: str) -> COO:
    lib = a.lib
    both = _together(lib, a, b, name)
    kept = lib.flatnonzero(both.fresh)
    data = lib.take(both.data, kept)
    if int(both.second.shape[0]):
        sums = elementwise(
            lib, op, lib.take(both.data, both.second - 1), lib.take(both.data, both.second), name
        )
        place = lib.take(lib.cumsum(lib.astype(both.fresh, "int64")), both.second) - 1
        lib.put(data, place, sums)
    row, col = lib.take(both.row, kept), lib.take(both.col, kept)
    return COO.trusted(data=data, row=row, col=col, shape=a.shape)


def _checked(what: str, A: SparseMatrix, B: SparseMatrix) -> str:
    """Refuse what does not go together; the dtype of the result."""
    same_place(what, A, B)
    refuse_grad(what, A.lib, *A.value_buffers(), *B.value_buffers())
    if A.shape != B.shape:
        raise ValueError(f"{what}: shapes {A.shape} and {B.shape} differ")
    return promoted(what, A.lib, A.dtype_name, B.dtype_name)


def _back(what: str, A: SparseMatrix, B: SparseMatrix, made: COO) -> SparseMatrix:
    """The result in the format of both, else in CSR."""
    if target_of(A) != target_of(B):
        return restored(made, ("csr", None))
    try:
        return restored(made, target_of(A), is_whole(A) and is_whole(B))
    except PatternError as error:
        raise PatternError(
            f"A {what} B of two {A.format} matrices does not fit {A.format}: {error}; "
            "convert one of them to 'csr' first and the result is CSR"
        ) from error


def _is_nothing(symbol: str, B: Any) -> bool:
    """Whether `B` is the number 0; False for what we know nothing of."""
    if is_scalar(B) and B == 0:
        return True
    if is_scalar(B) or _arrays.is_array(B):
        found = f"the number {B!r}" if is_scalar(B) else f"a dense {type(B).__name__}"
        raise TypeError(
            f"A {symbol} B with {found} has no sparse result; use A.to_dense() {symbol} B"
        )
    return False


def _times_dense(A: SparseMatrix, D: Any) -> SparseMatrix:
    """Stored elements times what stands at their place in a dense array."""
    if isinstance(A, Sum):
        return partwise(A, lambda part: _times_dense(part, D))
    lib = A.lib
    if not _arrays.is_array(D) or _arrays.of(D) is not lib:
        found = _arrays.of(D).name + " array" if _arrays.is_array(D) else type(D).__name__
        raise TypeError(f"multiply takes a sparse matrix or a {lib.name} array, got {found}")
    if lib.device(D) != A.device:
        raise DeviceMismatchError(
            f"multiply: the matrix is on {A.device!r}, the array on {lib.device(D)!r}"
        )
    refuse_grad("multiply", lib, *A.value_buffers(), D)
    other = lib.dtype_name(D)
    if other not in VALUE_DTYPES[lib.name]:
        raise TypeError(f"multiply takes no {lib.name} array of dtype {other}")
    name = promoted("multiply", lib, A.dtype_name, other)
    shape = tuple(int(s) for s in D.shape)
    sizes = (1,) * (2 - len(shape)) + shape
    if len(sizes) != 2 or any(s not in (1, n) for s, n in zip(sizes, A.shape, strict=True)):
        raise ValueError(
            f"multiply: an array of shape {shape} does not spread over the matrix's {A.shape}"
        )
    coo = coordinates(A)
    place = lib.astype(coo.row, "int64") * sizes[1] if sizes[0] > 1 else 0
    place = place + lib.astype(coo.col, "int64") * (1 if sizes[1] > 1 else 0)
    factors = lib.take(lib.xp.reshape(lib.contiguous(lib.native(D)), (-1,)), place)
    op = operator.and_ if kind(name) == "b" else operator.mul
    data = elementwise(lib, op, coo.data, factors, name)
    made = COO.trusted(data=data, row=coo.row, col=coo.col, shape=A.shape)
    return restored(made, target_of(A), is_whole(A))
