"""Sampled products whose like was computed before: what a decision depends on is asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.dispatch import KernelRecord, Query

SEEN: list[tuple[Any, Any, Query]] = []
P = sf.from_dense(torch.eye(4), "csr")
X, Y = torch.arange(12.0).reshape(4, 3), torch.arange(12.0).reshape(3, 4) - 5


def seeing(A: Any, X: Any, Y: Any, alpha: Any, query: Query) -> Any:
    """A kernel that keeps what it is given."""
    SEEN.append((X, Y, query))
    return alpha * (X @ Y)[A.to("coo").row.long(), A.indices.long()].to(X.dtype)


def record(name: str, cost: float) -> KernelRecord:
    target = f"{__name__}:seeing"
    return KernelRecord(name, "sddmm", ("csr",), target, doc="for tests", cost=lambda _: cost)


@pytest.fixture(autouse=True)
def kernels() -> Any:
    SEEN.clear()
    with dispatch.temporary(record("first", 1e-9), record("second", 1e9)):
        yield


def ran(*operands: Any, **options: Any) -> str:
    with sf.tracing() as trace:
        sf.sddmm(P, *(operands or (X, Y)), **options)
    return next(run.kernel for run in trace if run.op == "sddmm")


def twice(call: Callable[[], str]) -> set[str]:
    return {call(), call()}


def test_the_kernel_asked_for_runs_whatever_ran_before() -> None:
    assert twice(ran) == {"first"}
    assert twice(lambda: ran(kernel="second")) == {"second"}
    assert twice(ran) == {"first"}
    with dispatch.use_kernel("second", "sddmm"):
        assert twice(ran) == {"second"}
    assert twice(ran) == {"first"}


def test_kernels_registered_later_are_considered() -> None:
    assert twice(ran) == {"first"}
    with dispatch.temporary(record("third", 1e-12)):
        assert twice(ran) == {"third"}
    assert twice(ran) == {"first"}


def test_precision_is_what_this_call_asks_for() -> None:
    for precision in (None, "tf32", "ieee", "tf32", None):
        ran(precision=precision)
        assert SEEN[-1][2].precision == (precision if precision == "tf32" else None)
    with pytest.raises(ValueError, match="precision"):
        ran(precision="bf16")


def test_kernels_get_operands_of_one_dtype_every_time() -> None:
    for _ in range(3):
        ran(X, Y.double())
        assert {x.dtype for x in SEEN[-1][:2]} == {torch.float64}
        assert SEEN[-1][2].x_dtype == "float64"


def test_kernels_get_values_that_lie_in_memory_every_time() -> None:
    X = torch.complex(torch.ones(4, 3), torch.ones(4, 3))
    for _ in range(3):
        ran(X.conj(), X.conj().imag.T)
        ran(X.conj(), X.T.conj())
        for x in SEEN[-1][:2] + SEEN[-2][:2]:
            assert not x.is_conj()
            assert not x.is_neg()


def test_operands_that_require_grad_are_refused_every_time() -> None:
    x = X.clone().requires_grad_()
    for _ in range(3):
        with torch.no_grad():
            assert ran(x, Y) == "first"
        assert not SEEN[-1][0].requires_grad
        with pytest.raises(NotImplementedError, match="grad"):
            ran(x, Y)


@pytest.mark.parametrize("alpha", [0, 2, 0.5, True, np.float32(3), np.int64(2), float("inf")])
def test_scalars_are_those_of_this_call(alpha: Any) -> None:
    for factor in (1, alpha, 1, alpha):
        S = sf.sddmm(P, X, Y, alpha=factor)
        assert torch.equal(S.data, float(factor) * torch.diag(X @ Y))
    with pytest.raises(TypeError, match="complex"):
        sf.sddmm(P, X, Y, alpha=1j)
