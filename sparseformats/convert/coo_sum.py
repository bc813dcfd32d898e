"""Sum <-> others: a matrix as the only part; the union of all parts as sorted coordinates."""

from __future__ import annotations

from sparseformats.convert.options import Options
from sparseformats.formats import COO, SparseMatrix, Sum
from sparseformats.formats.canonical import row_major

__all__ = ["as_sum", "sum_to_coo"]


def as_sum(A: SparseMatrix, options: Options) -> Sum:
    """Take a matrix of any other format as it is."""
    return Sum.trusted(parts=(A,))


def sum_to_coo(A: Sum, options: Options) -> COO:
    """Put the parts' coordinates into one order; no position occurs twice, so nothing is added."""
    found = [part.to("coo") for part in A.parts]
    lib = A.lib
    parts = [x for x in found if isinstance(x, COO)]
    current = "int64" if any(lib.dtype_name(x.row) == "int64" for x in parts) else "int32"
    width = options.width(current, *A.shape)
    row = lib.concat([lib.astype(x.row, width) for x in parts])
    col = lib.concat([lib.astype(x.col, width) for x in parts])
    data = lib.concat([x.data for x in parts])
    if len(parts) > 1:
        order = row_major(lib, row, col, A.shape)
        row, col, data = lib.take(row, order), lib.take(col, order), lib.take(data, order)
    return COO.trusted(data=data, row=row, col=col, shape=A.shape)
