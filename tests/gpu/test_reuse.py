"""What is prepared once is right for every later call: other strides, streams, switches, graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sparseformats as sf
from tests.gpu.kernels import block_for, kind
from tests.gpu.streams import side_stream
from tests.kernels.triton.matrices import dense, matrix
from tests.kernels.triton.ordeal import Subject

N = 256


def square(kernel: str, dtype: str, device: str, seed: int = 0) -> Any:
    options = {"device": device, "values": "integers", "seed": seed}
    return matrix("bsr", (N, N), block_for(kernel), dtype, **options)


def laid(X: Any, layout: str) -> Any:
    """The same numbers by columns, or in rows of a wider array."""
    if layout == "columns":
        return X.T.contiguous().T
    wide = torch.zeros((X.shape[0], 2 * X.shape[1]), dtype=X.dtype, device=X.device)
    wide[:, : X.shape[1]] = X
    return wide[:, : X.shape[1]]


@pytest.mark.parametrize("first", ["aside", "in place"])
@pytest.mark.parametrize("layout", ["columns", "padded"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_in_place_and_aside(
    block_kernel: str, dtype: str, layout: str, first: str, device: str
) -> None:
    """Writing over the operand copies it first, and the copy lies otherwise."""
    A = square(block_kernel, dtype, device)
    X = dense((N, N), dtype, values="integers", device=device) % 3
    expected, subject = (
        (A.to_dense().double() @ X.double()).to(X.dtype),
        Subject(block_kernel, device),
    )
    for which in ("aside", "in place", "aside") if first == "aside" else ("in place", "aside"):
        x = laid(X, layout)
        y = x if which == "in place" else laid(torch.full_like(X, torch.nan), layout)
        if subject.matmul(A, x, out=y, assume_finite=True) is not None:
            assert torch.equal(y, expected), which


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_layers_in_place_and_aside(block_kernel: str, dtype: str, device: str) -> None:
    W = square(block_kernel, dtype, device)
    X = dense((N, N), dtype, values="integers", device=device) % 3
    expected = (X.double() @ W.to_dense().double().T).to(X.dtype)
    subject = Subject(block_kernel, device)
    for in_place in (False, True, False):
        x = laid(X, "padded")
        y = x if in_place else torch.full_like(X, torch.nan)
        found = subject.run(sf.linear, x, W, out=y, assume_finite=True)
        assert found is None or torch.equal(y, expected), in_place


@pytest.mark.parametrize("format", ["bsr", "blocked_ell"])
def test_values_that_are_a_slice(block_kernel: str, format: str, device: str) -> None:
    """Shared values need not be contiguous."""
    size = block_for(block_kernel)[0]
    A = matrix(format, (N, N), (size, size), "float16", values="integers", device=device)
    wide = torch.full((*A.data.shape[:-1], 2 * size), 99.0, dtype=A.data.dtype, device=device)
    wide[..., :size] = A.data
    data = wide[..., :size]
    if format == "bsr":
        B = sf.BSR(data, A.indices, A.indptr, A.shape, copy=False)
    else:
        B = sf.BlockedELL(data, A.col_indices, A.shape, copy=False)
    assert not B.data.is_contiguous()
    X, subject = (
        dense((N, 64), "float16", values="integers", device=device),
        Subject(block_kernel, device),
    )
    expected = (A.to_dense().double() @ X.double()).to(X.dtype)
    Y = subject.matmul(B, X, assume_finite=True)
    assert Y is None or torch.equal(Y, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_packed_on_one_stream_used_on_another(block_kernel: str, dtype: str, device: str) -> None:
    """The packing is complete when another stream may use it, and its memory is kept for that."""
    X = dense((N, 64), dtype, values="integers", device=device)
    subject = Subject(block_kernel, device)
    for seed in range(4):
        A = square(block_kernel, dtype, device, seed)
        expected = (A.to_dense().double() @ X.double()).to(X.dtype)
        torch.cuda.synchronize(device)
        with side_stream("torch", device):
            torch.cuda._sleep(20_000_000)
            first = subject.matmul(A, X, assume_finite=True)
        second = subject.matmul(A, X, assume_finite=True)  # does not wait for the other stream
        if second is None:
            continue
        assert torch.equal(second, expected)
        del A
        sf.clear_cache()
        torch.full((4, 2**20), torch.nan, device=device)  # may get memory that was given back
        torch.cuda.synchronize(device)
        assert torch.equal(first, expected)


def test_ieee_wins_over_torchs_switch(device: str) -> None:
    """An explicit precision, and a plan made before the switch was turned on."""
    if kind(device) != "cuda":
        pytest.fail("TF32 needs a CUDA device")
    A = sf.prune(dense((512, 512), "float32", device=device), "2:4")
    X = dense((512, 256), "float32", seed=3, device=device)
    exact = A.to_dense().double() @ X.double()
    plan, switch = sf.plan(A, X), torch.backends.cuda.matmul
    before = switch.fp32_precision
    switch.fp32_precision = "tf32"
    try:
        found = [plan(X), sf.matmul(A, X, precision="ieee")]
        rounded = sf.matmul(A, X)
        assert switch.fp32_precision == "tf32"
    finally:
        switch.fp32_precision = before
    assert all((Y.double() - exact).norm() / exact.norm() < 1e-6 for Y in found)
    assert (rounded.double() - exact).norm() / exact.norm() > 1e-5


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_plan_is_recorded_without_a_call_before(
    block_kernel: str, dtype: str, device: str
) -> None:
    A = square(block_kernel, dtype, device)
    X, subject = (
        dense((N, 64), dtype, values="integers", device=device),
        Subject(block_kernel, device),
    )
    plan = subject.run(sf.plan, A, X, assume_finite=True)
    if plan is None:
        return
    Y, graph = torch.full_like(X, torch.nan), torch.cuda.CUDAGraph()
    torch.cuda.synchronize(device)
    with torch.cuda.graph(graph):
        plan(X, out=Y)
    X.copy_(X % 2)
    graph.replay()
    assert torch.equal(Y, (A.to_dense().double() @ X.double()).to(X.dtype))


@pytest.mark.parametrize("columns_contiguous", [False, True])
@pytest.mark.parametrize("n", [1, 4, 12, 20])
def test_memory_behind_short_lines(
    block_kernel: str, n: int, columns_contiguous: bool, device: str
) -> None:
    """Lines that begin at multiples of 16 bytes and do not end there: what follows is not ours."""
    A = matrix("bsr", (52, N), block_for(block_kernel), "float16", values="integers", device=device)
    X, subject = (
        dense((N, n), "float16", values="integers", device=device),
        Subject(block_kernel, device),
    )
    shape = (n, 52) if columns_contiguous else (52, n)
    memory = torch.full((shape[0], -(-shape[1] // 8) * 8 + 8), 7.0, dtype=X.dtype, device=device)
    out = memory[:, : shape[1]]
    found = subject.matmul(A, X, out=out.T if columns_contiguous else out, assume_finite=True)
    if found is not None:
        expected = (A.to_dense().double() @ X.double()).to(X.dtype)
        assert torch.equal(found, expected)
        assert (memory[:, shape[1] :] == 7).all()
