"""Kernels that move blocks into other blocks compile everywhere, to moves of whole vectors."""

from __future__ import annotations

from typing import Any

import pytest

from sparseformats_kernels.triton.convert import blocks, common, reblocking, slots, slotting
from sparseformats_kernels.triton.launch import Specimen, compile_for
from tests.kernels.triton.compile.test_kernels import CAPABILITIES
from tests.kernels.triton.compiling import facts

KERNELS = {name: getattr(k, name) for k in (slotting, reblocking) for name in k.__all__}
SCALARS = ("rows", "span", "width", "slots", "parts", "lines", "m", "n", "table", "count")
WIDE = ("indices", "indptr", "names", "starts")
NARROW = ("counts", "sources", "kept")
STREAMS = ("fill_slots", "take_slots", "flag_cuts", "cut_blocks", "join_blocks")


def specimen(
    name: str, small: int, times: int, dtype: str = "i16", width: str = "i32", **changes: Any
) -> Specimen:
    """A kernel as it is compiled for small blocks and ones so many times as high and wide."""
    function, item = KERNELS[name], int(dtype[1:]) // 8
    of_slots = name in slotting.__all__
    constants: dict[str, Any] = {"P": times, "Q": times, "R": small, "C": small, "KIND": 1}
    constants |= common.tiling(1, (small, small))[1]
    constants |= {"RB": min(blocks.ROWS, small), "ALL": False, "W": slots.SLOTS}
    if name in ("flag_cuts", "join_blocks"):
        constants["NB"] = max(1, blocks.LINE // (item * small * times))
    if name == "count_slots":
        constants["RB"] = slots.COUNTED
    chunks = {"widest": slots.CHUNK, "point_cuts": blocks.POINTED, "flag_joins": blocks.FLAGGED}
    constants["E"] = chunks.get(name, constants["E"])
    constants |= changes
    types = dict.fromkeys(("data", "values"), f"*{dtype}") | {"flags": "*i8", "most": "*i64"}
    types |= dict.fromkeys(WIDE, f"*{width}") | dict.fromkeys(NARROW, "*i32")
    types |= dict.fromkeys(SCALARS, "i32")
    types["columns"] = f"*{width}" if of_slots or name == "cut_blocks" else "i32"
    names = function.arg_names
    aligned = {n for n in names if n not in constants and types[n].startswith("*")}
    return Specimen(
        function,
        tuple((n, types[n]) for n in names if n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset(aligned),
        4,
    )


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("width", ["i32", "i64"])
@pytest.mark.parametrize(("small", "times"), [(16, 2), (32, 2), (16, 4)])
@pytest.mark.parametrize("name", KERNELS)
def test_whole_vectors_and_no_spills(
    name: str, small: int, times: int, width: str, capability: int
) -> None:
    """Indices of 64 bits too: a variable that a loop gives another width is refused by Triton."""
    found = facts(compile_for(specimen(name, small, times, width=width), capability))
    about = f"{name} on sm_{capability}: {found}"
    assert found.stack == found.local == 0, about
    assert not found.has("atomic"), about
    if name in STREAMS:
        assert not found.has("narrow"), about
        assert found.has("wide-load"), about
    assert found.shared <= 4096, about


@pytest.mark.parametrize("width", ["i32", "i64"])
@pytest.mark.parametrize("dtype", ["i8", "i64"])
@pytest.mark.parametrize("name", STREAMS)
def test_values_of_other_widths_compile(name: str, dtype: str, width: str) -> None:
    for small, times in ((16, 2), (1, 16), (1024, 1)):
        height = {"R": 1, "RB": 1} if small == 1024 else {}
        found = facts(compile_for(specimen(name, small, times, dtype, width, **height), 90))
        assert found.stack == found.local == 0, f"{name}, {small}, {times}: {found}"


@pytest.mark.parametrize("width", ["i32", "i64"])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_blocks_that_are_stored_whole_are_flagged_by_place(capability: int, width: str) -> None:
    made = specimen("flag_cuts", 32, 2, width=width, ALL=True)
    found = facts(compile_for(made, capability))
    assert found.stack == found.local == 0, found


def test_slots_beyond_32_bits_compile() -> None:
    for name in ("fill_slots", "take_slots"):
        made = specimen(name, 32, 2)
        types = tuple((n, "i64" if n == "slots" else kind) for n, kind in made.types)
        many = Specimen(made.function, types, made.constants, made.aligned, made.warps)
        assert facts(compile_for(many, 90)).stack == 0


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_what_other_threads_wrote_is_waited_for(capability: int) -> None:
    assert "bar.sync" in compile_for(specimen("flag_joins", 16, 2), capability).asm["ptx"]
