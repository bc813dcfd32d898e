"""Sampled products compile everywhere, for tensor cores and to loads of whole vectors."""

from __future__ import annotations

from typing import Any

import pytest

from sparseformats_kernels.triton.launch import Specimen, compile_for
from sparseformats_kernels.triton.sampled import sample_blocks, sample_elements
from sparseformats_kernels.triton.sddmm import DEEP, ELEMENTS, tiling
from tests.kernels.triton.compile.test_kernels import CAPABILITIES
from tests.kernels.triton.compiling import SHARED_MEMORY, Facts, facts

TENSOR_CORES = ("mma.sync", "wgmma", "tcgen05")


def specimen(function: Any, block: int, dtype: str, precision: str = "ieee") -> Specimen:
    """Rows of X in one piece, columns of Y too; sums over a multiple of 16."""
    name = {"bf16": "bfloat16", "fp32": "float32"}[dtype]
    tile, warps = tiling((block, block), name, None if precision == "ieee" else precision)
    constants: dict[str, Any] = {"R": block, "C": block, "PRECISION": precision, "UPCAST": False}
    constants |= tile if function is sample_blocks else {"E": ELEMENTS, "BK": DEEP}
    constants |= {"x_column_step": 1, "y_row_step": 1}
    types = dict.fromkeys(("x", "y", "values"), f"*{dtype}") | {"alpha": "fp32"}
    types |= dict.fromkeys(("rows", "columns"), "*i32") | {"slots": "*i64"}
    names = function.arg_names
    types |= {name: "i32" for name in names if name not in types and name not in constants}
    return Specimen(
        function,
        tuple((n, types[n]) for n in names if n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset(n for n in names if n not in constants) - {"alpha", "high", "wide", "count"},
        warps,
    )


def read(specimen: Specimen, capability: int) -> tuple[Facts, str]:
    found = facts(compile_for(specimen, capability))
    about = f"sm_{capability}: {found}"
    assert not found.has("atomic"), about
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
def test_elements(capability: int, dtype: str) -> None:
    read(specimen(sample_elements, 16, dtype), capability)
