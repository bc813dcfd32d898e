"""Plans that group rows, on the device: right results through every kernel that they may take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats.ops.reordering.kernel import Grouped
from tests.gpu.kernels import kind, libraries
from tests.gpu.streams import forbidden_synchronisation

M, K, N = 1024, 1024, 256
DTYPES = ("bfloat16", "float16", "float32")
FORMATS = ("csr", "csc", "coo", "bsr")


def planted(format: str, dtype: str, device: str, library: str = "torch", edge: int = 64) -> Any:
    """Small whole numbers in 16 clusters of shuffled rows, a few rows being empty."""
    rng = np.random.default_rng(0)
    met = np.repeat(rng.random((16, K // edge)) < 0.15, edge, axis=1)
    D = met[rng.permutation(M) % 16] * rng.integers(1, 4, (M, K))
    D[::97] = 0
    A = sf.from_dense(D.astype("float32"), format, **({"blocksize": 4} if format == "bsr" else {}))
    return A.to_library("torch").astype(dtype).to_device(device, library)


def numbers(lib: Any, shape: tuple[int, ...], dtype: str, device: str, seed: int = 0) -> Any:
    x = np.random.default_rng(seed).integers(-2, 3, shape).astype("float32")
    return lib.astype(lib.from_numpy(x, device), dtype)


def expected(A: Any, X: Any) -> Any:
    """In float64 on the host, rounded once as a product is."""
    host, lib = A.to_device("cpu", "torch"), A.lib
    x = torch.from_numpy(lib.to_numpy(X).astype(np.float64))
    return (host.to_dense().double() @ x).to(host.data.dtype).double()


def assert_exact(Y: Any, A: Any, right: Any) -> None:
    got = torch.from_numpy(A.lib.to_numpy(Y).astype(np.float64))
    assert torch.equal(got, right), f"{int((got != right).sum())} elements of {got.numel()}"


def grouped(A: Any, X: Any, **options: Any) -> sf.Plan:
    plan = sf.plan(A, X, reorder="always", assume_finite=True, **options)
    assert isinstance(plan._selection.target, Grouped)
    return plan


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", FORMATS)
def test_rows_come_back(format: str, dtype: str, device: str) -> None:
    for library in libraries(device) if dtype != "bfloat16" else ("torch",):
        A = planted(format, dtype, device, library)
        X = numbers(A.lib, (K, N), dtype, device)
        right = expected(A, X)
        plan = grouped(A, X)
        assert_exact(plan(X), A, right)
        for layout in ("C", "F", "rows"):
            Y = A.lib.full((N, M) if layout == "F" else (M, 2 * N), float("nan"), dtype, device)
            Y = Y.T if layout == "F" else Y[:, :N] if layout == "rows" else A.lib.copy(Y[:, :N])
            assert plan(X, out=Y) is Y
            assert_exact(Y, A, right)
        old = numbers(A.lib, (M, N), dtype, device, seed=1)
        before = torch.from_numpy(A.lib.to_numpy(old).astype(np.float64))
        scaled = grouped(A, X, alpha=2, beta=3, out=old)
        host = A.to_device("cpu", "torch")
        exact = host.to_dense().double() @ torch.from_numpy(A.lib.to_numpy(X).astype(np.float64))
        scaled(X, out=old)
        assert_exact(old, A, (2 * exact + 3 * before).to(host.data.dtype).double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kernel_for_blocks(dtype: str, device: str) -> None:
    A = planted("csr", dtype, device)
    X = numbers(A.lib, (K, 64), dtype, device)
    right, told = expected(A, X), sf.explain(A, X, reorder="always", assume_finite=True)
    names = [row.kernel for row in told.rows if row.status != "refused"]
    assert told.query.format == "bsr"
    for name in names:
        if name in ("reference", "cublas-dense"):  # cuBLAS may add parts in the result's dtype
            continue
        plan = grouped(A, X, kernel=name)
        with sf.tracing() as trace:
            Y = plan(X)
        assert trace.kernels == [name]
        assert_exact(Y, A, right)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_vectors_batches_and_operands_on_the_left(dtype: str, device: str) -> None:
    A = planted("csr", dtype, device)
    x = numbers(A.lib, (K,), dtype, device)
    assert_exact(grouped(A, x)(x), A, expected(A, x))
    batch = numbers(A.lib, (3, K, 40), dtype, device)
    assert_exact(grouped(A, batch)(batch), A, expected(A, batch))
    left = numbers(A.lib, (48, M), dtype, device)
    assert_exact(grouped(left, A)(left), A, expected(A.T, left.T).T)
    tokens = numbers(A.lib, (N, K), dtype, device).T
    out = torch.full((N, M), torch.nan, dtype=tokens.dtype, device=device).T
    assert_exact(grouped(A, tokens)(tokens, out=out), A, expected(A, tokens))


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_whole_block_rows(size: int, dtype: str, device: str) -> None:
    """Ragged, with an operand that is not finite: exactly what the matrix as it is gives."""
    rng = np.random.default_rng(0)
    rows, columns = 48, 40
    met = (rng.random((4, columns)) < 0.2)[rng.permutation(rows) % 4]
    indptr = np.concatenate([[0], np.cumsum(met.sum(1))])
    row, column = np.nonzero(met)
    data = rng.integers(-3, 4, (row.size, size, size)).astype("float32")
    data[row == rows - 1, -5:] = 0
    A = sf.BSR(data, column, indptr, (rows * size - 5, columns * size), stored="all")
    A = A.to_library("torch").astype(dtype).to_device(device)
    X = numbers(A.lib, (columns * size, N), dtype, device)
    X[5, 3], X[100, 7], X[200, 9] = torch.inf, -torch.inf, torch.nan
    told = sf.explain(A, X)
    for name in [row.kernel for row in told.rows if row.status != "refused"]:
        if name == "reference":
            continue
        plan = sf.plan(A, X, reorder="always", kernel=name)
        assert plan.explanation.query.union == pytest.approx(size / 128, rel=0.7)
        Y, Z = plan(X), sf.matmul(A, X, kernel=name)
        assert plan.kernel == name
        assert torch.equal(Y.isnan(), Z.isnan()), name
        assert torch.equal(Y.nan_to_num(), Z.nan_to_num()), name


def test_where_it_pays_it_is_taken(device: str) -> None:
    """64 clusters of 8192 x 8192: far quicker in blocks than as elements or dense."""
    if kind(device) != "cuda":
        pytest.skip("the sizes are those of a GPU")
    generator = torch.Generator(device).manual_seed(0)
    met = torch.rand(64, 128, device=device, generator=generator) < 0.05
    label = torch.randperm(8192, device=device, generator=generator) % 64
    D = met[label].repeat_interleave(64, dim=1).to(torch.bfloat16)
    A = sf.from_dense(D, "csr")
    X = numbers(A.lib, (8192, 512), "bfloat16", device)
    plan = sf.plan(A, X, reorder=True, assume_finite=True)
    assert plan.explanation.remark.startswith("rows grouped: ")
    blocks = plan._selection.target.blocks  # type: ignore[attr-defined]
    assert blocks.stored * blocks.size[0] * blocks.size[1] <= A.nnz / 0.9
    plain = (D.double() @ X.double()).to(torch.bfloat16)
    assert torch.equal(plan(X), plain)
    scattered = sf.from_dense((torch.rand(2048, 2048, device=device) < 0.1).bfloat16(), "csr")
    x = X[:2048].contiguous()
    declined = sf.plan(scattered, x, reorder=True, assume_finite=True)
    assert declined.explanation.remark.startswith("rows as given: ")


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_new_values(library: str, device: str) -> None:
    if library not in libraries(device):
        pytest.skip("this device has no such library")
    A = planted("csr", "float16", device, library)
    X = numbers(A.lib, (K, N), "float16", device)
    plan = grouped(A, X)
    plan(X)
    B = A.with_data(A.data * 2)
    plan.update(B.data)
    assert_exact(plan(X), B, expected(B, X))


def test_graphs_and_synchronisation(device: str) -> None:
    if kind(device) != "cuda":
        pytest.skip("graphs are CUDA's")
    A = planted("csr", "bfloat16", device)
    X = numbers(A.lib, (K, N), "bfloat16", device)
    Y = torch.full((M, N), torch.nan, dtype=X.dtype, device=device)
    plan = grouped(A, X, out=Y)
    with forbidden_synchronisation():
        plan(X, out=Y)
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        plan(X, out=Y)
    torch.cuda.current_stream(device).wait_stream(stream)
    torch.cuda.synchronize(device)
    with torch.cuda.graph(graph, stream=stream):
        plan(X, out=Y)
    for seed in (1, 2):
        X.copy_(numbers(A.lib, (K, N), "bfloat16", device, seed=seed))
        Y.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize(device)
        assert_exact(Y, A, expected(A, X))
    fresh, again = planted("csr", "bfloat16", device), torch.cuda.CUDAGraph()
    with torch.cuda.graph(again, stream=stream):
        with pytest.raises(RuntimeError, match="prepare before capture"):
            sf.plan(fresh, X, reorder=True, assume_finite=True)
        plan(X, out=Y)  # the refusal has not ended the recording
    Y.fill_(torch.nan)
    again.replay()
    torch.cuda.synchronize(device)
    assert_exact(Y, A, expected(A, X))
