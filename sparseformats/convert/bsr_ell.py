"""BSR <-> Blocked-ELL of the same square blocks: blocks move as they are, empty ones too."""

from __future__ import annotations

from sparseformats._dtypes import itemsize
from sparseformats.convert.options import Options
from sparseformats.convert.pointers import bounds
from sparseformats.formats import BSR, BlockedELL
from sparseformats.formats.canonical import expand

__all__ = ["bsr_to_ell", "ell_to_bsr"]


def bsr_to_ell(A: BSR, options: Options) -> BlockedELL:
    """Give every block row as many slots as the fullest one has.

    Raises
    ------
    MemoryError
        One crowded block row makes the whole larger than free memory.
    """
    lib, (b, c) = A.lib, A.blocksize
    name = options.width(lib.dtype_name(A.indices), -(-A.shape[1] // c))
    rows = int(A.indptr.shape[0]) - 1
    width = lib.max_int(A.indptr[1:] - A.indptr[:-1])
    size = rows * width
    lib.ensure_fits(
        size * (b * c * itemsize(A.dtype_name) + itemsize(name)),
        A.device,
        f"Blocked-ELL form of {rows} block rows, the fullest of {width} blocks,",
    )
    row = expand(lib, lib.astype(A.indptr, "int64"), A.nnzb)
    slot = lib.arange(A.nnzb, device=A.device) - lib.take(A.indptr, row) + row * width
    columns = lib.full(size, -1, name, A.device)
    lib.put(columns, slot, lib.astype(A.indices, name))
    data = lib.zeros((size, b, c), A.dtype_name, A.device)
    lib.put_rows(data, slot, A.data)
    zeros = A.zeros
    if zeros is not None and not isinstance(zeros, str):
        # Blocks keep their order, so marks stay ascending.
        zeros = lib.take(slot, zeros // (b * c)) * (b * c) + zeros % (b * c)
    return BlockedELL.trusted(
        data=lib.xp.reshape(data, (rows, width, b, c)),
        col_indices=lib.xp.reshape(columns, (rows, width)),
        shape=A.shape,
        zeros=zeros,
    )


def ell_to_bsr(A: BlockedELL, options: Options) -> BSR:
    """Leave out empty slots."""
    lib, xp, (b, c) = A.lib, A.lib.xp, A.blocksize
    rows, width = (int(s) for s in A.col_indices.shape)
    columns = xp.reshape(A.col_indices, (-1,))
    used = lib.flatnonzero(columns >= 0)
    count = int(used.shape[0])
    data, zeros = xp.reshape(A.data, (rows * width, b, c)), A.zeros
    if count < rows * width:
        data, columns = lib.take(data, used), lib.take(columns, used)
        if zeros is not None and not isinstance(zeros, str):
            slot = zeros // (b * c)
            zeros = lib.searchsorted(used, slot) * (b * c) + zeros % (b * c)
    name = options.width(lib.dtype_name(A.col_indices), -(-A.shape[1] // c), count)
    return BSR.trusted(
        data=data,
        indices=lib.astype(columns, name),
        indptr=lib.astype(bounds(lib, used, rows, width), name),
        shape=A.shape,
        zeros=zeros,
    )
