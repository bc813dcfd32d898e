"""COO <-> CSC: one stable sort, without CSR between."""

from __future__ import annotations

from sparseformats.convert.options import Options
from sparseformats.convert.pointers import sorted_pointers
from sparseformats.formats import COO, CSC
from sparseformats.formats.canonical import expand

__all__ = ["coo_to_csc", "csc_to_coo"]


def coo_to_csc(A: COO, options: Options) -> CSC:
    """Sort by column; rows stay ascending within each."""
    lib, (m, n) = A.lib, A.shape
    width = options.width(lib.dtype_name(A.row), m, A.nnz)
    order = lib.argsort(A.col)
    indptr = sorted_pointers(lib, lib.take(A.col, order), n, width)
    return CSC.trusted(
        data=lib.take(A.data, order),
        indices=lib.astype(lib.take(A.row, order), width),
        indptr=indptr,
        shape=A.shape,
    )


def csc_to_coo(A: CSC, options: Options) -> COO:
    """Sort by row; columns stay ascending within each."""
    lib = A.lib
    width = options.width(lib.dtype_name(A.indices), *A.shape)
    order = lib.argsort(A.indices)
    col = expand(lib, lib.astype(A.indptr, width), A.nnz)
    return COO.trusted(
        data=lib.take(A.data, order),
        row=lib.astype(lib.take(A.indices, order), width),
        col=lib.take(col, order),
        shape=A.shape,
    )
