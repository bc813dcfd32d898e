"""Matrices of every legal pattern, operands, and products by the kernel under test."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch

import sparseformats as sf
from sparseformats import _arrays
from sparseformats.dispatch import Query
from sparseformats.testing.operands import laid_out
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct

TORCH = _arrays.library("torch")
LEGAL = [p for r in (0, 1, 2) for p in itertools.combinations(range(4), r)]
"""The 11 sets of places of a group of four that may be non-zero."""
GIVES = {"int8": "int32"}
HALVES = ("float16", "bfloat16")


def dense(shape: tuple[int, int], dtype: str = "float16", seed: int = 0) -> Any:
    """Whole numbers, every legal pattern in turn (of float32: one of two)."""
    (m, k), rng = shape, np.random.default_rng(seed)
    groups = -(-k // 4)
    legal = np.zeros((len(LEGAL), 4), bool)
    for i, places in enumerate(LEGAL):
        legal[i, list(places)] = True
    number = np.arange(m)[:, None] + np.arange(groups)[None, :] + seed
    there = legal[number % len(LEGAL)].reshape(m, 4 * groups)
    if dtype == "float32":
        there &= np.arange(4 * groups)[None, :] % 2 == np.arange(m)[:, None] % 2
    sizes = rng.integers(1, 4, there.shape) * rng.choice([-1, 1], there.shape)
    found = np.where(there, sizes, 0).astype(np.float32)
    return torch.from_numpy(found[:, :k].copy()).to(getattr(torch, dtype))


def matrix(shape: tuple[int, int], dtype: str = "float16", seed: int = 0) -> Any:
    """`dense` as an n:m matrix."""
    return sf.from_dense(dense(shape, dtype, seed), "1:2" if dtype == "float32" else "2:4")


def operand(rows: int, n: int, dtype: str = "float16", layout: str = "C", seed: int = 1) -> Any:
    """Whole numbers, in a layout."""
    host = np.random.default_rng(seed).integers(-3, 4, (rows, n)).astype(np.float32)
    if dtype.startswith("float8"):
        made = torch.from_numpy(host).to(getattr(torch, dtype))
        return made.T.contiguous().T if layout == "F" else made
    return laid_out(TORCH.to_numpy(torch.from_numpy(host).to(getattr(torch, dtype))), layout, TORCH)


def query_for(A: Any, X: Any, **facts: Any) -> Query:
    known: dict[str, Any] = {
        "pattern": (A.n, A.m),
        "m": A.shape[0],
        "k": A.shape[1],
        "n": int(X.shape[1]),
        "a_dtype": A.dtype_name,
        "x_dtype": TORCH.dtype_name(X),
        "out_dtype": GIVES.get(A.dtype_name, A.dtype_name),
        "library": "torch",
        "device": "cuda",
    }
    return Query("matmul", "n:m", **(known | facts))


def packed(A: Any, X: Any, **facts: Any) -> tuple[Any, Query]:
    query = query_for(A, X, **facts)
    return CuSparseLtProduct.pack(A, query), query


def product(A: Any, X: Any, out: Any = None, alpha: Any = 1, beta: Any = 0, **facts: Any) -> Any:
    state, query = packed(A, X, alpha_one=alpha == 1, beta_zero=beta == 0, **facts)
    return CuSparseLtProduct.bind(state, query)(X, out, alpha, beta)


def expected(A: Any, X: Any, alpha: float = 1, beta: float = 0, out: Any = None) -> Any:
    """In float64, where every sum of the test's numbers is exact."""
    found = alpha * (A.to_dense().double() @ X.double())
    return found if beta == 0 else found + beta * out.double()


def same(y: Any, exact: Any) -> bool:
    """Whether a result is the exact one, rounded once to its dtype."""
    return bool(torch.equal(y.double(), exact.to(y.dtype).double()))
