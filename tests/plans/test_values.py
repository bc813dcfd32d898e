"""Values that change: in place in torch, by update, and not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from tests.plans.support import host, operand, sample, spying

torch = pytest.importorskip("torch")
FORMATS = ["coo", "csr", "csc", "bsr", "blocked_ell", "2:4"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kernel", [None, "reference"])
def test_values_changed_in_place_are_packed_anew(format: str, kernel: str | None) -> None:
    A, x = sample("torch", format), operand("torch", (8, 3))
    p = sf.plan(A, x, kernel=kernel)
    y = sf.matmul(A, x, kernel=kernel)
    assert torch.equal(p(x), y)
    A.data.mul_(2)
    assert torch.equal(p(x), 2 * y)
    assert torch.equal(sf.matmul(A, x, kernel=kernel), 2 * y)
    A.data.mul_(2)
    assert torch.equal(sf.matmul(A, x, kernel=kernel), 4 * y)
    assert torch.equal(p(x), 4 * y)


def test_nothing_is_packed_anew_without_a_change() -> None:
    A, x = sample("torch"), operand("torch", (8, 3))
    with spying() as counts:
        p = sf.plan(A, x)
        for _ in range(3):
            A @ x
            p(x)
        assert counts["pack"] == 1
        A.data.add_(1)
        for _ in range(3):
            A @ x
            p(x)
        assert counts["pack"] == 3  # one for the matrix, one for the plan


def test_inference_tensors_are_taken_as_immutable() -> None:
    with torch.inference_mode():
        data = torch.ones(2, dtype=torch.float64)
        A = sf.CSR(data, torch.tensor([0, 1]), torch.tensor([0, 1, 2]), (2, 2))
        x = torch.ones(2, dtype=torch.float64)
        p = sf.plan(A, x)
        for _ in range(2):
            assert (A @ x).tolist() == p(x).tolist() == [1, 1]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("left", [False, True])
def test_update_is_with_data(library: str, format: str, left: bool) -> None:
    A = sample(library, format)
    x = operand(library, (3, 12) if left else (8, 3))
    p = sf.plan(x, A) if left else sf.plan(A, x)
    values = A.data * 3
    values_before = host(values).copy()
    p.update(values)
    expected = x @ A.with_data(values) if left else A.with_data(values) @ x
    for _ in range(2):
        np.testing.assert_array_equal(host(p(x)), host(expected))
    unchanged = x @ A if left else A @ x
    np.testing.assert_array_equal(host(unchanged) * 3, host(expected))
    values[...] = 7  # the plan has a copy
    np.testing.assert_array_equal(host(p(x)), host(expected))
    assert not np.array_equal(host(values), values_before)


def test_a_value_may_become_zero_and_come_back() -> None:
    D = np.array([[1.0, 2, 0, 0], [3, 4, 0, 0]])
    A, x = sf.from_dense(D, "bsr", blocksize=(2, 2)), np.eye(4)
    p = sf.plan(A, x)
    values = A.data.copy()
    p.update(values * 0)
    np.testing.assert_array_equal(p(x), D * 0)
    p.update(values)  # the slots are still stored
    np.testing.assert_array_equal(p(x), D)


def test_what_update_refuses_leaves_the_plan_as_it_was() -> None:
    D = np.array([[1.0, 0, 0], [3, 4, 0], [0, 0, 5]])
    A, x = sf.from_dense(D, "bsr", blocksize=(2, 2)), np.eye(3)
    p = sf.plan(A, x)
    bad: list[tuple[Any, Any, str]] = [
        (np.ones(3), ValueError, "shape"),
        (A.data.astype(np.float32), ValueError, "float64, got float32"),
        (np.ones_like(A.data), ValueError, "not stored"),
        (torch.ones(A.data.shape), TypeError, "numpy"),
        ([1.0], TypeError, "list"),
    ]
    for values, error, text in bad:
        with pytest.raises(error, match=text):
            p.update(values)
        np.testing.assert_array_equal(p(x), D)
