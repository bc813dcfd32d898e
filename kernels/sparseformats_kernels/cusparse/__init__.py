"""Kernels of NVIDIA's cuSPARSE, called by address on torch's and CuPy's arrays.

What the library cannot do is refused by the checks here, so that it is never asked to. Every
product is IEEE arithmetic of the dtypes, half types summed in float32.
"""

from __future__ import annotations

from sparseformats.dispatch.record import KernelRecord, Query, checks
from sparseformats_kernels.cusparse import costs
from sparseformats_kernels.cusparse.finding import CuSparse

__all__ = ["MOST_COLUMNS", "RECORDS"]

_HERE = "sparseformats_kernels.cusparse"
_ELEMENTS = ("coo", "coo.T", "csr", "csc", "n:m", "n:m.T")
_BLOCKS = ("bsr", "bsr.T", "blocked_ell", "blocked_ell.T")
_NATIVE = ("float32", "float64", "complex64", "complex128")
_HALF = ("float16", "bfloat16")

MOST_COLUMNS = 65_535 * 16
"""The library lays columns along an axis of the launch grid that ends there."""

_BASE = CuSparse(minimum="12.3")
_WITH_BSR = CuSparse(minimum="12.5.1")

_BYTES = ("int8", "int8", "int32")


def _fewer_columns(query: Query) -> bool:
    return query.n * query.batch <= MOST_COLUMNS


def _dtypes(query: Query) -> tuple[str | None, str | None, str | None]:
    return query.a_dtype, query.x_dtype, query.out_dtype


_COLUMNS = checks.Check(
    "size",
    f"at most {MOST_COLUMNS:,} columns, all batches together",
    _fewer_columns,
    lambda query: f"{query.n * query.batch:,}",
    "multiply slices of the columns",
)
_RESULTS = checks.Check(
    "dtype",
    f"a result of dtype {', '.join((*_HALF, *_NATIVE))}, or int8 times int8",
    lambda query: query.out_dtype in (*_HALF, *_NATIVE) or _dtypes(query) == _BYTES,
    lambda query: f"{query.a_dtype} times {query.x_dtype} giving {query.out_dtype}",
    "convert both operands to a floating dtype: the library multiplies no other integers",
)
_WHOLE = checks.Check(
    "divisibility",
    "a shape that the blocks divide",
    lambda query: (
        query.blocksize is None  # another format, which is a reason of its own
        or (query.m % query.blocksize[0] == 0 and query.k % query.blocksize[1] == 0)
    ),
    lambda query: f"{query.m} x {query.k} in blocks of {query.blocksize}",
    "pad the matrix and its operand to whole blocks",
)
_COMMON = (
    checks.library_is("torch", "cupy"),
    checks.device_is("cuda"),
    checks.epilogue_in(None),
    checks.not_implemented_grad(),
    checks.fits_int32(),
)

_MATMUL = (
    KernelRecord(
        "cusparse-csr",
        "matmul",
        (*_ELEMENTS, *_BLOCKS),
        f"{_HERE}.csr:CSRProduct",
        requires=(_BASE,),
        checks=(*_COMMON, _RESULTS, _COLUMNS),
        cost=costs.csr,
        # A call that asks for the same bits on every run gets the algorithms that give them.
        deterministic=True,
        doc="cuSPARSE's CSR SpMM or SpMV, the algorithm by case; other formats through CSR",
    ),
    KernelRecord(
        "cusparse-bell",
        "matmul",
        ("blocked_ell",),
        f"{_HERE}.blocks:BlockedELLProduct",
        requires=(_BASE,),
        checks=(
            *_COMMON,
            checks.dtype_in(*_HALF, "float64", operand="out"),
            checks.capability_at_least(8, 0),
            checks.at_least("R", 2),
            _WHOLE,
            _COLUMNS,
        ),
        cost=costs.bell,
        deterministic=False,  # the documentation promises it for other algorithms only
        doc="cuSPARSE's Blocked-ELL SpMM on tensor cores",
    ),
    KernelRecord(
        "cusparse-bsr",
        "matmul",
        ("bsr",),
        f"{_HERE}.blocks:BSRProduct",
        requires=(_WITH_BSR,),
        checks=(
            *_COMMON,
            checks.dtype_in(*_HALF, *_NATIVE, operand="out"),
            checks.blocksize_is_square(),
            _WHOLE,
            _COLUMNS,
        ),
        cost=costs.bsr,
        doc="cuSPARSE's BSR SpMM",
    ),
)

_SPGEMM = (
    KernelRecord(
        "cusparse-spgemm",
        "spgemm",
        (*_ELEMENTS, *_BLOCKS),
        f"{_HERE}.spgemm:spgemm",
        requires=(_BASE,),
        checks=(*_COMMON, checks.dtype_in(*_HALF, *_NATIVE, operand="out")),
        cost=costs.spgemm,
        deterministic=False,
        doc="cuSPARSE's product of two sparse matrices as CSR",
    ),
)

RECORDS = (*_MATMUL, *_SPGEMM)
