"""Kernels in Triton for CUDA devices: products of every format with dense arrays."""

from __future__ import annotations

from functools import partial

from sparseformats.dispatch.record import KernelRecord, Query, Requirement, Tolerance, checks
from sparseformats_kernels.triton import configs, convert, costs, plans

__all__ = ["FP8_FACTOR", "RECORDS"]

_HERE = "sparseformats_kernels.triton"
_TRITON = Requirement("triton", "3.6")
_TORCH = Requirement("torch", "2.11")  # Triton finds the device through it
_BLOCKS = ("bsr", "bsr.T", "blocked_ell", "blocked_ell.T")
_FOLLOWING = ("bias", "activation", "residual")
_INT32 = 2**31 - 1
_SIZES = (16, 32, 64)
_ROUNDED = ("float16", "bfloat16", "float32")

FP8_FACTOR = 4096.0
"""Times the error of float32 sums that sums of fp8 may have.

Hopper's and Ada's tensor cores align the products of an instruction, and the sum so far, to the
largest of them and keep some 13 bits behind its leading one: 2**-13 of it a term, where float32
has 2**-24, with a power of two to spare. Products of two numbers of e4m3 have at most 8 bits, so
that they are exact themselves. Blackwell sums in float32.
"""

_OPERANDS = (
    checks.device_is("cuda"),
    checks.library_is("torch", "cupy"),
    checks.dtypes_equal(),
    checks.not_implemented_grad(),
)
_COMMON = (*_OPERANDS, checks.epilogue_of("bias", "activation"))
_STRIDED = (*_OPERANDS, checks.epilogue_of(*_FOLLOWING))
_NARROW = (*_OPERANDS, checks.epilogue_of("scale", *_FOLLOWING))


def _lines(query: Query) -> int:
    """Rows of the values, seen as a matrix as wide as a block."""
    r, c = query.blocksize or (1, 1)
    stored = query.nnzb if query.nnzb is not None else (query.nbytes or 0) // (r * c * 2)
    return max(query.m, query.k, query.n * max(1, query.batch), stored * r)


def _as_multiplied(query: Query) -> tuple[int, int]:
    """Block of the matrix that is multiplied."""
    r, c = query.blocksize or (0, 0)
    return (c, r) if query.transposed else (r, c)


_ADDRESSABLE = checks.Check(
    "size",
    f"rows of the stored blocks, and shape, of at most {_INT32:,}",
    lambda query: _lines(query) < _INT32 - 1024,
    lambda query: f"{_lines(query):,}",
)
_TILED_BLOCKS = checks.Check(
    "blocksize",
    "blocks of 16, 32 or a multiple of 64 rows and columns",
    lambda query: all(s in _SIZES or s % 64 == 0 for s in query.blocksize or (0,)),
    lambda query: f"{query.blocksize}",
    "another block size: A.to('bsr', blocksize=(64, 64))",
)
_HOPPER = checks.Check(
    "capability",
    "compute capability 9.0, whose warpgroup instructions it is written for",
    lambda query: query.capability is not None and query.capability[0] == 9,
    lambda query: f"{query.capability}",
)
_SHARED_BLOCKS = checks.Check(
    "blocksize",
    "blocks of 16 or 32 rows and 16, 32 or 64 columns, as they are multiplied",
    lambda query: _as_multiplied(query)[0] in (16, 32) and _as_multiplied(query)[1] in _SIZES,
    lambda query: f"{query.blocksize}",
)
_PACKED_FITS = checks.Check(
    "size",
    "at most 2**31 packed columns",
    lambda query: _lines(query) < _INT32,
    lambda query: f"{_lines(query):,}",
)
_FEW_COLUMNS = checks.Check(
    "size",
    "at most 128 columns",
    lambda query: query.n <= 128,
    lambda query: f"{query.n:,}",
)


def _gives(own: str) -> checks.Check:
    """Results in the dtype that products of 8 bits have, or in one that was asked for."""
    allowed = (own, *_ROUNDED)
    return checks.Check(
        "dtype",
        f"OUT of dtype {' or '.join(allowed)}",
        lambda query: query.out_dtype in allowed,
        lambda query: str(query.out_dtype),
    )


