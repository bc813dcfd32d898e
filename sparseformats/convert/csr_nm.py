"""CSR <-> n:m."""

from __future__ import annotations

from sparseformats.convert.options import Options
from sparseformats.convert.pointers import sorted_pointers
from sparseformats.formats import COO, CSR, NM
from sparseformats.formats.canonical import expand
from sparseformats.formats.groups import decode, encode

__all__ = ["csr_to_nm", "nm_to_csr"]


def csr_to_nm(A: CSR, options: Options) -> NM:
    """Give non-zeros slots, then stored zeros what is left; the others go to the side record.

    Raises
    ------
    PatternError
        A group has more than n non-zeros.
    MemoryError
        The target is larger than free memory: it has slots in every group of every row.
    """
    n, m = options.n, options.m
    assert n is not None
    assert m is not None
    lib = A.lib
    row = expand(lib, A.indptr, A.nnz)
    made = encode(lib, A.data, row, A.indices, A.shape, n, m)
    side = None
    if made.side is not None:
        data, side_row, side_col = made.side
        side = COO.trusted(data=data, row=side_row, col=side_col, shape=A.shape)
    return NM.trusted(
        data=made.data,
        indices=made.indices,
        shape=A.shape,
        n=n,
        m=m,
        zeros=made.zeros,
        side=side,
    )


def nm_to_csr(A: NM, options: Options) -> CSR:
    """Keep what is stored, in slots or aside."""
    lib = A.lib
    data, row, col = decode(A)
    current = "int32" if A.side is None else lib.dtype_name(A.side.row)
    width = options.width(current, A.shape[1], int(data.shape[0]))
    return CSR.trusted(
        data=data,
        indices=lib.astype(col, width),
        indptr=sorted_pointers(lib, row, A.shape[0], width),
        shape=A.shape,
    )
