"""Sums of counts and numbers of flags: where each piece of a result begins."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats_kernels.triton.convert import finding
from sparseformats_kernels.triton.launching import Launcher, Part

__all__ = ["Named", "Options", "Table", "number", "pointers", "spans_of", "table_of"]

CHUNK, SPANS = 1024, 4096  # counts that are summed at a time, and the most programs that do so
SUMMING = {"E": CHUNK}


class Options(Protocol):
    """What these edges read of a step's options."""

    @property
    def blocksize(self) -> tuple[int, int] | None: ...

    def width(self, current: str, *extents: int) -> Any: ...


class Table(NamedTuple):
    """Places for blocks, and what is found out about them; all in one piece of memory.

    Attributes
    ----------
    grid : (int, int)
        Rows and columns of the table.
    flags : (table + behind,) int8
        Of the places, and further ones.
    kept : (table,) or (2 table,) int32
        First the place of each flagged block, then, where that is asked for or there are further
        flags, how many blocks there are up to each place.
    sums : (spans + 2,) int64
        Sums of spans of flags; the number of flags in the table, and of all.
    """

    grid: tuple[int, int]
    flags: Part
    kept: Part
    sums: Part


def table_of(
    lib: ArrayLibrary, grid: tuple[int, int], behind: int, place: str, *, ranked: bool = False
) -> Table:
    """A table for `number`; `ranked` as where there are flags behind it."""
    table = grid[0] * grid[1]
    kept, sums = table * (2 if behind or ranked else 1), spans_of(max(1, table + behind))[0] + 2
    first = -(-8 * sums // 16) * 16
    second = first + -(-4 * kept // 16) * 16
    memory = lib.empty(second + table + behind, "int8", place)
    flags = Part(memory, second, table + behind, "int8")
    return Table(grid, flags, Part(memory, first, kept, "int32"), Part(memory, 0, sums, "int64"))


class Named(NamedTuple):
    """Blocks that a table has flagged.

    Attributes
    ----------
    blocks : int
    behind : int
        Further flags, behind the table's.
    indptr : (rows + 1,) array
    width : str
        Dtype of `indptr`, and of the block columns.
    """

    blocks: int
    behind: int
    indptr: Array
    width: str


def number(
    lib: ArrayLibrary, launch: Launcher, found: Table, options: Options, current: str = "int32"
) -> Named:
    """Number the flagged blocks of a table; waits for the device."""
    (rows, columns), memory, size = found.grid, found.flags.memory, found.flags.size
    table, place = rows * columns, lib.device(memory)
    width = options.width(current, columns, table)
    if not table:
        return Named(0, 0, lib.zeros(rows + 1, width, place), width)
    indptr = lib.empty(rows + 1, width, place)
    spans, span = spans_of(size)
    given = {"size": size, "span": span, "sums": found.sums}
    if spans > 1:
        launch(finding.add_up, spans, given | {"counts": found.flags}, SUMMING)
    given |= {"flags": found.flags, "kept": found.kept, "indptr": indptr}
    given |= {"table": table, "columns": columns, "spans": spans}
    constants = SUMMING | {"RANKED": found.kept.size > table}
    launch(finding.name_blocks, spans, given, constants, warps=8)
    numbers = lib.to_numpy(memory[8 * spans : 8 * spans + 16]).view("int64")
    count, ends = int(numbers[0]), int(numbers[1])
    return Named(count, ends - count, indptr, width)


def pointers(lib: ArrayLibrary, launch: Launcher, counts: Array, width: str) -> Array:
    """Where each row begins, from the count of each, and where the last one ends."""
    size, place = int(counts.shape[0]), lib.device(counts)
    if not size:
        return lib.zeros(1, width, place)
    indptr = lib.empty(size + 1, width, place)
    spans, span = spans_of(size)
    given = {"counts": counts, "sums": indptr, "size": size, "span": span}
    if spans > 1:
        given["sums"] = lib.empty(spans, "int64", place)
        launch(finding.add_up, spans, given, SUMMING)
    launch(finding.point, spans, given | {"indptr": indptr}, SUMMING)
    return indptr


def spans_of(size: int) -> tuple[int, int]:
    """Programs that sum so many counts, and how many each of them sums."""
    span = -(-size // (SPANS * CHUNK)) * CHUNK
    return -(-size // span), span
