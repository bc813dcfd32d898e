"""BSR to BSR of another block size where CUDA arrays lie, one size a multiple of the other.

Cutting blocks looks at values: small blocks without a stored element are left out. Joining looks
at positions only: there is a large block wherever there is a given one. Both wait for the device
once, to learn how many there will be; only joining blocks that are marked "all" waits for more, to
list their zeros.
"""

from __future__ import annotations

from typing import Any

from sparseformats._arrays import Array
from sparseformats._dtypes import itemsize
from sparseformats.formats import ALL, BSR
from sparseformats.formats.canonical import expand
from sparseformats.formats.slots import count_inside, slots_inside
from sparseformats_kernels.triton.convert import reblocking
from sparseformats_kernels.triton.convert.common import kind_of, power, tiling, whole
from sparseformats_kernels.triton.convert.numbering import Named, Options, Table, number, table_of
from sparseformats_kernels.triton.launching import Launcher

__all__ = ["LINE", "ROWS", "bsr_to_bsr"]

LINE = 2048  # bytes of rows of blocks that a program looks at together: 16 for each thread
ROWS = 16  # of a block, that a program looks at or writes
FLAGGED, POINTED = 1024, 256  # blocks and rows that a program flags or numbers at a time


def bsr_to_bsr(A: BSR, options: Options) -> BSR:
    """Cut or join blocks.

    Raises
    ------
    MemoryError
        The result is larger than free memory.
    """
    size, (r, c) = options.blocksize, A.blocksize
    assert size is not None
    if not (size[0] % r or size[1] % c):
        return _joined(A, size, options)
    assert r % size[0] == c % size[1] == 0
    return _cut(A, size, options)


