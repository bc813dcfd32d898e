"""Elements by rows on the device: the same bits on every run, long rows, graphs, large sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats_kernels.triton import configs
from tests.gpu.kernels import hold, kind
from tests.gpu.memory import poisoned
from tests.kernels.triton.elements import CHECKS, elements, exact_integers, uneven
from tests.kernels.triton.kinds import ROWS
from tests.kernels.triton.matrices import dense
from tests.kernels.triton.ordeal import Subject, deterministic


@pytest.fixture(autouse=True)
def _memory(device: str) -> None:
    """Memory that nobody wrote to holds NaN and -1."""
    poisoned(device)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_ordeal(check: Callable[[Subject], None], device: str) -> None:
    if kind(device) != "cuda":
        return
    subject = Subject(ROWS, device)
    check(subject)
    assert subject.served
    assert not subject.refused


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
def test_many_columns_have_a_kernel_where_the_same_bits_are_asked_for(
    format: str, device: str
) -> None:
    A = elements(format, uneven(200, 3000), 3000, device=device)
    X = dense((3000, 64), device=device)
    with deterministic():
        first, told = A @ X, sf.explain(A, X)
        left = X[:200].T @ A
        for _ in range(5):
            assert torch.equal(A @ X, first)
            assert torch.equal(X[:200].T @ A, left)
    if kind(device) == "cuda":
        assert told.chosen == ROWS
        codes = {reason.code for reason in told.row("cusparse-csr").reasons}
        assert "nondeterministic" in codes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("n", [1, 7, 16, 100, 1024])
def test_large_products(dtype: str, n: int, device: str) -> None:
    if kind(device) != "cuda":
        return
    subject = Subject(ROWS, device)
    lengths = [20 + i % 30 for i in range(3000)]
    lengths[5], lengths[77], lengths[2999] = 4096, 2000, 0
    A = elements("csr", lengths, 4096, dtype, device=device)
    wide = dense((4096, n + 3), dtype, device=device)
    for X in (wide[:, :n].contiguous(), wide[:, :n], wide[:, :n].T.contiguous().T):
        hold(subject, A, X)
        hold(subject, A, X, out=torch.full_like(X[:3000], torch.nan))
        hold(subject, A, X, alpha=2, beta=-1, out=torch.ones_like(X[:3000]))
    assert not subject.refused


def test_every_candidate_gives_the_same_sums(device: str) -> None:
    if kind(device) != "cuda":
        return
    for n in (1, 16, 130):
        A = elements("csr", uneven(60, 900), 900, "float16", device=device)
        X = dense((900, n), "float16", device=device)
        query = sf.plan(A, X, kernel=ROWS).query
        for config in configs.candidates(ROWS, query, 132)[::7]:
            with configs.with_config(ROWS, config):
                exact_integers(Subject(ROWS, device), rows=33, k=400, dtypes=("float16",))


@pytest.mark.parametrize("skewed", [False, True])
def test_a_graph_is_replayed_with_other_operands(skewed: bool, device: str) -> None:
    if kind(device) != "cuda":
        return
    A = elements("csr", uneven(90, 800) if skewed else [9] * 90, 800, device=device)
    X, out = dense((800, 24), device=device), torch.empty(90, 24, device=device)
    plan = sf.plan(A, X, out=out, kernel=ROWS)
    plan(X, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(X, out=out)
    for seed in (3, 4):
        X.copy_(dense((800, 24), device=device, seed=seed))
        graph.replay()
        assert torch.equal(out, plan(X))


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_layers(activation: str | None, device: str) -> None:
    """Tokens lie by rows, so that operand and result are column-major to the kernel."""
    if kind(device) != "cuda":
        return
    W = elements("csr", uneven(120, 1000), 1000, "float16", device=device)
    X, bias = dense((40, 1000), "float16", device=device), dense((120,), "float16", device=device)
    with sf.tracing() as trace:
        Y = sf.linear(X, W, bias, activation=activation, kernel=ROWS)
    assert trace.kernels == [ROWS]
    plain: Any = X.double() @ W.to_dense().double().T + bias.double()
    expected = plain if activation is None else torch.nn.functional.gelu(plain)
    assert torch.allclose(Y.double(), expected, rtol=2e-3, atol=2e-2)
