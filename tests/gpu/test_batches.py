"""Batches and residuals on the device: one launch where pieces lie apart, nothing copied."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sparseformats as sf
from tests.gpu.kernels import record_of
from tests.gpu.memory import poisoned
from tests.kernels.triton.layers import assert_layer
from tests.kernels.triton.matrices import dense, matrix
from tests.kernels.triton.ordeal import Subject


@pytest.fixture(autouse=True)
def _memory(device: str) -> None:
    poisoned(device)


def apart(shape: tuple[int, int, int], dtype: str, device: str, seed: int = 1) -> Any:
    """A batch whose pieces lie apart: a part of a wider array."""
    b, rows, columns = shape
    wide = dense((b, rows + 3, columns + 8), dtype, device=device, seed=seed)
    return wide[:, 1 : rows + 1, :columns]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_batches_of_products(block_kernel: str, dtype: str, device: str) -> None:
    subject = Subject(block_kernel, device)
    A = matrix("bsr", (200, 320), (64, 64), dtype, device=device)
    D = A.to_dense().double()
    for b, n in ((1, 40), (3, 40), (5, 130), (4, 3)):
        for X in (
            dense((b, 320, n), dtype, device=device),
            apart((b, 320, n), dtype, device),
            apart((b, n, 320), dtype, device).mT,
            dense((1, 320, n), dtype, device=device).expand(b, 320, n),
        ):
            out = torch.full((b, n, 200), torch.nan, dtype=X.dtype, device=device).mT
            for given in (None, out):
                Y = subject.matmul(A, X, out=given, assume_finite=True)
                if Y is None:
                    continue
                error = (Y.double() - D @ X.double()).abs().max()
                assert error <= (0.1 if dtype == "float16" else 1e-3)
    assert subject.served or subject.refused


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_layers_with_a_residual(block_kernel: str, activation: str | None, device: str) -> None:
    subject = Subject(block_kernel, device)
    fuses = record_of("matmul", block_kernel).fuses("bias+gelu+residual")
    W, bias = matrix("bsr", (200, 320), (64, 64), "float16", device=device), None
    bias = dense((200,), "float16", device=device, seed=4)
    for X, R in (
        (
            dense((3, 40, 320), "float16", device=device),
            dense((3, 40, 200), "float16", device=device),
        ),
        (apart((3, 40, 320), "float16", device), apart((3, 40, 200), "float16", device, 5)),
        (dense((70, 320), "float16", device=device), dense((200, 70), "float16", device=device).T),
    ):
        options = {"activation": activation, "assume_finite": True}
        kept = R.clone()
        Y = subject.run(sf.linear, X, W, bias, residual=R, **options)
        if Y is None:
            continue
        if fuses:
            assert_layer(Y, X, W, bias, activation, residual=R)
        else:  # the product, or all but the residual, was rounded before
            alone = subject.run(sf.linear, X, W, bias, **options)
            assert (Y.double() - alone.double() - R.double()).abs().max() <= 0.1
        assert subject.run(sf.linear, X, W, bias, residual=R, out=R, **options) is R
        assert torch.equal(R, Y) or not fuses
        R.copy_(kept)
    assert subject.served or subject.refused


def test_one_launch_takes_a_batch(device: str) -> None:
    if not device.startswith("cuda"):
        pytest.skip("kernels of CUDA devices")
    W = matrix("bsr", (200, 320), (32, 32), "float16", device=device)
    X = apart((3, 40, 320), "float16", device)
    for kernel in ("triton-tiles", "triton-few"):
        with sf.tracing() as trace:
            Y = sf.linear(X, W, kernel=kernel)
        (run,) = (run for run in trace if run.op == "matmul")
        assert run.query is not None
        assert (run.query.batch, run.query.n) == (3, 40)
        assert_layer(Y, X, W, None, None)
