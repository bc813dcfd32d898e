"""Sampled products by Triton: blocks by tensor cores, single elements by dot products."""

from __future__ import annotations

from typing import Any

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats.formats import BSR, COO, CSC, CSR, BlockedELL, SparseMatrix
from sparseformats.formats.canonical import expand
from sparseformats_kernels.triton.launching import Launcher
from sparseformats_kernels.triton.sampled import sample_blocks, sample_elements

__all__ = ["blocks", "elements", "tiling"]

ELEMENTS, DEEP = 64, 64  # elements of a program, and terms of their sums at a time
TILE = 128  # largest edge of a tile of a block
SMALLEST = 16  # edge that tensor cores take


def blocks(A: SparseMatrix, X: Array, Y: Array, alpha: Any, query: Query) -> Array:
    """A product of a block row of X and a block column of Y for each stored block."""
    lib, (r, c), (m, k) = A.lib, A.blocksize, A.shape
    row, column, slot = _blocks(A)
    values = _room(lib, A, query)
    n, count = int(X.shape[1]), int(column.shape[0])
    tile, warps = tiling((r, c), query.x_dtype or "", query.precision)
    high, wide = -(-r // tile["BM"]), -(-c // tile["BN"])
    given = _operands(lib, X, Y)
    given |= {"rows": row, "columns": column, "slots": slot, "values": values}
    given |= {"m": m, "n": n, "k": k, "high": high, "wide": wide, "alpha": float(alpha)}
    constants = {"R": r, "C": c, **tile}
    constants["PRECISION"] = "tf32" if query.precision == "tf32" else "ieee"
    constants["UPCAST"] = A.device == "cpu" and query.x_dtype == "bfloat16"
    Launcher(lib, values)(sample_blocks, count * high * wide, given, constants, warps)
    return values


def tiling(block: tuple[int, int], dtype: str, precision: str | None) -> tuple[dict[str, Any], int]:
    """Tile of a block's product, terms of its sums at a time, and the warps that make it."""
    bm, bn = (min(TILE, max(SMALLEST, _power(edge))) for edge in block)
    deep = 32 if bm * bn > 4096 else 64
    if dtype == "float32" and precision != "tf32":
        deep = 16  # every thread holds whole vectors of both operands
    return {"BM": bm, "BN": bn, "BK": deep}, 8 if bm * bn > 8192 else 4


def elements(A: SparseMatrix, X: Array, Y: Array, alpha: Any, query: Query) -> Array:
    """A dot product for each stored element, of vectors that lie in one piece."""
    lib = A.lib
    row, column = _places(A)
    values = _room(lib, A, query)
    count, n = int(row.shape[0]), int(X.shape[1])
    if lib.strides(X)[1] != itemsize(lib.dtype_name(X)):
        X = lib.contiguous(X)
    if lib.strides(Y)[0] != itemsize(lib.dtype_name(Y)):
        Y = lib.contiguous(Y.mT).mT  # each column is read again and again
    given = _operands(lib, X, Y) | {"rows": row, "columns": column, "values": values}
    given |= {"n": n, "count": count, "alpha": float(alpha)}
    constants = {"E": ELEMENTS, "BK": DEEP}
    Launcher(lib, values)(sample_elements, -(-count // ELEMENTS), given, constants)
    return values


def _room(lib: ArrayLibrary, A: SparseMatrix, query: Query) -> Array:
    """Values of the pattern's shape; empty slots of Blocked-ELL hold nothing."""
    shape, name = tuple(int(s) for s in A.data.shape), query.out_dtype or A.dtype_name
    made = lib.zeros if isinstance(A, BlockedELL) else lib.empty
    return made(shape, name, A.device)


def _operands(lib: ArrayLibrary, X: Array, Y: Array) -> dict[str, Any]:
    found: dict[str, Any] = {"x": X, "y": Y}
    for name, array in (("x", X), ("y", Y)):
        size = itemsize(lib.dtype_name(array))
        for axis, step in zip(("row", "column"), lib.strides(array), strict=True):
            found[f"{name}_{axis}_step"] = step // size
    return found


def _blocks(A: SparseMatrix) -> tuple[Array, Array, Array]:
    """Block row, block column and place of each stored block."""
    lib = A.lib
    if isinstance(A, BSR):
        count = int(A.indices.shape[0])
        return expand(lib, A.indptr, count), A.indices, lib.arange(count, "int64", A.device)
    if not isinstance(A, BlockedELL):
        raise TypeError(f"expected a block format, got {A.format}")
    column = lib.reshape(A.col_indices, (-1,))
    used = lib.flatnonzero(column >= 0)
    return used // max(1, A.width), lib.take(column, used), used


def _places(A: SparseMatrix) -> tuple[Array, Array]:
    """Row and column of each element."""
    if isinstance(A, COO):
        return A.row, A.col
    if not isinstance(A, (CSR, CSC)):
        raise TypeError(f"expected a format of single elements, got {A.format}")
    major = expand(A.lib, A.indptr, int(A.indices.shape[0]))
    return (major, A.indices) if isinstance(A, CSR) else (A.indices, major)


def _power(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()
