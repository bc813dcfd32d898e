"""Layers of fp8 by cuSPARSELt on the device: right whichever way the result is written.

Which way that is, ``python -m tests.gpu.cusparselt_limits --only results --seconds 15`` tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats_kernels.cusparselt import results
from sparseformats_kernels.cusparselt.choices import CHOICES
from sparseformats_kernels.cusparselt.layers import Layer
from sparseformats_kernels.cusparselt.plans import DEFAULT
from sparseformats_kernels.cusparselt.results import RIGHT, Features
from sparseformats_kernels.cusparselt.searching import everything, trusted
from sparseformats_kernels.cusparselt.serving import serve, usual
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
from tests.gpu.streams import forbidden_synchronisation
from tests.kernels.cusparselt.support import dense, expected, operand, query_for, same

FP8, KERNEL = "float8_e4m3fn", "cusparselt-fp8"
GIVES = ("bfloat16", "float16", "float32")
SHAPES = [(256, 512), (33, 50), (1, 4)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's file of algorithms is this test's."""
    monkeypatch.setenv("SPARSEFORMATS_CACHE", str(tmp_path))
    CHOICES.forget()
    yield
    CHOICES.forget()


def weight(device: str, shape: tuple[int, int], seed: int = 0) -> Any:
    return sf.from_dense(dense(shape, FP8, seed).to(device), "2:4")


def tokens(device: str, k: int, n: int, seed: int = 1) -> Any:
    """Whole numbers, so that every sum is exact; a token a row."""
    return operand(k, n, FP8, "F", seed).to(device).T.contiguous()


def scale(device: str, n: int, seed: int = 2) -> Any:
    made = torch.Generator().manual_seed(seed)
    return (torch.rand(n, generator=made) + 0.5).to(device)


def exact_of(X: Any, W: Any, bias: Any, activation: str | None, **scales: Any) -> Any:
    y = X.double() @ W.to_dense().double().T
    for name, axis in (("scale_a", (-1, 1)), ("scale_b", (1, -1))):
        given = scales.get(name, 1.0)
        y = y * (given.double().reshape(axis) if isinstance(given, torch.Tensor) else given)
    y = y if bias is None else y + bias.double()
    return y if activation is None else getattr(torch.nn.functional, activation)(y)


def close(y: Any, exact: Any) -> bool:
    """Within one rounding, and what float32 arithmetic behind exact sums leaves."""
    eps = torch.finfo(y.dtype).eps / 2
    bound = 1.001 * eps * exact.abs() + 1e-6 * exact.abs().amax() + 1e-6
    return bool(((y.double() - exact).abs() <= bound).all())


def packed(device: str, gives: str = "bfloat16") -> tuple[Any, Any, Any]:
    """A matrix of its own, an operand, and the state of its sums."""
    W, X = weight(device, (256, 512)), tokens(device, 512, 128)
    facts: dict[str, Any] = {"capability": torch.cuda.get_device_capability(device)}
    facts |= {"x_layout": "F", "out_layout": "F", "epilogue": "scale", "out_dtype": gives}
    query = query_for(W, X.T, **facts)
    return W, X, CuSparseLtProduct.pack(W, query)


def test_results_of_bfloat16_are_the_librarys_own(device: str) -> None:
    """What others rely on, without a bias and without scales of rows."""
    _, _, state = packed(device)
    for gives in ("bfloat16", "float32"):
        assert results.outcome(state, Features(FP8, gives)) == RIGHT


@pytest.mark.parametrize("gives", GIVES)
@pytest.mark.parametrize("shape", SHAPES)
def test_layers(shape: tuple[int, int], gives: str, device: str) -> None:
    W, (m, k) = weight(device, shape), shape
    dtype, one = getattr(torch, gives), torch.full((1,), 0.75, device=device)
    for count in (1, 13, 128):
        X = tokens(device, k, count)
        rows, each = scale(device, m), scale(device, count, 3)
        chosen = (
            *({}, {"scale_a": 0.37, "scale_b": 1.5}, {"scale_a": one, "scale_b": one}),
            *({"scale_b": rows}, {"scale_a": 0.37, "scale_b": rows}),
            *({"scale_a": one, "scale_b": rows[:, None]}, {"scale_a": each, "scale_b": rows}),
        )
        biases = (None, scale(device, m, 4), scale(device, m, 5).to(dtype))
        for scales in chosen:
            for bias in biases:
                for activation in (None, "relu", "gelu"):
                    options = {"activation": activation, "out_dtype": gives, "kernel": KERNEL}
                    with sf.tracing() as trace:
                        y = sf.linear(X, W, bias, **scales, **options)
                    assert [run.kernel for run in trace if run.op == "matmul"] == [KERNEL]
                    assert y.dtype == dtype
                    exact = exact_of(X, W, bias, activation, **scales)
                    assert close(y, exact), (count, scales, bias, activation)


@pytest.mark.parametrize("gives", GIVES)
def test_both_ways_give_the_same_bits(gives: str, device: str) -> None:
    """Of sums that are exact: one rounding is one rounding."""
    _, X, state = packed(device, gives)
    rows, bias = scale(device, 256), scale(device, 256, 3).bfloat16().float()
    for relu in (None, "relu"):
        for names in ((), ("bias",), ("scales",), ("bias", "scales")):
            given: dict[str, Any] = {"row_scale": rows} if "scales" in names else {}
            added = bias if "bias" in names else None
            found = Features(FP8, gives, None, relu is not None, "scales" in names)
            wanted = [found] if added is None else [found._replace(bias="float32")]
            right = [f for f in wanted if results.outcome(state, f) == RIGHT]
            for features in right:
                one, two = (Layer(state, f, relu, False) for f in (features, None))
                assert one.is_direct
                y = one(X.T, None, 0.5, 0, added, **given)
                assert one.is_direct, features
                exact = two(X.T, None, 0.5, 0, added, **given)
                # A product and a sum may be rounded together or one after the other.
                near = torch.finfo(y.dtype).eps * exact.abs() if names else 0
                assert ((y.float() - exact.float()).abs() <= near).all(), features


