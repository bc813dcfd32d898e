"""Sampled products: elements of ``X @ Y`` at the slots of a pattern, in NumPy or torch.

Nothing of the full product is made beside what one chunk needs. A kernel returns values in the
shape of the pattern's ``data``; what it leaves in slots that are not stored does not matter.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize, kind
from sparseformats.dispatch.query import Query
from sparseformats.formats import BSR, COO, CSC, CSR, NM, BlockedELL, SparseMatrix
from sparseformats.formats.canonical import expand
from sparseformats_kernels.cpu.common import compute_dtype, deliver, gemm

__all__ = ["block_gemm", "gather", "panels"]

CHUNK = 1 << 20  # bytes gathered at a time on a CPU: stays in a core's cache
DEVICE_CHUNK = 256 << 20  # bytes gathered at a time elsewhere: fills a device, not its memory


def gather(A: SparseMatrix, X: Array, Y: Array, alpha: Any, query: Query) -> Array:
    """One dot product a slot of gathered rows of X and of Y transposed."""
    lib, dtype = A.lib, compute_dtype(query.out_dtype)
    row, col = _places(A)
    count, n = int(row.shape[0]), int(X.shape[1])
    left = lib.contiguous(lib.astype(X, dtype))
    right = lib.contiguous(lib.astype(Y, dtype).mT)
    found = lib.empty((count,), dtype, A.device)
    step = max(1, _chunk(A) // max(1, n * itemsize(dtype)))
    with np.errstate(all="ignore"):
        for i in range(0, count, step):
            piece = slice(i, i + step)
            a, b = lib.take(left, row[piece]), lib.take(right, col[piece])
            found[piece] = _dots(lib, a, b, dtype)
    y = deliver(lib, found, None, alpha, 0, query.out_dtype or dtype)
    return lib.xp.reshape(y, tuple(A.data.shape))


def panels(A: SparseMatrix, X: Array, Y: Array, alpha: Any, query: Query) -> Array:
    """All of the product, a panel of rows at a time, of which the slots are kept.

    No other result than that of `gather`: an element that is not kept touches nothing.
    """
    lib, dtype = A.lib, compute_dtype(query.out_dtype)
    major, minor = _places(A)
    X, Y = lib.astype(X, dtype), lib.astype(Y, dtype)
    if isinstance(A, CSC):  # sorted by column: the product is seen from its other side
        major, minor, X, Y = minor, major, Y.mT, X.mT
    rows, width = int(X.shape[0]), int(Y.shape[1])
    found = lib.empty((int(major.shape[0]),), dtype, A.device)
    step = max(1, CHUNK // max(1, width * itemsize(dtype)))
    tops = lib.astype(lib.arange(-(-rows // step), device=A.device) * step, lib.dtype_name(major))
    starts = [*lib.to_numpy(lib.searchsorted(major, tops)).tolist(), int(major.shape[0])]
    with np.errstate(all="ignore"):
        for i, (start, end) in enumerate(pairwise(starts)):
            if start == end:
                continue
            top = i * step
            panel = lib.xp.reshape(gemm(lib, X[top : top + step, :], Y), (-1,))
            row = lib.astype(major[start:end], "int64") - top
            found[start:end] = lib.take(panel, row * width + minor[start:end])
    y = deliver(lib, found, None, alpha, 0, query.out_dtype or dtype)
    return lib.xp.reshape(y, tuple(A.data.shape))


def block_gemm(A: SparseMatrix, X: Array, Y: Array, alpha: Any, query: Query) -> Array:
    """One GEMM a stored block: a block row of X times a block column of Y."""
    lib, dtype = A.lib, compute_dtype(query.out_dtype)
    multiplies = "float32" if kind(dtype) == "b" else dtype  # a sum of ones never falls back to 0
    row, col, used = _blocks(A)
    (r, c), n = A.blocksize, int(X.shape[1])
    left = _panels(lib, lib.astype(X, multiplies), r)
    right = lib.contiguous(_panels(lib, lib.astype(Y, multiplies).mT, c).mT)
    found = lib.empty((int(row.shape[0]), r, c), multiplies, A.device)
    step = max(1, _chunk(A) // max(1, n * (r + c) * itemsize(multiplies)))
    with np.errstate(all="ignore"):
        for i in range(0, int(row.shape[0]), step):
            piece = slice(i, i + step)
            found[piece] = gemm(lib, lib.take(left, row[piece]), lib.take(right, col[piece]))
    found = found > 0 if kind(dtype) == "b" else found
    y = deliver(lib, found, None, alpha, 0, query.out_dtype or dtype)
    return _in_slots(A, y, used)


def _chunk(A: SparseMatrix) -> int:
    return CHUNK if A.device == "cpu" else DEVICE_CHUNK


def _dots(lib: ArrayLibrary, a: Array, b: Array, dtype: str) -> Array:
    """Row by row dot products; `a` is ours to overwrite."""
    if kind(dtype) == "b":
        return lib.xp.any(a & b, axis=1)
    if lib.name == "numpy":
        return np.einsum("en,en->e", a, b)
    a *= b
    return lib.xp.sum(a, axis=1, dtype=lib.dtype(dtype))


def _places(A: SparseMatrix) -> tuple[Array, Array]:
    """Row and column of each slot, in the order of ``data``."""
    lib = A.lib
    if isinstance(A, COO):
        return A.row, A.col
    if isinstance(A, (CSR, CSC)):
        major = expand(lib, A.indptr, int(A.indices.shape[0]))
        return (major, A.indices) if isinstance(A, CSR) else (A.indices, major)
    if not isinstance(A, NM):
        raise TypeError(f"expected a format of single elements, got {A.format}")
    rows, groups, n = (int(s) for s in A.data.shape)
    slot = lib.arange(rows * groups * n, device=A.device)
    row, group = slot // max(1, groups * n), slot // n % max(1, groups)
    col = group * A.m + lib.astype(lib.xp.reshape(A.indices, (-1,)), "int64")
    inside = col < A.shape[1]  # slots beyond the last column hold nothing; they may read anything
    return row, lib.where(inside, col, lib.zeros(1, "int64", A.device))


def _blocks(A: SparseMatrix) -> tuple[Array, Array, Array | None]:
    """Block row and block column of each stored block; slots of Blocked-ELL that hold one."""
    lib = A.lib
    if isinstance(A, BSR):
        return expand(lib, A.indptr, int(A.indices.shape[0])), A.indices, None
    if not isinstance(A, BlockedELL):
        raise TypeError(f"expected a block format, got {A.format}")
    col = lib.xp.reshape(A.col_indices, (-1,))
    used = lib.flatnonzero(col >= 0)
    return used // max(1, A.width), lib.take(col, used), used


def _panels(lib: ArrayLibrary, X: Array, height: int) -> Array:
    """Rows of X in panels (count, height, n); a ragged last panel is filled up with zeros."""
    rows, n = (int(s) for s in X.shape)
    count = -(-rows // height)
    if count * height != rows:
        missing = (count * height - rows, n)
        X = lib.concat([X, lib.zeros(missing, lib.dtype_name(X), lib.device(X))])
    return lib.xp.reshape(lib.contiguous(X), (count, height, n))


def _in_slots(A: SparseMatrix, blocks: Array, used: Array | None) -> Array:
    """Blocks where the pattern has them, zeros in the empty slots of Blocked-ELL."""
    if used is None:
        return blocks
    lib, shape = A.lib, tuple(int(s) for s in A.data.shape)
    if int(used.shape[0]) == shape[0] * shape[1]:
        return lib.xp.reshape(blocks, shape)
    flat = lib.zeros((shape[0] * shape[1], *shape[2:]), lib.dtype_name(blocks), A.device)
    lib.put_rows(flat, used, blocks)
    return lib.xp.reshape(flat, shape)
