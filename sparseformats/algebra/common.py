"""What the operations share: checks of operands, and the way to coordinates and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import VALUE_DTYPES, accumulator, kind
from sparseformats.convert import convert
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import ALL, COO, CSR, NM, SparseMatrix, Sum, Transposed

__all__ = [
    "as_csr",
    "cast",
    "coordinates",
    "elementwise",
    "grain",
    "is_boolean",
    "is_whole",
    "partwise",
    "promoted",
    "refuse_grad",
    "restored",
    "same_place",
    "target_of",
    "value_name",
]

_BLOCKED = ("bsr", "blocked_ell")


def refuse_grad(what: str, lib: ArrayLibrary, *values: Array) -> None:
    """Refuse values that autograd would record.

    Raises
    ------
    NotImplementedError
    """
    if any(lib.requires_grad(x) for x in values):
        raise NotImplementedError(
            f"{what}: gradients are not supported yet, and the values require grad; "
            "detach them, or call it under torch.no_grad()"
        )


def same_place(what: str, A: SparseMatrix, B: SparseMatrix) -> None:
    """Refuse matrices of two libraries or on two devices.

    Raises
    ------
    TypeError, DeviceMismatchError
    """
    if A.library != B.library:
        raise TypeError(
            f"{what}: one matrix holds {A.library} arrays, the other {B.library}; data never moves "
            f"between libraries unasked; use .to_library({A.library!r})"
        )
    if A.device != B.device:
        raise DeviceMismatchError(
            f"{what}: one matrix is on {A.device!r}, the other on {B.device!r}; data never moves "
            f"between devices unasked; use .to_device({A.device!r})"
        )


def promoted(what: str, lib: ArrayLibrary, a: str, b: str) -> str:
    """The library's promotion of two dtypes.

    Raises
    ------
    TypeError
        It has none.
    """
    if a == b:
        return a
    try:
        return lib.result_dtype(a, b)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"{what}: {lib.name} has no common dtype for {a} and {b}; use .astype on one side"
        ) from error


def value_name(what: str, lib: ArrayLibrary, dtype: Any) -> str:
    """Name of a value dtype from a name, a Python type or any library's dtype object.

    Raises
    ------
    TypeError
        The library does not have it.
    """
    text = dtype if isinstance(dtype, str) else str(dtype).rpartition(".")[2]
    if text not in VALUE_DTYPES[lib.name] and not isinstance(dtype, str):
        try:
            text = np.dtype(dtype).name
        except TypeError:
            text = str(dtype)
    if text not in VALUE_DTYPES[lib.name]:
        raise TypeError(
            f"{what}: dtype {dtype!r} is not supported for {lib.name} arrays, "
            f"expected one of {', '.join(VALUE_DTYPES[lib.name])}"
        )
    return text


def elementwise(
    lib: ArrayLibrary, op: Callable[[Any, Any], Any], a: Array, b: Any, name: str
) -> Array:
    """``op(a, b)`` in the dtype `name`; half types are computed in float32 and rounded once.

    Overflow and invalid operations give what IEEE arithmetic gives, without a warning.
    """
    work = accumulator(name)
    with np.errstate(all="ignore"):
        a = lib.astype(a, work)
        b = lib.astype(b, work) if lib.owns(b) else b
        return lib.astype(op(a, b), name)


def cast(lib: ArrayLibrary, x: Array, name: str) -> Array:
    """`x` in another dtype; what is too large for a float is infinite, without a warning."""
    with np.errstate(all="ignore"):
        return lib.astype(x, name)


def coordinates(A: SparseMatrix) -> COO:
    """Every stored element by its position."""
    made = convert(A, "coo")
    assert isinstance(made, COO)
    return made


def as_csr(A: SparseMatrix) -> CSR:
    """Every stored element by rows."""
    made = convert(A, "csr")
    assert isinstance(made, CSR)
    return made


def target_of(A: SparseMatrix) -> tuple[str, tuple[int, int] | None]:
    """Format string and block size that lead back to A's format; CSR for a sum.

    How elements were divided among the parts of a sum is not to be had back by a conversion.
    """
    if isinstance(A, Sum):
        return "csr", None
    family = A.base.family if isinstance(A, Transposed) else A.family
    return A.format, A.blocksize if family in _BLOCKED else None


def partwise(A: Sum, f: Callable[[SparseMatrix], SparseMatrix]) -> Sum:
    """`f` of every part, where that moves no element to another's place."""
    return Sum.trusted(parts=tuple(f(part) for part in A.parts))


def grain(A: SparseMatrix) -> tuple[int, int]:
    """Rows and columns that a cut must be multiples of to leave blocks and groups whole."""
    if isinstance(A, Transposed):
        rows, cols = grain(A.base)
        return cols, rows
    return (1, A.m) if isinstance(A, NM) else A.blocksize


def is_whole(A: SparseMatrix) -> bool:
    """Whether every slot of a slot format is marked as stored."""
    base = A.base if isinstance(A, Transposed) else A
    return isinstance(getattr(base, "zeros", None), str)


def restored(
    made: SparseMatrix, target: tuple[str, tuple[int, int] | None], whole: bool = False
) -> SparseMatrix:
    """`made` in another format; with every slot marked as stored where `whole` and true."""
    format, blocksize = target
    found = convert(made, format, blocksize=blocksize)
    return _marked(found) if whole else found


def _marked(A: SparseMatrix) -> SparseMatrix:
    if isinstance(A, Transposed):
        return _marked(A.base).T
    buffers = {name: x for name, x in A.buffers().items() if name != "zeros"}
    whole = type(A).from_parts(buffers, {**A.static(), "zeros": ALL})
    return whole if whole.nnz == A.nnz else A


def is_boolean(name: str) -> bool:
    """Whether a dtype is that of truth values, whose sum is *or* and whose product is *and*."""
    return kind(name) == "b"
