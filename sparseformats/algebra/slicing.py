"""Rows and columns by slices, index arrays and masks; single elements.

Rows of CSR are cut out of its buffers; columns by a mask where their order stays, else through
CSC. Every other format goes through CSR.
"""

from __future__ import annotations

import operator
from typing import Any

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import INT32_MAX, index_width, kind
from sparseformats.algebra.common import (
    as_csr,
    grain,
    is_whole,
    partwise,
    refuse_grad,
    restored,
    target_of,
)
from sparseformats.convert import convert
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import CSC, CSR, SparseMatrix, Sum

__all__ = ["getitem", "select_rows"]

_AXES = ("row", "column")


@placed
def getitem(A: SparseMatrix, key: Any) -> Any:
    """``A[key]``; see `SparseMatrix.__getitem__`."""
    refuse_grad("A[...]", A.lib, *A.value_buffers())
    rows, cols = (_axis(A, item, axis) for axis, item in enumerate(_both_axes(key)))
    if isinstance(rows, int) and isinstance(cols, int):
        return _element(A, rows, cols)
    for axis, item in enumerate((rows, cols)):
        if isinstance(item, int):
            raise TypeError(
                f"{_AXES[axis]} {item} alone would drop an axis, and matrices have two: take the "
                f"slice {item}:{item + 1}"
            )
    if not isinstance(rows, range) and not isinstance(cols, range):
        raise IndexError(
            "two index arrays at once mean points in NumPy and a grid elsewhere: "
            "for the grid write A[rows][:, cols]"
        )
    if all(_is_all(item, size) for item, size in zip((rows, cols), A.shape, strict=True)):
        return A
    return _selected(A, rows, cols)


def _selected(A: SparseMatrix, rows: range | Array, cols: range | Array) -> SparseMatrix:
    if isinstance(A, CSR):
        return _cut(A, rows, cols)
    if isinstance(A, CSC):
        return _cut(A.T, cols, rows).T
    if isinstance(A, Sum):
        return partwise(A, lambda part: _selected(part, rows, cols))
    made = _cut(as_csr(A), rows, cols)
    sizes = grain(A)
    if all(_keeps(item, size) for item, size in zip((rows, cols), sizes, strict=True)):
        return restored(made, target_of(A), is_whole(A))
    return made


def _keeps(item: range | Array, size: int) -> bool:
    """Whether blocks of `size` stay whole, or are cut at the end only, where ragged is legal."""
    if size == 1:
        return True
    return isinstance(item, range) and (not item or (item.step == 1 and item.start % size == 0))


def _is_all(item: range | Array, size: int) -> bool:
    return isinstance(item, range) and item == range(size)


def _both_axes(key: Any) -> tuple[Any, Any]:
    items = list(key) if isinstance(key, tuple) else [key]
    if any(item is None for item in items):
        raise IndexError("A[...] adds no axes: matrices have two; None is no index here")
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("A[...] takes one ellipsis")
    if Ellipsis in [item for item in items if item is Ellipsis]:
        at = next(i for i, item in enumerate(items) if item is Ellipsis)
        items[at : at + 1] = [slice(None)] * (3 - len(items))
    if len(items) > 2:
        raise IndexError(f"A[...] takes two indices, one for each axis, got {len(items)}")
    items += [slice(None)] * (2 - len(items))
    return items[0], items[1]


def _axis(A: SparseMatrix, item: Any, axis: int) -> int | range | Array:
    """An index into one axis: an integer, a range, or positions as an int64 array."""
    lib, size, name = A.lib, A.shape[axis], _AXES[axis]
    if isinstance(item, slice):
        return range(*item.indices(size))
    if isinstance(item, (list, range)):
        item = _listed(lib, item, A.device)
    if _arrays.is_array(item) and len(item.shape):
        return _positions(A, item, size, name)
    if isinstance(item, bool) or (_arrays.is_array(item) and _kind(item) not in "iu"):
        raise IndexError(f"{name} index {item!r} is no integer; masks have the length of the axis")
    try:
        index = operator.index(item)
    except TypeError as error:
        raise IndexError(
            f"{name}s are chosen by an integer, a slice, an integer array or list, or a mask, "
            f"got {type(item).__name__}"
        ) from error
    if not -size <= index < size:
        raise IndexError(_out_of_range(name, index, size))
    return index + size if index < 0 else index


def _out_of_range(name: str, index: Any, size: int) -> str:
    return f"{name} index {index} is out of range for an axis of {size}"


def _kind(x: Array) -> str:
    return kind(_arrays.of(x).dtype_name(x))


def _listed(lib: ArrayLibrary, item: list[Any] | range, device: str) -> Array:
    if not len(item):
        return lib.zeros(0, "int64", device)
    return lib.asarray(list(item), None, device)


