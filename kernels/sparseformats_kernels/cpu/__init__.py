"""Kernels for arrays in the CPU's memory: SciPy, NumPy and torch.

Every one computes in IEEE arithmetic, which is within what any ``precision=`` allows.
"""

from __future__ import annotations

from sparseformats._dtypes import accumulator, itemsize
from sparseformats.dispatch.record import ANY, KernelRecord, Query, Requirement, checks
from sparseformats_kernels.cpu import convert, costs

__all__ = ["RECORDS"]

_HERE = "sparseformats_kernels.cpu"
_SCIPY = Requirement("scipy", "1.14")
_TORCH = Requirement("torch", "2.11")
_ELEMENTS = ("coo", "coo.T", "csr", "csc", "n:m", "n:m.T")
_BLOCKS = ("bsr", "bsr.T", "blocked_ell", "blocked_ell.T")
_NM = ("n:m", "n:m.T")
_ENTRIES = ("coo", "csr", "csc", "n:m")

_PLAIN = (checks.device_is("cpu"), checks.epilogue_in(None), checks.not_implemented_grad())
_HOST = (checks.library_is("numpy", "torch"), *_PLAIN)
_NUMPY_ONLY = (checks.library_is("numpy"), *_PLAIN)
_TORCH_ONLY = (checks.library_is("torch"), *_PLAIN)
_HAS_BLAS = checks.dtype_in(
    *("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64"),
    *("complex64", "complex128"),
    operand="out",
)

_DENSE_BYTES = 64 << 20


def _dense_bytes(query: Query) -> int:
    return query.m * query.k * itemsize(accumulator(query.out_dtype or "float64"))


def _copy_bytes(query: Query) -> int:
    return query.m * query.k * itemsize(costs.dense_dtype(query))


_DENSE_FITS = checks.Check(
    "size",
    "a dense copy of at most 4 times the matrix's bytes or 64 MiB",
    lambda query: _dense_bytes(query) <= max(4 * (query.nbytes or 0), _DENSE_BYTES),
    lambda query: f"one of {_dense_bytes(query):,} bytes",
)
_COPY_FITS = checks.Check(
    "size",
    f"{_DENSE_FITS.needs}, or to be asked for by name",
    lambda query: _copy_bytes(query) <= max(4 * (query.nbytes or 0), _DENSE_BYTES),
    lambda query: f"one of {_copy_bytes(query):,} bytes",
    "kernel='dense' makes the copy all the same",
)

_MATMUL = (
    KernelRecord(
        "scipy-csr",
        "matmul",
        (*_ELEMENTS, *_BLOCKS),
        f"{_HERE}.spmm_scipy:ScipyCSR",
        requires=(_SCIPY,),
        checks=_HOST,
        wide=True,
        cost=costs.scipy_csr,
        doc="SciPy's CSR or CSC product; one thread, every dtype",
    ),
    KernelRecord(
        "scipy-bsr",
        "matmul",
        _BLOCKS,
        f"{_HERE}.spmm_scipy:ScipyBSR",
        requires=(_SCIPY,),
        checks=_HOST,
        wide=True,
        cost=costs.scipy_bsr,
        doc="SciPy's BSR product; one thread, every dtype",
    ),
    KernelRecord(
        "numpy-blocks",
        "matmul",
        _BLOCKS,
        f"{_HERE}.spmm_blocks:BlockRows",
        requires=(_SCIPY,),
        checks=(*_NUMPY_ONLY, _HAS_BLAS),
        wide=True,
        cost=costs.numpy_blocks,
        doc="one NumPy GEMM a block row over its blocks side by side",
    ),
    KernelRecord(
        "numpy-nm",
        "matmul",
        _NM,
        f"{_HERE}.spmm_nm:Unpacked",
        checks=(*_NUMPY_ONLY, _HAS_BLAS, _DENSE_FITS),
        wide=True,
        cost=costs.unpacked,
        doc="one NumPy GEMM over the unpacked matrix",
    ),
    KernelRecord(
        "torch-csr",
        "matmul",
        (*_ELEMENTS, *_BLOCKS),
        f"{_HERE}.spmm_torch:TorchCSR",
        requires=(_SCIPY, _TORCH),
        checks=(*_TORCH_ONLY, _HAS_BLAS, checks.fits_int32()),
        wide=True,
        cost=costs.torch_csr,
        doc="torch's CSR product (MKL); all threads",
    ),
    KernelRecord(
        "torch-blocks",
        "matmul",
        _BLOCKS,
        f"{_HERE}.spmm_blocks:BlockRows",
        requires=(_SCIPY, _TORCH),
        checks=(*_TORCH_ONLY, _HAS_BLAS),
        wide=True,
        cost=costs.torch_blocks,
        doc="one torch GEMM a block row over its blocks side by side",
    ),
    KernelRecord(
        "torch-nm",
        "matmul",
        _NM,
        f"{_HERE}.spmm_nm:Unpacked",
        requires=(_TORCH,),
        checks=(*_TORCH_ONLY, _HAS_BLAS, _DENSE_FITS),
        wide=True,
        cost=costs.unpacked,
        doc="one torch GEMM over the unpacked matrix",
    ),
    KernelRecord(
        "dense",
        "matmul",
        (*_ELEMENTS, *_BLOCKS),
        f"{_HERE}.spmm_dense:Dense",
        requires=(_SCIPY,),
        checks=(*_HOST, checks.finite_operand()),
        soft_checks=(_COPY_FITS,),
        wide=True,
        cost=costs.dense,
        doc="one NumPy or torch GEMM over a dense copy",
    ),
    KernelRecord(
        "reference",
        "matmul",
        ANY,
        "sparseformats.reference.kernel:Reference",
        checks=_PLAIN,
        wide=True,
        cost=costs.reference,
        doc="plain loops on the CPU, the last resort",
    ),
)

