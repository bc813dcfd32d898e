"""Dense <-> n:m."""

from __future__ import annotations

from sparseformats._arrays import Array
from sparseformats.convert.chunks import even_chunks
from sparseformats.convert.csr_nm import csr_to_nm
from sparseformats.convert.dense_csr import dense_to_csr, empty_dense
from sparseformats.convert.options import Options
from sparseformats.formats import NM

__all__ = ["dense_to_nm", "nm_to_dense"]


def dense_to_nm(D: Array, options: Options) -> NM:
    """Store what is not zero, or what the mask selects, by way of CSR, where groups are counted.

    Raises
    ------
    PatternError
        A group has more than n non-zeros.
    """
    return csr_to_nm(dense_to_csr(D, options), options)


def nm_to_dense(A: NM, options: Options) -> Array:
    """Write every slot to its place: those that are not stored hold +0, as the rest does."""
    lib, xp, (rows, k) = A.lib, A.lib.xp, A.shape
    count = int(A.data.shape[1])
    out = empty_dense(lib, (rows, k), A.dtype_name, A.device)
    group = (lib.arange(count, device=A.device) * A.m)[None, :, None]
    for i, j in even_chunks(lib, A.data):
        row = lib.arange(j - i, device=A.device) + i
        col = group + lib.astype(A.indices[i:j, :, :], "int64")
        place = xp.reshape(row[:, None, None] * k + col, (-1,))
        values = xp.reshape(A.data[i:j, :, :], (-1,))
        if k % A.m:
            inside = lib.flatnonzero(col < k)
            place, values = lib.take(place, inside), lib.take(values, inside)
        lib.put(out, place, values)
    if A.side is not None:
        place = lib.astype(A.side.row, "int64") * k + A.side.col
        lib.put(out, place, A.side.data)
    return out
