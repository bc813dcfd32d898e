"""Kernels that move elements compile everywhere, to loads and stores of whole vectors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sparseformats_kernels.triton.convert import (
    common,
    edges,
    finding,
    listing,
    lists,
    moving,
    numbering,
)
from sparseformats_kernels.triton.launch import Specimen, compile_for
from tests.kernels.triton.compile.test_kernels import CAPABILITIES
from tests.kernels.triton.compiling import facts

INDICES = ("indices", "indptr", "counts", "starts", "kept", "rows")
MARKS = ("marks", "above", "totals")  # always of 32 bits
SCALARS = ("m", "n", "count", "columns", "strips", "parts", "table", "row_step", "size", "span")
SCALARS += ("spans", "chunks")
RAGGED = (
    "count",
    "parts",
    "strips",
    "spans",
    "chunks",
)  # multiples of nothing, as they are in life
STREAMS = ("flag_blocks", "gather_blocks", "clear_blocks", "write_dense", "count_stored")
STREAMS += ("count_pieces",)
WRITERS = (
    "write_stored",
    "place_elements",
    "write_pieces",
)  # element by element, each to its own place
ORDERED = ("flag_columns",)  # read what other threads wrote
KERNELS = {
    name: getattr(kernels, name)
    for kernels in (finding, listing, moving)
    for name in kernels.__all__
}
CHUNKS = {"flag_columns": edges.FLAGGED, "place_elements": edges.PLACED}
CHUNKS |= dict.fromkeys(("add_up", "point", "name_blocks"), numbering.CHUNK)
CHUNKS |= {"mark_rows": lists.MARKED, "place_columns": lists.PLACED}
CHUNKS |= dict.fromkeys(("count_pieces", "write_pieces"), lists.piece_of("int16"))
WARPS = {"write_stored": 1, "write_pieces": 1, "flag_columns": 16, "name_blocks": 8}
WIDTHS = {"stack_marks": lists.WIDE, "write_pieces": 256}
HEIGHTS = {"write_stored": edges.WRITTEN, "count_pieces": lists.COUNTED}


def specimen(name: str, block: int, dtype: str = "i16", width: str = "i32") -> Specimen:
    """A kernel as it is compiled for values of two bytes, square blocks and a width of indices."""
    function = KERNELS[name]
    each = min(common.ELEMENTS, block * block)
    line = common.LINE // 2 if name in ("flag_blocks", "write_dense") else edges.COLUMNS
    constants: dict[str, Any] = {"R": block, "C": block, "G": line // block, "KIND": 1}
    constants |= {"RB": HEIGHTS.get(name, common.ROWS), "ROWS": lists.ROWS}
    constants |= {"T": lists.STACK, "W": WIDTHS.get(name, line), "V": 8}
    constants |= {"NB": max(1, common.ELEMENTS // each), "E": CHUNKS.get(name, each)}
    constants |= {"FILL": True, "MARKED": False, "RANKED": True, "BY_ROWS": True, "column_step": 1}
    types = dict.fromkeys(("dense", "data", "values", "marked", "blocks"), f"*{dtype}")
    types |= dict.fromkeys(INDICES, f"*{width}") | {"flags": "*i8", "sums": "*i64"}
    types |= dict.fromkeys(SCALARS, "i32")
    if name in ("write_stored", "write_pieces"):
        types["columns"] = f"*{width}"
    types |= dict.fromkeys(MARKS, "*i32")
    names = function.arg_names
    return Specimen(
        function,
        tuple((n, types[n]) for n in names if n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset(n for n in names if n not in constants and n not in RAGGED),
        WARPS.get(name, 4),
    )


def pieces(kernel: Any) -> list[tuple[int, ...]]:
    """Neighbouring elements of a thread, by axis, of what each store writes."""
    text = kernel.asm["ttgir"]
    layouts = dict(
        re.findall(r"^(#\w+) = #ttg\.blocked<{sizePerThread = \[([\d, ]+)\]", text, re.M)
    )
    stores = re.findall(r"tt\.store .*, (#\w+)>", text)
    return [tuple(int(x) for x in layouts[name].split(", ")) for name in stores]


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize("name", KERNELS)
def test_loads_of_whole_vectors_and_no_spills(name: str, block: int, capability: int) -> None:
    found = facts(compile_for(specimen(name, block), capability))
    about = f"{name} on sm_{capability}: {found}"
    assert found.stack == found.local == 0, about
    # An OR comes to the same in any order, a sum of floats does not.
    assert found.has("atomic") == (name == "mark_rows"), about
    assert found.has("wide-offset"), about
    if name in STREAMS:
        assert not found.has("narrow"), about
    if name == "flag_blocks":
        # Only what is left of each column after the last row goes from warp to warp.
        assert found.shared < 256, about


@pytest.mark.parametrize("name", KERNELS)
def test_indices_of_64_bits_compile(name: str) -> None:
    """A variable that one loop gives 32 bits and another one 64 is refused by Triton."""
    found = facts(compile_for(specimen(name, 16, width="i64"), 90))
    assert found.stack == found.local == 0, found


@pytest.mark.parametrize("name", ORDERED)
def test_what_other_threads_wrote_is_waited_for(name: str) -> None:
    assert "bar.sync" in compile_for(specimen(name, 16), 90).asm["ptx"]


@pytest.mark.parametrize("block", [16, 64, 1024])
@pytest.mark.parametrize("dtype", ["i16", "i64"])
def test_blocks_are_flagged_in_columns_that_lie_in_one_piece(dtype: str, block: int) -> None:
    """Dense arrays in column-major order, the widest blocks and elements among them."""
    made = specimen("flag_blocks", block, dtype)
    size = int(dtype[1:]) // 8
    groups = max(1, common.LINE // size // block)
    rows = min(common.ROWS, common.ROWS * common.LINE // (groups * block * size))
    constants = {n: v for n, v in made.constants if n != "column_step"}
    constants |= {"row_step": 1, "BY_ROWS": False, "G": groups, "RB": rows}
    types, names = {**dict(made.types), "column_step": "i32"}, made.function.arg_names
    turned = Specimen(
        made.function,
        tuple((n, types[n]) for n in names if n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        made.aligned | {"column_step"},
        4,
    )
    found = facts(compile_for(turned, 90))
    assert found.stack == found.local == 0, found
    assert not found.has("narrow"), found


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize("name", WRITERS)
def test_neighbours_are_stored_by_neighbouring_lanes(
    name: str, block: int, capability: int
) -> None:
    kernel = compile_for(specimen(name, block), capability)
    stores = pieces(kernel)
    assert stores, kernel.asm["ttgir"]
    assert all(set(piece) == {1} for piece in stores), stores
    # And what they count stays within a warp: which of several would wait for each other?
    assert "bar.sync" not in kernel.asm["ptx"] or WARPS[name] == 1


def test_whole_vectors_of_a_lane_show() -> None:
    """Else the test above would pass whatever was stored."""
    assert any(max(piece) > 1 for piece in pieces(compile_for(specimen("clear_blocks", 16), 90)))


def test_a_step_that_is_not_known_shows() -> None:
    """Else the test above would pass whatever was loaded."""
    made = specimen("gather_blocks", 16)
    constants = tuple((n, v) for n, v in made.constants if n != "column_step")
    names = made.function.arg_names
    types = {**dict(made.types), "column_step": "i32"}
    loose = Specimen(
        made.function, tuple((n, types[n]) for n in names if n in types), constants, made.aligned, 4
    )
    assert facts(compile_for(loose, 90)).has("narrow")
