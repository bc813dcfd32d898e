"""Explicit plans: what they accept, what they refuse with both sides, and how long they live."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats.dispatch import checks
from tests.plans.support import host, operand, sample, spying
from tests.plans.test_warm import variants

FORMATS = ["coo", "csr", "csc", "bsr", "blocked_ell", "2:4"]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_plan_multiplies(library: str, format: str) -> None:
    A = sample(library, format)
    D = host(A.to_dense())
    for x, out in variants(library).values():
        p = sf.plan(A, x)
        q = sf.plan(A, x, out=out, alpha=3, beta=0 if out is None else 2)
        for _ in range(2):
            np.testing.assert_array_equal(host(p(x)), D @ host(x))
            if out is not None:
                assert p(x, out=out) is out
                np.testing.assert_array_equal(host(out), D @ host(x))
            old = 0 if out is None else 2 * host(out).copy()
            np.testing.assert_array_equal(host(q(x, out=out)), 3 * (D @ host(x)) + old)


def test_a_transposed_matrix_and_an_operand_on_the_left() -> None:
    A = sample(format="bsr")
    D, x, z = A.to_dense(), operand("numpy", (12, 2)), operand("numpy", (3, 12))
    p, q = sf.plan(A.T, x), sf.plan(z, A)
    for _ in range(2):
        np.testing.assert_array_equal(p(x), D.T @ x)
        np.testing.assert_array_equal(q(z), z @ D)


def test_a_plan_and_the_cache_share_a_state() -> None:
    A, x = sample(), operand("numpy", (8, 2))
    with spying() as counts:
        p = sf.plan(A, x)
        A @ x
        p(x)
        sf.plan(A, x)
        assert counts["pack"] == 1


def test_a_plan_outlives_its_matrix_and_does_not_keep_it() -> None:
    A, x = sample(format="bsr"), operand("numpy", (8, 2))
    y, data, gone = A @ x, A.data.copy(), weakref.ref(A)
    p = sf.plan(A, x)
    del A
    gc.collect()
    assert gone() is None
    assert sf.cache_info().matrices == 0
    np.testing.assert_array_equal(p(x), y)
    p.update(data * 2)
    np.testing.assert_array_equal(p(x), y * 2)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_mismatch_says_both_sides(library: str) -> None:
    A, x = sample(library), operand(library, (8, 3))
    p = sf.plan(A, x)
    cases: list[tuple[Any, str]] = [
        (operand(library, (8, 4)), r"shape \(8, 3\), got shape \(8, 4\)"),
        (operand(library, (8,)), r"shape \(8, 3\), got shape \(8,\)"),
        (operand(library, (8, 3), "float32"), "dtype float64, got dtype float32"),
        (operand(library, (3, 8)).T, "layout C, got layout F"),
        (operand(library, (8, 6))[:, ::2], "layout C, got layout strided"),
        ([[1.0] * 3] * 8, f"a {library} array, got list"),
    ]
    for _ in range(2):
        p(x)
        for wrong, text in cases:
            with pytest.raises(ValueError, match=text):
                p(wrong)


def test_another_library_and_another_device() -> None:
    torch = pytest.importorskip("torch")
    p = sf.plan(sample(), operand("numpy", (8, 3)))
    with pytest.raises(ValueError, match="a numpy array, got torch"):
        p(torch.ones(8, 3, dtype=torch.float64))
    p = sf.plan(sample("torch"), operand("torch", (8, 3)))
    with pytest.raises(ValueError, match="device cpu, got device meta"):
        p(torch.ones(8, 3, dtype=torch.float64, device="meta"))


def test_operands_of_equal_layout_are_welcome() -> None:
    A = sample()
    p = sf.plan(A, operand("numpy", (8, 6))[:, ::2])
    wider = operand("numpy", (8, 9))[:, ::3]
    for _ in range(2):
        np.testing.assert_array_equal(p(wider), A.to_dense() @ wider)


def test_out_is_checked() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    p = sf.plan(A, x)
    for _ in range(2):
        p(x, out=np.empty((12, 3)))
        with pytest.raises(ValueError, match=r"out must have shape \(12, 3\), got \(3, 12\)"):
            p(x, out=np.empty((3, 12)))
        with pytest.raises(ValueError, match="out must have dtype float64, got float32"):
            p(x, out=np.empty((12, 3), np.float32))
        with pytest.raises(TypeError, match="out must be a numpy array, got list"):
            p(x, out=[])
    square, z = sample(m=8, k=8), operand("numpy", (8, 3))
    q, expected = sf.plan(square, z), square.to_dense() @ z
    q(z)
    np.testing.assert_array_equal(q(z, out=z), expected)  # in place


def test_out_that_the_kernel_cannot_write_to() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    only = (checks.layout_in("C", operand="out"),)
    with spying(checks=only):
        p = sf.plan(A, x)
        p(x, out=np.empty((12, 3)))
        with pytest.raises(ValueError, match=r"spy, which this plan uses.*OUT in layout C, has"):
            p(x, out=np.empty((3, 12)).T)


def test_beta_needs_out() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    p = sf.plan(A, x, beta=1)
    with pytest.raises(ValueError, match="beta=1"):
        p(x)
    y = np.ones((12, 3))
    np.testing.assert_array_equal(p(x, out=y), A.to_dense() @ x + 1)


def test_what_plan_refuses() -> None:
    A = sample()
    with pytest.raises(TypeError, match="two sparse"):
        sf.plan(A, A.T)
    with pytest.raises(ValueError, match="do not match"):
        sf.plan(A, np.ones(9))
    with pytest.raises(ValueError, match="expected the name of a kernel"):
        sf.plan(A, np.ones(8), kernel="nobody")
    with pytest.raises(TypeError, match="alpha"):
        sf.plan(A, np.ones(8), alpha=2j)
    with pytest.raises(ValueError, match="precision"):
        sf.plan(A, np.ones(8), precision="half")


def test_a_matrix_of_another_library_is_converted_once() -> None:
    S, x = sample().to_scipy(), operand("numpy", (8, 2))
    p = sf.plan(S, x)
    np.testing.assert_array_equal(p(x), S @ x)


def test_what_a_plan_tells() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    p = sf.plan(A, x, kernel="reference")
    assert p.kernel == "reference"
    assert p.explanation.chosen == "reference"
    assert p.explanation.source == "kernel="
    assert p.query.n == 3
    assert repr(p).startswith("<Plan reference, matmul: csr (12 x 8")
    with sf.tracing() as trace:
        p(x)
    assert trace.kernels == ["reference"]


def test_a_plan_keeps_its_kernel() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    p = sf.plan(A, x, kernel="reference")
    with sf.use_kernel("scipy-csr"), sf.tracing() as trace:
        p(x)
        p(x, out=np.empty((12, 3)))
    assert trace.kernels == ["reference", "reference"]


@pytest.mark.parametrize("copies", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_plan_is_not_copied(copies: Any) -> None:
    p = sf.plan(sample(), operand("numpy", (8, 3)))
    with pytest.raises(TypeError, match=r"plan again with sparseformats\.plan"):
        copies(p)


def test_many_layouts_of_out_are_not_kept_for_ever() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    p = sf.plan(A, x)
    for step in range(1, 150):
        p(x, out=np.empty((12 * step, 3))[::step])
    assert len(p._values.lights) <= 64
