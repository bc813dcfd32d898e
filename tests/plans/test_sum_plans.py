"""Explicit plans of sums: prepared for every part, added as a product is."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats.ops import plans
from tests.plans.support import operand, sample, spying


def in_parts(library: str = "numpy", dtype: str = "float64") -> sf.Sum:
    A = sf.from_dense(np.arange(1.0, 97.0).reshape(12, 8) % 7).astype(dtype)
    return sf.split(A.to_library(library), "2:4")


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("left", [False, True])
def test_as_a_product(library: str, dtype: str, left: bool) -> None:
    S = in_parts(library, dtype)
    x = operand("numpy", (3, 12) if left else (8, 3), dtype)
    x = torch.from_numpy(x) if library == "torch" else x
    pair = (x, S) if left else (S, x)
    plan = sf.plan(*pair, alpha=2)
    expected = np.asarray(sf.matmul(*pair, alpha=2))
    np.testing.assert_array_equal(np.asarray(plan(x)), expected)
    out = S.lib.zeros(expected.shape, dtype)
    assert plan(x, out=out) is out
    np.testing.assert_array_equal(np.asarray(out), expected)
    added = sf.plan(*pair, alpha=2, beta=3, out=out)
    np.testing.assert_array_equal(np.asarray(added(x, out=out)), 4 * expected)
    assert plan.kernel == plan.explanation.chosen
    assert plan.query.format == "sum"
    assert repr(plan).startswith(f"<SumPlan {plan.kernel}, matmul: sum")


def test_nothing_is_prepared_at_a_call() -> None:
    S, x, y = in_parts(), operand("numpy", (8, 3)), np.empty((12, 3))
    with spying() as counts:
        plan = sf.plan(S, x, out=y)
        assert counts == {"pack": 2, "bind": 2}
        plan(x, out=y)
        assert counts == {"pack": 2, "bind": 2, "run": 2}
        S @ x  # a product shares what was packed
        assert counts["pack"] == 2


def test_it_outlives_the_matrix_and_its_parts() -> None:
    S, x = in_parts(), operand("numpy", (8, 3))
    expected = S @ x
    plan = sf.plan(S, x)
    watched = [weakref.ref(A) for A in (S, *S.parts)]
    del S
    gc.collect()
    assert [ref() for ref in watched] == [None] * 3
    np.testing.assert_array_equal(plan(x), expected)


def test_values_are_updated_part_by_part() -> None:
    S, x = in_parts(), operand("numpy", (8, 3))
    plan = sf.plan(S, x)
    fresh = [part.data * 2 for part in S.parts]
    plan.update(fresh)
    np.testing.assert_array_equal(plan(x), 2 * (S @ x))
    for wrong, text in (
        (fresh[:1], "an array for each of 2 parts, got 1"),
        ([fresh[0] * 2, fresh[1][1:]], "shape of data"),
        ([fresh[0] * 2, fresh[1].astype(np.float32)], "plan is for values of float64"),
    ):
        with pytest.raises(ValueError, match=text):
            plan.update(wrong)
        np.testing.assert_array_equal(plan(x), 2 * (S @ x))  # it stayed as it was


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("given", [False, True])
def test_an_update_meets_all_parts_of_a_call_or_none(
    dtype: str, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    S, x = in_parts(dtype=dtype), operand("numpy", (8, 3), dtype)
    plan, expected = sf.plan(S, x), S @ x
    fresh = [part.data * 2 for part in S.parts]
    execute = plans.execute

    def between(*args: Any) -> Any:
        y = execute(*args)
        plan.update(fresh)  # as another thread might, between two parts
        return y

    out = np.empty((12, 3), dtype) if given else None
    monkeypatch.setattr(plans, "execute", between)
    np.testing.assert_array_equal(plan(x, out=out), expected)
    monkeypatch.undo()
    np.testing.assert_array_equal(plan(x, out=out), 2 * expected)


def test_what_cannot_be_values() -> None:
    S, x = sf.split(sample(format="2:4"), "2:4"), operand("numpy", (8, 3))
    plan, data = sf.plan(S, x), S.parts[0].data
    expected = plan(x)
    for wrong, text in (
        (5, "a list of 2 arrays, one for each part, got int"),
        (np.ones((2, 3)), "a list of 2 arrays, one for each part, got ndarray"),
        ([data * 2, 5], "part 1 takes an empty numpy array, got int"),
        ([data * 2, torch.zeros(0)], "part 1 takes an empty numpy array, got torch array"),
    ):
        with pytest.raises(TypeError, match=text):
            plan.update(wrong)
        np.testing.assert_array_equal(plan(x), expected)


def test_parts_without_elements_have_no_plan() -> None:
    S = sf.split(sample(format="2:4"), "2:4")
    x = operand("numpy", (8, 3))
    plan = sf.plan(S, x, beta=1)
    assert [p is None for p in plan.plans] == [False, True]
    out = np.ones((12, 3))
    np.testing.assert_array_equal(plan(x, out=out), S @ x + 1)
    plan.update([S.parts[0].data * 2, np.zeros(0)])
    np.testing.assert_array_equal(plan(x, out=np.zeros((12, 3))), 2 * (S @ x))
    with pytest.raises(ValueError, match=r"part 1 stores nothing, got values \(3,\)"):
        plan.update([S.parts[0].data, np.ones(3)])
    assert plan.explanation.parts[1] is None


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_what_is_refused_before_anything_is_written(dtype: str) -> None:
    S, x = in_parts(dtype=dtype), operand("numpy", (8, 3), dtype)
    plan, out = sf.plan(S, x), np.full((12, 3), 7, dtype)
    for X, target, text in (
        (x[:, :2], out, r"shape \(8, 3\), got shape \(8, 2\)"),
        (np.asfortranarray(x), out, "layout C"),
        (x, out[:, :2], r"shape \(12, 3\), got \(12, 2\)"),
        (x, out.astype(np.float32), "dtype"),
    ):
        with pytest.raises(ValueError, match=text):
            plan(X, out=target)
    with pytest.raises(TypeError, match="out must be a numpy array"):
        plan(x, out=torch.zeros(12, 3))
    assert (out == 7).all()
    with pytest.raises(ValueError, match=r"beta=2\.0: give out="):
        sf.plan(S, x, beta=2)(x)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_out_may_overlap_the_operand(dtype: str) -> None:
    D = np.arange(1.0, 65.0).reshape(8, 8) % 5
    S, x = sf.split(D.astype(dtype), "2:4"), operand("numpy", (8, 3), dtype)
    plan, expected = sf.plan(S, x), S @ x
    memory = x.copy()
    np.testing.assert_array_equal(plan(memory, out=memory), expected)


def test_out_may_not_be_memory_of_a_part_that_stores_nothing() -> None:
    S = sf.split(torch.eye(4, dtype=torch.int32), "2:4")
    rest = S.parts[1]
    assert isinstance(rest, sf.CSR)
    x, out = torch.ones(4, dtype=torch.int32), rest.indptr[:4]
    for multiply in (lambda: sf.plan(S, x)(x, out=out), lambda: sf.matmul(S, x, out=out)):
        with pytest.raises(ValueError, match="out shares memory with the sparse matrix"):
            multiply()
    assert not rest.indptr.any()


def test_it_belongs_to_its_process() -> None:
    plan: Any = sf.plan(in_parts(), operand("numpy", (8, 3)))
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a SumPlan belongs to its process"):
            copied(plan)
