"""Estimated microseconds of a warm call, for the order of the CPU's kernels.

The constants were fitted to SciPy 1.17, NumPy 2.4 (OpenBLAS) and torch 2.13 (MKL) in float32 on one
core of an x86-64 server with AVX-512, 256 x 256 to 2048 x 2048, with `benchmarks.products`. They
are there to order kernels, not to predict a machine; measured tables win over them. A matrix is
packed once and kept, so each call bears a small share of that.
"""

from __future__ import annotations

import math

from sparseformats._dtypes import accumulator, itemsize, kind
from sparseformats.dispatch.record import Query
from sparseformats_kernels.cpu.threads import workers

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

SHARE = 0.01  # of packing that a call bears: a packed matrix is multiplied often
# Nanoseconds a slot to pack a matrix.
_ENUMERATE = {"coo": 1.2, "bsr": 0.9, "blocked_ell": 0.8, "n:m": 2.5}
_BESIDE = 2.5  # block rows, and for the shorter the runs that are copied:
_RUNS = 18.0
_UNPACK = 3.0
_TO_ROWS = 3.0  # MKL is given rows

PARALLEL = 1 << 24  # multiplications from which several cores share a product
_EFFICIENCY = 0.7  # of each core after the first


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


def _cores(multiplications: float) -> float:
    """How many times faster than one core a product of BLAS or of shared tasks runs."""
    return 1 + _EFFICIENCY * (workers() - 1) if multiplications >= PARALLEL else 1.0


def _writing(query: Query) -> float:
    """Time to write the result once."""
    return query.m * _columns(query) * _width(query) * 0.1 * NANO


def _packing(query: Query, each: float) -> float:
    """A call's share of packing at `each` nanoseconds a slot."""
    each += _ENUMERATE.get(query.format, 0.0)
    return SHARE * _slots(query) * each * NANO


def _rearranging(query: Query) -> float:
    """Time to bring a column-major operand and result into row-major order."""
    strided = (query.x_layout not in (None, "C")) + (query.out_layout not in (None, "C"))
    return strided * (query.m + query.k) * _columns(query) * _width(query) / 500


def _borrowing(query: Query) -> float:
    """Time to see a torch tensor as a NumPy array and back."""
    return 12 if query.library == "torch" else 0


def scipy_csr(query: Query) -> float:
    """SciPy's CSR and CSC: one axpy an element, quicker where columns follow each other."""
    n, blocks = _columns(query), query.blocksize is not None
    if n == 1:
        each = 0.48 if 8 * _slots(query) <= CACHE / 2 else 0.75
    elif blocks:
        each = 2.2 + n * (0.07 if n <= 64 else 0.095)
    else:
        each = 2.4 + n * (0.09 if n <= 64 else 0.135)
    each *= _width(query) if n > 1 else 1
    beside = _writing(query) + _rearranging(query) + _borrowing(query) + _packing(query, 0)
    return 5 + _slots(query) * each * NANO + beside


def scipy_bsr(query: Query) -> float:
    """SciPy's BSR: one small product a block, without BLAS and without vectors of the CPU."""
    n, edge = _columns(query), min(query.blocksize or (1, 1))
    each = 0.22 + 0.6 / edge + 0.0038 * min(edge, 64)
    if n > 1:
        each = (0.41 + 0.003 * min(edge, 64) + 0.7 * (edge <= 2)) * n
    beside = _writing(query) + _rearranging(query) + _borrowing(query)
    return 5 + _slots(query) * each * NANO + beside


def torch_csr(query: Query) -> float:
    """MKL's CSR, on all threads."""
    n, blocks = _columns(query), query.blocksize is not None
    if n == 1:
        each = 0.65 if 8 * _slots(query) <= CACHE / 2 else 0.88
    elif n <= 16:
        each = 0.2 + 0.085 * n
    else:
        each = n * (0.088 if blocks else 0.1)
    each *= _width(query) if n > 1 else 1
    packing = _packing(query, _TO_ROWS if query.transposed or query.format == "csc" else 0)
    work = _slots(query) * each * NANO / _cores(_slots(query) * n)
    return 13 + work + 2.5 * _writing(query) + packing


