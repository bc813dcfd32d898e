"""COO <-> CSR: both are sorted by row, then column; only the rows' spelling differs."""

from __future__ import annotations

from sparseformats.convert.options import Options
from sparseformats.convert.pointers import sorted_pointers
from sparseformats.formats import COO, CSR
from sparseformats.formats.canonical import expand

__all__ = ["coo_to_csr", "csr_to_coo"]


def coo_to_csr(A: COO, options: Options) -> CSR:
    """Pointers from rows; values and columns are shared."""
    lib, (m, n) = A.lib, A.shape
    width = options.width(lib.dtype_name(A.col), n, A.nnz)
    indptr = sorted_pointers(lib, A.row, m, width)
    return CSR.trusted(data=A.data, indices=lib.astype(A.col, width), indptr=indptr, shape=A.shape)


def csr_to_coo(A: CSR, options: Options) -> COO:
    """Rows from pointers; values and columns are shared."""
    lib = A.lib
    width = options.width(lib.dtype_name(A.indices), *A.shape)
    row = expand(lib, lib.astype(A.indptr, width), A.nnz)
    return COO.trusted(data=A.data, row=row, col=lib.astype(A.indices, width), shape=A.shape)
