"""Estimated microseconds of a call, for the order of the CPU's kernels.

The constants were fitted to SciPy 1.17, NumPy 2.4 (OpenBLAS) and torch 2.13 (MKL) in float32 on one
core of an x86-64 server with AVX-512, 2048 x 2048 and 8192 x 8192. They are there to order kernels,
not to predict a machine; measured tables win over them.
"""

from __future__ import annotations

import math

from sparseformats._dtypes import accumulator, itemsize, kind
from sparseformats.dispatch.record import Query

__all__ = [
    "block_gemm",
    "dense",
    "dense_dtype",
    "gather",
    "numpy_blocks",
    "panels",
    "reference",
    "sampled_reference",
    "scipy_bsr",
    "scipy_csr",
    "spgemm",
    "torch_blocks",
    "torch_csr",
    "unpacked",
]

CACHE = 4 << 20  # bytes that stay in a core's cache between calls
NANO = 1e-3  # microseconds

# Nanoseconds a slot to pack a matrix, which every call does: packed state is not kept yet.
_COLLECT = {"bsr": 0.1, "blocked_ell": 0.2}
_ENUMERATE = {"coo": 1.2, "bsr": 0.9, "blocked_ell": 0.8, "n:m": 2.5}
_BESIDE = {"numpy": 0.6, "torch": 2.5}  # and for the shorter the runs that are copied:
_RUNS = 18.0
_UNPACK = 6.0


def _slots(query: Query) -> float:
    """Elements that meet each column of the operand, from shapes alone."""
    if query.nnz is not None:
        return query.nnz
    if query.nbytes is None or query.a_dtype is None:
        return float(query.m) * query.k
    return query.nbytes / (itemsize(query.a_dtype) + (query.format == "n:m"))


def _columns(query: Query) -> int:
    return max(1, query.n * query.batch)


def _width(query: Query) -> float:
    """Bytes of a number while it is computed with, in units of float32."""
    return itemsize(accumulator(query.out_dtype or "float32")) / 4


def _reading(nbytes: float) -> float:
    """Time to read packed values once."""
    return nbytes / (80_000 if nbytes <= CACHE else 12_000)


def _rearranging(query: Query) -> float:
    """Time to bring a column-major operand and result into row-major order."""
    strided = (query.x_layout not in (None, "C")) + (query.out_layout not in (None, "C"))
    return strided * (query.m + query.k) * _columns(query) * _width(query) / 500


def _borrowing(query: Query) -> float:
    """Time to see a torch tensor as a NumPy array and back."""
    return 25 if query.library == "torch" else 0


def scipy_csr(query: Query) -> float:
    """SciPy's CSR and CSC: one axpy an element."""
    n = _columns(query)
    if n == 1:
        each = 0.75
    else:
        each = (2.6 + 0.075 * n if n <= 64 else 0.12 * n) * _width(query)
    each += _ENUMERATE.get(query.format, 0.0)
    return 12 + _slots(query) * each * NANO + _rearranging(query) + _borrowing(query)


def scipy_bsr(query: Query) -> float:
    """SciPy's BSR: one small product a block, without BLAS."""
    n, edge = _columns(query), min(query.blocksize or (1, 1))
    each = 0.35 + 0.0035 * min(edge, 64) if n == 1 else (0.45 if n <= 16 else 0.6) * n
    each += 0.7 * n * (edge <= 2)
    return (
        12 + _slots(query) * each * _width(query) * NANO + _rearranging(query) + _borrowing(query)
    )


def torch_csr(query: Query) -> float:
    """MKL's CSR, on all threads."""
    n = _columns(query)
    each = (0.7 + 0.045 * n if n <= 32 else 0.1 * n) * _width(query)
    each += _ENUMERATE.get(query.format, 0.0)
    if query.transposed or query.format == "csc":
        each += 3  # MKL is given rows
    return 55 + _slots(query) * each * NANO


def _rows(query: Query) -> tuple[int, int]:
    """Height and number of block rows of the product."""
    height = query.blocksize[1 if query.transposed else 0] if query.blocksize else 1
    return height, math.ceil(query.m / height)


