"""Dense arrays to 2:4 compile everywhere; whole vectors are read where arrays lie so."""

from __future__ import annotations

import pytest

from sparseformats._dtypes import itemsize
from sparseformats_kernels.triton.convert import to_nm
from sparseformats_kernels.triton.convert.packing import pack
from sparseformats_kernels.triton.launch import Specimen, compile_for
from tests.kernels.triton.compile.test_kernels import CAPABILITIES
from tests.kernels.triton.compiling import facts

STEPS = ("row_step", "column_step")


def specimen(name: str, lies: str) -> Specimen:
    """The kernel for arrays in one piece, in padded rows, or lying in any way."""
    constants = to_nm.constants_of(name, lies == "flat", lies != "any")
    constants |= {"column_step": 1} if lies != "any" else {}
    types = dict.fromkeys(("dense", "data"), f"*i{8 * itemsize(name)}")
    types |= {"indices": "*i8", "crowded": "*i64"}
    types |= dict.fromkeys((*STEPS, "K", "GROUPS", "TOTAL"), "i32")
    names = pack.arg_names
    aligned = {"data", "indices", "crowded"} | ({"dense", "row_step"} if lies != "any" else set())
    return Specimen(
        pack,
        tuple((n, types[n]) for n in names if n in types and n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset(aligned),
        to_nm.WARPS,
    )


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("lies", ["flat", "rows", "any"])
@pytest.mark.parametrize("name", ["bfloat16", "float32", "int8", "float64"])
def test_loads_of_whole_vectors_and_no_spills(name: str, lies: str, capability: int) -> None:
    found = facts(compile_for(specimen(name, lies), capability))
    about = f"{name} {lies} on sm_{capability}: {found}"
    assert found.local == found.stack == 0, about
    # A group of bytes is one word, which is what a lane loads.
    assert found.has("wide-load") or lies == "any" or name == "int8", about
