"""Layers with the epilogue fused: bias and activation, computed in float32 and rounded once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats.dispatch import KernelRecord
from tests.kernels.triton.harness import registered
from tests.kernels.triton.interpret.test_products import MAY_REFUSE, kernels
from tests.kernels.triton.kinds import EVERYWHERE
from tests.kernels.triton.layers import assert_layer
from tests.kernels.triton.matrices import dense, matrix
from tests.kernels.triton.ordeal import Subject


def layer(record: KernelRecord, X: Any, W: Any, bias: Any, activation: Any, out: Any) -> Any:
    """The kernel's result, or None where it refuses with its reasons."""
    with registered(record) as (name, checker), sf.tracing() as trace:
        subject = Subject(name, "cpu")
        options = {"activation": activation, "out": out}
        Y = subject.run(sf.linear, X, W, bias, **options)
    if Y is None:
        assert set(subject.refused) <= MAY_REFUSE
        assert record.name != EVERYWHERE
        return None
    assert {run.kernel for run in trace} == {name}
    assert checker.launches
    return Y


@kernels
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("with_bias", [True, False])
def test_epilogues(record: KernelRecord, with_bias: bool, activation: str | None) -> None:
    if not with_bias and activation is None:
        return
    for block, dtype, format in (
        ((64, 64), "float16", "bsr"),
        ((16, 16), "bfloat16", "blocked_ell"),
        ((32, 32), "float32", "bsr"),
        ((64, 64), "bfloat16", "bsr.T"),
    ):
        W = matrix(format, (130, 200), block, dtype)
        X = dense((33, W.shape[1]), dtype)
        bias = dense((W.shape[0],), dtype, seed=5) if with_bias else None
        for out in (None, torch.full((33, W.shape[0]), torch.nan, dtype=X.dtype)):
            Y = layer(record, X, W, bias, activation, out)
            if Y is not None:
                assert out is None or Y is out
                assert_layer(Y, X, W, bias, activation)


@kernels
def test_tokens_in_batches_and_strided(record: KernelRecord) -> None:
    W, bias = matrix("bsr", (96, 64), (32, 32), "float16"), dense((96,), "float16", seed=4)
    wide = dense((2, 5, 128), "float16")
    for X in (wide[..., :64], wide[..., ::2], wide[0, 0, :64]):
        Y = layer(record, X, W, bias, "relu", None)
        if Y is not None:
            assert_layer(Y, X, W, bias, "relu")


@kernels
def test_nan_survives_relu(record: KernelRecord) -> None:
    W, X = matrix("bsr", (32, 32), (16, 16), "float16"), dense((4, 32), "float16")
    X[1] = torch.nan
    Y = layer(record, X, W, None, "relu", None)
    if Y is not None:
        assert_layer(Y, X, W, None, "relu")