_WHOLE_ALONE = checks.Check(
    "epilogue",
    "int32 results without an epilogue, or out_dtype=",
    lambda query: query.out_dtype != "int32" or query.epilogue is None,
    lambda query: f"int32 results with {query.epilogue}",
    "give linear an out_dtype of float16, bfloat16 or float32",
)

_LARGEST = 2**31 - 2**16
_LISTED = checks.Check(
    "size",
    f"at most {_LARGEST:,} rows of the matrix and columns of the operand",
    lambda query: max(query.m, query.n * max(1, query.batch)) <= _LARGEST,
    lambda query: f"{query.m:,} rows and {query.n * max(1, query.batch):,} columns",
)
_OWN: dict[str, tuple[str, ...]] = {
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "float32": ("float32",),
    "float64": ("float64",),
    "int8": ("int32",),
}
_SUMMED = checks.Check(
    "dtype",
    "a result in the dtype of the sums or in that of A",
    lambda query: query.out_dtype in _OWN.get(query.a_dtype or "", ()),
    lambda query: f"{query.a_dtype} giving {query.out_dtype}",
)

_ROWS_FIT = checks.Check(
    "size",
    "at most 2**26 rows, columns of the matrix, and columns of the operand",
    lambda query: max(query.m, query.k, query.n * max(1, query.batch)) <= 1 << 26,
    lambda query: f"{query.m:,} x {query.k:,} times {query.n * max(1, query.batch):,} columns",
)

