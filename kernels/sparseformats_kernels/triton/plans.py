"""Records of what conversion plans run on CUDA devices: conversions into room, and its products."""

from __future__ import annotations

from sparseformats.dispatch.record import EXACT, KernelRecord, Query, Requirement, checks

__all__ = ["RECORDS"]

_HERE = "sparseformats_kernels.triton"
_TRITON, _TORCH = Requirement("triton", "3.6"), Requirement("torch", "2.11")
# Kernels count rows, columns and blocks in 32 bits, and look at some beyond the last.
_SIDE = 2**31 - 2**21
_VALUES = (
    *("bool", "int8", "uint8", "int16", "int32", "int64"),
    *("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64"),
)
_TARGETS = (("dense", "csr"), ("dense", "bsr"), ("dense", "blocked_ell"), ("csr", "bsr"))


def _room(query: Query) -> int:
    """Elements or blocks that there is room for."""
    return (query.nnz if query.nnzb is None else query.nnzb) or 0


def _places(query: Query) -> int:
    """Places for blocks."""
    r, c = query.blocksize or (1, 1)
    return -(-query.m // r) * -(-query.k // c) if query.blocksize else 0


_ROOM_FITS = checks.Check(
    "size",
    f"room for at most {_SIDE:,} elements or blocks",
    lambda query: _room(query) <= _SIDE,
    lambda query: f"{_room(query):,}",
)
_SHAPE_FITS = checks.Check(
    "size",
    f"shape and places for blocks of at most {_SIDE:,}",
    lambda query: max(query.m, query.k, _places(query)) <= _SIDE,
    lambda query: f"{query.m:,} x {query.k:,}, {_places(query):,} places",
)
_BLOCKS = checks.Check(
    "blocksize",
    "blocks of a power of two of columns, up to 1024, and at most 2**20 elements",
    lambda query: (
        (query.blocksize or (1, 1))[1] in {2**i for i in range(11)}
        and (query.blocksize or (1, 1))[0] * (query.blocksize or (1, 1))[1] <= 1 << 20
    ),
    lambda query: f"{query.blocksize}",
)


def _conversion_cost(query: Query) -> float:
    return 30.0 + query.m * query.k * 1e-6


def _product_cost(query: Query) -> float:
    r, c = query.blocksize or (1, 1)
    return 10.0 + _room(query) * r * c * query.n * 1e-7


_CONVERSIONS = tuple(
    KernelRecord(
        "triton-refill",
        f"plan_conversion:{source}->{target}",
        (source,),
        f"{_HERE}.convert.refill:{source}_to_{target}",
        requires=(_TRITON, _TORCH),
        checks=(
            checks.device_is("cuda"),
            checks.library_is("torch", "cupy"),
            checks.dtype_in(*_VALUES),
            _BLOCKS,
            _SHAPE_FITS,
            _ROOM_FITS,
        ),
        cost=_conversion_cost,
        tolerance=EXACT,
        doc=f"{source} to {target} into room of a fixed size, without waiting for the device",
    )
    for source, target in _TARGETS
)
_PRODUCT = KernelRecord(
    "triton-refilled",
    "plan_conversion:matmul",
    ("csr", "bsr", "blocked_ell"),
    f"{_HERE}.spmm_refilled:multiply",
    requires=(_TRITON, _TORCH),
    checks=(
        checks.device_is("cuda"),
        checks.library_is("torch", "cupy"),
        checks.dtypes_equal(),
        checks.dtype_in("float16", "bfloat16", "float32"),
        checks.capability_at_least(8),
        _SHAPE_FITS,
        _ROOM_FITS,
    ),
    cost=_product_cost,
    doc="rows as the device's memory bounds them; NaN where the room was too small",
)

RECORDS = (*_CONVERSIONS, _PRODUCT)