_SDDMM = (
    KernelRecord(
        "numpy-gather",
        "sddmm",
        _ENTRIES,
        f"{_HERE}.sddmm:gather",
        checks=_NUMPY_ONLY,
        cost=costs.gather,
        doc="a row of X and a column of Y gathered for each stored element, in chunks",
    ),
    KernelRecord(
        "torch-gather",
        "sddmm",
        _ENTRIES,
        f"{_HERE}.sddmm:gather",
        requires=(_TORCH,),
        checks=_TORCH_ONLY,
        cost=costs.gather,
        doc="a row of X and a column of Y gathered for each stored element, in chunks",
    ),
    KernelRecord(
        "numpy-panels",
        "sddmm",
        _ENTRIES,
        f"{_HERE}.sddmm:panels",
        checks=(*_NUMPY_ONLY, _HAS_BLAS),
        cost=costs.panels,
        doc="GEMMs of panels of rows, of which the stored elements are kept",
    ),
    KernelRecord(
        "numpy-blocks",
        "sddmm",
        ("bsr", "blocked_ell"),
        f"{_HERE}.sddmm:block_gemm",
        checks=_NUMPY_ONLY,
        cost=costs.block_gemm,
        doc="one small GEMM a stored block, batched by NumPy",
    ),
    KernelRecord(
        "torch-panels",
        "sddmm",
        _ENTRIES,
        f"{_HERE}.sddmm:panels",
        requires=(_TORCH,),
        checks=(*_TORCH_ONLY, _HAS_BLAS),
        cost=costs.panels,
        doc="GEMMs of panels of rows, of which the stored elements are kept",
    ),
    KernelRecord(
        "torch-blocks",
        "sddmm",
        ("bsr", "blocked_ell"),
        f"{_HERE}.sddmm:block_gemm",
        requires=(_TORCH,),
        checks=_TORCH_ONLY,
        cost=costs.block_gemm,
        doc="one small GEMM a stored block, batched by torch",
    ),
    KernelRecord(
        "reference",
        "sddmm",
        ANY,
        "sparseformats.reference.sampled:sampled_values",
        checks=_PLAIN,
        cost=costs.sampled_reference,
        doc="plain loops on the CPU, the last resort",
    ),
)

_SPGEMM = (
    KernelRecord(
        "scipy-spgemm",
        "spgemm",
        ANY,
        f"{_HERE}.spgemm_scipy:spgemm",
        requires=(_SCIPY,),
        checks=_NUMPY_ONLY,
        cost=costs.spgemm,
        doc="SciPy's product of two sparse matrices as CSR",
    ),
)

RECORDS = (*_MATMUL, *_SDDMM, *_SPGEMM, *convert.RECORDS)