@pytest.mark.parametrize("gives", GIVES)
def test_every_algorithm_of_these_results_is_exact(gives: str, device: str) -> None:
    """As far as any is searched for: see `searching.MEASURED`."""
    W, X, base = packed(device, gives)
    state = base.giving(gives)
    query = query_for(W, X.T, x_layout="F", out_layout="F", device="cuda", out_dtype=gives)
    served = serve(state.blob, (state.m, state.k), usual(query, 128), True)
    most = min(state.make_plan(served.problem, DEFAULT).most, trusted(FP8, gives))
    ran, told = 0, []
    for algorithm in everything(most):
        state.forced = algorithm
        state.plans.clear()
        state.launches.clear()
        try:
            y = CuSparseLtProduct.run(state, X.T, None, 1, 0)
        except RuntimeError as error:
            told.append(str(error))
            continue
        ran += 1
        assert same(y, expected(W, X.T)), algorithm
    assert ran > 0
    assert all("failed: CUSPARSE_STATUS_" in text for text in told)


def test_results_beyond_a_half_type_are_infinite_or_nan(device: str) -> None:
    """As torch rounds them; a minus may come out as NaN, and never as a number."""
    D = torch.zeros(64, 128, device=device)
    D[0, ::4], D[1, ::4] = 448, -448
    W = sf.from_dense(D.to(torch.float8_e4m3fn), "2:4")
    X = torch.full((32, 128), 448.0, device=device).to(torch.float8_e4m3fn)
    y = sf.linear(X, W, scale_a=1.0, out_dtype="float16", kernel=KERNEL)
    assert not y[:, :2].isfinite().any()
    assert (y[:, 2:] == 0).all()
    wide = X.float()
    wide[3] = torch.nan
    nan = wide.to(X.dtype)
    y = sf.linear(nan, W, activation="relu", scale_b=1.0, out_dtype="bfloat16", kernel=KERNEL)
    assert y[3, :2].isnan().all()
    assert y[:3, 0].isfinite().all()


def test_an_explanation_tells_the_way(device: str) -> None:
    W, X = weight(device, (256, 512)), tokens(device, 512, 128)
    options: dict[str, Any] = {"out_dtype": "bfloat16", "kernel": KERNEL}
    sf.linear(X, W, **options)
    note = sf.explain("linear", X, W, **options).row(KERNEL).note
    assert "itself" in note or "in a second pass: " in note
    options["scale_a"] = torch.ones(128, device=device)
    assert "left in float32" in sf.explain("linear", X, W, **options).row(KERNEL).note


def test_scales_and_biases_change_in_graphs(device: str) -> None:
    W, X = weight(device, (256, 512)), tokens(device, 512, 128)
    rows, bias = scale(device, 256), scale(device, 256, 3)
    options: dict[str, Any] = {"scale_a": 0.5, "scale_b": rows, "activation": "relu"}
    options |= {"out_dtype": "bfloat16", "kernel": KERNEL}
    out = torch.empty(128, 256, dtype=torch.bfloat16, device=device)
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        sf.linear(X, W, bias, out=out, **options)
    torch.cuda.synchronize(device)
    with torch.cuda.graph(graph, stream=stream):
        sf.linear(X, W, bias, out=out, **options)
    for seed in (7, 8):
        rows.copy_(scale(device, 256, seed))
        bias.copy_(scale(device, 256, seed + 10))
        X.copy_(tokens(device, 512, 128, seed))
        out.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize(device)
        assert close(out, exact_of(X, W, bias, "relu", scale_a=0.5, scale_b=rows))


def test_streams_have_scales_of_their_own(device: str) -> None:
    W, X = weight(device, (256, 512)), tokens(device, 512, 128)
    streams = [torch.cuda.Stream(device) for _ in range(4)]
    given = [scale(device, 256, seed) for seed in range(4)]
    options: dict[str, Any] = {"out_dtype": "bfloat16", "kernel": KERNEL, "scale_a": 0.5}
    torch.cuda.synchronize(device)
    for _ in range(10):
        made = []
        for stream, rows in zip(streams, given, strict=True):
            with torch.cuda.stream(stream):
                made.append(sf.linear(X, W, scale_b=rows, **options))
        torch.cuda.synchronize(device)
        for y, rows in zip(made, given, strict=True):
            assert close(y, exact_of(X, W, None, None, scale_a=0.5, scale_b=rows))


def test_a_warm_call_never_synchronises_and_keeps_memory(device: str) -> None:
    W, X = weight(device, (256, 512)), tokens(device, 512, 128)
    rows, bias = scale(device, 256), scale(device, 256, 3)
    out = torch.empty(128, 256, dtype=torch.bfloat16, device=device)
    options: dict[str, Any] = {"out": out, "out_dtype": "bfloat16", "kernel": KERNEL}

    def calls() -> None:
        sf.linear(X, W, **options)
        sf.linear(X, W, bias, scale_a=0.5, scale_b=rows, activation="relu", **options)

    calls()
    calls()
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    with forbidden_synchronisation():
        for _ in range(5):
            calls()
    assert torch.cuda.memory_allocated(device) == before