_MATMUL = (
    KernelRecord(
        "triton-blocks",
        "matmul",
        _BLOCKS,
        f"{_HERE}.spmm_blocks:TritonBlocks",
        requires=(_TRITON, _TORCH),
        checks=(
            *_COMMON,
            checks.dtype_in("float16", "bfloat16"),
            _HOPPER,
            _TILED_BLOCKS,
            _ADDRESSABLE,
        ),
        cost=costs.blocks,
        doc="stored blocks alone, by the copy engine and warpgroup instructions; one warp loads",
        note=partial(configs.source, "triton-blocks"),
    ),
    KernelRecord(
        "triton-shared",
        "matmul",
        _BLOCKS,
        f"{_HERE}.spmm_shared:TritonShared",
        requires=(_TRITON, _TORCH),
        checks=(
            *_COMMON,
            checks.dtype_in("float16", "bfloat16"),
            _HOPPER,
            _SHARED_BLOCKS,
            _ADDRESSABLE,
        ),
        cost=costs.shared,
        doc="small blocks; block rows share the rows of the operand that several of them meet",
        note=partial(configs.source, "triton-shared"),
    ),
    KernelRecord(
        "triton-tiles",
        "matmul",
        _BLOCKS,
        f"{_HERE}.spmm_tiles:TritonTiles",
        requires=(_TRITON, _TORCH),
        checks=(
            *_STRIDED,
            checks.dtype_in("float16", "bfloat16", "float32"),
            checks.precision_in(None, "ieee", "tf32"),
            checks.capability_at_least(8),
            _PACKED_FITS,
        ),
        batches=configs.BATCHED["triton-tiles"],
        cost=costs.tiles,
        tolerance=Tolerance(multiplies_in=None),
        doc="blocks of any size packed into tiles; gathers the operand's rows, of any strides",
        note=partial(configs.source, "triton-tiles"),
    ),
    KernelRecord(
        "triton-tiles-int8",
        "matmul",
        _BLOCKS,
        f"{_HERE}.spmm_tiles:TritonTiles",
        requires=(_TRITON, _TORCH),
        checks=(
            *_NARROW,
            checks.dtype_in("int8"),
            _gives("int32"),
            checks.capability_at_least(8),
            _WHOLE_ALONE,
            _PACKED_FITS,
        ),
        batches=configs.BATCHED["triton-tiles"],
        cost=costs.tiles,
        doc="packed tiles of int8, sums of int32; scales and what follows in float32",
        note=partial(configs.source, "triton-tiles"),
    ),
    KernelRecord(
        "triton-tiles-fp8",
        "matmul",
        _BLOCKS,
        f"{_HERE}.spmm_tiles:TritonTiles",
        requires=(_TRITON, _TORCH),
        checks=(
            *_NARROW,
            checks.dtype_in("float8_e4m3fn"),
            _gives("float8_e4m3fn"),
            checks.capability_at_least(8, 9),
            _PACKED_FITS,
        ),
        batches=configs.BATCHED["triton-tiles"],
        cost=costs.tiles,
        tolerance=Tolerance(factor=FP8_FACTOR),
        wide=True,
        doc="packed tiles of float8_e4m3fn; tensor cores sum a tile, float32 sums the tiles",
        note=partial(configs.source, "triton-tiles"),
    ),
    KernelRecord(
        "triton-few",
        "matmul",
        _BLOCKS,
        f"{_HERE}.spmm_few:TritonFew",
        requires=(_TRITON, _TORCH),
        checks=(
            *_STRIDED,
            checks.dtype_in("float16", "bfloat16", "float32"),
            checks.precision_in(None, "ieee", "tf32"),
            checks.capability_at_least(8),
            _FEW_COLUMNS,
            _ADDRESSABLE,
        ),
        batches=configs.BATCHED["triton-few"],
        cost=costs.few,
        tolerance=Tolerance(multiplies_in=None),
        doc="a few columns times blocks of any size, bound by the bytes of the stored blocks",
        note=partial(configs.source, "triton-few"),
    ),
    KernelRecord(
        "triton-csr",
        "matmul",
        ("coo", "coo.T", "csr", "csc"),
        f"{_HERE}.spmm_csr:TritonCSR",
        requires=(_TRITON, _TORCH),
        checks=(
            *_STRIDED,
            checks.dtype_in(*_OWN),
            _SUMMED,
            checks.capability_at_least(8),
            _WHOLE_ALONE,
            _LISTED,
        ),
        cost=costs.elements,
        wide=True,
        doc="elements by rows, long rows in parts that are added in order: always the same bits",
        note=partial(configs.source, "triton-csr"),
    ),
    KernelRecord(
        "triton-nm",
        "matmul",
        ("n:m",),
        f"{_HERE}.spmm_nm:TritonNM",
        requires=(_TRITON, _TORCH),
        checks=(
            *_COMMON,
            checks.dtype_in("float16", "bfloat16"),
            checks.pattern_in((2, 4)),
            checks.capability_at_least(8),
            _ROWS_FIT,
        ),
        cost=costs.groups,
        doc="2:4 at few columns; compressed weights go straight into sparse tensor instructions",
        note=partial(configs.source, "triton-nm"),
    ),
)

_SAMPLED_RULES = (
    checks.device_is("cuda"),
    checks.library_is("torch", "cupy"),
    checks.dtype_in("float16", "bfloat16", "float32", operand="x"),
    checks.dtype_in("float16", "bfloat16", "float32", operand="out"),
    checks.epilogue_in(None),
    checks.capability_at_least(8),
    checks.not_implemented_grad(),
)
_SDDMM = (
    KernelRecord(
        "triton-blocks",
        "sddmm",
        ("bsr", "blocked_ell"),
        f"{_HERE}.sddmm:blocks",
        requires=(_TRITON, _TORCH),
        checks=(*_SAMPLED_RULES, checks.precision_in(None, "ieee", "tf32")),
        cost=costs.sampled_blocks,
        tolerance=Tolerance(multiplies_in=None),
        doc="a tile of each stored block by tensor cores, straight from the operands",
    ),
    KernelRecord(
        "triton-elements",
        "sddmm",
        ("coo", "csr", "csc"),
        f"{_HERE}.sddmm:elements",
        requires=(_TRITON, _TORCH),
        checks=_SAMPLED_RULES,
        cost=costs.sampled_elements,
        doc="a dot product for each stored element, straight from the operands",
    ),
)

RECORDS = (*_MATMUL, *_SDDMM, *convert.RECORDS, *plans.RECORDS)
