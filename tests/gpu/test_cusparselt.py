"""cuSPARSELt on the device: right values, every algorithm, epilogues, streams, threads, graphs.

What the stand-in of `tests.kernels.cusparselt` cannot know is held here. Where something is wrong,
``python -m tests.gpu.cusparselt_probe`` tells what the library does, fact by fact.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats.testing import assert_close, certify_kernel
from sparseformats.testing.operands import LAYOUTS, backed
from sparseformats_kernels.cusparselt import MOST_COLUMNS, state as state_module
from sparseformats_kernels.cusparselt.choices import CHOICES, user_file
from sparseformats_kernels.cusparselt.finding import the_api
from sparseformats_kernels.cusparselt.plans import DEFAULT
from sparseformats_kernels.cusparselt.searching import everything
from sparseformats_kernels.cusparselt.serving import serve, usual
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
from sparseformats_kernels.cusparselt.versions import KNOWN
from tests.gpu.streams import forbidden_synchronisation, side_stream
from tests.kernels.cusparselt.support import HALVES, dense, expected, query_for, same

LIBRARIES = ("torch", "cupy")
KERNELS = {
    "float16": "cusparselt",
    "bfloat16": "cusparselt",
    "int8": "cusparselt-int8",
    "float8_e4m3fn": "cusparselt-fp8",
}
SHAPES = [(64, 96), (33, 50), (1, 4), (16, 3), (130, 1000), (0, 8), (8, 0)]
FAULTS = {
    *("check-failed", "cost-failed", "failed-to-load", "package-broken", "missing-package"),
    "package-unknown",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's file of algorithms is this test's."""
    monkeypatch.setenv("SPARSEFORMATS_CACHE", str(tmp_path))
    CHOICES.forget()
    yield
    CHOICES.forget()


def matrix(device: str, shape: tuple[int, int], dtype: str = "float16", seed: int = 0) -> Any:
    """Whole numbers, every legal pattern in turn."""
    return sf.from_dense(dense(shape, dtype, seed).to(device), "2:4")


def operand(
    device: str, rows: int, n: int, dtype: str = "float16", layout: str = "C", seed: int = 1
) -> Any:
    """Whole numbers of at most 3 in size: sums are exact in float32."""
    host = np.random.default_rng(seed).integers(-3, 4, (rows, n)).astype(np.float32)
    made = torch.from_numpy(host).to(device).to(getattr(torch, dtype))
    return made.T.contiguous().T if layout == "F" else made


def multiply(A: Any, X: Any, **options: Any) -> Any:
    """The product, and proof that the kernel of its type made it."""
    kernel = KERNELS[A.dtype_name]
    with sf.tracing() as trace:
        y = sf.matmul(A, X, kernel=kernel, **options)
    assert {run.kernel for run in trace if run.op == "matmul"} == {kernel}
    return y


def bound(A: Any, X: Any, **facts: Any) -> tuple[Any, Any]:
    """A state of its own, and the kernel bound to it, beneath the checks of records."""
    facts = {"device": "cuda", "capability": (9, 0), **facts}
    query = query_for(A, X, **facts)
    state = CuSparseLtProduct.pack(A, query)
    return state, CuSparseLtProduct.bind(state, query)


# ---- the library itself: if these fail, nothing else can work


def test_the_library_is_found_and_known(device: str) -> None:
    api = the_api()
    assert api.version[:2] in KNOWN
    assert "cusparseLt" in api.path
    A, X = matrix(device, (64, 64)), operand(device, 64, 64)
    for kernel in ("cusparselt", "cusparselt-torch"):
        assert sf.explain(A, X).row(kernel).status != "refused", sf.explain(A, X)


@pytest.mark.parametrize("dtype", KERNELS)
def test_what_was_compressed_is_what_is_multiplied(dtype: str, device: str) -> None:
    """Each of the 11 patterns, read back by an identity: places and values."""
    A = matrix(device, (96, 128), dtype)
    eye = torch.eye(128, device=device).to(getattr(torch, dtype))
    y = multiply(A, eye.T)
    assert torch.equal(y.double(), A.to_dense().double())


