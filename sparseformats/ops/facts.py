"""The facts of a product from which dispatch chooses a kernel."""

from __future__ import annotations

import math
from typing import Any

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import INT32_MAX, itemsize
from sparseformats.dispatch import Query, density_bucket
from sparseformats.formats import SparseMatrix, Sum, Transposed
from sparseformats.ops.operands import Operands

__all__ = ["ALIGNMENT", "aligned", "as_precision", "layout", "matmul_query", "matrix_facts"]

ALIGNMENT = 16
"""Bytes of the widest load, and of what TMA asks of addresses and strides."""

_PRECISIONS = (None, "ieee", "tf32")


def as_precision(precision: str | None, lib: ArrayLibrary, x: Array, dtype: str) -> str | None:
    """Read ``precision=`` as the fact of a query: None is the IEEE arithmetic of the dtypes.

    Where the caller says nothing, the library's own switch decides for float32 operands and
    results on CUDA devices.

    Raises
    ------
    ValueError
    """
    if precision not in _PRECISIONS:
        raise ValueError(f"precision must be None, 'ieee' or 'tf32', got {precision!r}")
    if precision is None and dtype == "float32" and lib.allows_tf32(x):
        return "tf32"
    return None if precision == "ieee" else precision


def matmul_query(
    o: Operands, out: Array | None, *, alpha_one: bool, beta_zero: bool, **options: Any
) -> Query:
    """Facts of ``alpha * (A @ x) + beta * out``."""
    lib = o.lib
    return Query(
        "matmul",
        o.matrix.family,
        transposed=o.transposed,
        m=o.m,
        k=o.k,
        n=o.columns,
        **matrix_facts(lib, o.matrix),
        x_dtype=lib.dtype_name(o.x),
        out_dtype=o.dtype,
        x_layout=layout(lib, o.x, o.left),
        out_layout=None if out is None else layout(lib, out, o.left),
        x_aligned=aligned(lib, o.x),
        out_aligned=None if out is None else aligned(lib, out),
        batch=o.batch,
        alpha_one=alpha_one,
        beta_zero=beta_zero,
        deterministic=lib.deterministic(),
        **options,
    )


def matrix_facts(lib: ArrayLibrary, A: SparseMatrix) -> dict[str, Any]:
    """Facts of a matrix alone; reads shapes, never values."""
    if isinstance(A, Sum):
        return _facts_of_sum(lib, A)
    family, index = A.family, lib.dtype_name(A.index_dtype)
    blocked = family in ("bsr", "blocked_ell")
    device = lib.device(A.data)
    nnz = None if blocked or family == "n:m" else A.nnz  # counting would read all values
    nnzb = _stored_blocks(A) if blocked else None
    stored = nnzb if blocked else nnz
    return {
        "pattern": (A.n, A.m) if family == "n:m" else None,  # type: ignore[attr-defined]
        "blocksize": A.blocksize if blocked else None,
        "nnz": nnz,
        "nnzb": nnzb,
        "nbytes": A.nbytes,
        "density": None if stored is None else density_bucket(stored, _places(A)),
        "a_dtype": lib.dtype_name(A.data),
        "index_dtype": None if family == "n:m" else index,
        "fits_int32": _fits_int32(A),
        "library": lib.name,
        "device": device.partition(":")[0],
        "capability": lib.capability(device),
    }


def _facts_of_sum(lib: ArrayLibrary, A: Sum) -> dict[str, Any]:
    bases = [part.base if isinstance(part, Transposed) else part for part in A.parts]
    parts = [matrix_facts(lib, base) for base in bases]
    counts = [part["nnz"] for part in parts]
    return {
        **parts[0],
        "pattern": None,
        "blocksize": None,
        "nnz": None if None in counts else sum(counts),
        "nnzb": None,
        "nbytes": A.nbytes,
        "density": None,
        "index_dtype": None,
        "fits_int32": all(part["fits_int32"] for part in parts),
    }


def _stored_blocks(A: SparseMatrix) -> int:
    """Blocks of BSR, slots of Blocked-ELL."""
    return math.prod(int(size) for size in A.data.shape[:-2])


def _places(A: SparseMatrix) -> int:
    """Blocks (of one element in formats without) that a full matrix of this shape would have."""
    (m, n), (r, c) = A.shape, A.blocksize
    return -(-m // r) * -(-n // c)


def _fits_int32(A: SparseMatrix) -> bool:
    (r, c), slots = A.blocksize, 1
    for size in A.data.shape:
        slots *= int(size)
    padded = (-(-A.shape[0] // r) * r, -(-A.shape[1] // c) * c)
    return max(*padded, slots) <= INT32_MAX


def layout(lib: ArrayLibrary, x: Array, swapped: bool = False) -> str:
    """How the last two axes of `x` lie in memory: ``"C"``, ``"F"`` or ``"strided"``.

    Parameters
    ----------
    swapped : bool
        Read them in the other order, as an operand from the left is.
    """
    steps, sizes = lib.strides(x), tuple(int(s) for s in x.shape)
    item = itemsize(lib.dtype_name(x))
    if len(sizes) == 1:
        return "C" if sizes[0] < 2 or steps[0] == item else "strided"
    (row, column), (m, n) = steps[-2:], sizes[-2:]
    if swapped:
        row, column, m, n = column, row, n, m
    if (n < 2 or column == item) and (m < 2 or row == n * item):
        return "C"
    if (m < 2 or row == item) and (n < 2 or column == m * item):
        return "F"
    return "strided"


def aligned(lib: ArrayLibrary, x: Array) -> bool | None:
    """As `Query.x_aligned` has it.

    A batch may be laid anew, row by row, before a kernel sees it; so its rows count as well.
    """
    if not lib.addressed:
        return None
    item = itemsize(lib.dtype_name(x))
    steps = zip(lib.strides(x), (int(s) for s in x.shape), strict=True)
    ends = [lib.address(x), *(step for step, size in steps if size > 1 and step != item)]
    if len(x.shape) > 2:
        ends.append(int(x.shape[-1]) * item)
    return not any(end % ALIGNMENT for end in ends)
