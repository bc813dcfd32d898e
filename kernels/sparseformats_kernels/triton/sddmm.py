"""Sampled products by Triton: blocks by tensor cores, single elements by dot products.

Nothing about the pattern is looked up beforehand: programs find their own place in it, so that the
device is waited for at most once, to learn whether a stored element came out as zero.
"""

from __future__ import annotations

from typing import Any

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats.formats import BSR, COO, CSC, CSR, BlockedELL, SparseMatrix
from sparseformats.ops.sampled import Sampled
from sparseformats_kernels.triton.convert.edges import kind_of
from sparseformats_kernels.triton.launching import Launcher
from sparseformats_kernels.triton.sampled import sample_blocks, sample_elements, sample_rows

__all__ = ["blocks", "elements", "tiling"]

ELEMENTS, DEEP = 64, 64  # elements of a program, and terms of their sums at a time
LISTED = 16  # elements of a row that a program takes at a time
PARTS = 64  # programs of a row at most
TILE = 128  # largest edge of a tile, and columns of neighbouring blocks that are multiplied at once
SMALLEST = 16  # edge that tensor cores take
WIDEST = 8  # bytes of a value whose bits are looked at as one number


def blocks(A: SparseMatrix, X: Array, Y: Array, alpha: Any, query: Query) -> Sampled | Array:
    """A product of a block row of X and the block columns of Y for neighbouring stored blocks."""
    if not isinstance(A, (BSR, BlockedELL)):
        raise TypeError(f"expected a block format, got {A.format}")
    lib, (r, c), (m, k) = A.lib, A.blocksize, A.shape
    shape, name = tuple(int(s) for s in A.data.shape), query.out_dtype or A.dtype_name
    values = lib.empty(shape, name, A.device)
    tile, warps = tiling((r, c), query.x_dtype or "", query.precision)
    wide, rows = -(-c // tile["BN"]) if tile["G"] == 1 else 1, -(-m // r)
    given = _operands(lib, X, Y) | {"m": m, "n": int(X.shape[1]), "k": k, "rows": rows}
    if isinstance(A, BlockedELL):
        given |= {"indptr": A.col_indices, "columns": A.col_indices}
        given |= {"width": A.width, "groups": -(-A.width // tile["G"])}
        count = rows * given["groups"]
    else:
        given |= {"indptr": A.indptr, "columns": A.indices, "width": 0, "groups": 0}
        # As `_row_of` numbers them.
        count = shape[0] // tile["G"] + rows if shape[0] else 0
    everything, fused = isinstance(A.zeros, str), itemsize(A.dtype_name) <= WIDEST
    masked = not everything and A.zeros is None and fused
    lost = lib.zeros(1, "int32", A.device) if masked else None
    given |= {"pattern": lib.bits(A.data) if masked else values, "values": values}
    given |= {"vanished": given["columns"] if lost is None else lost}
    given |= {"wide": wide, "alpha": float(alpha)}
    constants = {"R": r, "C": c, **tile, "ELL": isinstance(A, BlockedELL), "MASKED": masked}
    constants["KIND"] = kind_of(A.dtype_name) if masked else 0
    constants["PRECISION"] = "tf32" if query.precision == "tf32" else "ieee"
    constants["UPCAST"] = A.device == "cpu" and query.x_dtype == "bfloat16"
    if 0 in shape:
        return values
    Launcher(lib, values)(sample_blocks, count * wide, given, constants, warps)
    return Sampled(values, lost) if masked or everything else values


def tiling(block: tuple[int, int], dtype: str, precision: str | None) -> tuple[dict[str, Any], int]:
    """Tile of a product, blocks that it is made of, terms of its sums at a time, and its warps."""
    bm, each = (min(TILE, max(1, _power(edge))) for edge in block)
    bm, beside = max(SMALLEST, bm), max(1, TILE // each)
    bn, half = each * beside, dtype != "float32"
    deep = 64 if half else 32 if precision == "tf32" else 16
    swap = half and bm < 64  # tensor cores want 64 rows
    tile = {"BM": bm, "BN": bn, "BK": deep, "G": beside, "SWAP": swap}
    return tile, 8 if bm * bn > 8192 else 4


def elements(A: SparseMatrix, X: Array, Y: Array, alpha: Any, query: Query) -> Array:
    """A dot product for each stored element, of vectors that lie in one piece."""
    lib = A.lib
    if isinstance(A, CSC):  # the rows of its transpose
        X, Y = Y.mT, X.mT
    if lib.strides(X)[1] != itemsize(lib.dtype_name(X)):
        X = lib.contiguous(X)
    if lib.strides(Y)[0] != itemsize(lib.dtype_name(Y)):
        Y = lib.contiguous(Y.mT).mT  # each column is read again and again
    values = lib.empty(tuple(A.data.shape), query.out_dtype or A.dtype_name, A.device)
    count, n = int(values.shape[0]), int(X.shape[1])
    given = _operands(lib, X, Y) | {"values": values, "n": n, "alpha": float(alpha)}
    if isinstance(A, COO):
        given |= {"rows": A.row, "columns": A.col, "count": count}
        programs = -(-count // ELEMENTS)
        Launcher(lib, values)(sample_elements, programs, given, {"E": ELEMENTS, "BK": DEEP})
        return values
    if not isinstance(A, (CSR, CSC)):
        raise TypeError(f"expected a format of single elements, got {A.format}")
    lines = int(A.indptr.shape[0]) - 1
    parts = max(1, min(PARTS, count // (2 * LISTED * max(1, lines))))
    given |= {"indptr": A.indptr, "indices": A.indices, "parts": parts}
    constants = {"E": LISTED, "BK": min(TILE, max(SMALLEST, _power(n)))}
    Launcher(lib, values)(sample_rows, lines * parts if count else 0, given, constants)
    return values


def _operands(lib: ArrayLibrary, X: Array, Y: Array) -> dict[str, Any]:
    found: dict[str, Any] = {"x": X, "y": Y}
    for name, array in (("x", X), ("y", Y)):
        size = itemsize(lib.dtype_name(array))
        for axis, step in zip(("row", "column"), lib.strides(array), strict=True):
            found[f"{name}_{axis}_step"] = step // size
    return found


def _power(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()
