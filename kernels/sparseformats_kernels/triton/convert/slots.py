"""Conversions between BSR and Blocked-ELL where CUDA arrays lie.

Each waits for the device once, to learn how many slots or blocks there will be. Where every slot
holds a block both formats are the same memory, and share it.
"""

from __future__ import annotations

from typing import Any

from sparseformats._arrays import Array
from sparseformats._dtypes import itemsize
from sparseformats.formats import BSR, BlockedELL
from sparseformats_kernels.triton.convert import slotting
from sparseformats_kernels.triton.convert.common import tiling, whole
from sparseformats_kernels.triton.convert.numbering import Options, pointers
from sparseformats_kernels.triton.launching import Launcher

__all__ = ["blocked_ell_to_bsr", "bsr_to_blocked_ell"]

CHUNK, LOOKING = 1024, 64  # rows that are looked at together, and the most programs that do so
COUNTED, SLOTS = 16, 64  # rows whose slots a program counts, and how many at a time


def bsr_to_blocked_ell(A: BSR, options: Options) -> BlockedELL:
    """Give every block row as many slots as the fullest one has."""
    lib, (r, c), name, place = A.lib, A.blocksize, A.dtype_name, A.device
    index = options.width(lib.dtype_name(A.indices), -(-A.shape[1] // c))
    rows, launch = int(A.indptr.shape[0]) - 1, Launcher(lib, A.indptr, bits=True)
    width = _width(A, launch) if A.nnzb else 0
    size, zeros = rows * width, A.zeros
    if size == A.nnzb:
        data, columns = lib.native(A.data), lib.astype(A.indices, index)
    else:
        nbytes = size * (r * c * itemsize(name) + itemsize(index))
        what = f"Blocked-ELL form of {rows} block rows, the fullest of {width} blocks,"
        lib.ensure_fits(nbytes, place, what)
        data, columns = lib.empty((size, r, c), name, place), lib.empty(size, index, place)
        programs, tile, parts = tiling(size, (r, c))
        given: dict[str, Any] = {"data": whole(lib, A.data), "indices": A.indices}
        given |= {"indptr": A.indptr, "values": data, "columns": columns}
        given |= {"width": width, "slots": size, "parts": parts}
        launch(slotting.fill_slots, programs, given, tile)
        if zeros is not None and not isinstance(zeros, str):
            zeros = _marks_in_slots(A, zeros, width)
    return BlockedELL.trusted(
        data=lib.reshape(data, (rows, width, r, c)),
        col_indices=lib.reshape(columns, (rows, width)),
        shape=A.shape,
        zeros=zeros,
    )


def blocked_ell_to_bsr(A: BlockedELL, options: Options) -> BSR:
    """Count the blocks of each row, and leave out empty slots."""
    lib, (r, c), name, place = A.lib, A.blocksize, A.dtype_name, A.device
    rows, width = (int(s) for s in A.col_indices.shape)
    size, across = rows * width, -(-A.shape[1] // c)
    current = lib.dtype_name(A.col_indices)
    most = options.width(current, across, size)
    columns = whole(lib, A.col_indices)
    launch, counts = Launcher(lib, columns, bits=True), lib.empty(rows, "int32", place)
    count = 0
    if size:
        given: dict[str, Any] = {"columns": columns, "counts": counts, "rows": rows}
        counting = {"RB": COUNTED, "W": SLOTS}
        launch(slotting.count_slots, -(-rows // COUNTED), given | {"width": width}, counting)
        indptr = pointers(lib, launch, counts, most)
        count = int(lib.item(indptr[rows]))
    else:
        indptr = lib.zeros(rows + 1, most, place)
    index, zeros = options.width(current, across, count), A.zeros
    if count == size:
        data = lib.reshape(lib.native(A.data), (size, r, c))
        indices = lib.astype(lib.reshape(columns, (-1,)), index)
    else:
        data, indices = lib.empty((count, r, c), name, place), lib.empty(count, index, place)
        programs, tile, parts = tiling(size, (r, c))
        given = {"values": whole(lib, A.data), "columns": columns, "indptr": indptr}
        given |= {"data": data, "indices": indices}
        given |= {"width": width, "slots": size, "parts": parts}
        launch(slotting.take_slots, programs if count else 0, given, tile)
        if zeros is not None and not isinstance(zeros, str):
            slot, within = zeros // (r * c), zeros % (r * c)
            block = lib.take(indptr, slot // width) + slot % width
            zeros = lib.astype(block, "int64") * (r * c) + within
    indptr = indptr if index == most else lib.astype(indptr, index)
    return BSR.trusted(data=data, indices=indices, indptr=indptr, shape=A.shape, zeros=zeros)


def _width(A: BSR, launch: Launcher) -> int:
    """Blocks of the fullest row; waits for the device."""
    lib, rows = A.lib, int(A.indptr.shape[0]) - 1
    span = -(-rows // (LOOKING * CHUNK)) * CHUNK
    programs = -(-rows // span)
    most = lib.empty(programs, "int64", A.device)
    given = {"indptr": A.indptr, "most": most, "rows": rows, "span": span}
    launch(slotting.widest, programs, given, {"E": CHUNK})
    return int(lib.to_numpy(most).max())


def _marks_in_slots(A: BSR, zeros: Array, width: int) -> Array:
    """Positions of stored zeros in the slots; blocks keep their order, so they stay ascending."""
    lib, size = A.lib, A.blocksize[0] * A.blocksize[1]
    starts, block = lib.astype(A.indptr, "int64"), zeros // size
    row = lib.searchsorted(starts, block, side="right") - 1
    return (block - lib.take(starts, row) + row * width) * size + zeros % size
