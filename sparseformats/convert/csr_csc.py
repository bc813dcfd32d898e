"""CSR <-> CSC: a stable sort by the other axis.

Elements are sorted by row, then column; sorted stably by column they are sorted by column, then
row. No position is ever written as ``row * n + column``, which could overflow.
"""

from __future__ import annotations

from sparseformats.convert.options import Options
from sparseformats.convert.pointers import sorted_pointers
from sparseformats.formats import CSC, CSR
from sparseformats.formats.canonical import expand

__all__ = ["csc_to_csr", "csr_to_csc"]


def csr_to_csc(A: CSR, options: Options) -> CSC:
    """Sort by column."""
    lib, (m, n) = A.lib, A.shape
    width = options.width(lib.dtype_name(A.indices), m, A.nnz)
    order = lib.argsort(A.indices)
    indptr = sorted_pointers(lib, lib.take(A.indices, order), n, width)
    row = expand(lib, lib.astype(A.indptr, width), A.nnz)
    return CSC.trusted(
        data=lib.take(A.data, order), indices=lib.take(row, order), indptr=indptr, shape=A.shape
    )


def csc_to_csr(A: CSC, options: Options) -> CSR:
    """Sort by row."""
    return csr_to_csc(A.T, options).T
