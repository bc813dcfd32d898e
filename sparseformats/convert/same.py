"""Whether two matrices are the same, at four levels."""

from __future__ import annotations

from typing import Literal, get_args

from sparseformats._arrays import Array, placed
from sparseformats.convert.entry import convert
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import BSR, COO, NM, BlockedELL, SparseMatrix, Sum, Transposed

__all__ = ["Level", "same"]

Level = Literal["content", "values", "structure", "buffers"]


@placed
def same(A: SparseMatrix, B: SparseMatrix, level: Level = "content") -> bool:
    """Compare two matrices of one array library on one device.

    Parameters
    ----------
    A, B : SparseMatrix
    level : str
        ``"content"``: logical shape, dtype, and every stored element, zeros included, bit for
        bit, in whatever formats. ``"values"``: the same, but stored zeros count as not stored,
        so the signs of zeros do not matter. ``"structure"``: format, block size, positions of
        blocks and which slots are stored, whatever the values. ``"buffers"``: every array bit
        for bit, with its dtype.

    Returns
    -------
    bool

    Raises
    ------
    TypeError
        An argument is no matrix of this library, or their arrays are of different libraries.
    DeviceMismatchError
        They are on different devices.
    ValueError
        Unknown level.

    Examples
    --------
    >>> import sparseformats as sf
    >>> A = sf.CSR([2.0], [1], [0, 1, 1], (2, 2))
    >>> sf.same(A, A.to("bsr", blocksize=2)), sf.same(A, A.to("coo"), level="structure")
    (True, False)
    """
    if level not in get_args(Level):
        raise ValueError(f"level must be one of {get_args(Level)}, got {level!r}")
    for x in (A, B):
        if not isinstance(x, SparseMatrix):
            raise TypeError(
                f"same compares matrices of this library, got {type(x).__name__}; "
                "use sparseformats.asformat first"
            )
    if A.library != B.library:
        raise TypeError(
            f"same compares matrices of one array library, got {A.library} and {B.library}; "
            f"use B.to_library({A.library!r})"
        )
    if A.device != B.device:
        raise DeviceMismatchError(
            f"same compares matrices on one device, got {A.device!r} and {B.device!r}; "
            f"use B.to_device({A.device!r})"
        )
    if level == "structure":
        return _same_structure(A, B)
    if level == "buffers":
        return _same_buffers(A, B)
    return _same_elements(A, B, zeros=level == "content")


def _same_elements(A: SparseMatrix, B: SparseMatrix, *, zeros: bool) -> bool:
    if A is B:
        return True
    if A.shape != B.shape or A.dtype_name != B.dtype_name:
        return False
    a, b = _elements(A, zeros), _elements(B, zeros)
    if a.nnz != b.nnz:
        return False
    return (
        _same_integers(a, a.row, b.row)
        and _same_integers(a, a.col, b.col)
        and a.lib.equal_bits(a.data, b.data)
    )


def _elements(A: SparseMatrix, zeros: bool) -> COO:
    coo = convert(A, "coo")
    assert isinstance(coo, COO)
    if zeros:
        return coo
    lib = coo.lib
    kept = lib.flatnonzero(lib.nonzero_mask(coo.data))
    if int(kept.shape[0]) == coo.nnz:
        return coo
    arrays = {name: lib.take(x, kept) for name, x in coo.buffers().items()}
    return COO.trusted(**arrays, shape=coo.shape)


def _same_integers(A: SparseMatrix, x: Array, y: Array) -> bool:
    """Equal numbers, whatever the width."""
    if tuple(x.shape) != tuple(y.shape):
        return False
    return not A.lib.any(x != y)


def _same_structure(A: SparseMatrix, B: SparseMatrix) -> bool:
    if A.format != B.format or A.shape != B.shape or A.blocksize != B.blocksize:
        return False
    if isinstance(A, Transposed) and isinstance(B, Transposed):
        return _same_structure(A.base, B.base)
    if isinstance(A, Sum) and isinstance(B, Sum):
        return len(A.parts) == len(B.parts) and all(map(_same_structure, A.parts, B.parts))
    mine, others = _positions(A), _positions(B)
    return mine.keys() == others.keys() and all(
        _same_integers(A, x, others[name]) for name, x in mine.items()
    )


def _positions(A: SparseMatrix) -> dict[str, Array]:
    """Index arrays and, where there are slots, the mask of stored ones."""
    values = ("data", "side_data", "zeros")
    found = {name: x for name, x in A.buffers().items() if name not in values}
    if isinstance(A, BSR | BlockedELL | NM):
        found["stored"] = A.stored_mask()
    return found


def _same_buffers(A: SparseMatrix, B: SparseMatrix) -> bool:
    if type(A) is not type(B) or A.static() != B.static():
        return False
    mine, others = A.buffers(), B.buffers()
    return mine.keys() == others.keys() and all(
        A.lib.equal_bits(x, others[name]) for name, x in mine.items()
    )
