"""Conversions between dense arrays, CSR and BSR where CUDA arrays lie.

Each waits for the device once, to learn how much there will be.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import bits_name, itemsize, kind
from sparseformats.formats import ALL, BSR, CSR
from sparseformats.formats.canonical import expand
from sparseformats.formats.slots import count_inside, slots_inside, stored_slots
from sparseformats_kernels.triton.convert import moving
from sparseformats_kernels.triton.launching import Launcher

__all__ = ["bsr_to_csr", "bsr_to_dense", "csr_to_bsr", "dense_to_bsr"]

ELEMENTS = 2048  # that a program moves at a time
STRIP = 256  # columns that a program looks at
ROWS = 16  # of a block row, that a program counts and writes


class Options(Protocol):
    """What these edges read of a step's options."""

    @property
    def blocksize(self) -> tuple[int, int] | None: ...

    def width(self, current: str, *extents: int) -> Any: ...


def dense_to_bsr(D: Array, options: Options) -> BSR:
    """Keep blocks with a non-zero: flag them, number them, copy them."""
    lib, (r, c) = _arrays.of(D), _size(options)
    (m, n), name, place = (int(s) for s in D.shape), lib.dtype_name(D), lib.device(D)
    rows, columns = -(-m // r), -(-n // c)
    bits, launch = _bits(lib, D), Launcher(lib, D)
    steps = dict(zip(("row_step", "column_step"), _steps(lib, D), strict=True))
    flags = lib.empty(rows * columns, "int8", place)
    groups = max(1, STRIP // c)
    strips = -(-columns // groups)
    given = {"dense": bits, **steps, "flags": flags, "m": m, "n": n}
    given |= {"columns": columns, "strips": strips}
    shape = {"R": r, "C": c, "G": groups, "RB": _power(r, max(1, 4 * ELEMENTS // (groups * c)))}
    launch(moving.flag_blocks, rows * strips, given, shape | {"KIND": _kind(name)})
    named = _named(lib, launch, flags, (rows, columns), options)
    count = named.blocks
    lib.ensure_fits(count * r * c * itemsize(name), place, f"BSR form with {count:,} blocks")
    data = lib.empty((count, r, c), name, place)
    given = {"dense": bits, **steps, "kept": named.kept, "data": _some(lib, data)}
    programs, tile, parts = _tiling(count, (r, c))
    given |= {"m": m, "n": n, "columns": columns, "count": count, "parts": parts}
    launch(moving.gather_blocks, programs, given, tile)
    return BSR.trusted(
        data=data, indices=named.indices, indptr=named.indptr, shape=(m, n), zeros=None
    )


def bsr_to_dense(A: BSR, options: Options) -> Array:
    """Write each block to its place; fill becomes +0.0, which it need not have been."""
    lib, (m, n), (r, c), name = A.lib, A.shape, A.blocksize, A.dtype_name
    lib.ensure_fits(m * n * itemsize(name), A.device, f"dense form of a {m} x {n} matrix")
    out = lib.zeros((m, n), name, A.device)
    if not A.nnzb:
        return out
    rows = expand(lib, A.indptr, A.nnzb)
    data = lib.contiguous(lib.native(A.data))
    given = {"data": _bits(lib, data), "rows": rows, "indices": A.indices}
    programs, tile, parts = _tiling(A.nnzb, (r, c))
    given |= {"dense": _bits(lib, out), "m": m, "n": n, "count": A.nnzb, "parts": parts}
    zeros = None if isinstance(A.zeros, str) else A.zeros
    fill = A.zeros is zeros and kind(name) not in "biu"
    constants = tile | {"KIND": _kind(name), "FILL": fill}
    Launcher(lib, data)(moving.scatter_blocks, programs, given, constants)
    if fill and zeros is not None:
        block, row = zeros // (r * c), zeros // c % r
        row = row + lib.astype(lib.take(rows, block), "int64") * r
        column = zeros % c + lib.astype(lib.take(A.indices, block), "int64") * c
        lib.put(out, row * n + column, lib.take(lib.reshape(data, (-1,)), zeros))
    return out


def bsr_to_csr(A: BSR, options: Options) -> CSR:
    """Count what is stored in each row, then write it: non-zeros and marked zeros."""
    lib, (m, n), (r, c), name = A.lib, A.shape, A.blocksize, A.dtype_name
    width = options.width(lib.dtype_name(A.indices), n)
    data = lib.contiguous(lib.native(A.data))
    rows, parts = int(A.indptr.shape[0]) - 1, -(-r // ROWS)
    marked = _marked(A)
    given = {"data": _some(lib, data), "marked": _some(lib, data if marked is None else marked)}
    given |= {"indptr": A.indptr, "m": m, "parts": parts}
    groups = max(1, STRIP // c)
    constants = {"R": r, "C": c, "G": groups, "RB": min(ROWS, _power(r)), "KIND": _kind(name)}
    constants |= {"MARKED": marked is not None}
    launch = Launcher(lib, A.indptr)
    counts = lib.zeros(m, "int32", A.device)
    launch(moving.count_stored, rows * parts, given | {"counts": counts}, constants)
    ends = lib.cumsum(counts)
    nnz = int(lib.item(ends[-1])) if m else 0
    width = options.width(width, nnz)
    values = lib.empty(nnz, name, A.device)
    columns = lib.empty(nnz, width, A.device)
    indptr = lib.concat([lib.zeros(1, width, A.device), lib.astype(ends, width)])
    given |= {"indices": _some(lib, A.indices), "starts": indptr}
    given |= {"values": _some(lib, values), "columns": _some(lib, columns)}
    launch(moving.write_stored, rows * parts if nnz else 0, given, constants, warps=8)
    return CSR.trusted(data=values, indices=columns, indptr=indptr, shape=A.shape)


def csr_to_bsr(A: CSR, options: Options) -> BSR:
    """Flag the blocks that elements lie in, number them, and write each element to its place."""
    lib, (m, n), (r, c), name, place = A.lib, A.shape, _size(options), A.dtype_name, A.device
    rows, columns = -(-m // r), -(-n // c)
    table = rows * columns
    flags = lib.zeros(table + rows, "int8", place)  # behind the blocks: rows with stored zeros
    data = lib.contiguous(lib.native(A.data))
    launch = Launcher(lib, A.indptr)
    read = {"data": _some(lib, data), "indices": _some(lib, A.indices), "indptr": A.indptr}
    given = read | {"flags": flags, "zeros": flags[table:], "m": m, "columns": columns}
    constants = {"R": r, "C": c}
    launch(
        moving.flag_columns,
        rows if A.nnz else 0,
        given,
        constants | {"E": 2 * ELEMENTS, "KIND": _kind(name)},
        warps=8,
    )
    named = _named(lib, launch, flags, (rows, columns), options, lib.dtype_name(A.indices))
    count = named.blocks
    lib.ensure_fits(count * r * c * itemsize(name), place, f"BSR form with {count:,} blocks")
    blocks = lib.zeros((count, r, c), name, place)
    given = read | {"rank": named.rank, "blocks": _some(lib, blocks), "columns": columns}
    launch(moving.place_elements, m if A.nnz else 0, given, constants | {"E": 512})
    marks: Array | str | None = None
    if named.behind:
        marks = _marks(A, data, named.rank, (r, c))
        brow = expand(lib, named.indptr, count)
        if A.nnz == count_inside(lib, brow, named.indices, (r, c), A.shape):
            marks = ALL
    return BSR.trusted(
        data=blocks, indices=named.indices, indptr=named.indptr, shape=A.shape, zeros=marks
    )


class _Named(NamedTuple):
    """Blocks that a table has flagged.

    Attributes
    ----------
    blocks : int
    behind : int
        Further flags, behind the table's.
    rank : array
        How many flags there are up to each place.
    kept, indices : (blocks,) arrays
        Number in the table, and block column.
    indptr : (rows + 1,) array
    """

    blocks: int
    behind: int
    rank: Array
    kept: Array
    indices: Array
    indptr: Array


def _named(
    lib: ArrayLibrary,
    launch: Launcher,
    flags: Array,
    grid: tuple[int, int],
    options: Options,
    current: str = "int32",
) -> _Named:
    """Number the flagged blocks of a table of (rows, columns); waits for the device."""
    (rows, columns), place = grid, lib.device(flags)
    table, size = rows * columns, int(flags.shape[0])
    rank = lib.cumsum(flags)
    count = behind = 0
    if table:
        ends = lib.to_numpy(rank[table - 1 :: max(1, size - table)])
        count, behind = int(ends[0]), int(ends[-1] - ends[0])
    width = options.width(current, columns, count)
    kept, indices = lib.empty(count, "int32", place), lib.empty(count, width, place)
    given = {"flags": flags, "rank": rank, "table": table, "columns": columns}
    given |= {"kept": _some(lib, kept), "indices": _some(lib, indices)}
    programs = -(-table // ELEMENTS) if count else 0
    launch(moving.name_blocks, programs, given, {"E": ELEMENTS})
    ends = rank[columns - 1 : table : columns] if table else lib.zeros(rows, "int64", place)
    indptr = lib.concat([lib.zeros(1, width, place), lib.astype(ends, width)])
    return _Named(count, behind, rank, kept, indices, indptr)


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


def _tiling(count: int, size: tuple[int, int]) -> tuple[int, dict[str, int], int]:
    """Programs that move so many blocks, what each moves, and the parts of a block."""
    r, c = size
    each = _power(r * c, ELEMENTS)
    blocks, parts = max(1, ELEMENTS // each), -(-r * c // each)
    return -(-count // blocks) * parts, {"R": r, "C": c, "NB": blocks, "E": each}, parts


def _size(options: Options) -> tuple[int, int]:
    if options.blocksize is None:
        raise ValueError("a conversion to BSR needs options.blocksize, got None")
    return options.blocksize


def _bits(lib: ArrayLibrary, x: Array) -> Array:
    """The same memory as integers."""
    return lib.bits(x)


def _some(lib: ArrayLibrary, x: Array) -> Array:
    """The bits of an array, or of one element where it has none: kernels are given an address."""
    if not int(x.shape[0]):
        return lib.zeros(1, bits_name(lib.dtype_name(x)), lib.device(x))
    return lib.bits(x)


def _steps(lib: ArrayLibrary, x: Array) -> tuple[int, ...]:
    size = itemsize(lib.dtype_name(x))
    return tuple(step // size for step in lib.strides(x))


def _kind(name: str) -> int:
    """How a zero is told from its bits."""
    return {"f": 1, "c": 2}.get(kind(name), 0)


def _power(size: int, limit: int = 1 << 30) -> int:
    """The smallest power of two from `size` on, or the largest one up to `limit`."""
    found = 1
    while found < size and 2 * found <= limit:
        found *= 2
    return found
