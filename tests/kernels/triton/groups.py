"""2:4 matrices for kernel tests, and a product by the Gluon kernel on NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sparseformats as sf
from sparseformats._arrays import library
from sparseformats.dispatch import Query
from sparseformats_kernels.triton import nm_variants
from sparseformats_kernels.triton.calls import activation_of
from sparseformats_kernels.triton.configs import Config
from sparseformats_kernels.triton.nm_packing import packed
from sparseformats_kernels.triton.strided_variants import strides_of
from tests.kernels.triton import emulated

__all__ = ["emulate", "groups"]


def groups(
    shape: tuple[int, int], dtype: str = "float16", seed: int = 0, density: float = 0.5
) -> Any:
    """A 2:4 matrix of small integers, some of whose groups are not full."""
    rng = np.random.default_rng(seed)
    m, k = shape
    rank = rng.random((m, -(-k // 4), 4)).argsort(axis=2)
    kept = (rank < 2) & (rng.random(rank.shape) < 2 * density)
    values = rng.integers(1, 6, rank.shape) * rng.choice((-1, 1), rank.shape) * kept
    D = torch.from_numpy(values.reshape(m, -(-k // 4) * 4)[:, :k].astype(np.float32))
    return sf.from_dense(D.to(getattr(torch, dtype)), "2:4")


def emulate(
    A: Any,
    X: torch.Tensor,
    out: torch.Tensor,
    config: Config,
    *,
    sparse: bool = True,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> None:
    """``out <- activation(alpha * A @ X + beta * out + bias)``, as a plan would launch it.

    `X` and `out` may be views of larger arrays; what lies around them must not be read.
    """
    lib, (m, k), n = library("torch"), A.shape, int(X.shape[1])
    names = ["bias"] * (bias is not None) + [activation] * (activation is not None)
    facts: dict[str, Any] = {"m": m, "k": k, "n": n, "a_dtype": A.dtype_name, "pattern": (2, 4)}
    facts |= {"alpha_one": alpha == 1, "beta_zero": beta == 0}
    query = Query("matmul", "n:m", epilogue="+".join(names) or None, **facts)
    x, y = strides_of(lib, X), strides_of(lib, out)
    made = nm_variants.specimen_of(query, config, nm_variants.facts_of(x, y, k, n), sparse)
    programs, sizes = nm_variants.sizes_of(config, (m, k), n)
    partial = np.full(programs * config.BM * config.BN if config.G > 1 else 0, np.nan, np.float32)
    given: dict[str, Any] = {
        "packed": packed(A, sparse).numpy(),
        "x": _buffer(X),
        "out": _buffer(out),
        "partial": partial,
        "bias": np.zeros(0, _buffer(X).dtype) if bias is None else _buffer(bias),
        "alpha": alpha,
        "beta": beta,
        "x_row": np.int64(x.row),
        "x_column": np.int64(x.column),
        "out_row": np.int64(y.row),
        "out_column": np.int64(y.column),
    }
    given |= {name: np.int32(size) for name, size in sizes.items()} | dict(made.constants)
    emulated.launch(made.function, programs, **given)
    if config.G > 1:
        _combine(partial, config, out, alpha, beta, bias, activation_of(query))


def _buffer(x: torch.Tensor) -> Any:
    """From the first element on, what the view may touch, as NumPy; shares memory."""
    assert x.untyped_storage().data_ptr() <= x.data_ptr()
    span = 1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    flat = torch.as_strided(x, (max(0, span) if x.numel() else 0,), (1,))
    return library("torch").to_numpy(flat) if x.dtype != torch.bfloat16 else _bfloat16(flat)


def _bfloat16(x: torch.Tensor) -> Any:
    import ml_dtypes

    return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def _combine(
    partial: Any,
    config: Config,
    out: torch.Tensor,
    alpha: float,
    beta: float,
    bias: torch.Tensor | None,
    activation: str | None,
) -> None:
    """What `combining.combine` makes of the parts."""
    assert activation in (None, "relu")
    columns = -(-int(out.shape[1]) // config.BN)
    tiles = torch.from_numpy(partial).reshape(-1, config.G, columns, config.BM, config.BN)
    whole = tiles.sum(dim=1).permute(0, 2, 1, 3).reshape(-1, columns * config.BN)
    y = alpha * whole[: out.shape[0], : out.shape[1]]
    y = y if beta == 0 else y + beta * out.float()
    y = y if bias is None else y + bias.float()[:, None]
    out.copy_(y if activation is None else y.relu())