def _rows(query: Query) -> tuple[int, int]:
    """Height and number of block rows of the product."""
    height = query.blocksize[1 if query.transposed else 0] if query.blocksize else 1
    return height, math.ceil(query.m / height)


def _groups(query: Query) -> float:
    """Groups of block rows with equally many blocks, of blocks that lie at random."""
    (r, c), (_, rows) = query.blocksize or (1, 1), _rows(query)
    mean = _slots(query) / (r * c) / max(1, rows)
    return min(rows / 2.5, 4.5 * math.sqrt(mean)) + 1


def _gemm(query: Query, each: float) -> float:
    """A GEMM a block row and the gather that feeds it; at least `each` nanoseconds a slot."""
    slots, n, (height, _) = _slots(query), _columns(query), _rows(query)
    nano = 0.031 if n <= 64 else 0.033
    nano *= max(1.0, (8 if query.library == "torch" else 4) / height) * (
        2 if kind(query.out_dtype or "float32") == "c" else 1
    )
    gathered = slots / height * n * 0.14
    return (slots * max(each, n * nano) + gathered) * _width(query) * NANO / _cores(slots * n)


def numpy_blocks(query: Query) -> float:
    """Block rows of equal count share a call."""
    beside = _writing(query) + _rearranging(query)
    beside += _packing(query, _BESIDE + _RUNS / min(query.blocksize or (1, 1)))
    nbytes = 4 * _slots(query)
    each = 0.04 if nbytes <= CACHE / 4 else 0.12 if nbytes <= 2 * CACHE else 0.32
    return 8 + 6.5 * _groups(query) + 0.12 * _rows(query)[1] + _gemm(query, each) + beside


def torch_blocks(query: Query) -> float:
    """As NumPy's; each group of block rows costs several torch calls."""
    beside = _writing(query) + _rearranging(query)
    beside += _packing(query, _BESIDE + _RUNS / min(query.blocksize or (1, 1)))
    return 30 + 18 * _groups(query) + _gemm(query, 1.1) + beside


def _dense_gemm(query: Query, dtype: str) -> float:
    """A GEMM, or the reading of a matrix that one column meets, of the whole shape."""
    size, n = float(query.m) * query.k, _columns(query)
    nbytes = size * itemsize(dtype)
    if kind(dtype) in "iu":
        return size * n * _WITHOUT_BLAS * NANO
    each = 0.085 if nbytes > CACHE else 0.06
    if n > 1:
        each = (0.2 if nbytes > CACHE else 0.0) + 0.0215 * n
        each = max(_FEW_BY_TORCH, each) if query.library == "torch" else each
    return size * each * itemsize(dtype) / 4 * NANO / _cores(size * n)


def unpacked(query: Query) -> float:
    """A dense GEMM of the whole shape."""
    gemm = _dense_gemm(query, accumulator(query.out_dtype or "float32"))
    beside = _writing(query) + _rearranging(query) + _borrowing(query)
    return 4 + gemm + beside + SHARE * _slots(query) * _UNPACK * NANO


_FILL = 0.25  # nanoseconds an element of the dense copy to make it
_EXACT_TERMS = 1 << 21  # products of 16-bit integers whose sum a float64 still holds exactly
_FEW_BY_TORCH = 1.27  # nanoseconds an element that MKL takes at least for more than one column
_WITHOUT_BLAS = 0.65  # nanoseconds a multiplication of wide integers


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
    packing = SHARE * float(query.m) * query.k * _FILL * NANO + _packing(query, 1)
    beside = _writing(query) + _rearranging(query) + _borrowing(query)
    return 5 + _dense_gemm(query, dense_dtype(query)) + beside + packing


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