def _positions(A: SparseMatrix, item: Array, size: int, name: str) -> Array:
    lib = A.lib
    if not lib.owns(item):
        raise TypeError(
            f"{name}s of a {lib.name} matrix are chosen by a {lib.name} array or a list, "
            f"got a {_arrays.of(item).name} array"
        )
    if lib.device(item) != A.device:
        raise DeviceMismatchError(
            f"{name} indices are on {lib.device(item)!r}, the matrix on {A.device!r}"
        )
    shape = tuple(int(s) for s in item.shape)
    what = _kind(item)
    if len(shape) != 1 or what not in "biu":
        raise IndexError(
            f"{name} indices must be a 1-D integer or bool array, got shape {shape}, "
            f"dtype {lib.dtype_name(item)}"
        )
    if what == "b":
        if shape[0] != size:
            raise IndexError(f"a {name} mask must have {size} elements, got {shape[0]}")
        return lib.flatnonzero(item)
    item = lib.astype(lib.native(item), "int64")
    bad = lib.flatnonzero((item < -size) | (item >= size))
    if int(bad.shape[0]):
        raise IndexError(_out_of_range(name, lib.item(lib.take(item, bad[:1])), size))
    return lib.where(item < 0, item + size, item)


def _cut(A: CSR, rows: range | Array, cols: range | Array) -> CSR:
    if not _is_all(rows, A.shape[0]):
        A = select_rows(A, rows)
    return A if _is_all(cols, A.shape[1]) else _select_columns(A, cols)


def select_rows(A: CSR, rows: range | Array) -> CSR:
    """Rows in the order given, the same one more than once if asked for.

    Parameters
    ----------
    rows : range, or (r,) int64 array of indices that exist
    """
    lib = A.lib
    if isinstance(rows, range) and (rows.step == 1 or not rows):
        return _row_slice(A, rows.start if rows else 0, rows.stop if rows else 0)
    index = _as_array(lib, rows, A.device)
    starts = lib.astype(lib.take(A.indptr, index), "int64")
    counts = lib.astype(lib.take(A.indptr, index + 1), "int64") - starts
    ends = lib.cumsum(counts)
    nnz = lib.max_int(ends)
    places = lib.repeat(starts - (ends - counts), counts, nnz) + lib.arange(nnz, device=A.device)
    width = index_width(lib.dtype_name(A.indices), nnz)
    zero = lib.zeros(1, "int64", A.device)
    return CSR.trusted(
        data=lib.take(A.data, places),
        indices=lib.astype(lib.take(A.indices, places), width),
        indptr=lib.astype(lib.concat([zero, ends]), width),
        shape=(int(index.shape[0]), A.shape[1]),
    )


def _as_array(lib: ArrayLibrary, item: range | Array, device: str) -> Array:
    if isinstance(item, range):
        return lib.arange(len(item), device=device) * item.step + item.start
    return item


def _row_slice(A: CSR, first: int, last: int) -> CSR:
    lib = A.lib
    indptr = A.indptr[first : last + 1]
    start, stop = (int(x) for x in lib.to_numpy(lib.concat([indptr[:1], indptr[-1:]])))
    return CSR.trusted(
        data=A.data[start:stop],
        indices=A.indices[start:stop],
        indptr=indptr - start,
        shape=(last - first, A.shape[1]),
    )


def _select_columns(A: CSR, cols: range | Array) -> CSR:
    if not isinstance(cols, range) or cols.step < 0:
        columns = convert(A, "csc").T
        assert isinstance(columns, CSR)
        return as_csr(select_rows(columns, cols).T)
    lib, name = A.lib, A.lib.dtype_name(A.indices)
    # Narrow indices of a wide matrix could not be compared with its bounds.
    wide = "int64" if A.shape[1] > INT32_MAX else name
    after = lib.astype(A.indices, wide) - cols.start
    inside = (after >= 0) & (after < cols.stop - cols.start)
    inside = inside & (after % cols.step == 0) if cols.step > 1 else inside
    kept = lib.flatnonzero(inside)
    zero = lib.zeros(1, "int64", A.device)
    before = lib.concat([zero, lib.cumsum(lib.astype(inside, "int64"))])
    return CSR.trusted(
        data=lib.take(A.data, kept),
        indices=lib.astype(lib.take(after, kept) // cols.step, name),
        indptr=lib.astype(lib.take(before, A.indptr), name),
        shape=(A.shape[0], len(cols)),
    )


def _element(A: SparseMatrix, i: int, j: int) -> Any:
    """The value at one place as the library's scalar; zero where nothing is stored."""
    if isinstance(A, CSC):
        return _element(A.T, j, i)
    csr = as_csr(A)
    lib = csr.lib
    row = _row_slice(csr, i, i + 1)
    at = lib.flatnonzero(row.indices == j) if j <= INT32_MAX or _wide(row) else row.indices[:0]
    if not int(at.shape[0]):
        return lib.zeros(1, A.dtype_name, A.device)[0]
    return lib.take(row.data, at)[0]


def _wide(A: CSR) -> bool:
    return A.lib.dtype_name(A.indices) == "int64"
