"""Conversions of CUDA arrays that are faster than the generic ones."""

from __future__ import annotations

from sparseformats._dtypes import itemsize
from sparseformats.dispatch.record import EXACT, KernelRecord, Query, Requirement, checks

__all__ = ["RECORDS"]

_HERE = "sparseformats_kernels.triton.convert"
_TRITON, _TORCH = Requirement("triton", "3.6"), Requirement("torch", "2.11")
_INT32 = 2**31 - 1
_MOST = 1 << 24  # entries of a table of blocks that is always made

_REAL = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
_REAL += ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64")
_VALUES = (
    *("bool", "int8", "uint8", "int16", "int32", "int64"),
    *("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64", "complex64"),
)


def _places(query: Query) -> int:
    r, c = query.blocksize or (1, 1)
    return -(-query.m // r) * -(-query.k // c)


_COMMON = (
    checks.device_is("cuda"),
    checks.library_is("torch", "cupy"),
    checks.dtype_in(*_VALUES),
    checks.Check(
        "blocksize",
        "blocks of a power of two of columns, up to 1024, and at most 2**20 elements",
        lambda query: (
            (query.blocksize or (1, 1))[1] in {2**i for i in range(11)}
            and (query.blocksize or (1, 1))[0] * (query.blocksize or (1, 1))[1] <= 1 << 20
        ),
        lambda query: f"{query.blocksize}",
    ),
    checks.Check(
        "size",
        f"shape and places for blocks of at most {_INT32:,}",
        lambda query: max(query.m, query.k, _places(query)) <= _INT32,
        lambda query: f"{query.m:,} x {query.k:,}, {_places(query):,} places",
    ),
)
# The table has a place for each block that could be: for few elements in a huge shape it is not
# worth its memory.
_TABLE = checks.Check(
    "size",
    f"at most {_MOST:,} places for blocks, or 4 a stored element",
    lambda query: _places(query) <= max(_MOST, 4 * (query.nnz or 0)),
    lambda query: f"{_places(query):,} places, {query.nnz} stored elements",
)

_STEPS = {
    ("dense", "bsr"): _COMMON,
    ("bsr", "dense"): _COMMON,
    ("bsr", "csr"): _COMMON,
    ("csr", "bsr"): (*_COMMON, _TABLE),
}


def _cost(query: Query) -> float:
    elements = query.nnz if query.nnz is not None else query.m * query.k
    return 60.0 + elements * 1e-6


def _pack_cost(query: Query) -> float:
    """Everything is read once, half of it and two positions a group written."""
    size = itemsize(query.a_dtype or "float16")
    return 40.0 + query.m * query.k * (1.5 * size + 0.5) / 2.6e6


_PACK = KernelRecord(
    "triton-pack",
    "convert:dense->n:m",
    ("dense",),
    f"{_HERE}.to_nm:dense_to_nm",
    requires=(_TRITON, _TORCH),
    checks=(
        checks.device_is("cuda"),
        checks.library_is("torch", "cupy"),
        checks.dtype_in(*_REAL),
        checks.pattern_in((2, 4)),
    ),
    cost=_pack_cost,
    tolerance=EXACT,
    doc="dense to 2:4 in one pass, groups counted on the way",
)
_MOVES = tuple(
    KernelRecord(
        "triton-moves",
        f"convert:{source}->{target}",
        (source,),
        f"{_HERE}.edges:{source}_to_{target}",
        requires=(_TRITON, _TORCH),
        checks=rules,
        cost=_cost,
        tolerance=EXACT,
        doc=f"{source} to {target} on the device: found, numbered and moved in two passes",
    )
    for (source, target), rules in _STEPS.items()
)

RECORDS = (*_MOVES, _PACK)