@pytest.mark.parametrize("dtype", HALVES)
def test_zeros_of_both_signs_and_nan(dtype: str, device: str) -> None:
    D = dense((64, 64), dtype)
    D[D == 0] = -0.0
    nan, inf = torch.nan, torch.inf
    rows = [(nan, 0, -0.0, 1), (0, inf, 0, nan), (-0.0, -0.0, nan, -0.0), (inf, 2, 0, 0)]
    for i, row in enumerate(rows):
        D[i, :4] = torch.tensor(row).to(D.dtype)
    D[4, :] = 0
    A, X = sf.from_dense(D.to(device), "2:4"), torch.ones(64, 8, device=device, dtype=D.dtype)
    y = multiply(A, X)
    assert y[:3].isnan().all()
    assert torch.equal(y[3:].cpu().double(), D[3:].double() @ X.cpu().double())


@pytest.mark.parametrize("dtype", HALVES)
def test_a_nan_of_the_operand_reaches_what_it_belongs_to(dtype: str, device: str) -> None:
    A = matrix(device, (64, 64), dtype)
    D = A.to_dense()
    for j in (0, 5, 63):
        X = operand(device, 64, 16, dtype)
        X[j, 3] = torch.nan
        y = multiply(A, X)
        meets = D[:, j] != 0
        assert y[meets, 3].isnan().all()
        aside = (D.reshape(64, 16, 4)[:, j // 4] != 0).any(dim=1) | meets
        exact = D.double() @ X.double().nan_to_num()
        other = [c for c in range(16) if c != 3]
        assert same(y[:, other], exact[:, other])  # no other column
        left = y[~aside, 3]
        unspecified = left.isnan() | (left.double() == exact[~aside, 3])
        assert unspecified.all()


# ---- shapes, layouts, numbers


@pytest.mark.parametrize("dtype", KERNELS)
@pytest.mark.parametrize(
    "shape", [(64, 96), (33, 50), (1, 4), (16, 3), (130, 1000), (0, 8), (8, 0)]
)
def test_every_shape_and_type(shape: tuple[int, int], dtype: str, device: str) -> None:
    A = matrix(device, shape, dtype)
    for n in (1, 8, 13, 32, 257):
        for layout in ("C", "F"):
            X = operand(device, shape[1], n, dtype, layout)
            y = multiply(A, X)
            exact = expected(A, X)
            if dtype == "float8_e4m3fn":  # few numbers of this size are fp8's own
                y, exact = y.float(), exact.to(A.dtype).float().double()
            assert same(y, exact)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("n", [1, 16, 40, 131])
def test_layouts(n: int, library: str, device: str) -> None:
    A = matrix(device, (96, 80))
    A = A if library == "torch" else A.to_library("cupy")
    lib = A.lib
    for layout in LAYOUTS:
        host = np.random.default_rng(1).integers(-3, 4, (80, n)).astype(np.float16)
        _, X = backed(host, layout, lib, A.device)
        for out_layout in ("C", "F", "rows", "columns", "offset"):
            base, Y = backed(np.zeros((96, n), np.float16), out_layout, lib, A.device, np.nan)
            for alpha, beta in ((1, 0), (2, 0), (1, 1), (0.5, -2)):
                Y[...] = 3 if beta else np.nan
                assert multiply(A, X, out=Y, alpha=alpha, beta=beta) is Y
                before = lib.full((96, n), 3.0, "float16", A.device)
                out = before if beta else None
                assert_close(Y, A, X, alpha=alpha, beta=beta, out=out)
                nans = int((base != base).sum())  # what lies beside the view stays
                assert nans == int(np.prod(base.shape)) - 96 * n


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("values", ["any", "moderate"])
@pytest.mark.parametrize("kernel", ["cusparselt", "cusparselt-int8", "cusparselt-fp8"])
def test_certified(kernel: str, values: str, library: str, device: str) -> None:
    if library == "cupy" and kernel == "cusparselt-fp8":
        return  # CuPy has no such type
    dtypes = [d for d, name in KERNELS.items() if name == kernel]
    options: dict[str, Any] = {"library": library, "device": device, "flush": True}
    options["dtypes"] = [d for d in dtypes if library == "torch" or d != "bfloat16"]
    certificate = certify_kernel(kernel, values=values, formats="2:4", examples=60, **options)
    assert not set(certificate.refusals) & FAULTS
    assert sum(certificate.runs.values()) >= 5


@pytest.mark.parametrize("precision", [None, "tf32"])
def test_single_precision_is_never_asked_of_the_library(precision: str | None, device: str) -> None:
    """Its planner did not come back: compute capability 9.0, version 0.8.0."""
    A, X = sf.from_dense(torch.eye(64, device=device), "1:2"), torch.randn(64, 40, device=device)
    for row in sf.explain(A, X, precision=precision).rows:
        if row.kernel.startswith("cusparselt"):
            assert "dtype" in [reason.code for reason in row.reasons]
    assert torch.equal(A @ X, X)


def test_halves_are_summed_in_float32_and_rounded_once(device: str) -> None:
    k = 16384
    D = torch.zeros(64, k, device=device, dtype=torch.float16)
    D[:, ::4] = 1
    D[:, 1::4] = 0.001
    A = sf.from_dense(D, "2:4")
    X = torch.ones(k, 64, device=device, dtype=torch.float16)
    for n in (64, 60):
        assert_close(multiply(A, X[:, :n]), A, X[:, :n])
    out = torch.full((64, 64), 2050.0, device=device, dtype=torch.float16)
    E = sf.from_dense(torch.eye(64, device=device).half(), "2:4")
    y = multiply(E, torch.ones_like(out), out=out, alpha=1.5, beta=1)
    assert (y == 2052).all()  # 2051.5, once


@pytest.mark.parametrize("dtype", HALVES)
def test_random_products_of_llm_shape(dtype: str, device: str) -> None:
    W = torch.randn(2048, 4096, device=device).to(getattr(torch, dtype))
    A = sf.prune(W, "2:4")
    for n in (1, 16, 500, 2048):
        X = torch.randn(4096, n, device=device).to(W.dtype)
        Y = multiply(A, X)
        exact = A.to_dense().double() @ X.double()
        size = A.to_dense().double().abs() @ X.double().abs()
        once = torch.finfo(W.dtype).eps / 2
        assert ((Y.double() - exact).abs() <= 1.01 * once * exact.abs() + 1e-6 * size).all()


def test_many_columns(device: str) -> None:
    A = matrix(device, (32, 64))
    for n in (1 << 15, MOST_COLUMNS - 8, MOST_COLUMNS - 3, MOST_COLUMNS):
        X = torch.ones(64, n, device=device, dtype=torch.float16)
        X[:, -1] = 2
        y = multiply(A, X)
        exact = A.to_dense().double().sum(dim=1)[:, None].expand(-1, n).clone()
        exact[:, -1] *= 2
        assert torch.equal(y.double(), exact)
    beyond = torch.ones(64, MOST_COLUMNS + 1, device=device, dtype=torch.float16)
    row = sf.explain(A, beyond).row("cusparselt")
    assert [reason.code for reason in row.reasons] == ["size"]
    assert torch.equal((A @ beyond)[:, -1], y[:, 0])


@pytest.mark.parametrize("k", [2048, 2080, 9000])
def test_bytes(k: int, device: str) -> None:
    """Sums that float32 does not hold come out exact: such matrices are cut."""
    A = matrix(device, (96, k), "int8")
    D = torch.full((96, k), 0, dtype=torch.int8)
    D[:, ::4], D[:, 1::4] = -128, -128
    B = sf.from_dense(D.to(device), "2:4")
    for layout in ("C", "F"):
        X = operand(device, k, 48, "int8", layout)
        assert same(multiply(A, X), expected(A, X))
        worst = torch.full_like(X, -128)
        assert (multiply(B, worst) == k // 2 * 128 * 128).all()
        out = torch.full((96, 48), 20_000_001, device=device, dtype=torch.int32)
        y = multiply(A, X, out=out.clone(), alpha=-7, beta=2)
        assert same(y, expected(A, X, -7, 2, out))


def test_fp8_rounds_as_torch_does(device: str) -> None:
    W = torch.randn(64, 256, device=device)
    A = sf.prune(W, "2:4").astype("float8_e4m3fn")
    X = (torch.randn(256, 64, device=device) * 4).to(torch.float8_e4m3fn)
    y = multiply(A, X)
    exact = (A.to_dense().float().double() @ X.float().double()).float().to(torch.float8_e4m3fn)
    differ = y.float() != exact.float()
    both = y.float().isnan() & exact.float().isnan()
    assert (differ & ~both).float().mean() < 0.02  # sums near the middle of two numbers
    big = torch.full((256, 16), 448.0, device=device).to(torch.float8_e4m3fn)
    y, exact = multiply(A, big), A.to_dense().float() @ big.float()
    assert torch.equal(y.float().isnan(), exact.to(torch.float8_e4m3fn).float().isnan())


def test_scaled_fp8_leaves_its_sums_unrounded(device: str) -> None:
    W = sf.prune(torch.randn(256, 1024, device=device), "2:4").astype("float8_e4m3fn")
    X = torch.randn(100, 1024, device=device).to(torch.float8_e4m3fn)
    a, b = torch.rand(100, device=device) + 0.5, torch.rand(256, device=device) + 0.5
    options = {"scale_a": a, "scale_b": b, "out_dtype": "bfloat16", "kernel": "cusparselt-fp8"}
    with sf.tracing() as trace:
        y = sf.linear(X, W, **options)
    assert [run.kernel for run in trace if run.op == "matmul"] == ["cusparselt-fp8"]
    D = W.to_dense().float().double()
    scales = a.double()[:, None] * b.double()[None, :]
    exact, size = (X.float().double() @ D.T) * scales, X.float().double().abs() @ D.abs().T * scales
    assert ((y.double() - exact).abs() <= 2.0**-8 * exact.abs() + 2.0**-12 * size).all()


# ---- algorithms


@pytest.mark.parametrize("dtype", KERNELS)
@pytest.mark.parametrize("layout", ["C", "F"])
def test_every_algorithm_is_exact(layout: str, dtype: str, device: str) -> None:
    """Each id, each way to cut sums: partial sums must not be rounded to a half type."""
    if dtype in ("int8", "float8_e4m3fn") and layout == "C":
        return  # operands in rows are turned
    k = 512 if dtype == "float8_e4m3fn" else 2048  # whose sums leave what it holds
    A = matrix(device, (256, k), dtype)
    X = operand(device, k, 128, dtype, layout)
    state, _ = bound(A, X, x_layout=layout)
    query = query_for(A, X, x_layout=layout, device="cuda")
    served = serve(state.blob, (state.m, state.k), usual(query, 128), True)
    most = state.make_plan(served.problem, DEFAULT).most
    assert most > 0
    ran, told = [], []
    for algorithm in everything(most):
        state.forced = algorithm
        state.plans.clear()
        state.launches.clear()
        try:
            y = CuSparseLtProduct.run(state, X, None, 1, 0)
        except RuntimeError as error:
            told.append(str(error))
            continue
        ran.append(algorithm)
        exact = expected(A, X)
        if dtype == "float8_e4m3fn":
            y, exact = y.float(), exact.to(A.dtype).float().double()
        assert same(y, exact), algorithm
    assert all("failed: CUSPARSE_STATUS_" in text for text in told)
    assert DEFAULT in ran
    assert len(ran) > 1


def test_a_search_is_kept_in_the_users_file(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_WORTH", 0)
    A, X = matrix(device, (512, 1024)), operand(device, 1024, 256)
    assert same(multiply(A, X), expected(A, X))
    text = user_file().read_text()
    assert torch.cuda.get_device_name(device) in text
    sf.clear_cache()
    CHOICES.forget()
    assert same(multiply(A, X), expected(A, X))
    assert user_file().read_text() == text


def test_the_same_bits_where_they_are_asked_for(device: str) -> None:
    A = sf.prune(torch.randn(1024, 4096, device=device).half(), "2:4")
    X = torch.randn(4096, 512, device=device).half()
    torch.use_deterministic_algorithms(True)
    try:
        first = multiply(A, X)
        for _ in range(20):
            assert torch.equal(first, multiply(A, X))
    finally:
        torch.use_deterministic_algorithms(False)


# ---- layers


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(96, 64), (33, 50)])
@pytest.mark.parametrize("tokens", [(40,), (3, 8), (5,), (1,), ()])
def test_layers(tokens: tuple[int, ...], shape: tuple[int, int], dtype: str, device: str) -> None:
    W = matrix(device, shape, dtype)
    count = max(1, int(np.prod(tokens)))
    X = operand(device, shape[1], count, dtype, seed=2).T.reshape(*tokens, shape[1])
    bias = operand(device, shape[0], 1, dtype, seed=3)[:, 0].contiguous()
    D = W.to_dense().double()
    for given in (None, bias):
        for activation in (None, "relu", "gelu", "silu"):
            with sf.tracing() as trace:
                y = sf.linear(X, W, given, activation=activation, kernel="cusparselt")
            assert trace.kernels == ["cusparselt"]
            exact = X.double() @ D.T + (0 if given is None else given.double())
            if activation in ("gelu", "silu"):
                exact = getattr(torch.nn.functional, activation)(exact)
                near = 3 * torch.finfo(W.dtype).eps
                assert torch.allclose(y.double(), exact, rtol=near, atol=near)
            else:
                assert same(y, exact.relu() if activation else exact)


def test_relu_keeps_nan(device: str) -> None:
    W = matrix(device, (64, 64))
    X = operand(device, 64, 16).T.contiguous()
    X[2] = torch.nan
    y = sf.linear(X, W, activation="relu", kernel="cusparselt")
    assert y[2].isnan().any()
    assert (y[[i for i in range(16) if i != 2]] >= 0).all()


def test_biases_change_between_calls(device: str) -> None:
    """At new addresses, misaligned, in place: each call has the bias that it was given."""
    W, X = matrix(device, (96, 64)), operand(device, 64, 40).T.contiguous()
    exact = X.double() @ W.to_dense().double().T
    room = operand(device, 96 * 30, 1, seed=9)[:, 0].contiguous()
    for step in range(60):
        bias = room[step % 29 * 96 + step % 3 :][:96]
        y = sf.linear(X, W, bias, kernel="cusparselt")
        assert same(y, exact + bias.double()), step
    bias = room[:96].clone()
    for value in (1.0, 2.0, -3.0):
        bias.fill_(value)
        assert same(sf.linear(X, W, bias, kernel="cusparselt"), exact + value)


def test_operands_from_the_left_and_batches(device: str) -> None:
    A = matrix(device, (96, 64))
    D = A.to_dense().double()
    batch = torch.stack([operand(device, 64, 40, seed=i) for i in range(5)])
    with sf.use_kernel("cusparselt"):
        assert same(batch[0].T @ A.T, batch[0].double().T @ D.T)
        for n in (40, 3, 1):
            assert same(A @ batch[..., :n], D @ batch[..., :n].double())
        assert same(batch.mT @ A.T, batch.double().mT @ D.T)
        assert same(A @ batch[0, :, 0], D @ batch[0, :, 0].double())
        out = torch.empty(5, 96, 40, device=device, dtype=torch.float16)
        assert same(sf.matmul(A, batch, out=out), D @ batch.double())


def test_transposes_are_refused(device: str) -> None:
    A, X = matrix(device, (64, 64)), operand(device, 64, 16)
    found = [r.code for r in sf.explain(X.T, A).row("cusparselt").reasons]
    assert found == ["format"]


def test_torchs_operators(device: str) -> None:
    for shape in ((96, 64), (33, 50)):
        A = matrix(device, shape)
        for n in (16, 13):
            X = operand(device, shape[1], n)
            y = sf.matmul(A, X, kernel="cusparselt-torch")
            assert same(y, expected(A, X))
        bias = operand(device, shape[0], 1, seed=3)[:, 0].contiguous()
        y = sf.linear(X.T, A, bias, kernel="cusparselt-torch")
        assert same(y.T, expected(A, X) + bias.double()[:, None])


# ---- streams, threads, graphs


@pytest.mark.parametrize("library", LIBRARIES)
def test_it_runs_on_the_callers_stream(library: str, device: str) -> None:
    """The operand's last values come late on a side stream; any other stream would miss them."""
    A = matrix(device, (96, 64))
    A = A if library == "torch" else A.to_library("cupy")
    lib = A.lib
    for n in (40, 13):
        first, late = (operand(device, 64, n, seed=s) for s in (1, 2))
        X = lib.asarray(first) if library == "torch" else lib.asarray(first.cpu().numpy())
        given = late if library == "torch" else lib.asarray(late.cpu().numpy())
        multiply(A, X)
        torch.cuda.synchronize(device)
        with side_stream(library, device) as stream:
            multiply(A, X)
            torch.cuda._sleep(100_000_000)
            X[...] = given
            y = multiply(A, X)
            assert not stream.query()  # nothing waited for the device
            stream.synchronize()
        assert_close(y, A, given)


def test_threads_with_streams_operands_and_biases_of_their_own(device: str) -> None:
    W = matrix(device, (96, 64))
    D = W.to_dense().double()
    failures: list[Any] = []
    barrier = threading.Barrier(8)

    def work(i: int) -> None:
        stream = torch.cuda.Stream(device)
        X = operand(device, 64, 24 + 8 * (i % 3), seed=i).T.contiguous()
        bias = operand(device, 96, 1, seed=50 + i)[:, 0].contiguous()
        exact = X.double() @ D.T + bias.double()
        torch.cuda.synchronize(device)
        barrier.wait(60)
        with torch.cuda.stream(stream):
            for step in range(50):
                y = sf.linear(X, W, bias, kernel="cusparselt")
                if step % 10 == 0:
                    stream.synchronize()
                    if not same(y, exact):
                        failures.append((i, step))
            stream.synchronize()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("dtype", KERNELS)
def test_graphs_replay_with_new_data(dtype: str, warm: bool, device: str) -> None:
    for n in (48, 13):
        A = matrix(device, (96, 64), dtype)
        X = operand(device, 64, n, dtype, "F")
        out = torch.int32 if dtype == "int8" else A.dtype
        Y, Z = (torch.empty(96, n, device=device, dtype=out) for _ in range(2))
        plan = sf.plan(A, X, out=Y, kernel=KERNELS[dtype])
        if warm:
            plan(X, out=Y)
        graphs = []
        for target in (Y, Z):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                plan(X, out=target)
            graphs.append((graph, target))
        for seed in (3, 4):
            X.copy_(operand(device, 64, n, dtype, "F", seed))
            exact = expected(A, X)
            exact = exact.to(out).double()
            for graph, target in graphs:
                target.zero_()
                graph.replay()
                assert same(target.double(), exact)
            assert same(plan(X).double(), exact)  # and the plan still works beside them


def test_layers_in_graphs(device: str) -> None:
    W, X = matrix(device, (96, 64)), operand(device, 64, 40).T.contiguous()
    bias = operand(device, 96, 1, seed=3)[:, 0].contiguous()
    for given in (bias, bias[:95]):
        weight = W if given is bias else matrix(device, (95, 64))
        stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                sf.linear(X, weight, given, activation="relu", kernel="cusparselt")
        torch.cuda.synchronize(device)
        with torch.cuda.graph(graph, stream=stream):
            y = sf.linear(X, weight, given, activation="relu", kernel="cusparselt")
        for seed in (5, 6):
            X.copy_(operand(device, 64, 40, seed=seed).T)
            given.copy_(operand(device, 96, 1, seed=seed + 10)[: len(given), 0])
            graph.replay()
            torch.cuda.synchronize(device)
            exact = X.double() @ weight.to_dense().double().T + given.double()
            assert same(y, exact.relu())


def test_graphs_of_other_threads(device: str) -> None:
    """A thread that records without a call before makes its plan while recording."""
    A, X = matrix(device, (96, 64)), operand(device, 64, 40)
    Y = torch.empty(96, 40, device=device, dtype=torch.float16)
    plan, found = sf.plan(A, X, out=Y, kernel="cusparselt"), []
    plan(X, out=Y)

    def work() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            plan(X, out=Y)
        Y.zero_()
        graph.replay()
        torch.cuda.synchronize(device)
        found.append(same(Y, expected(A, X)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]


def test_cupy_graphs(device: str) -> None:
    import cupy

    A = matrix(device, (96, 64)).to_library("cupy")
    X = cupy.asarray(operand(device, 64, 48).cpu().numpy())
    Y = cupy.empty((96, 48), np.float16)
    plan = sf.plan(A, X, out=Y, kernel="cusparselt")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan(X, out=Y)
        graph = stream.end_capture()
    for seed in (3, 4):
        X[...] = cupy.asarray(operand(device, 64, 48, seed=seed).cpu().numpy())
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert_close(Y, A, X)


def test_a_warm_call_never_synchronises_and_keeps_memory(device: str) -> None:
    A, X = matrix(device, (96, 64)), operand(device, 64, 40)
    bias, tokens = operand(device, 96, 1)[:, 0].contiguous(), X.T.contiguous()
    Y = torch.empty(96, 40, device=device, dtype=torch.float16)
    plan = sf.plan(A, X, out=Y, kernel="cusparselt")
    calls: list[Any] = [
        lambda: plan(X, out=Y),
        lambda: sf.matmul(A, X, out=Y, kernel="cusparselt"),
        lambda: sf.matmul(A, X[:, :13], kernel="cusparselt"),
        lambda: sf.linear(tokens, A, bias, activation="relu", kernel="cusparselt"),
    ]
    for call in calls * 2:
        call()
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    with forbidden_synchronisation():
        for call in calls * 5:
            call()
    assert torch.cuda.memory_allocated(device) == before


def test_packing_frees_the_dense_form(device: str) -> None:
    W = torch.randn(4096, 4096, device=device).half()
    A = sf.prune(W, "2:4")
    X = torch.randn(4096, 64, device=device).half()
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    plan = sf.plan(A, X, kernel="cusparselt")
    torch.cuda.synchronize(device)
    grown = torch.cuda.memory_allocated(device) - before
    assert grown <= W.nbytes * 9 // 16 + (8 << 20)
    del plan
