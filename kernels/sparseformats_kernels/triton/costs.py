"""Estimated microseconds of block products on an H200: what moves, and what is multiplied.

Bytes go from the second cache to the multiprocessors: each stored block meets its rows of the
operand once, and comes along once for every tile of columns.
"""

from __future__ import annotations

from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats_kernels.triton import configs

__all__ = ["blocks", "elements", "few", "groups", "sampled_blocks", "sampled_elements", "shared"]
__all__ += ["tiles", "turns"]

LAUNCH = 6.0  # us
TILE = 0.3  # us of starting and writing a tile that nothing else hides
PROCESSORS = 132
L2 = 9.0e6  # bytes/us, tiles brought by the copy engine
L2_GATHER = 3.1e6  # bytes/us, gathered rows
L2_SHARED = {16: 7.4e6, 32: 8.0e6}  # bytes/us by rows of a block, tiles that block rows share
DRAM = 3.6e6  # bytes/us, values that are read once
L2_GROUPS = 7.5e6  # bytes/us, weights and fragments of the operand
L2_FEW = 4.0e6  # bytes/us, gathered rows of a few columns
# bytes/us, rows of the operand that elements name: of less than 64 bytes, and longer ones, which
# neighbouring rows find in the first cache.
L2_ROWS = {64: 6.0e6, 1 << 62: 1.1e7}
L2_VECTOR = 1.3e7  # bytes/us, numbers of a vector, of which each is read as 32 bytes
SECTOR = 32  # bytes that are read for one number
START, CUTTING = 4.0, 5.0  # us of reading lists, and of a second launch for rows that were cut
COPY, TURNED = 14.0, 7e-6  # us of a transposing copy, however small, and for a number
_FEW = 64  # columns up to which a row of blocks is over before a deep pipeline is full
TENSOR_WARP = 3.3e8  # multiplications and additions/us, half types, by instructions of one warp
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
    written = (
        2 * query.m * query.n * itemsize(query.out_dtype or query.a_dtype or "float16") / 4.0e6
    )
    compute = 2 * elements * columns * wide / flops
    tiles = -(-query.m // high) * columns / PROCESSORS
    return LAUNCH + max(moved / l2, compute, written) + tiles * TILE


def blocks(query: Query) -> float:
    """The warp-specialised kernel."""
    config = configs.specialised(query, PROCESSORS)
    start = 0.0 if query.n > _FEW else 2.0 if config.BK >= 64 else 5.0
    return _time(query, config.BM, config.BN, TENSOR, L2) + _copies(query) + start


def shared(query: Query) -> float:
    """The kernel whose block rows share what they read."""
    r, c = query.blocksize or (16, 16)
    r, c = (c, r) if query.transposed else (r, c)
    config = configs.shared(query, PROCESSORS)
    size = itemsize(query.a_dtype or "float16")
    stored, rows, wide = _stored(query), -(-query.m // r), -(-query.k // c)
    columns, high = -(-max(query.n, 1) // config.BN), config.BM // r
    share = min(1.0, stored / max(1, rows * wide))
    steps = wide * (1 - (1 - share) ** high) * -(-rows // high)
    if query.union is not None:  # told for tiles of 128 rows: near enough for those of 64 to 192
        steps = max(stored * query.union, stored / high)
    moved = (steps * config.BN + stored * r) * c * size * columns
    compute = 2 * stored * r * c * columns * config.BN / (TENSOR / 2)
    tiles = -(-rows // high) * columns / PROCESSORS
    start = 0.0 if query.n > _FEW else 4.5
    moved /= L2_SHARED.get(r, L2)
    return LAUNCH + start + max(moved, compute) + tiles * TILE + _copies(query)


def _copies(query: Query) -> float:
    """Copies of operands that the copy engine cannot use."""
    size = itemsize(query.a_dtype or "float16")
    if query.x_aligned is False or query.out_aligned is False or query.n * size % 16:
        return 2 * (query.k + query.m) * query.n * size / 2.0e6
    return 0.0


def tiles(query: Query) -> float:
    """The gathering kernel."""
    config = configs.gathered(query, PROCESSORS)
    half = query.a_dtype in ("float16", "bfloat16")
    flops = TENSOR if half else SIMD if query.precision is None else TENSOR_TF32
    if itemsize(query.a_dtype or "float16") == 1:
        flops = 2 * TENSOR
    return _time(query, config.BM, config.BN, flops / 2.3, L2_GATHER) + 4.0


def few(query: Query) -> float:
    """The kernel for a few columns: the values once, and their rows of the operand."""
    r, c = query.blocksize or (1, 1)
    config, size = configs.few(query, PROCESSORS), itemsize(query.a_dtype or "float16")
    high, wide = (c, r) if query.transposed else (r, c)
    columns = -(-max(query.n, 1) // config.BN)
    values = _stored(query) * r * c * size * columns
    gathered = _stored(query) * -(-high // config.BM) * wide * min(query.n, 64) * size * columns
    return LAUNCH - 2 + max(values / DRAM, (values + gathered) / L2_FEW) + columns * TILE


def elements(query: Query) -> float:
    """Elements by rows: a row of the operand for each, from the second cache."""
    size, n = itemsize(query.out_dtype or query.a_dtype or "float32"), _columns(query)
    written = 2 * query.m * n * size / 4.0e6
    uneven = CUTTING if query.row_skew is None or query.row_skew > 1 else 0.0
    read = _read_turned(query) if turns(query) else _read(query, query.x_layout == "F")
    return LAUNCH + START + uneven + read + written


def turns(query: Query) -> bool:
    """Whether a column-major operand of elements by rows is better copied into rows first."""
    return query.x_layout == "F" and _read_turned(query) < _read(query, apart=True)


def _columns(query: Query) -> int:
    return max(1, query.n * query.batch)


def _read(query: Query, apart: bool) -> float:
    """Columns that lie apart are read in pieces of 32 bytes, of which one number counts."""
    size, n = itemsize(query.a_dtype or "float32"), _columns(query)
    stored = query.nnz if query.nnz is not None else (query.nbytes or 0) / (size + 4)
    met = n * SECTOR if apart else max(n * size, SECTOR)
    rate = next(rate for most, rate in L2_ROWS.items() if met < most)
    return stored * (met + size + 4) / (L2_VECTOR if n == 1 else rate)


def _read_turned(query: Query) -> float:
    return _read(query, apart=False) + max(COPY, 2 + TURNED * query.k * _columns(query))


def sampled_blocks(query: Query) -> float:
    """Tiles of the stored blocks, each with its rows of X and columns of Y."""
    r, c = query.blocksize or (1, 1)
    size = itemsize(query.x_dtype or "float16")
    stored, n = _stored(query), max(query.n, 1)
    half = query.x_dtype in ("float16", "bfloat16")
    flops = TENSOR / 2 if half else SIMD if query.precision is None else TENSOR_TF32 / 2
    moved = stored * (-(-c // 128) * r + -(-r // 128) * c) * n * size
    padded = -(-r // 16) * -(-c // 16) * 256
    return 4 * LAUNCH + max(moved / L2_GATHER, 2 * stored * padded * n / flops)


def sampled_elements(query: Query) -> float:
    """A row of X and a column of Y for each stored element."""
    size = itemsize(query.x_dtype or "float16")
    return 4 * LAUNCH + 2 * (query.nnz or 0) * max(query.n, 1) * size / L2_GATHER


def groups(query: Query) -> float:
    """The kernel of 2:4 matrices for few columns: every 16 or 32 rows read the operand again."""
    config = configs.grouped(query, PROCESSORS)
    columns = -(-max(query.n * query.batch, 1) // config.BN)
    weights = query.m * query.k * 9 / 8
    again = -(-query.m // config.BM) * query.k * config.BN * columns * 2
    compute = 2 * query.m * query.k * columns * config.BN / 2 / TENSOR_WARP
    moved = max(weights / DRAM, (weights * columns + again) / L2_GROUPS)
    return 1.0 + moved + compute + (2.0 if config.G > 1 else 0.0)
