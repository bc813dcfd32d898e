"""2:4 at few columns, and dense arrays to 2:4, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import _arrays, dispatch
from sparseformats_kernels.triton import configs, nm_packing
from sparseformats_kernels.triton.configs import Config
from tests.gpu.memory import guarded, guarded_matrix, poisoned, watched
from tests.gpu.streams import forbidden_synchronisation
from tests.kernels.triton.groups import emulate, groups
from tests.kernels.triton.layers import assert_layer
from tests.kernels.triton.matrices import dense

NAME, PACK, OP = "triton-nm", "triton-pack", "convert:dense->n:m"
HALVES = ("bfloat16", "float16")
SHAPES = ((64, 128), (100, 576), (1000, 1000), (4096, 512), (17, 4099))
COLUMNS = (1, 8, 13, 16, 32, 64, 100)


def integers(shape: tuple[int, ...], dtype: str, library: str, device: str, seed: int = 1) -> Any:
    return dense(shape, dtype, library=library, device=device, values="integers", seed=seed)


def there(shape: tuple[int, int], dtype: str, library: str, device: str) -> Any:
    return groups(shape, dtype).to_device(device, library)


def assert_exact(Y: Any, A: Any, X: Any) -> None:
    """Sums of small integers, rounded once."""
    host, lib = A.to_device("cpu", "torch"), A.lib
    x = torch.from_numpy(lib.to_numpy(X).astype(np.float64))
    expected = (host.to_dense().double() @ x).to(host.data.dtype).double()
    got = torch.from_numpy(lib.to_numpy(Y).astype(np.float64))
    assert torch.equal(got, expected), f"{int((got != expected).sum())} elements of {got.numel()}"


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "{}x{}".format(*shape))
def test_exact_sums(shape: tuple[int, int], dtype: str, device: str) -> None:
    A, start = there(shape, dtype, "torch", device), SHAPES.index(shape) + HALVES.index(dtype)
    for number, n in enumerate(COLUMNS, start):  # each width meets each layout in some shape
        X = integers((shape[1], n), dtype, "torch", device)
        x = (X, X.T.contiguous().T, X.repeat(1, 2)[:, ::2])[number % 3]
        with sf.tracing() as trace:
            Y = sf.matmul(A, x, kernel=NAME)
        assert trace.kernels == [NAME]
        assert_exact(Y, A, x)
        if number % 2:
            out = torch.full((n, shape[0]), torch.nan, dtype=x.dtype, device=device).T
            sf.matmul(A, x, out=out, kernel=NAME)
            assert_exact(out, A, x)


def test_cupy(device: str) -> None:
    A = there((200, 328), "float16", "cupy", device)
    for n in (1, 16, 40):
        X = integers((328, n), "float16", "cupy", device)
        assert_exact(sf.matmul(A, X, kernel=NAME), A, X)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_every_kind_of_launch(parts: int, device: str) -> None:
    A = there((1000, 2056), "bfloat16", "torch", device)
    X = integers((2056, 24), "bfloat16", "torch", device)
    for bm, warps, bk, stages in ((16, 4, 64, 2), (32, 8, 128, 3), (64, 8, 64, 4), (32, 16, 64, 4)):
        config = Config(bm, 32, bk, parts, stages, warps=warps)
        with configs.with_config(NAME, config):
            for x in (X, X.T.contiguous().T):
                plan = sf.plan(A, x, kernel=NAME)
                assert_exact(plan(x), A, x)


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "expanded"])
def test_the_stand_in_tells_the_same(sparse: bool, device: str) -> None:
    """What NumPy makes of the kernel's source by the manual is what the device computes."""
    host, config = groups((40, 200)), Config(32, 16, 64, stages=2, warps=2)
    X = integers((200, 11), "float16", "torch", "cpu")
    emulated = torch.empty(40, 11, dtype=torch.float16)
    emulate(host, X, emulated, config, sparse=sparse)
    A = host.to_device(device, "torch")
    with configs.with_config(NAME, config):
        Y = sf.plan(A, X.to(device), kernel=NAME)(X.to(device))
    assert torch.equal(Y.cpu(), emulated)
    assert torch.equal(nm_packing.packed(A, sparse).cpu(), nm_packing.packed(host, sparse))


