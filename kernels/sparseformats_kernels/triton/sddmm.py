"""Sampled products by Triton: blocks by tensor cores, single elements by dot products.

Nothing about the pattern is looked up beforehand: programs find their own place in it, so that the
device is waited for at most once, to learn whether a stored element came out as zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats.formats import BSR, COO, CSC, CSR, BlockedELL, SparseMatrix
from sparseformats.formats.by_matrix import ByMatrix
from sparseformats.formats.slots import Sampled
from sparseformats_kernels.triton.convert.common import kind_of
from sparseformats_kernels.triton.launching import Launcher
from sparseformats_kernels.triton.sampled import sample_blocks, sample_elements, sample_rows

__all__ = ["blocks", "elements", "tiling"]

ELEMENTS, DEEP = 64, 64  # elements of a program, and terms of their sums at a time
LISTED = 16  # elements of a row that a program takes at a time
PARTS = 64  # programs of a row at most
TILE = 128  # largest edge of a tile
BESIDE = {32: 256, 128: 128}  # columns that blocks of so many rows make side by side
SMALLEST = 16  # edge that tensor cores take
WIDEST = 8  # bytes of a value whose bits are looked at as one number


class _Prepared(NamedTuple):
    """What all calls on a pattern have in common: of blocks only its arrays and sizes are known."""

    given: dict[str, Any]
    constants: dict[str, Any]
    programs: int
    warps: int
    launch: Launcher
    shape: tuple[int, ...]
    counts: bool  # how many stored elements came out as zero
    clears: bool  # slots in which nothing is stored


_PREPARED: ByMatrix[_Prepared] = ByMatrix(8)


def blocks(A: SparseMatrix, X: Array, Y: Array, alpha: Any, query: Query) -> Sampled | Array:
    """A product of a block row of X and the block columns of Y for neighbouring stored blocks."""
    lib, key = A.lib, (query.x_dtype, query.precision)
    ready = _PREPARED.get(A, key) or _PREPARED.put(A, key, _prepare(A, query))
    values = lib.empty(ready.shape, query.out_dtype or A.dtype_name, A.device)
    if 0 in ready.shape:
        return values
    lost = lib.zeros(1, "int32", A.device) if ready.counts else None
    given = ready.given | _operands(lib, X, Y)
    given["n"], given["values"], given["alpha"] = int(X.shape[1]), values, float(alpha)
    if lost is not None:
        given["vanished"] = lost
    ready.launch(sample_blocks, ready.programs, given, ready.constants, ready.warps)
    return Sampled(values, lost) if ready.clears else values


def _prepare(A: SparseMatrix, query: Query) -> _Prepared:
    if not isinstance(A, (BSR, BlockedELL)):
        raise TypeError(f"expected a block format, got {A.format}")
    lib, (r, c), (m, k) = A.lib, A.blocksize, A.shape
    shape, rows, sparse = tuple(int(s) for s in A.data.shape), -(-m // r), isinstance(A, BSR)
    tile, warps = tiling((r, c), query.x_dtype or "", query.precision)
    beside = tile["G"]
    wide = -(-c // tile["BN"]) if beside == 1 else 1
    given: dict[str, Any] = {"m": m, "k": k, "rows": rows, "wide": wide, "width": 0, "groups": 0}
    if isinstance(A, BlockedELL):
        given |= {"indptr": A.col_indices, "columns": A.col_indices}
        given |= {"width": A.width, "groups": -(-A.width // beside)}
        count = rows * given["groups"]
    else:
        given |= {"indptr": A.indptr, "columns": A.indices}
        count = shape[0] // beside + rows  # as `_row_of` numbers them
    everything = isinstance(A.zeros, str)
    masked = not everything and A.zeros is None and itemsize(A.dtype_name) <= WIDEST
    bits = lib.bits(A.data) if masked else given["columns"]
    given |= {"pattern": bits, "vanished": given["columns"]}
    constants = {"R": r, "C": c, **tile, "ELL": not sparse, "MASKED": masked}
    constants["KIND"] = kind_of(A.dtype_name) if masked else 0
    constants["PRECISION"] = "tf32" if query.precision == "tf32" else "ieee"
    constants["UPCAST"] = A.device == "cpu" and query.x_dtype == "bfloat16"
    launch, clears = Launcher(lib, A.data), masked or everything
    return _Prepared(given, constants, count * wide, warps, launch, shape, masked, clears)


def tiling(block: tuple[int, int], dtype: str, precision: str | None) -> tuple[dict[str, Any], int]:
    """Tile of a product, blocks that it is made of, terms of its sums at a time, and its warps."""
    bm = min(TILE, _power(block[0]))
    room = next(columns for rows, columns in BESIDE.items() if bm <= rows)
    each = min(room, _power(block[1]))  # less than a block has where it stands alone, never else
    bm, beside = max(SMALLEST, bm), room // each
    bn, half = each * beside, dtype != "float32"
    deep = 64 if half else 32 if precision == "tf32" else 16
    swap = half and bm < 64  # tensor cores want 64 rows
    tile = {"BM": bm, "BN": bn, "BK": deep, "G": beside, "SWAP": swap}
    return tile, 8 if bm * bn > 8192 else 4


def elements(A: SparseMatrix, X: Array, Y: Array, alpha: Any, query: Query) -> Array:
    """A dot product for each stored element, of vectors that lie in one piece."""
    if not isinstance(A, (COO, CSR, CSC)):
        raise TypeError(f"expected a format of single elements, got {A.format}")
    lib = A.lib
    if isinstance(A, CSC):  # the rows of its transpose
        X, Y = Y.mT, X.mT
    lines = 0 if isinstance(A, COO) else int(A.indptr.shape[0]) - 1
    count, n = int(A.data.shape[0]), int(X.shape[1])
    parts = max(1, min(PARTS, count // (2 * LISTED * max(1, lines))))
    # A row of X is read once by each program of a row, and for each element of COO.
    if (parts > 1 or not lines) and lib.strides(X)[1] != itemsize(lib.dtype_name(X)):
        X = lib.contiguous(X)
    if lib.strides(Y)[0] != itemsize(lib.dtype_name(Y)):
        Y = lib.contiguous(Y.mT).mT  # each column is read again and again
    values = lib.empty(tuple(A.data.shape), query.out_dtype or A.dtype_name, A.device)
    given = _operands(lib, X, Y) | {"values": values, "n": n, "alpha": float(alpha)}
    if isinstance(A, COO):
        given |= {"rows": A.row, "columns": A.col, "count": count}
        programs = -(-count // ELEMENTS)
        Launcher(lib, values)(sample_elements, programs, given, {"E": ELEMENTS, "BK": DEEP})
        return values
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
