"""Each algorithm is forced through our own kernel, over the stand-in for the library."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.gpu import cusparselt_search as searched, peers
from benchmarks.gpu.check import Reference, WrongResult
from benchmarks.gpu.goals import goal_cases, semi
from benchmarks.gpu.matrices import build, dense_of
from sparseformats_kernels.cusparselt import searching
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


FP8 = "float8_e4m3fn"


def layer() -> Any:
    return build(semi("c", (32, 64, 16), dtype=FP8, gives="bfloat16"), "cpu")


@pytest.mark.parametrize("known", [False, True])
def test_layers_with_scales_are_searched_where_their_results_are_known(
    known: bool,
    library: Fake,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not known:
        monkeypatch.setattr(searching, "MEASURED", searching.MEASURED - {(FP8, "bfloat16")})
    library.times = {Algorithm(4): 50.0, Algorithm(1, 4, 2): 40.0, Algorithm(0, -1): 30.0}
    made = layer()
    calls = searched.best_of_all(made)
    assert list(calls) == (["0--1-0", "1-4-2", "4-1-0"] if known else ["-1-1-0"])
    reference = Reference(made)
    for name, call in calls.items():
        reference.check(name, call)
    assert library.named("Matmul")[-1][7] == made.Y.data_ptr()  # by the library itself


def test_a_layer_is_measured_as_a_user_calls_it() -> None:
    made = layer()
    side = peers.ours(made)
    reference = Reference(made)
    reference.check(side.name, side.call)
    assert made.Y.dtype == torch.bfloat16
    names = peers.other_kernels(made, side.kernel)[1]
    assert side.kernel not in names
    wrong = made.Y * 1.02
    with pytest.raises(WrongResult):
        reference.check("wrong", lambda: wrong)


def test_rows_of_fp8_say_what_was_called() -> None:
    cases = [c for c in goal_cases() if c.name.startswith("semi-fp8-")]
    assert len(cases) == 5
    for case in cases:
        assert case.workload.endswith("linear with a scale for each operand, bfloat16 results")
        assert case.facts["gives"] == "bfloat16"
        assert {goal.baseline for goal in case.goals} == {"scaled-mm-bfloat16"}
