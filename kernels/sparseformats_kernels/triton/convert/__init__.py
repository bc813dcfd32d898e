"""Conversions of CUDA arrays that are faster than the generic ones."""

from __future__ import annotations

from sparseformats._dtypes import itemsize
from sparseformats.dispatch.record import EXACT, KernelRecord, Query, Requirement, checks

__all__ = ["RECORDS"]

_HERE = "sparseformats_kernels.triton.convert"
_TRITON, _TORCH = Requirement("triton", "3.6"), Requirement("torch", "2.11")
# Kernels count rows, columns and blocks in 32 bits, and look at some beyond the last.
_SIDE = 2**31 - 2**21
_COUNTS, _CHUNK = 1 << 22, 32
_MOST = 1 << 24  # entries of a table of blocks that is always made

_POWERS = {2**i for i in range(11)}

_REAL = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
_REAL += ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64")
_VALUES = (
    *("bool", "int8", "uint8", "int16", "int32", "int64"),
    *("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64", "complex64"),
)


def _places(query: Query) -> int:
    r, c = query.blocksize or (1, 1)
    return -(-query.m // r) * -(-query.k // c)


def _lines(query: Query) -> tuple[int, int]:
    """Rows that lists are made of, and columns; those of CSC are the other way about."""
    return (query.k, query.m) if query.op.startswith("convert:csc") else (query.m, query.k)


_PLAIN = (
    checks.device_is("cuda"),
    checks.library_is("torch", "cupy"),
    checks.dtype_in(*_VALUES),
    checks.Check(
        "size",
        f"a shape of at most {_SIDE:,}",
        lambda query: max(query.m, query.k) <= _SIDE,
        lambda query: f"{query.m:,} x {query.k:,}",
    ),
)
_COMMON = (
    *_PLAIN,
    checks.Check(
        "blocksize",
        "blocks of a power of two of columns, up to 1024, and at most 2**20 elements",
        lambda query: (
            (query.blocksize or (1, 1))[1] in _POWERS
            and (query.blocksize or (1, 1))[0] * (query.blocksize or (1, 1))[1] <= 1 << 20
        ),
        lambda query: f"{query.blocksize}",
    ),
    checks.Check(
        "size",
        f"at most {_SIDE:,} places for blocks",
        lambda query: _places(query) <= _SIDE,
        lambda query: f"{_places(query):,} places",
    ),
)
# The table has a place for each block that could be: for few elements in a huge shape it is not
# worth its memory.
_TABLE = checks.Check(
    "size",
    f"at most {_MOST:,} places for blocks, or 4 a stored element, and {_SIDE // 2:,} of them",
    lambda query: _places(query) <= min(_SIDE // 2, max(_MOST, 4 * (query.nnz or 0))),
    lambda query: f"{_places(query):,} places, {query.nnz} stored elements",
)

_ELEMENTS = checks.Check(
    "size",
    f"at most {_SIDE:,} stored elements, or pointers of 64 bits",
    lambda query: query.index_dtype == "int64" or (query.nnz or 0) <= _SIDE,
    lambda query: f"{query.nnz} stored elements, pointers of {query.index_dtype}",
)

# There are two integers for each column of some rows: they must not be many more than elements.
_LIST = checks.Check(
    "size",
    f"at most {_COUNTS:,} columns of {_CHUNK} rows each, or one a stored element",
    lambda query: -(-_lines(query)[0] // _CHUNK) * _lines(query)[1] <= max(_COUNTS, query.nnz or 0),
    lambda query: f"{query.m:,} x {query.k:,}, {query.nnz} stored elements",
)
_PIECES = checks.Check(
    "size",
    f"at most {_SIDE:,} pieces of rows",
    lambda query: query.m * -(-query.k // 256) <= _SIDE,
    lambda query: f"{query.m:,} x {query.k:,}",
)


def _into(query: Query) -> tuple[int, int]:
    return query.into or (1, 1)


def _cuts(query: Query) -> bool:
    """Whether blocks are cut into smaller ones, and not joined to larger ones."""
    return any(new < old for new, old in zip(_into(query), query.blocksize or (1, 1), strict=True))


def _larger(query: Query) -> tuple[int, int]:
    return (query.blocksize or (1, 1)) if _cuts(query) else _into(query)


def _divides(query: Query) -> bool:
    small, large = query.blocksize or (1, 1), _larger(query)
    small = _into(query) if _cuts(query) else small
    return not (large[0] % small[0] or large[1] % small[1])


def _pieces(query: Query) -> int:
    """About as many blocks of the smaller size as there can be."""
    r, c = _into(query) if _cuts(query) else query.blocksize or (1, 1)
    return (query.nbytes or 0) // (itemsize(query.a_dtype or "int8") * r * c)


def _joined(query: Query) -> int:
    """Places for blocks that are joined."""
    r, c = _into(query)
    return 0 if _cuts(query) else -(-query.m // r) * -(-query.k // c)


_OTHER = (
    *_PLAIN,
    checks.Check(
        "blocksize",
        "one block size a multiple of the other, the larger of a power of two of columns, up to "
        "1024, and at most 2**20 elements",
        lambda query: (
            _divides(query)
            and _larger(query)[1] in _POWERS
            and _larger(query)[0] * _larger(query)[1] <= 1 << 20
        ),
        lambda query: f"{query.blocksize} into {query.into}",
    ),
    # A table of large blocks has a place for each that could be, one of small ones for those that
    # could be stored.
    checks.Check(
        "size",
        f"at most {_SIDE // 2:,} blocks, and where they are joined {_MOST:,} places or one a byte",
        lambda query: (
            max(_pieces(query), _joined(query)) <= _SIDE // 2
            and _joined(query) <= max(_MOST, query.nbytes or 0)
        ),
        lambda query: f"{_pieces(query):,} blocks, {_joined(query):,} places",
    ),
)

_STEPS = {
    ("dense", "csr"): ("lists", (*_PLAIN, _PIECES)),
    ("csr", "csc"): ("lists", (*_PLAIN, _LIST, _ELEMENTS)),
    ("csc", "csr"): ("lists", (*_PLAIN, _LIST, _ELEMENTS)),
    ("dense", "bsr"): ("edges", _COMMON),
    ("bsr", "dense"): ("edges", _COMMON),
    ("bsr", "csr"): ("edges", _COMMON),
    ("csr", "bsr"): ("edges", (*_COMMON, _TABLE, _ELEMENTS)),
    ("bsr", "blocked_ell"): ("slots", _PLAIN),
    ("blocked_ell", "bsr"): ("slots", _PLAIN),
    ("bsr", "bsr"): ("blocks", _OTHER),
}


def _cost(query: Query) -> float:
    if query.nnz is None and query.nbytes is not None:  # of blocks
        return 60.0 + query.nbytes * 1e-6
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
        f"{_HERE}.{module}:{source}_to_{target}",
        requires=(_TRITON, _TORCH),
        checks=rules,
        cost=_cost,
        tolerance=EXACT,
        doc=f"{source} to {target} on the device: counted, numbered and moved in two passes",
    )
    for (source, target), (module, rules) in _STEPS.items()
)

RECORDS = (*_MOVES, _PACK)
