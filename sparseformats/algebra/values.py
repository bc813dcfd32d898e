"""New values on the same pattern, and the pattern freed of zeros.

The set of stored slots is what a slot format must keep: a value that becomes zero is marked, and
what is not stored stays +0.0 whatever is done to the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import VALUE_DTYPES, kind
from sparseformats.algebra.common import as_csr, partwise, refuse_grad, restored, target_of
from sparseformats.convert import convert
from sparseformats.errors import DeviceMismatchError, InvalidTensorError
from sparseformats.formats import COO, NM, SparseMatrix, Sum, Transposed
from sparseformats.formats.checks import violations
from sparseformats.formats.slots import marks

__all__ = ["eliminate_zeros", "mapped", "with_data"]


@placed
def with_data(A: SparseMatrix, values: Any, *, copy: bool = True) -> SparseMatrix:
    """Put other values on A's pattern; see `SparseMatrix.with_data`."""
    if isinstance(A, Transposed):
        return with_data(A.base, values, copy=copy).T
    if isinstance(A, Sum):
        raise TypeError(
            "a Sum has no one array of values to put others in place of; give each part its own: "
            "Sum([part.with_data(values) for part, values in zip(S.parts, ...)], check=False), or "
            "split a matrix of the new values again"
        )
    lib = A.lib
    values = _values(lib, A, values)
    if not hasattr(A, "zeros"):
        return _rebuilt(A, lib.copy(values) if copy else values, None)
    mask = A.stored_mask()
    misplaced = violations(
        lib,
        lib.nonzero_mask(values) & ~mask,
        values,
        "stored-slot",
        lambda p: f"values.flat[{p}]",
        lambda v: f"the slot is not stored, so it takes no value but 0, got {v}",
    )
    if misplaced:
        raise InvalidTensorError(f"with_data on {A!r}", misplaced)
    # What is not stored is +0.0, whichever zero was given for it.
    where = lib.flatnonzero(mask)
    stored = lib.take(lib.xp.reshape(values, (-1,)), where)
    return _rebuilt(A, lib.scatter(tuple(A.data.shape), where, stored), mask)


def _values(lib: ArrayLibrary, A: SparseMatrix, values: Any) -> Array:
    if not _arrays.is_array(values) or _arrays.of(values) is not lib:
        found = _arrays.of(values).name if _arrays.is_array(values) else type(values).__name__
        raise TypeError(f"with_data takes a {lib.name} array as the matrix's own, got {found}")
    refuse_grad("with_data", lib, values, *A.value_buffers())
    name = lib.dtype_name(values)
    if name not in VALUE_DTYPES[lib.name]:
        raise TypeError(
            f"with_data: values of dtype {name} are not supported for {lib.name} arrays, "
            f"expected one of {', '.join(VALUE_DTYPES[lib.name])}"
        )
    if lib.device(values) != A.device:
        raise DeviceMismatchError(
            f"with_data: the matrix is on {A.device!r}, the values are on {lib.device(values)!r}"
        )
    expected, shape = tuple(A.data.shape), tuple(values.shape)
    if shape != expected:
        raise ValueError(f"with_data: values must have the shape of data, {expected}, got {shape}")
    return lib.native(values)


def _rebuilt(
    A: SparseMatrix, data: Array, mask: Array | None, side: Array | None = None
) -> SparseMatrix:
    """`A` with other data; `mask` are its stored slots, None for formats without slots."""
    lib, static = A.lib, A.static()
    buffers = {name: x for name, x in A.buffers().items() if name != "zeros"}
    buffers["data"] = data
    if "side_data" in buffers:
        aside, name = buffers["side_data"] if side is None else side, lib.dtype_name(data)
        if kind(lib.dtype_name(aside)) == "c" and kind(name) != "c":
            aside = lib.xp.real(aside)
        buffers["side_data"] = lib.astype(aside, name)
    if mask is not None and "zeros" not in static:
        zeros = marks(lib, data, mask)
        buffers |= {} if zeros is None else {"zeros": zeros}
    return type(A).from_parts(buffers, static)


def mapped(A: SparseMatrix, f: Callable[[Array], Array]) -> SparseMatrix:
    """`f` of every stored value, on the same pattern.

    Parameters
    ----------
    f : callable
        From a 1-D array to one of the same length, perhaps of another dtype.

    Raises
    ------
    PatternError
        Stored zeros of an n:m matrix that had no slot became something else, for which their
        group has no room.
    """
    if isinstance(A, Transposed):
        return mapped(A.base, f).T
    if isinstance(A, Sum):
        return partwise(A, lambda part: mapped(part, f))
    lib = A.lib
    if not hasattr(A, "zeros"):
        return _rebuilt(A, f(A.data), None)
    side = None
    if isinstance(A, NM) and A.side is not None:
        side = f(A.side.data)
        if lib.any(lib.nonzero_mask(side)):
            return convert(mapped(as_csr(A), f), A.format)
    mask = A.stored_mask()
    where = lib.flatnonzero(mask)
    values = f(lib.take(lib.xp.reshape(A.data, (-1,)), where))
    return _rebuilt(A, lib.scatter(tuple(A.data.shape), where, values), mask, side)


@placed
def eliminate_zeros(A: SparseMatrix) -> SparseMatrix:
    """Drop stored zeros; see `SparseMatrix.eliminate_zeros`."""
    refuse_grad("eliminate_zeros", A.lib, *A.value_buffers())
    if isinstance(A, Transposed):
        return eliminate_zeros(A.base).T
    if isinstance(A, Sum):
        return partwise(A, eliminate_zeros)
    if hasattr(A, "zeros"):
        return restored(eliminate_zeros(as_csr(A)), target_of(A))
    lib = A.lib
    nonzero = lib.nonzero_mask(A.data)
    kept = lib.flatnonzero(nonzero)
    if int(kept.shape[0]) == A.nnz:
        return A
    buffers = A.buffers()
    if not isinstance(A, COO):
        indptr = buffers.pop("indptr")
        start = lib.zeros(1, "int64", A.device)
        before = lib.concat([start, lib.cumsum(lib.astype(nonzero, "int64"))])
        pointers = lib.astype(lib.take(before, indptr), lib.dtype_name(indptr))
    buffers = {name: lib.take(x, kept) for name, x in buffers.items()}
    return type(A).from_parts(
        buffers if isinstance(A, COO) else {**buffers, "indptr": pointers}, A.static()
    )
