"""Batches in one launch: operands and results of any even distances, nothing copied."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

import sparseformats as sf
from sparseformats._arrays import TorchLibrary
from sparseformats.dispatch import KernelRecord
from tests.kernels.triton.harness import check, registered
from tests.kernels.triton.interpret.test_products import kernels
from tests.kernels.triton.layers import assert_layer
from tests.kernels.triton.matrices import FORMATS, dense, matrix


def spread(shape: tuple[int, int, int], dtype: str = "float16", seed: int = 1) -> Any:
    """A batch whose pieces lie apart: a part of a wider array."""
    b, rows, columns = shape
    return dense((b, rows + 3, columns + 8), dtype, seed=seed)[:, 1 : rows + 1, :columns]


@kernels
@pytest.mark.parametrize("format", FORMATS)
def test_a_batch_is_one_launch(record: KernelRecord, format: str) -> None:
    A = matrix(format, (50, 70), (16, 16), "float16", seed=3)
    k = A.shape[1]
    wide = dense((4, k, 40), "float16")
    for X in (
        wide,
        wide[::2],
        wide[:, :, 3:36],
        wide.mT.contiguous().mT,
        wide[:1].expand(3, k, 40),
    ):
        with registered(record) as (name, checker):
            Y = sf.matmul(A, X, kernel=name)
            assert len(checker.launches) == 1
        assert Y.shape == (X.shape[0], A.shape[0], X.shape[2])
        for out in (None, "F", "guarded", "rows"):
            check(record, A, X, out=out, alpha=2, beta=1 if out else 0)


@kernels
def test_a_batch_from_the_left_that_is_no_matrix(record: KernelRecord) -> None:
    A = matrix("bsr", (48, 64), (16, 16), "float16")
    X = spread((3, 20, 48))
    with registered(record) as (name, checker):
        sf.plan(X, A, kernel=name)  # packing copies values
        with no_copies():
            Y = sf.matmul(X, A, kernel=name)
            out = torch.full((3, 64, 20), torch.nan, dtype=torch.float16).mT
            assert sf.matmul(X, A, kernel=name, out=out) is out
        assert len(checker.launches) == 2
    assert Y.is_contiguous()
    assert torch.equal(Y, out)
    check(record, A, X, left=True)
    check(record, A, X, left=True, out="F", alpha=-1, beta=2)
    check(record, A, dense((3, 20, 48), "float16"), left=True)


def no_copies() -> Any:
    """No operand is copied or laid anew."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("an operand was copied")

    reshape = TorchLibrary.reshape

    def view(self: Any, x: Any, shape: Any) -> Any:
        return x.view(shape) if x.dim() == 3 else reshape(self, x, shape)

    return mock.patch.multiple(TorchLibrary, copy=refuse, contiguous=refuse, reshape=view)


@kernels
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_layers_of_tokens_that_are_no_matrix(record: KernelRecord, activation: str | None) -> None:
    W, bias = matrix("bsr", (48, 64), (16, 16), "float16"), dense((48,), "float16", seed=4)
    X, R = spread((3, 20, 64)), spread((3, 20, 48), seed=9)
    for given, residual in ((bias, R), (None, None)):
        options: dict[str, Any] = {"activation": activation, "residual": residual}
        with registered(record) as (name, checker), sf.tracing() as trace:
            Y = sf.linear(X, W, given, kernel=name, **options)
            out = torch.full((3, 48, 20), torch.nan, dtype=torch.float16).mT
            with no_copies():
                assert sf.linear(X, W, given, kernel=name, out=out, **options) is out
            assert len(checker.launches) == 2
        assert {run.query.batch for run in trace if run.query is not None} == {3}
        assert torch.equal(Y, out)
        assert_layer(Y, X, W, given, activation, residual=residual)


@kernels
def test_few_tokens_a_piece_are_laid_side_by_side(record: KernelRecord) -> None:
    W, X = matrix("bsr", (48, 64), (16, 16), "float16"), spread((3, 5, 64))
    with registered(record) as (name, checker):
        Y = sf.linear(X, W, kernel=name)
        assert len(checker.launches) == 1
        Z = sf.matmul(W, X.mT, kernel=name)
        assert len(checker.launches) == 2
    assert_layer(Y, X, W, None, None)
    assert torch.equal(Z.mT, Y)


@kernels
def test_a_residual_may_be_the_result(record: KernelRecord) -> None:
    W, X = matrix("bsr", (48, 64), (16, 16), "float16"), dense((20, 64), "float16")
    R = dense((20, 48), "float16", seed=3)
    kept = R.clone()
    with registered(record) as (name, _):
        expected = sf.linear(X, W, residual=R, activation="relu", kernel=name)
        assert sf.linear(X, W, residual=R, activation="relu", out=R, kernel=name) is R
    assert torch.equal(R, expected)
    assert_layer(R, X, W, None, "relu", residual=kept)
