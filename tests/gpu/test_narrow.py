"""Block products of int8 and fp8 on the device: exact, or within the bound of the record."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats.dispatch import checks
from tests.gpu.kernels import record_of
from tests.gpu.memory import poisoned
from tests.kernels.triton.kinds import NARROW
from tests.kernels.triton.layers import assert_layer
from tests.kernels.triton.matrices import FORMATS, dense, narrow_dense, narrow_matrix

BLOCKS = [(16, 16), (32, 32), (64, 64), (128, 128), (24, 24), (3, 5), (16, 64), (64, 16)]
COLUMNS = (1, 16, 33, 70, 257, 512)

kernels = pytest.mark.parametrize("kernel", NARROW)


@pytest.fixture(autouse=True)
def _memory(device: str) -> None:
    if not device.startswith("cuda"):
        pytest.skip("kernels of CUDA devices")
    poisoned(device)


@pytest.fixture
def _served(kernel: str, device: str) -> None:
    """fp8 needs compute capability 8.9; a device without it refuses for that reason alone."""
    found = torch.cuda.get_device_capability(device)
    asked = [c for c in record_of("matmul", kernel).checks if isinstance(c, checks.Check)]
    if any(c.code == "capability" and "8.9" in c.needs for c in asked) and found < (8, 9):
        pytest.skip(f"compute capability {found} has no fp8")


def factor(kernel: str) -> float:
    return record_of("matmul", kernel).tolerance.factor


@kernels
@pytest.mark.usefixtures("_served")
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: "{}x{}".format(*block))
def test_every_block_size_and_layout(kernel: str, block: tuple[int, int], device: str) -> None:
    dtype, turn = NARROW[kernel], BLOCKS.index(block)
    columns = itertools.cycle(COLUMNS[turn % 4 :])
    for number, format in enumerate((FORMATS[turn % 4], FORMATS[(turn + 1) % 4])):
        size = block if format.startswith("bsr") else (block[0], block[0])
        shape = (4 * size[0] + size[0] // 3, 5 * size[1] + size[1] // 2 + 1)
        W = narrow_matrix(dtype, format, shape, size, device=device, seed=number)
        k, n = W.shape[1], next(columns)
        wide = narrow_dense(dtype, (n, 2 * k + 24), device=device)
        for X in (narrow_dense(dtype, (n, k), device=device), wide[:, :k], wide[:, ::2][:, :k]):
            Y = sf.linear(X, W, kernel=kernel, out_dtype="float32")
            assert_layer(Y, X, W, None, None, dtype="float32", factor=factor(kernel))
        rows = narrow_dense(dtype, (k, n), device=device)
        Y = sf.matmul(W, rows, kernel=kernel)
        if dtype == "int8":
            assert torch.equal(Y.double(), W.to_dense().double() @ rows.double())


@kernels
@pytest.mark.usefixtures("_served")
@pytest.mark.parametrize("gives", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_scales_and_what_follows(
    kernel: str, activation: str | None, gives: str, device: str
) -> None:
    dtype = NARROW[kernel]
    W = narrow_matrix(dtype, "bsr", (300, 400), (64, 64), device=device)
    X, bias = narrow_dense(dtype, (70, 400), device=device), dense((300,), device=device)
    residual = dense((70, 300), gives, device=device, seed=3)
    tokens, rows = torch.rand(70, device=device) / 64, torch.rand(300, 1, device=device) / 64
    for a, b in ((1 / 64, None), (tokens, rows), (tokens[:1], rows), (tokens[:, None], 0.25)):
        for given in ({}, {"residual": residual}):
            about: dict[str, Any] = {"scale_a": a, "scale_b": b, **given}
            options = {"activation": activation, "out_dtype": gives, "kernel": kernel}
            Y = sf.linear(X, W, bias, **about, **options)
            out = torch.full_like(Y, torch.nan)
            assert sf.linear(X, W, bias, out=out, **about, **options) is out
            assert torch.equal(out, Y)
            assert_layer(Y, X, W, bias, activation, dtype=gives, factor=factor(kernel), **about)


@kernels
@pytest.mark.usefixtures("_served")
def test_long_rows(kernel: str, device: str) -> None:
    """Sums of many terms of one sign, where too short an accumulator loses most."""
    dtype = NARROW[kernel]
    W = narrow_matrix(dtype, "bsr", (256, 32768), (128, 128), device=device, density=1.0)
    W = type(W)(W.data.float().abs().to(W.data.dtype), W.indices, W.indptr, W.shape)
    X = narrow_dense(dtype, (128, 32768), device=device).float().abs().to(W.data.dtype)
    Y = sf.linear(X, W, kernel=kernel, out_dtype="float32")
    exact = X.double() @ W.to_dense().double().T
    error = ((Y.double() - exact).abs() / exact.abs().clamp(min=1)).max()
    assert error <= (2.0**-23 if dtype == "int8" else 2.0**-9), float(error)


@kernels
@pytest.mark.usefixtures("_served")
def test_what_is_chosen(kernel: str, device: str) -> None:
    dtype = NARROW[kernel]
    W = narrow_matrix(dtype, "bsr", (256, 512), (64, 64), device=device)
    X = narrow_dense(dtype, (512, 512), device=device)
    with sf.tracing() as trace:
        sf.linear(X, W, scale_a=0.5, out_dtype="bfloat16")
    assert trace.kernels == [kernel]


@kernels
@pytest.mark.usefixtures("_served")
def test_in_a_graph(kernel: str, device: str) -> None:
    dtype = NARROW[kernel]
    W = narrow_matrix(dtype, "bsr", (256, 512), (64, 64), device=device)
    X, scale = narrow_dense(dtype, (64, 512), device=device), torch.rand(64, device=device)
    out = torch.empty(64, 256, dtype=torch.bfloat16, device=device)
    options: dict[str, Any] = {"scale_a": scale, "out_dtype": "bfloat16", "kernel": kernel}
    sf.linear(X, W, out=out, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sf.linear(X, W, out=out, **options)
    scale.copy_(torch.rand(64, device=device))
    out.fill_(torch.nan)
    graph.replay()
    expected = sf.linear(X, W, **options)
    assert torch.equal(out, expected)


@kernels
@pytest.mark.usefixtures("_served")
def test_batches_in_one_launch(kernel: str, device: str) -> None:
    dtype = NARROW[kernel]
    W = narrow_matrix(dtype, "bsr", (200, 320), (32, 32), device=device)
    X = narrow_dense(dtype, (3, 50, 352), device=device)[:, 2:, :320]
    scales = {
        "scale_a": torch.rand(3, 48, device=device),
        "scale_b": torch.rand(200, device=device),
    }
    Y = sf.linear(X, W, out_dtype="float16", kernel=kernel, **scales)
    assert_layer(Y, X, W, None, None, dtype="float16", factor=factor(kernel), **scales)


def test_fp8_that_is_too_large_is_nan(device: str) -> None:
    if torch.cuda.get_device_capability(device) < (8, 9):
        pytest.skip("no fp8")
    data = torch.tensor([[448.0], [16.0], [-448.0], [float("nan")]], device=device)
    W = sf.from_dense(data.to(torch.float8_e4m3fn), "bsr", blocksize=(4, 1))
    X = torch.tensor([[1.0], [2.0]], device=device).to(torch.float8_e4m3fn)
    Y = sf.linear(X, W, scale_b=1.0, kernel="triton-tiles-fp8").float().cpu()
    assert torch.equal(Y[0, :3], torch.tensor([448.0, 16.0, -448.0]))
    assert Y[1, [0, 2, 3]].isnan().all()
    assert Y[1, 1] == 32
