"""Each algorithm is forced through our own kernel, over the stand-in for the library."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.gpu import cusparselt_search as searched
from benchmarks.gpu.cases import semi
from benchmarks.gpu.check import Reference, WrongResult
from benchmarks.gpu.matrices import build, dense_of
from sparseformats_kernels.cusparselt.plans import Algorithm
from tests.kernels.cusparselt.conftest import _own_cache, device, library  # noqa: F401
from tests.kernels.cusparselt.fake import Fake

DTYPES = ("bfloat16", "float16", "int8", "float8_e4m3fn")


def problem(dtype: str, k: int = 64) -> Any:
    return build(semi("c", (32, k, 16), dtype=dtype), "cpu")


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_of_each_group_are_kept(dtype: str) -> None:
    made = problem(dtype)
    assert made.matrix.format == "2:4"
    assert not made.matrix.problems()
    groups = made.parts.columns.reshape(32, 16, 2)
    assert (groups // 4 == torch.arange(16)[None, :, None]).all()
    assert torch.equal(dense_of(made).float(), made.matrix.to_dense().float())
    assert len(made.parts.columns.unique()) > 32


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_best_of_all_algorithms_are_sides(dtype: str, library: Fake) -> None:  # noqa: F811
    library.times = {Algorithm(4): 50.0, Algorithm(1, 4, 2): 40.0, Algorithm(0, -1): 30.0}
    made = problem(dtype)
    calls = searched.best_of_all(made)
    assert list(calls) == ["0--1-0", "1-4-2", "4-1-0"]
    reference = Reference(made)
    for name, call in calls.items():
        reference.check(name, call)
        assert "-".join(map(str, library.ran[-1])) == name


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_result_has_no_time(dtype: str) -> None:
    made = problem(dtype)
    reference, D = Reference(made), made.matrix.to_dense()
    exact = (D.double() @ made.X.double()).to(made.Y.dtype)
    reference.check("right", lambda: exact)
    wrong = exact.double()
    wrong[0, 3] += 300 if dtype != "int8" else 1
    with pytest.raises(WrongResult):
        reference.check("wrong", lambda: wrong.to(made.Y.dtype))
    with pytest.raises(WrongResult, match="not written"):
        reference.check("unwritten", lambda: made.Y)


def test_a_matrix_in_slices_has_no_best_algorithm(library: Fake) -> None:  # noqa: F811
    made = problem("int8", 32768)
    assert searched.best_of_all(made) == {}
