"""Prepared products are recorded into CUDA graphs; what is not prepared is refused, unharmed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from tests.gpu.streams import forbidden_synchronisation

FORMATS = ("csr", "bsr", "blocked_ell")
M, K, N = 96, 64, 32


def weight(device: str, format: str, library: str = "torch", dtype: str = "float32") -> Any:
    rng = np.random.default_rng(0)
    D = rng.integers(-3, 4, (M // 16, K // 16, 16, 16)).astype(dtype)
    D *= rng.random((M // 16, K // 16, 1, 1)) < 0.5
    D = D.transpose(0, 2, 1, 3).reshape(M, K)
    options = {} if format == "csr" else {"blocksize": 16}
    return sf.from_dense(np.ascontiguousarray(D), format, **options).to_device(device, library)


def numbers(device: str, *shape: int, seed: int = 0) -> Any:
    import torch

    x = np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)
    return torch.from_numpy(x).to(device)


def kernels_of(A: Any, X: Any, Y: Any) -> list[str]:
    """Every kernel that can serve the call, by name."""
    rows = sf.explain(A, X, out=Y, assume_finite=True).rows
    return [row.kernel for row in rows if row.status != "refused"]


@pytest.mark.parametrize("format", FORMATS)
def test_every_kernel_is_recorded_and_replayed_with_new_data(format: str, device: str) -> None:
    import torch

    A, X, Y = weight(device, format), numbers(device, K, N), numbers(device, M, N)
    D, names = A.to_dense().double(), kernels_of(A, X, Y)
    assert names
    for name in names:
        plan = sf.plan(A, X, out=Y, kernel=name, assume_finite=True)
        stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            plan(X, out=Y)  # on the stream that records: a kernel may have a workspace
        torch.cuda.current_stream(device).wait_stream(stream)
        torch.cuda.synchronize(device)
        with torch.cuda.graph(graph, stream=stream):
            plan(X, out=Y)
        for seed in (1, 2):
            X.copy_(numbers(device, K, N, seed=seed))
            Y.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize(device)
            assert torch.equal(Y.double(), D @ X.double()), name


@pytest.mark.parametrize("format", FORMATS)
def test_the_implicit_plan_of_a_warm_call_is_recorded(format: str, device: str) -> None:
    import torch

    A, X = weight(device, format), numbers(device, K, N)
    bias, tokens = numbers(device, M, seed=5), numbers(device, N, K, seed=6)
    D = A.to_dense().double()
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(2):
            A @ X
            sf.linear(tokens, A, bias, activation="relu")
    torch.cuda.synchronize(device)
    with torch.cuda.graph(graph, stream=stream):
        Y = A @ X
        Z = sf.linear(tokens, A, bias, activation="relu")
    X.copy_(numbers(device, K, N, seed=7))
    tokens.copy_(numbers(device, N, K, seed=8))
    graph.replay()
    torch.cuda.synchronize(device)
    assert torch.equal(Y.double(), D @ X.double())
    assert torch.equal(Z.double(), (tokens.double() @ D.T + bias).relu())


def test_nothing_is_prepared_while_a_graph_is_recorded(device: str) -> None:
    import torch

    A, X, Y = weight(device, "bsr"), numbers(device, K, N), numbers(device, M, N)
    plan = sf.plan(A, X, out=Y)
    wide = numbers(device, K, 2 * N)
    side = torch.cuda.Stream(device)
    with torch.cuda.stream(side):
        plan(X, out=Y)
    torch.cuda.synchronize(device)
    calls: list[Any] = [
        lambda: A @ wide,
        lambda: sf.plan(A, wide),
        lambda: sf.matmul(A, wide, alpha=2),
        lambda: sf.linear(wide.T, A),
        lambda: plan.update(A.data),
    ]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for call in calls:
            with pytest.raises(RuntimeError, match="prepare before capture"):
                call()
        plan(X, out=Y)  # the refusals have not ended the recording
    Y.zero_()
    graph.replay()
    torch.cuda.synchronize(device)
    assert torch.equal(Y.double(), A.to_dense().double() @ X.double())


def test_a_warm_call_never_synchronises(device: str) -> None:
    for format in FORMATS:
        A, X, Y = weight(device, format), numbers(device, K, N), numbers(device, M, N)
        tokens, bias = numbers(device, N, K), numbers(device, M)
        plan = sf.plan(A, X, out=Y)
        calls: list[Any] = [
            lambda A=A, X=X: A @ X,
            lambda A=A, X=X, Y=Y: sf.matmul(A, X, out=Y),
            lambda plan=plan, X=X, Y=Y: plan(X, out=Y),
            lambda A=A, t=tokens, b=bias: sf.linear(t, A, b, activation="gelu"),
        ]
        for call in calls:
            call()
        with forbidden_synchronisation():
            for call in calls:
                call()


def test_capturing_is_asked_of_the_arrays_device_and_stream(device: str) -> None:
    import torch

    A = weight(device, "csr")
    assert not A.lib.capturing(A.device)
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    x = torch.ones(8, device=device)
    with torch.cuda.graph(graph, stream=stream):
        assert A.lib.capturing(A.device)
        x += 1
    assert not A.lib.capturing(A.device)
    assert A.lib.stream(A.device) == torch.cuda.current_stream(device).cuda_stream
    with torch.cuda.stream(stream):
        assert A.lib.stream(A.device) == stream.cuda_stream


def test_cupy_streams_are_told_apart(device: str) -> None:
    import cupy

    A = weight(device, "csr", "cupy")
    with cupy.cuda.Device(int(A.device.partition(":")[2])):
        before = A.lib.stream(A.device)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            assert A.lib.stream(A.device) == stream.ptr != before
            stream.begin_capture()
            assert A.lib.capturing(A.device)
            stream.end_capture()
            assert not A.lib.capturing(A.device)
        with cupy.cuda.Stream.ptds:
            assert A.lib.stream(A.device) == cupy.cuda.Stream.ptds.ptr
        assert A.lib.stream(A.device) == before


def test_torchs_switch_is_a_fact_of_float32_on_this_device(device: str) -> None:
    import torch

    A, X = weight(device, "bsr"), numbers(device, K, N)
    assert sf.explain(A, X).query.precision is None
    facts = A.lib.facts(X)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert A.lib.facts(X) != facts
        assert sf.explain(A, X).query.precision == "tf32"
        assert sf.explain(A, X, precision="ieee").query.precision is None
        assert sf.explain(A, X.half()).query.precision is None
    finally:
        torch.backends.cuda.matmul.fp32_precision = "ieee"
    assert A.lib.facts(X) == facts
