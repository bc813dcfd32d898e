"""Layers on the device against float64: bias and activation, rounded once where they are fused."""

from __future__ import annotations

import pytest
import torch

import sparseformats as sf
from tests.gpu.kernels import record_of
from tests.gpu.memory import guarded, guarded_matrix, poisoned, watched
from tests.kernels.triton.layers import assert_layer
from tests.kernels.triton.matrices import dense, matrix
from tests.kernels.triton.ordeal import Subject

ACTIVATIONS = (None, "relu", "gelu", "silu")


def fuses(kernel: str) -> bool:
    return record_of("matmul", kernel).fuses("bias+gelu")


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_fused(block_kernel: str, activation: str | None, device: str) -> None:
    subject = Subject(block_kernel, device)
    poisoned(device)
    cases = [
        ("bsr", (64, 64), "bfloat16", True),
        ("blocked_ell", (32, 32), "float16", True),
        ("bsr.T", (128, 128), "bfloat16", False),
        ("bsr", (16, 16), "float32", True),
    ]
    for format, block, dtype, with_bias in cases:
        W = matrix(format, (300, 200), block, dtype, device=device)
        X = dense((33, W.shape[1]), dtype, device=device)
        bias = dense((W.shape[0],), dtype, seed=5, device=device) if with_bias else None
        options = {"activation": activation, "assume_finite": True}
        Y = subject.run(sf.linear, X, W, bias, **options)
        if Y is not None and fuses(block_kernel):
            assert_layer(Y, X, W, bias, activation)
    assert subject.served or subject.refused
    assert subject.served or not fuses(block_kernel)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_whatever_is_chosen(library: str, dtype: str, device: str) -> None:
    """Batches of tokens, strided tokens, an `out` of NaN; the bound where the kernel fuses."""
    place = {"library": library, "device": device}
    W = matrix("bsr", (320, 256), (64, 64), dtype, **place)
    bias, wide = dense((320,), dtype, seed=4, **place), dense((2, 7, 512), dtype, **place)
    for X in (wide[..., :256], wide[..., ::2], wide[1, 3, :256]):
        for activation in ("relu", "gelu"):
            with sf.tracing() as trace:
                Y = sf.linear(X, W, bias, activation=activation)
            out = W.lib.full(tuple(Y.shape), float("nan"), dtype, device)
            assert sf.linear(X, W, bias, activation=activation, out=out) is out
            assert (W.lib.to_numpy(out) == W.lib.to_numpy(Y)).all()
            if record_of("matmul", trace.kernels[-1]).fuses("bias+gelu"):
                assert_layer(Y, X, W, bias, activation)


def test_memory_around_every_operand(block_kernel: str, device: str) -> None:
    """X, W, bias and out lie between zones of NaN; no zone is written, and no NaN comes in."""
    subject, options = Subject(block_kernel, device), {"activation": "gelu", "assume_finite": True}
    for dtype, block in (("float16", (64, 64)), ("bfloat16", (16, 16)), ("float32", (24, 24))):
        with watched() as arenas:
            W = guarded_matrix(matrix("bsr", (200, 330), block, dtype, device=device), arenas)
            X = guarded(dense((50, 330), dtype), "torch", device, arenas, "X")
            bias = guarded(dense((200,), dtype, seed=2), "torch", device, arenas, "bias")
            out = torch.full((50, 200), torch.nan, dtype=X.dtype)
            out = guarded(out, "torch", device, arenas, "out")
            Y = subject.run(sf.linear, X, W, bias, out=out, **options)
            if Y is not None and fuses(block_kernel):
                assert_layer(Y, X, W, bias, "gelu")


def test_an_epilogue_is_fused_where_a_kernel_can(device: str) -> None:
    place = {"device": device}
    W = matrix("bsr", (256, 256), (64, 64), "float16", **place)
    X = dense((512, 256), "float16", **place)
    with sf.tracing() as trace:
        sf.linear(X, W, activation="gelu")
    assert fuses(trace.kernels[-1]) or not device.startswith("cuda")
