"""A wrong product is found and has no time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.gpu.cases import Case
from benchmarks.gpu.check import Reference, WrongResult
from benchmarks.gpu.matrices import Problem, build, dense_of

CASE = Case("case", 64, 96, 40, (16, 16), 0.4, dtype="float32")


@pytest.fixture
def problem() -> Problem:
    return build(CASE, "cpu")


def product(problem: Problem) -> Any:
    return dense_of(problem) @ problem.X


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("format", ["bsr", "csr"])
def test_a_right_product_passes(dtype: str, format: str) -> None:
    block = (1, 1) if format == "csr" else (16, 16)
    problem = build(replace(CASE, dtype=dtype, format=format, block=block), "cpu")
    Reference(problem).check("dense", lambda: product(problem))


def _nan(y: Any, problem: Problem) -> None:
    y[3, 5] = float("nan")


def _scaled(y: Any, problem: Problem) -> None:
    y[0] *= 1.01


def _last_column(y: Any, problem: Problem) -> None:
    y[-1, -1] += 1.0


def _without_a_block(y: Any, problem: Problem) -> None:
    column = int(problem.parts.columns[0])
    row = int(problem.parts.rows[0])
    part = problem.parts.data[0] @ problem.X[column * 16 : column * 16 + 16]
    y[row * 16 : row * 16 + 16] -= part


@pytest.mark.parametrize("spoil", [_nan, _scaled, _last_column, _without_a_block])
def test_a_spoiled_product_is_refused(
    problem: Problem, spoil: Callable[[Any, Problem], None]
) -> None:
    y = product(problem)
    spoil(y, problem)
    with pytest.raises(WrongResult, match="kernel-x: "):
        Reference(problem).check("kernel-x", lambda: y)


def test_an_element_that_nobody_writes_is_found(problem: Problem) -> None:
    def call() -> Any:
        problem.Y[:-1] = product(problem)[:-1]
        return problem.Y

    with pytest.raises(WrongResult, match="not finite or not written"):
        Reference(problem).check("kernel-x", call)


def test_a_result_of_another_shape_is_refused(problem: Problem) -> None:
    with pytest.raises(WrongResult, match="expected shape"):
        Reference(problem).check("kernel-x", lambda: product(problem).T)


def test_another_library_may_round_parts_of_a_sum() -> None:
    half = build(replace(CASE, dtype="bfloat16"), "cpu")
    exact = dense_of(half).double() @ half.X.double()
    size = dense_of(half).double().abs() @ half.X.double().abs()
    y = (exact + 2.0**-7 * size / 6).bfloat16()
    Reference(half).check("theirs", lambda: y, foreign=True)
    with pytest.raises(WrongResult):
        Reference(half).check("ours", lambda: y)
    with pytest.raises(WrongResult):
        Reference(half).check("theirs", lambda: y * 1.5, foreign=True)
