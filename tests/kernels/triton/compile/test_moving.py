"""Kernels that move elements compile everywhere, to loads and stores of whole vectors."""

from __future__ import annotations

from typing import Any

import pytest

from sparseformats_kernels.triton.convert import moving
from sparseformats_kernels.triton.launch import Specimen, compile_for
from tests.kernels.triton.compile.test_kernels import CAPABILITIES
from tests.kernels.triton.compiling import facts

INDICES = ("rows", "indices", "indptr", "counts", "starts", "columns_out", "kept")
SCALARS = ("m", "n", "count", "columns", "strips", "parts", "table", "row_step")
RAGGED = ("count", "parts", "strips")  # multiples of nothing, as they are in life
STREAMS = ("flag_blocks", "gather_blocks", "scatter_blocks", "count_stored")


def specimen(name: str, block: int, dtype: str = "i16") -> Specimen:
    """A kernel as it is compiled for values of two bytes and square blocks."""
    function = getattr(moving, name)
    each = min(2048, block * block)
    constants: dict[str, Any] = {"R": block, "C": block, "G": 256 // block, "KIND": 1}
    constants |= {"RB": 16, "NB": max(1, 2048 // each), "E": each, "column_step": 1}
    constants |= {"FILL": True, "MARKED": False}
    constants["E"] = {"flag_columns": 4096, "place_elements": 512}.get(name, each)
    types = dict.fromkeys(("dense", "data", "values", "marked", "blocks"), f"*{dtype}")
    types |= dict.fromkeys(INDICES, "*i32") | dict.fromkeys(("flags", "zeros"), "*i8")
    types |= dict.fromkeys(SCALARS, "i32") | {"rank": "*i64"}
    if name == "write_stored":
        types["columns"] = "*i32"
    names = function.arg_names
    return Specimen(
        function,
        tuple((n, types[n]) for n in names if n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset(n for n in names if n not in constants and n not in RAGGED),
        8 if name in ("write_stored", "flag_columns") else 4,
    )


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize("name", moving.__all__)
def test_loads_of_whole_vectors_and_no_spills(name: str, block: int, capability: int) -> None:
    found = facts(compile_for(specimen(name, block), capability))
    about = f"{name} on sm_{capability}: {found}"
    assert found.stack == found.local == 0, about
    assert not found.has("atomic"), about
    assert found.has("wide-offset"), about
    if name in STREAMS:
        assert not found.has("narrow"), about


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
