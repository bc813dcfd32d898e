"""Sums on the device: divided there, and multiplied by the kernel that each part gets there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import _arrays, reference
from sparseformats.testing import check_content_preserved, check_valid
from sparseformats.testing.bounds import assert_product
from tests.kernels.cpu.products import values

LIBRARIES = ("torch", "cupy")
PATTERNS: dict[str, dict[str, Any]] = {
    "2:4": {},
    "bsr": {"blocksize": (16, 16), "min_fill": 0.7},
    "blocked_ell": {"blocksize": 16, "min_fill": 0.7},
}
HALF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def weight(dtype: str, library: str, device: str) -> Any:
    rng = np.random.default_rng(11)
    share = 0.75 + 0.2 * (rng.random((6, 10)).repeat(32, 0).repeat(32, 1) - 0.5)
    D = values(rng, dtype, (192, 320)) * (rng.random((192, 320)) < share)
    return _arrays.library(library).from_numpy(D.astype(values(rng, dtype, 1).dtype), device)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_split_where_the_data_is(pattern: str, library: str, device: str) -> None:
    W = weight("float32", library, device)
    S = sf.split(W, pattern, **PATTERNS[pattern])
    assert (S.library, S.device) == (library, device)
    assert all(part.nnz for part in S.parts)
    check_valid(S)
    check_content_preserved(sf.from_dense(W), S)
    host = sf.split(S.lib.to_numpy(W), pattern, **PATTERNS[pattern])
    assert sf.same(S.to_device("cpu", "numpy"), host, level="structure")


def check(y: Any, S: Any, X: Any, added: str, left: bool = False) -> None:
    product = reference.rmatmul(X, S) if left else reference.matmul(S, X)
    extra = HALF.get(product.dtype, 0.0) if "one rounding more" in added else 0.0
    assert_product(S.lib.to_numpy(y), product, extra=extra)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_products(pattern: str, library: str, dtype: str, device: str) -> None:
    if (library, dtype) == ("cupy", "bfloat16"):
        return  # CuPy has no such dtype
    S = sf.split(weight(dtype, library, device), pattern, **PATTERNS[pattern])
    rng = np.random.default_rng(12)
    for shape in ((320,), (320, 1), (320, 48), (2, 320, 16)):
        X = S.lib.from_numpy(values(rng, dtype, shape), device)
        told = sf.explain(S, X)
        with sf.tracing() as trace:
            y = S @ X
        assert " + ".join(trace.kernels) == told.chosen
        check(y, S, X, told.added)
        plan, out = sf.plan(S, X), S.lib.full(tuple(y.shape), float("nan"), dtype, device)
        check(plan(X, out=out), S, X, told.added)
    X = S.lib.from_numpy(values(rng, dtype, (48, 192)), device)
    check(X @ S, S, X, sf.explain(X, S).added, left=True)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_graph_replays_a_product_of_all_parts(dtype: str, device: str) -> None:
    S = sf.split(weight(dtype, "torch", device), "2:4")
    X = torch.ones(320, 16, device=device).to(getattr(torch, dtype))
    out = torch.empty(192, 16, device=device).to(X.dtype)
    sf.matmul(S, X, out=out)  # prepared before capture
    if not device.startswith("cuda"):
        return
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sf.matmul(S, X, out=out)
    X.copy_(torch.randn_like(X))
    graph.replay()
    check(out, S, X, sf.explain(S, X).added)
