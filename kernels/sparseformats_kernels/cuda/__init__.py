"""Kernels on CUDA devices through what torch and CuPy themselves offer.

Products are those of cuBLAS over a dense copy; sampled products gather rows by the array library's
own functions, with the code that serves arrays on the CPU. Beside them lies what other backends
for CUDA share: streams and capture (`devices`), elements of any format on the device (`elements`),
and a model of what a call costs (`costs`).
"""

from __future__ import annotations

import os

from sparseformats._dtypes import itemsize
from sparseformats.dispatch.record import KernelRecord, Query, Reason, checks
from sparseformats_kernels.cuda import costs

__all__ = ["RECORDS"]

_HERE = "sparseformats_kernels.cuda"
_FORMATS = (
    *("coo", "coo.T", "csr", "csc", "n:m", "n:m.T"),
    *("bsr", "bsr.T", "blocked_ell", "blocked_ell.T"),
)
_DENSE_BYTES = 64 << 20
_REPEATABLE = (":4096:8", ":16:8")


def _copy_bytes(query: Query) -> int:
    return query.m * query.k * itemsize(query.out_dtype or "float32")


def repeatable(query: Query) -> Reason | None:
    """Refuse a deterministic call where torch would raise: cuBLAS needs to be told at its start."""
    config = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    if not query.deterministic or config in _REPEATABLE:
        return None
    return Reason(
        "nondeterministic",
        f"needs CUBLAS_WORKSPACE_CONFIG={_REPEATABLE[0]} or {_REPEATABLE[1]} for a deterministic "
        f"call, has {config or 'none'}",
        f"set CUBLAS_WORKSPACE_CONFIG={_REPEATABLE[0]} before the process starts",
    )


_HAS_GEMM = checks.dtype_in(
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"), operand="out"
)
_COPY_FITS = checks.Check(
    "size",
    "a dense copy of at most 4 times the matrix's bytes or 64 MiB, or to be asked for by name",
    lambda query: _copy_bytes(query) <= max(4 * (query.nbytes or 0), _DENSE_BYTES),
    lambda query: f"one of {_copy_bytes(query):,} bytes",
    "kernel='cublas-dense' makes the copy all the same",
)
_UNPACKED_FITS = checks.Check(
    "size",
    "an unpacked copy of at most 4 times the matrix's bytes or 64 MiB",
    lambda query: _copy_bytes(query) <= max(4 * (query.nbytes or 0), _DENSE_BYTES),
    lambda query: f"one of {_copy_bytes(query):,} bytes",
)
_PLAIN = (
    checks.library_is("torch", "cupy"),
    checks.device_is("cuda"),
    checks.epilogue_in(None),
    checks.not_implemented_grad(),
    _HAS_GEMM,
    repeatable,
)

_MATMUL = (
    KernelRecord(
        "cublas-dense",
        "matmul",
        _FORMATS,
        f"{_HERE}.spmm_dense:Dense",
        checks=(*_PLAIN, checks.finite_operand()),
        soft_checks=(_COPY_FITS,),
        cost=costs.dense,
        doc="one cuBLAS GEMM over a dense copy made on the device",
    ),
    KernelRecord(
        "cublas-nm",
        "matmul",
        ("n:m", "n:m.T"),
        f"{_HERE}.spmm_dense:Dense",
        checks=(*_PLAIN, _UNPACKED_FITS),
        cost=costs.dense,
        doc="one cuBLAS GEMM over the unpacked matrix",
    ),
)

_DEVICE = (
    checks.device_is("cuda"),
    checks.epilogue_in(None),
    checks.not_implemented_grad(),
)
_SDDMM = (
    KernelRecord(
        "cuda-gather",
        "sddmm",
        ("coo", "csr", "csc", "n:m"),
        "sparseformats_kernels.cpu.sddmm:gather",
        checks=(checks.library_is("torch", "cupy"), *_DEVICE),
        cost=costs.gather,
        doc="a row of X and a column of Y gathered for each stored element, in chunks",
    ),
    KernelRecord(
        "cuda-blocks",
        "sddmm",
        ("bsr", "blocked_ell"),
        f"{_HERE}.sampled:block_gemm",
        # CuPy's arrays do not answer to NumPy's matmul, which that code calls.
        checks=(checks.library_is("torch"), *_DEVICE, _HAS_GEMM),
        cost=costs.block_gemm,
        doc="one small GEMM a stored block, batched by torch",
    ),
)

RECORDS = (*_MATMUL, *_SDDMM)
