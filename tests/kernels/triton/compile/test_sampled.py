"""Sampled products compile everywhere, for tensor cores and to loads of whole vectors."""

from __future__ import annotations

from typing import Any

import pytest

from sparseformats_kernels.triton.launch import Specimen, compile_for
from sparseformats_kernels.triton.sampled import sample_blocks, sample_elements, sample_rows
from sparseformats_kernels.triton.sddmm import DEEP, ELEMENTS, LISTED, tiling
from tests.kernels.triton.compile.test_kernels import CAPABILITIES
from tests.kernels.triton.compiling import SHARED_MEMORY, Facts, facts

TENSOR_CORES = ("mma.sync", "wgmma", "tcgen05")


def specimen(
    function: Any,
    block: int,
    dtype: str,
    precision: str = "ieee",
    width: str = "i32",
    **constants: Any,
) -> Specimen:
    """Rows of X in one piece, columns of Y too; sums over a multiple of 16."""
    name = {"bf16": "bfloat16", "fp32": "float32"}[dtype]
    tile, warps = tiling((block, block), name, None if precision == "ieee" else precision)
    constants = {"ELL": False, "MASKED": True, "KIND": 1, **constants}
    constants |= {"R": block, "C": block, "PRECISION": precision, "UPCAST": False}
    if function is sample_blocks:
        constants |= tile
    else:
        constants |= {"E": ELEMENTS if function is sample_elements else LISTED, "BK": DEEP}
    constants |= {"x_column_step": 1, "y_row_step": 1}
    types = dict.fromkeys(("x", "y", "values"), f"*{dtype}") | {"alpha": "fp32"}
    types |= dict.fromkeys(("rows", "columns", "indptr", "indices"), f"*{width}")
    types |= {"vanished": "*i32", "pattern": "*i16" if dtype == "bf16" else "*i32"}
    if function is sample_blocks:
        types["rows"] = "i32"
    names = function.arg_names
    types |= {name: "i32" for name in names if name not in types and name not in constants}
    loose = {"alpha", "wide", "count", "parts", "groups", "width"}
    return Specimen(
        function,
        tuple((n, types[n]) for n in names if n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset(n for n in names if n not in constants) - loose,
        warps,
    )


def read(specimen: Specimen, capability: int) -> tuple[Facts, str]:
    found = facts(compile_for(specimen, capability))
    about = f"sm_{capability}: {found}"
    # What is summed by atomic additions is a count.
    counts = dict(specimen.constants).get("MASKED", False) and specimen.function is sample_blocks
    assert found.has("atomic") == counts, about
    assert found.has("wide-offset"), about
    assert not found.has("narrow"), about
    assert found.stack <= 64, about
    assert found.local == 0, about
    assert found.shared <= SHARED_MEMORY[capability], about
    return found, about


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("block", [16, 64, 128])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_blocks(capability: int, block: int, dtype: str) -> None:
    found, about = read(specimen(sample_blocks, block, dtype), capability)
    assert found.has("cp.async"), about
    assert found.has(*TENSOR_CORES) == (dtype == "bf16"), about
    assert not found.has("tf32"), about


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_tf32_on_request(capability: int) -> None:
    found, about = read(specimen(sample_blocks, 64, "fp32", "tf32"), capability)
    assert found.has("tf32"), about


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("function", [sample_elements, sample_rows], ids=lambda f: f.__name__)
def test_elements(function: Any, capability: int, dtype: str) -> None:
    read(specimen(function, 16, dtype), capability)


@pytest.mark.parametrize("form", [{"ELL": True}, {"MASKED": False}, {"KIND": 0}], ids=str)
def test_every_form_of_pattern(form: dict[str, Any]) -> None:
    read(specimen(sample_blocks, 64, "bf16", **form), 90)


@pytest.mark.parametrize(
    "function", [sample_blocks, sample_rows, sample_elements], ids=lambda f: f.__name__
)
def test_indices_of_64_bits_compile(function: Any) -> None:
    read(specimen(function, 32, "bf16", width="i64"), 90)
