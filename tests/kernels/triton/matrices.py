"""Block-sparse matrices and operands for kernels: any block size, uneven rows, empty slots."""

from __future__ import annotations

from typing import Any

import numpy as np

import sparseformats as sf
from sparseformats import _arrays

__all__ = ["FORMATS", "dense", "host", "matrix", "narrow_dense", "narrow_matrix"]

FORMATS = ("bsr", "bsr.T", "blocked_ell", "blocked_ell.T")


def host(rng: np.random.Generator, dtype: str, shape: Any, values: str = "normal") -> Any:
    """NumPy values: ``"normal"``, or ``"integers"`` of at most 3 in size, whose sums are exact."""
    made = rng.standard_normal(shape) if values == "normal" else rng.integers(-3, 4, shape)
    return made.astype(_arrays.library("numpy").dtype(dtype))


def dense(
    shape: tuple[int, ...],
    dtype: str = "float32",
    *,
    values: str = "normal",
    library: str = "torch",
    device: str = "cpu",
    seed: int = 1,
) -> Any:
    """A random dense operand."""
    made = host(np.random.default_rng(seed), dtype, shape, values)
    return _arrays.library(library).from_numpy(made, device)


def matrix(
    format: str,
    shape: tuple[int, int],
    blocksize: tuple[int, int] = (16, 16),
    dtype: str = "float32",
    *,
    density: float = 0.4,
    values: str = "normal",
    library: str = "torch",
    device: str = "cpu",
    index: str = "int32",
    seed: int = 0,
) -> Any:
    """A random matrix of this logical shape; Blocked-ELL takes the first number of the block size.

    Of several block rows one has no blocks and one has all; Blocked-ELL so has empty slots.
    """
    family, _, transposed = format.partition(".")
    if transposed:
        options = {"density": density, "values": values, "library": library, "device": device}
        return matrix(family, shape[::-1], blocksize, dtype, index=index, seed=seed, **options).T  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    r, c = blocksize if family == "bsr" else (blocksize[0], blocksize[0])
    mask = _pattern(rng, -(-shape[0] // r), -(-shape[1] // c), density)
    row, col = np.nonzero(mask)
    data = host(rng, dtype, (row.size, r, c), values)
    data[row[:, None] * r + np.arange(r) >= shape[0]] = 0
    np.swapaxes(data, 1, 2)[col[:, None] * c + np.arange(c) >= shape[1]] = 0
    lib = _arrays.library(library)

    def there(x: Any) -> Any:
        return lib.from_numpy(np.ascontiguousarray(x), device)

    counts = mask.sum(axis=1)
    if family == "bsr":
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(index)
        return sf.BSR(there(data), there(col.astype(index)), there(starts), shape)
    width = int(counts.max(initial=0))
    slots = np.full((mask.shape[0], width), -1, index)
    values_in = np.zeros((mask.shape[0], width, r, c), data.dtype)
    place = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
    slots[row, place], values_in[row, place] = col, data
    return sf.BlockedELL(there(values_in), there(slots), shape)


def narrow_matrix(dtype: str, format: str, *args: Any, **options: Any) -> Any:
    """A matrix of torch's, of int8 or fp8, with values that use the range of the dtype."""
    import torch

    A = matrix(format, *args, "float32", **options)
    stored = A.base if A.format.endswith(".T") else A
    data = (20 * stored.data).clamp(-128, 127).to(getattr(torch, dtype))
    names = ("indices", "indptr") if stored.format == "bsr" else ("col_indices",)
    made = type(stored)(data, *(getattr(stored, name) for name in names), stored.shape)
    return made.T if stored is not A else made


def narrow_dense(dtype: str, shape: tuple[int, ...], **options: Any) -> Any:
    """An operand for such a matrix."""
    import torch

    return (20 * dense(shape, **options)).clamp(-128, 127).to(getattr(torch, dtype))


def _pattern(rng: np.random.Generator, rows: int, columns: int, density: float) -> Any:
    mask = rng.random((rows, columns)) < density
    if rows > 1 and columns:
        mask[rows // 2] = False
        mask[rows - 1] = True
    if rows == 1 and columns and not mask.any():
        mask[0, 0] = True
    return mask
