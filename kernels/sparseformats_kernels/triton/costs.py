"""Estimated microseconds of block products on an H200: what moves, and what is multiplied.

Bytes go from the second cache to the multiprocessors: each stored block meets its rows of the
operand once, and comes along once for every tile of columns.
"""

from __future__ import annotations

from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats_kernels.triton import configs

__all__ = ["blocks", "tiles"]

LAUNCH = 6.0  # us
TILE = 0.3  # us of starting and writing a tile that nothing else hides
PROCESSORS = 132
L2 = 9.0e6  # bytes/us, tiles brought by the copy engine
L2_GATHER = 3.1e6  # bytes/us, gathered rows
TENSOR = 6.6e8  # multiplications and additions/us, half types
TENSOR_TF32, SIMD = 1.5e8, 3.0e7  # float32


def _stored(query: Query) -> int:
    """Stored blocks; from the bytes where they were not counted."""
    r, c = query.blocksize or (1, 1)
    if query.nnzb is not None:
        return query.nnzb
    return (query.nbytes or 0) // (r * c * itemsize(query.a_dtype or "float16") + 4)


def _time(query: Query, high: int, wide: int, flops: float, l2: float) -> float:
    r, c = query.blocksize or (1, 1)
    r, c = (c, r) if query.transposed else (r, c)
    size = itemsize(query.a_dtype or "float16")
    columns = -(-max(query.n, 1) // wide)
    rows = -(-r // high) * high
    elements = _stored(query) * rows * c
    moved = elements * size * columns + elements / min(rows, high) * columns * wide * size
    written = 2 * query.m * query.n * size / 4.0e6
    compute = 2 * elements * columns * wide / flops
    tiles = -(-query.m // high) * columns / PROCESSORS
    return LAUNCH + max(moved / l2, compute, written) + tiles * TILE


def blocks(query: Query) -> float:
    """The warp-specialised kernel."""
    config = configs.specialised(query, PROCESSORS)
    copies = 0.0
    size = itemsize(query.a_dtype or "float16")
    if query.x_aligned is False or query.out_aligned is False or query.n * size % 16:
        copies = 2 * (query.k + query.m) * query.n * size / 2.0e6
    return _time(query, config.BM, config.BN, TENSOR, L2) + copies


def tiles(query: Query) -> float:
    """The gathering kernel."""
    r, c = query.blocksize or (64, 64)
    r = c if query.transposed else r
    high = next((size for size in (16, 32, 64) if r <= size), 64)
    half = query.a_dtype in ("float16", "bfloat16")
    wide = 32 if query.n <= 32 else 64 if query.n <= 64 or not half else 128
    flops = TENSOR if half else SIMD if query.precision is None else TENSOR_TF32
    return _time(query, high, wide, flops / 2.3, L2_GATHER) + 4.0
