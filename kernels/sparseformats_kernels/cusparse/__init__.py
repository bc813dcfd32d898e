"""Kernels of NVIDIA's cuSPARSE, called by address on torch's and CuPy's arrays.

What the library cannot do is refused by the checks here, so that it is never asked to. Products
are IEEE arithmetic of the dtypes, half types summed in float32, but for one kernel, whose name
says what it rounds to.
"""

from __future__ import annotations

from sparseformats._dtypes import INT32_MAX
from sparseformats.dispatch.record import KernelRecord, Query, Reason, Tolerance, checks
from sparseformats_kernels.cusparse import costs
from sparseformats_kernels.cusparse.finding import CuSparse

__all__ = ["MOST_COLUMNS", "RECORDS"]

_HERE = "sparseformats_kernels.cusparse"
_ELEMENTS = ("coo", "coo.T", "csr", "csc", "n:m", "n:m.T")
_BLOCKS = ("bsr", "bsr.T", "blocked_ell", "blocked_ell.T")
_NATIVE = ("float32", "float64", "complex64", "complex128")
_HALF = ("float16", "bfloat16")

MOST_COLUMNS = 65_535 * 16
"""Of a BSR product: the library lays columns along an axis of the launch grid that ends there."""

_BASE = CuSparse(minimum="12.3")
_WITH_BSR = CuSparse(minimum="12.5.1")

_BYTES = ("int8", "int8", "int32")


def _fewer_columns(query: Query) -> bool:
    return query.n * query.batch <= MOST_COLUMNS


def _largest(query: Query) -> int:
    return max(query.m, query.k) * query.n * query.batch


def _dtypes(query: Query) -> tuple[str | None, str | None, str | None]:
    return query.a_dtype, query.x_dtype, query.out_dtype


_COLUMNS = checks.Check(
    "size",
    f"at most {MOST_COLUMNS:,} columns, all batches together",
    _fewer_columns,
    lambda query: f"{query.n * query.batch:,}",
    "multiply slices of the columns",
)
_ADDRESSES = checks.Check(
    "size",
    f"at most {INT32_MAX:,} elements of the operand and of the result, all batches together",
    lambda query: _largest(query) <= INT32_MAX,
    lambda query: f"{_largest(query):,}",
    "multiply slices of the columns",
)
_RESULTS = checks.Check(
    "dtype",
    f"a result of dtype {', '.join((*_HALF, *_NATIVE))}, or int8 times int8",
    lambda query: query.out_dtype in (*_HALF, *_NATIVE) or _dtypes(query) == _BYTES,
    lambda query: f"{query.a_dtype} times {query.x_dtype} giving {query.out_dtype}",
    "convert both operands to a floating dtype: the library multiplies no other integers",
)


def same_bits(query: Query) -> Reason | None:
    """Refuse a deterministic product of several columns.

    The documentation promises the same bits for CSR_ALG3, but on an H200 with cuSPARSE 12.6.3 long
    rows came out with other last bits from run to run.
    """
    if not query.deterministic or query.n * query.batch <= 1:
        return None
    return Reason(
        "nondeterministic",
        f"needs one column, or a call that may vary in its last bits, has {query.n} columns and "
        "deterministic=True",
        "triton-csr gives the same bits for any number of columns: name no kernel, or that one",
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
_FLOATING = checks.Check(
    "dtype",
    f"OUT of dtype {', '.join((*_HALF, *_NATIVE))}",
    lambda query: query.out_dtype in (*_HALF, *_NATIVE),
    lambda query: str(query.out_dtype),
    "convert both matrices to a floating dtype, or move them: A.to_device('cpu', library='numpy')",
)
_COMMON = (
    checks.library_is("torch", "cupy"),
    checks.device_is("cuda"),
    checks.epilogue_in(None),
    checks.not_implemented_grad(),
    checks.fits_int32(),
)

_ELL = (
    *_COMMON,
    checks.capability_at_least(8, 0),
    checks.at_least("R", 2),
    _WHOLE,
    costs.FINITE,  # an empty slot is read as block column 0
)

_MATMUL = (
    KernelRecord(
        "cusparse-csr",
        "matmul",
        (*_ELEMENTS, *_BLOCKS),
        f"{_HERE}.csr:CSRProduct",
        requires=(_BASE,),
        checks=(*_COMMON, _RESULTS, same_bits),
        wide=True,
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
        checks=(*_ELL, checks.dtype_in(*_HALF, "float64", operand="out")),
        cost=costs.bell,
        deterministic=False,  # the documentation promises it for other algorithms only
        doc="cuSPARSE's Blocked-ELL SpMM on tensor cores",
    ),
    KernelRecord(
        "cusparse-bell-tf32",
        "matmul",
        ("blocked_ell",),
        f"{_HERE}.blocks:BlockedELLProduct",
        requires=(_BASE,),
        checks=(*_ELL, checks.dtype_in("float32", operand="out"), checks.precision_in("tf32")),
        cost=costs.bell,
        tolerance=Tolerance(factor=2.0, multiplies_in="tf32"),  # or cut off instead of rounded
        deterministic=False,
        doc="cuSPARSE's Blocked-ELL SpMM of float32, rounded to TF32 on tensor cores",
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
            _ADDRESSES,
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
        checks=(*_COMMON, _FLOATING),
        cost=costs.spgemm,
        deterministic=False,
        doc="cuSPARSE's product of two sparse matrices as CSR",
    ),
)

RECORDS = (*_MATMUL, *_SPGEMM)