def _gemm(query: Query) -> float:
    """One GEMM a block row and the gather that feeds it."""
    slots, width = _slots(query), _width(query)
    rate = 31_000 * min(1.0, _rows(query)[0] / 8) / width
    if kind(query.out_dtype or "float32") == "c":
        rate /= 2
    edge = min(query.blocksize or (1, 1))
    packing = (_BESIDE.get(query.library, 0.0) + _RUNS / edge) * slots * NANO
    return slots * (_columns(query) - 1) / rate + _reading(4 * width * slots) + packing


def numpy_blocks(query: Query) -> float:
    """Block rows of equal count share a call."""
    return 70 + 0.45 * _rows(query)[1] + _gemm(query) + _rearranging(query)


def torch_blocks(query: Query) -> float:
    """As NumPy's; each group of block rows costs several torch calls."""
    rows = _rows(query)[1]
    return 100 + 30 * min(rows, 20) + 1.6 * rows + _gemm(query) + _rearranging(query)


def unpacked(query: Query) -> float:
    """A dense GEMM of the whole shape."""
    size, n = float(query.m) * query.k * _width(query), _columns(query)
    gemm = size * (0.1 if n == 1 else 0.4 + 0.016 * n) * NANO
    return 12 + gemm + _slots(query) * _UNPACK * NANO


_FILL = 0.25  # nanoseconds an element of the dense copy to make it
_EXACT_TERMS = 1 << 21  # products of 16-bit integers whose sum a float64 still holds exactly
_WITHOUT_BLAS = 1.0  # nanoseconds a multiplication of wide integers


def dense_dtype(query: Query) -> str:
    """Dtype of the GEMM over a dense copy: one that BLAS knows wherever its result is exact.

    A sum of ones in float32 never falls back to 0, which is all that bool asks; sums of products
    of narrow integers are whole numbers that float64 holds.
    """
    dtype = accumulator(query.out_dtype or "float64")
    if kind(dtype) == "b":
        return "float32"
    narrow = max(itemsize(name or dtype) for name in (query.a_dtype, query.x_dtype)) <= 2
    return "float64" if kind(dtype) in "iu" and narrow and query.k <= _EXACT_TERMS else dtype


def dense(query: Query) -> float:
    """A GEMM over a dense copy; integers that float64 cannot hold are multiplied without BLAS."""
    size, n, dtype = float(query.m) * query.k, _columns(query), dense_dtype(query)
    each = (0.1 if n == 1 else 0.4 + 0.016 * n) * itemsize(dtype) / 4
    if kind(dtype) in "iu":
        each = _WITHOUT_BLAS * n
    packing = size * _FILL + _slots(query) * (1 + _ENUMERATE.get(query.format, 0.0))
    return 15 + (size * each + packing) * NANO + _rearranging(query)


def gather(query: Query) -> float:
    """Two gathered rows and a dot product an element."""
    return 60 + _slots(query) * (6 + 0.8 * query.n * _width(query)) * NANO


def panels(query: Query) -> float:
    """A GEMM of the whole shape, in panels, and a gather."""
    gemm = float(query.m) * query.k * (0.5 + 0.03 * query.n) * _width(query)
    gemm *= 4 if kind(query.out_dtype or "float32") == "c" else 1
    return 70 + (gemm + 6 * _slots(query)) * NANO


def block_gemm(query: Query) -> float:
    """Two gathered panels and a GEMM a block."""
    slots, edge = _slots(query), min(query.blocksize or (1, 1))
    return 80 + slots * (2 + query.n * _width(query) * (0.04 + 1.2 / edge)) * NANO


def sampled_reference(query: Query) -> float:
    """A dot product in a wide type an element, by loops over elements."""
    return 1000 + _slots(query) * (10 + 0.01 * query.n)


def spgemm(query: Query) -> float:
    """SciPy's sparse product: each element meets one row of the other matrix."""
    return 50 + _slots(query) * 0.1


def reference(query: Query) -> float:
    """Loops over rows in wide types."""
    return 1000 + 50.0 * query.m + _slots(query) * (0.5 + 0.02 * _columns(query))