@pytest.mark.parametrize("parts", [1, 4])
def test_recorded_and_replayed(parts: int, device: str) -> None:
    A, first = there((512, 1024), "bfloat16", "torch", device), None
    X, Y = (integers((s, 16), "bfloat16", "torch", device) for s in (1024, 512))
    with configs.with_config(NAME, Config(32, 16, 64, parts, 3, warps=4)):
        plan = sf.plan(A, X, out=Y, kernel=NAME)
    plan(X, out=Y)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(X, out=Y)
    for seed in (2, 3, 2):
        X.copy_(integers((1024, 16), "bfloat16", "torch", device, seed=seed))
        Y.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize(device)
        assert_exact(Y, A, X)
        first = Y.clone() if first is None else first
    assert torch.equal(Y, first)
    with forbidden_synchronisation():
        plan(X, out=Y)


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_layers(activation: str | None, device: str) -> None:
    poisoned(device)
    for dtype in HALVES:
        W, X = there((300, 200), dtype, "torch", device), dense((33, 200), dtype, device=device)
        bias = dense((300,), dtype, seed=5, device=device)
        for tokens in (X, X.repeat(1, 2)[:, ::2], X[0]):
            with sf.use_kernel(NAME):
                Y = sf.linear(tokens, W, bias, activation=activation)
            assert_layer(Y, tokens, W, bias, activation)


def test_memory_around_every_operand(device: str) -> None:
    for dtype, shape, n in (("float16", (100, 201), 5), ("bfloat16", (65, 136), 16)):
        with watched() as arenas:
            A = guarded_matrix(groups(shape, dtype).to_device(device, "torch"), arenas)
            X = guarded(
                integers((shape[1], n), dtype, "torch", "cpu"), "torch", device, arenas, "X"
            )
            out = torch.full((shape[0], n), torch.nan, dtype=X.dtype)
            out = guarded(out, "torch", device, arenas, "out")
            sf.matmul(A, X, out=out, kernel=NAME)
            assert_exact(out, A, X)


# ---- dense -> 2:4


def edge(D: Any) -> Any:
    """What the edge itself makes, on the host."""
    lib = _arrays.of(D)
    return sf.from_dense(_arrays.library("torch").from_numpy(lib.to_numpy(D)), "2:4")


def assert_packed(D: Any) -> None:
    with sf.tracing() as trace:
        made = sf.from_dense(D, "2:4")
    assert [(run.op, run.kernel) for run in trace] == [(OP, PACK)]
    here, plain = made.to_device("cpu", "torch"), edge(D)
    lib = _arrays.library("torch")
    assert made.problems() == []
    assert lib.equal_bits(here.data, plain.data)
    assert lib.equal_bits(here.indices, plain.indices)


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "bool"])
def test_dense_to_groups(dtype: str, library: str, device: str) -> None:
    for shape in ((1, 1), (33, 64), (70, 1030), (513, 4096)):
        D = groups(shape, "float32", density=0.4).to_dense().numpy().astype(dtype)
        wide = np.zeros((shape[0], 2 * shape[1]), D.dtype)
        wide[:, ::2] = D
        x, apart = (_arrays.library(library).from_numpy(each, device) for each in (D, wide))
        for lies in (x, apart[:, ::2], x[1:, : shape[1] - 1], x[:, : shape[1] // 2]):
            assert_packed(lies)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dense_to_groups_of_torchs_own_types(dtype: str, device: str) -> None:
    D = groups((129, 516), "float32").to_dense().to(getattr(torch, dtype)).to(device)
    assert_packed(D)


def test_signs_and_payloads(device: str) -> None:
    bits = np.zeros((64, 256), np.int16)
    bits[:, ::4], bits[:, 1::4], bits[:, 3::4] = -0x8000, 0x7E03, -0x0155
    assert_packed(torch.from_numpy(bits).view(torch.float16).to(device))


def test_crowded_groups_are_found_and_nothing_waits_twice(device: str) -> None:
    D = torch.zeros(3000, 1024, device=device)
    D[17, 40:43] = D[2999, 1021:] = 1.5
    with pytest.raises(sf.PatternError, match=r"row 17, group 10 has 3 \(2 groups violate in all"):
        sf.from_dense(D, "2:4")
    D[17, 41] = D[2999, 1022] = 0
    record = next(r for r in dispatch.records(OP) if r.name == PACK)
    assert record.deterministic
    assert_packed(D)