def _cut(A: BSR, size: tuple[int, int], options: Options) -> BSR:
    lib, (r, c), name, place = A.lib, size, A.dtype_name, A.device
    p, q, rows = A.blocksize[0] // r, A.blocksize[1] // c, -(-A.shape[0] // r)
    if not A.nnzb:
        return _nothing(A, size, options)
    launch, data = Launcher(lib, A.indptr, bits=True), whole(lib, A.data)
    table, sources = _flagged(A, data, size, launch)
    kept, listed = table.kept, None if isinstance(A.zeros, str) else A.zeros
    spots = None if listed is None else _spots(A, listed, size)
    if spots is not None:
        ones = lib.full(int(spots.shape[0]), 1, "int8", place)
        lib.put(table.flags.array(lib), spots, ones)
    named = number(lib, launch, table, options, lib.dtype_name(A.indices))
    starts = lib.empty(rows + 1, named.width, place)
    given: dict[str, Any] = {"indptr": A.indptr, "kept": kept, "starts": starts}
    given |= {"table": table.flags.size, "rows": rows}
    pointing = {"P": p, "Q": q, "E": POINTED}
    launch(reblocking.point_cuts, -(-rows // POINTED), given, pointing)
    count = named.blocks
    lib.ensure_fits(count * r * c * itemsize(name), place, f"BSR form with {count:,} blocks")
    values, columns = lib.empty((count, r, c), name, place), lib.empty(count, named.width, place)
    programs, tile, parts = tiling(count, size)
    given = {"data": data, "indices": A.indices, "sources": sources, "kept": kept}
    given |= {"values": values, "columns": columns, "count": count, "parts": parts}
    launch(reblocking.cut_blocks, programs, given, {"P": p, "Q": q} | tile)
    zeros = A.zeros
    if listed is not None and spots is not None:
        zeros = _moved(A, listed, _numbers(A, table, spots), size)
    return BSR.trusted(data=values, indices=columns, indptr=starts, shape=A.shape, zeros=zeros)


def _flagged(A: BSR, data: Array, size: tuple[int, int], launch: Launcher) -> tuple[Table, Array]:
    """A table of the small blocks in the order of the result, and where its lines come from."""
    lib, (r, c), name, place = A.lib, size, A.dtype_name, A.device
    p, q = A.blocksize[0] // r, A.blocksize[1] // c
    lines, each = A.nnzb * p, max(1, LINE // (itemsize(name) * q * c))
    table = table_of(lib, (1, lines * q), 0, place, ranked=True)
    sources = lib.empty(lines, "int32", place)
    given: dict[str, Any] = {"data": data, "indices": A.indices, "indptr": A.indptr}
    given |= {"flags": table.flags, "sources": sources, "lines": lines}
    given |= {"rows": int(A.indptr.shape[0]) - 1, "m": A.shape[0], "n": A.shape[1]}
    shape = {"P": p, "Q": q, "R": r, "C": c, "NB": each, "RB": min(ROWS, power(r))}
    shape |= {"KIND": kind_of(name), "ALL": isinstance(A.zeros, str)}
    launch(reblocking.flag_cuts, -(-lines // each), given, shape)
    return table, sources


def _joined(A: BSR, size: tuple[int, int], options: Options) -> BSR:
    lib, (r, c), (m, n), name, place = A.lib, A.blocksize, A.shape, A.dtype_name, A.device
    if not A.nnzb:
        return _nothing(A, size, options)
    p, q, grid = size[0] // r, size[1] // c, (-(-m // size[0]), -(-n // size[1]))
    listed = _stored_zeros(A)
    table = table_of(lib, grid, 0, place, ranked=listed is not None)
    launch, rows = Launcher(lib, A.indptr, bits=True), int(A.indptr.shape[0]) - 1
    read: dict[str, Any] = {"indices": A.indices, "indptr": A.indptr}
    read |= {"rows": rows, "columns": grid[1]}
    given, finds = read | {"flags": table.flags}, {"P": p, "Q": q, "E": FLAGGED}
    launch(reblocking.flag_joins, grid[0], given, finds)
    named = number(lib, launch, table, options, lib.dtype_name(A.indices))
    count, nbytes = named.blocks, named.blocks * size[0] * size[1] * itemsize(name)
    text = f"BSR form with {count:,} blocks of {size[0]} x {size[1]}"
    lib.ensure_fits(nbytes, place, text)
    values, names = lib.empty((count, *size), name, place), lib.empty(count, named.width, place)
    each, height = max(1, LINE // (itemsize(name) * size[1])), min(ROWS, power(r))
    parts = p * -(-r // height)
    given = read | {"data": whole(lib, A.data), "kept": table.kept, "values": values}
    given |= {"names": names, "count": count, "parts": parts}
    shape = {"P": p, "Q": q, "R": r, "C": c, "NB": each, "RB": height}
    launch(reblocking.join_blocks, -(-count // each) * parts, given, shape)
    zeros: Array | str | None = None
    if listed is not None:
        numbers = _numbers(A, table, _spots(A, listed, size))
        zeros = _moved(A, listed, numbers, size)
        zeros = ALL if _is_full(A, named, names, size) else zeros
    return BSR.trusted(data=values, indices=names, indptr=named.indptr, shape=A.shape, zeros=zeros)


def _nothing(A: BSR, size: tuple[int, int], options: Options) -> BSR:
    """No blocks."""
    lib, name = A.lib, options.width(A.lib.dtype_name(A.indices), -(-A.shape[1] // size[1]))
    grows = not (size[0] % A.blocksize[0] or size[1] % A.blocksize[1])
    return BSR.trusted(
        data=lib.empty((0, *size), A.dtype_name, A.device),
        indices=lib.empty(0, name, A.device),
        indptr=lib.zeros(-(-A.shape[0] // size[0]) + 1, name, A.device),
        shape=A.shape,
        zeros=None if grows else A.zeros,
    )


def _spots(A: BSR, zeros: Array, size: tuple[int, int]) -> Array:
    """Places, in the table of a step, of the blocks that positions of A's data come to."""
    lib, (r, c), starts = A.lib, A.blocksize, A.lib.astype(A.indptr, "int64")
    block, down, across = zeros // (r * c), zeros // c % r, zeros % c
    row = lib.searchsorted(starts, block, side="right") - 1
    if not (size[0] % r or size[1] % c):
        column = lib.astype(lib.take(A.indices, block), "int64") // (size[1] // c)
        return row // (size[0] // r) * -(-A.shape[1] // size[1]) + column
    p, q, begin = r // size[0], c // size[1], lib.take(starts, row)
    line = begin * p + down // size[0] * (lib.take(starts, row + 1) - begin) + block - begin
    return line * q + across // size[1]


def _numbers(A: BSR, table: Table, spots: Array) -> Array:
    """Numbers of the blocks at some places of a table."""
    rank = A.lib.take(table.kept.array(A.lib)[table.flags.size :], spots)
    return A.lib.astype(rank, "int64") - 1


def _moved(A: BSR, zeros: Array, number: Array, size: tuple[int, int]) -> Array:
    """Positions in the new data, ascending, given the number of the block that each comes to."""
    lib, (r, c) = A.lib, A.blocksize
    block, down, across = zeros // (r * c), zeros // c % r, zeros % c
    if not (size[0] % r or size[1] % c):
        row = lib.searchsorted(lib.astype(A.indptr, "int64"), block, side="right") - 1
        down = row * r + down
        across = lib.astype(lib.take(A.indices, block), "int64") * c + across
    moved = number * (size[0] * size[1]) + down % size[0] * size[1] + across % size[1]
    return lib.take(moved, lib.argsort(moved))


def _stored_zeros(A: BSR) -> Array | None:
    """Positions of stored zeros, which the mark "all" does not list; None where there are none."""
    zeros = A.zeros
    if isinstance(zeros, str):
        mask = ~A.lib.nonzero_mask(A.data)
        if A.shape[0] % A.blocksize[0] or A.shape[1] % A.blocksize[1]:
            row = expand(A.lib, A.indptr, A.nnzb)
            inside = slots_inside(A.lib, row, A.indices, A.blocksize, A.shape)
            mask = mask if inside is None else mask & inside
        zeros = A.lib.flatnonzero(mask)
    return None if zeros is None or not int(zeros.shape[0]) else zeros


def _is_full(A: BSR, named: Named, names: Array, size: tuple[int, int]) -> bool:
    """Whether all is stored that lies in the joined blocks of a matrix marked "all"."""
    if not isinstance(A.zeros, str):
        return False
    lib, (r, c), (m, n) = A.lib, A.blocksize, A.shape
    if not (m % size[0] or n % size[1]):
        return A.nnzb * r * c == named.blocks * size[0] * size[1]
    given = count_inside(lib, expand(lib, A.indptr, A.nnzb), A.indices, (r, c), A.shape)
    row = expand(lib, named.indptr, named.blocks)
    return given == count_inside(lib, row, names, size, A.shape)
