"""Conversions between dense arrays, CSR and BSR where CUDA arrays lie.

Each waits for the device once, to learn how much there will be.
"""

from __future__ import annotations

from sparseformats import _arrays
from sparseformats._arrays import Array
from sparseformats._dtypes import itemsize, kind
from sparseformats.formats import ALL, BSR, CSR
from sparseformats.formats.canonical import expand
from sparseformats.formats.slots import count_inside, slots_inside, stored_slots
from sparseformats_kernels.triton.convert import finding, moving
from sparseformats_kernels.triton.convert.common import (
    LINE,
    ROWS,
    kind_of,
    power,
    steps_of,
    strips,
    tiling,
    whole,
)
from sparseformats_kernels.triton.convert.numbering import Options, number, pointers, table_of
from sparseformats_kernels.triton.launching import Launcher

__all__ = ["bsr_to_csr", "bsr_to_dense", "csr_to_bsr", "dense_to_bsr"]

COLUMNS = 256  # of a block row, that a program counts or writes at a time
WRITTEN = 2  # rows of a block row that a program writes, a warp by itself
FLAGGED, PLACED = 4096, 512  # elements whose places a program looks up at a time


def dense_to_bsr(D: Array, options: Options) -> BSR:
    """Keep blocks with a non-zero: flag them, number them, copy them."""
    lib, (r, c) = _arrays.of(D), _size(options)
    (m, n), name, place = (int(s) for s in D.shape), lib.dtype_name(D), lib.device(D)
    if kind(name) == "c":
        D = lib.contiguous(D)  # two numbers that are seen as one must lie side by side
    rows, columns = -(-m // r), -(-n // c)
    launch, (row_step, column_step) = Launcher(lib, D, bits=True), steps_of(lib, D)
    table = table_of(lib, (rows, columns), 0, place)
    lie = {"dense": D, "row_step": row_step, "column_step": column_step}
    strip, along = strips(n, c, itemsize(name))
    height = min(ROWS, power(r), max(1, ROWS * LINE // (strip * c * itemsize(name))))
    shape = {"R": r, "C": c, "G": strip, "RB": height, "KIND": kind_of(name)}
    given = lie | {"flags": table.flags, "m": m, "n": n, "columns": columns, "strips": along}
    shape["BY_ROWS"] = column_step == 1
    launch(finding.flag_blocks, rows * along, given, shape)
    named = number(lib, launch, table, options)
    count = named.blocks
    lib.ensure_fits(count * r * c * itemsize(name), place, f"BSR form with {count:,} blocks")
    data = lib.empty((count, r, c), name, place)
    indices = lib.empty(count, named.width, place)
    programs, tile, parts = tiling(count, (r, c))
    given = lie | {"kept": table.kept, "data": data, "indices": indices}
    given |= {"m": m, "n": n, "columns": columns, "count": count, "parts": parts}
    launch(moving.gather_blocks, programs, given, tile)
    return BSR.trusted(data=data, indices=indices, indptr=named.indptr, shape=(m, n), zeros=None)


def bsr_to_dense(A: BSR, options: Options) -> Array:
    """Write each block to its place; fill becomes +0.0, which it need not have been."""
    lib, (m, n), (r, c), name = A.lib, A.shape, A.blocksize, A.dtype_name
    lib.ensure_fits(m * n * itemsize(name), A.device, f"dense form of a {m} x {n} matrix")
    if not A.nnzb:
        return lib.zeros((m, n), name, A.device)
    data, out = whole(lib, A.data), lib.empty((m, n), name, A.device)
    zeros = None if isinstance(A.zeros, str) else A.zeros
    fill = A.zeros is zeros and kind(name) not in "biu"
    rows, parts = -(-m // r), -(-r // ROWS)
    strip, along = strips(n, c, itemsize(name))
    given = {"data": data, "indices": A.indices, "indptr": A.indptr, "dense": out}
    given |= {"m": m, "n": n, "strips": along, "parts": parts}
    constants = {"R": r, "C": c, "G": strip, "RB": min(ROWS, power(r)), "KIND": kind_of(name)}
    launch = Launcher(lib, data, bits=True)
    launch(moving.write_dense, rows * parts * along, given, constants | {"FILL": fill})
    if fill and zeros is not None:
        block, row = zeros // (r * c), zeros // c % r
        row = row + lib.astype(lib.take(expand(lib, A.indptr, A.nnzb), block), "int64") * r
        column = zeros % c + lib.astype(lib.take(A.indices, block), "int64") * c
        lib.put(out, row * n + column, lib.take(lib.reshape(data, (-1,)), zeros))
    return out


def bsr_to_csr(A: BSR, options: Options) -> CSR:
    """Count what is stored in each row, then write it: non-zeros and marked zeros."""
    lib, (m, n), (r, c), name, place = A.lib, A.shape, A.blocksize, A.dtype_name, A.device
    width = options.width(lib.dtype_name(A.indices), n)
    most = options.width(width, A.nnzb * r * c)
    data, marked = whole(lib, A.data), _marked(A)
    rows, groups = int(A.indptr.shape[0]) - 1, max(1, COLUMNS // c)
    given = {"data": data, "marked": data if marked is None else marked}
    given |= {"indptr": A.indptr, "m": m}
    constants = {"R": r, "C": c, "G": groups, "KIND": kind_of(name), "MARKED": marked is not None}
    launch = Launcher(lib, A.indptr, bits=True)
    counts, height = lib.empty(m, "int32", place), min(ROWS, power(r))
    parts = -(-r // height)
    counting = given | {"counts": counts, "parts": parts}
    launch(finding.count_stored, rows * parts, counting, constants | {"RB": height})
    indptr = pointers(lib, launch, counts, most)
    nnz = int(lib.item(indptr[m])) if m else 0
    width = options.width(width, nnz)
    values, columns = lib.empty(nnz, name, place), lib.empty(nnz, width, place)
    height = min(WRITTEN, height)
    parts = -(-r // height)
    given |= {"indices": A.indices, "starts": indptr, "parts": parts}
    given |= {"values": values, "columns": columns}
    programs = rows * parts if nnz else 0
    launch(moving.write_stored, programs, given, constants | {"RB": height}, warps=1)
    if width != most:
        indptr = lib.astype(indptr, width)
    return CSR.trusted(data=values, indices=columns, indptr=indptr, shape=A.shape)


def csr_to_bsr(A: CSR, options: Options) -> BSR:
    """Flag the blocks that elements lie in, number them, and write each element to its place."""
    lib, (m, n), (r, c), name, place = A.lib, A.shape, _size(options), A.dtype_name, A.device
    rows, columns = -(-m // r), -(-n // c)
    size, data = rows * columns, whole(lib, A.data)
    table = table_of(lib, (rows, columns), rows, place)  # behind it: rows with stored zeros
    launch, constants = Launcher(lib, A.indptr, bits=True), {"R": r, "C": c}
    read = {"data": data, "indices": A.indices, "indptr": A.indptr, "columns": columns}
    given, programs = read | {"flags": table.flags, "m": m, "table": size}, rows if size else 0
    many = A.nnz > 4 * FLAGGED * rows  # few programs have to look at much
    finds = constants | {"E": FLAGGED * (1 + many), "KIND": kind_of(name)}
    launch(finding.flag_columns, programs, given, finds, warps=16)
    current = lib.dtype_name(A.indices)
    named = number(lib, launch, table, options, current)
    count = named.blocks
    lib.ensure_fits(count * r * c * itemsize(name), place, f"BSR form with {count:,} blocks")
    blocks = lib.empty((count, r, c), name, place)
    indices = lib.empty(count, named.width, place)
    programs, tile, parts = tiling(count, (r, c))
    given = {"kept": table.kept, "blocks": blocks, "indices": indices}
    given |= {"columns": columns, "count": count, "parts": parts}
    launch(moving.clear_blocks, programs, given, tile)
    given = read | {"kept": table.kept, "table": size, "blocks": blocks}
    launch(moving.place_elements, m if A.nnz else 0, given, constants | {"E": PLACED})
    marks: Array | str | None = None
    if named.behind:
        marks = _marks(A, data, table.kept.array(lib)[size:], (r, c))
        brow = expand(lib, named.indptr, count)
        if A.nnz == count_inside(lib, brow, indices, (r, c), A.shape):
            marks = ALL
    return BSR.trusted(
        data=blocks, indices=indices, indptr=named.indptr, shape=A.shape, zeros=marks
    )


def _marks(A: CSR, data: Array, rank: Array, size: tuple[int, int]) -> Array:
    """Positions of stored zeros among the blocks, ascending."""
    lib, (r, c) = A.lib, size
    columns = -(-A.shape[1] // c)
    at = lib.flatnonzero(~lib.nonzero_mask(data))
    row = lib.searchsorted(lib.astype(A.indptr, "int64"), at, side="right") - 1
    column = lib.astype(lib.take(A.indices, at), "int64")
    block = lib.take(rank, row // r * columns + column // c) - 1
    place = block * (r * c) + row % r * c + column % c
    return lib.take(place, lib.argsort(place))


def _marked(A: BSR) -> Array | None:
    """Which slots are stored, where their values alone do not tell."""
    if A.zeros is None or not A.nnzb:
        return None
    inside = None
    if isinstance(A.zeros, str):
        row = expand(A.lib, A.indptr, A.nnzb)
        inside = slots_inside(A.lib, row, A.indices, A.blocksize, A.shape)
    return stored_slots(A.lib, A.data, A.zeros, inside)


def _size(options: Options) -> tuple[int, int]:
    if options.blocksize is None:
        raise ValueError("a conversion to BSR needs options.blocksize, got None")
    return options.blocksize
