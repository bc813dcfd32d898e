"""The planted kernels compile for the device: their bugs must be their own."""

from __future__ import annotations

from typing import Any

import pytest

from sparseformats_kernels.triton.launch import Specimen, compile_for
from tests.kernels.triton import planted
from tests.kernels.triton.compiling import facts

TILE = {"R": 24, "C": 16, "BM": 32, "BN": 32, "BK": 16}
POINTERS = {"data": "*fp16", "indices": "*i32", "indptr": "*i32", "owners": "*i32"}
POINTERS |= {"x": "*fp16", "y": "*fp16", "total": "*fp32", "alpha": "fp32", "beta": "fp32"}


def specimen(function: Any, **constants: Any) -> Specimen:
    names = [name for name in function.arg_names if name not in constants]
    types = tuple((name, POINTERS.get(name, "i32")) for name in names)
    return Specimen(function, types, tuple(constants.items()), frozenset())


@pytest.mark.parametrize("bug", ["", *planted.BUGS])
def test_multiply(bug: str) -> None:
    for beta in (False, True) if not bug else (False,):
        made = specimen(planted.multiply, **TILE, BETA=beta, BUG=bug)
        assert facts(compile_for(made, 90)).has("wide-offset")


@pytest.mark.parametrize("atomic", [True, False])
def test_scatter(atomic: bool) -> None:
    found = facts(compile_for(specimen(planted.scatter, **TILE, ATOMIC=atomic), 90))
    assert found.has("atomic") == atomic
