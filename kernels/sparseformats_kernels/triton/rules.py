"""Launch parameters by rules, where nothing was measured for a call."""

from __future__ import annotations

from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats_kernels.triton.config import SMALL_SHARED, Config

__all__ = ["RULES", "block_of", "few", "gathered", "grouped", "rows", "shared", "specialised"]
__all__ += ["width_of"]


def specialised(query: Query, processors: int) -> Config:
    """Parameters of the warp-specialised kernel.

    The wider a tile, the fewer times the values travel from the second cache; but there must be
    tiles for every processor, twice if possible, and rows of few blocks leave little to share.
    """
    r, c = block_of(query)
    bm, bk = (next(size for size in (128, 64, r) if r % size == 0)), min(c, 64)
    rows = -(-query.m // bm)
    widest = {128: 256, 64: 512, 32: 512, 16: 1024}[bm]
    bn = min(widest, next((w for w in (64, 128, 256, 512) if query.n <= w), widest))
    while bn > 128 and rows * -(-query.n // bn) < _WAVES[bn, bm == 128] * processors:
        bn //= 2
    if bm >= 64 and bn > 128 and 0 < _row_length(query) <= _FEW * 64:
        bn = 256 if bm == 64 else 128
    return _shaped(bm, bn, bk)


# Tiles for each processor that a width should leave, of up to 64 rows and of 128.
_WAVES = {(256, False): 0.9, (256, True): 5.0, (512, False): 8.0, (1024, False): 6.0}
_FEW = 8  # columns of 64 in a row below which wide tiles do not pay


def _shaped(bm: int, bn: int, bk: int) -> Config:
    """Stages, warps and turns for tiles of a size."""
    groups = max(1, 32 // bk)
    if bm < 64:
        if bn >= 512:
            return Config(bm, bn, min(bk, 16384 // bn), 1, 10, warps=8, swap=True).fitted()
        return Config(bm, bn, bk, groups, 10, turns=2, warps=4, swap=True).fitted()
    if bn == 512:
        return Config(bm, bn, min(bk, 32), groups, 8, warps=8).fitted()
    if bn == 256 and bm == 128:
        return Config(bm, bn, bk, groups, 4, warps=8).fitted()
    pieces = 2 if bn == 256 else 1
    return Config(bm, bn, bk, groups, 8, turns=2, pieces=pieces, warps=4).fitted()


def _row_length(query: Query) -> float:
    """Stored columns of a mean block row; 0 where that is not known."""
    r, c = block_of(query)
    return (query.nnzb or 0) * c / max(1, -(-query.m // r))


def shared(query: Query, processors: int) -> Config:
    """Parameters of the kernel whose block rows share what they read.

    Many columns of blocks a stage, since every stage is waited for once; block rows as the sums of
    each thread allow, fewer where that would leave processors without tiles.
    """
    r, c = block_of(query)
    bn = next((w for w in (64, 128) if query.n <= w), 256)
    groups = 4 if r == 16 else 3
    rows = 2
    while rows > 1 and -(-query.m // (groups * rows * r)) * -(-query.n // bn) < 2 * processors:
        rows //= 2
    return Config(groups * rows * r, bn, c, max(1, 64 // c), 16, turns=groups, swap=True)


def gathered(query: Query, processors: int) -> Config:
    """Parameters of the gathering kernel."""
    r, _ = block_of(query)
    if query.a_dtype in ("int8", "float8_e4m3fn"):
        return _narrow(query, r)
    half = query.a_dtype in ("float16", "bfloat16")
    bm = next((size for size in (16, 32, 64) if r <= size), 128 if half and r > 64 else 64)
    bn = 32 if query.n <= 32 else 64 if query.n <= 64 else 128
    if half and query.n > 128 and bm < 128:
        bn = 256 if bm < 64 else 128
    if half:
        return Config(bm, bn, 32, stages=4, warps=8 if bm * bn > 16384 else 4, swap=bm < 64)
    return Config(bm, min(bn, 64), 16 if query.precision is None else 32, stages=3, warps=4)


def _narrow(query: Query, r: int) -> Config:
    """Tiles of values of 8 bits, of which an instruction takes 32 columns at a time.

    Long tiles, so that sums of fp8 come to float32 seldom, where rows are long enough to fill them.
    """
    bm = next((size for size in (16, 32, 64) if r <= size), 128)
    bn = next((w for w in (32, 64) if query.n <= w), 128)
    bk = 128 if _row_length(query) >= 1024 else 64
    stages = min(4, SMALL_SHARED // ((bm + bn) * bk))
    return Config(bm, bn, bk, stages=stages, warps=8 if bm * bn > 8192 else 4, swap=bm < 64)


def few(query: Query, processors: int) -> Config:
    """Parameters of the kernel for a few columns.

    Rows of high blocks are made 64 or 32 at a time where that leaves more than a program for every
    processor and the operand's rows, which each program reads, are not too short to matter. Else
    one warp makes 16 rows where that gives every processor several; else a warp for each slice of
    a row of blocks, so that enough is on the way to keep memory busy. A long row is over soon only
    if the blocks of several steps are on their way at once.
    """
    r = (query.blocksize or (1, 1))[query.transposed]
    bn = next((w for w in (8, 16, 32) if query.n <= w), 64)
    columns, wide = -(-max(query.n, 1) // bn), query.a_dtype == "float32"
    bk = 32 if wide else 64
    if bn > 8 and not wide and -(-query.m // 64) * columns >= 1.5 * processors:
        if r % 64 == 0:
            return Config(64, bn, bk, 1, 6, warps=4)
        if r % 32 == 0 and bn > 16:
            return Config(32, bn, bk, 1, 5, warps=2)
    programs = -(-query.m // 16) * columns
    slices = 1 if programs >= 4 * processors else 2 if programs >= 2 * processors else 4
    return Config(16, bn, bk, slices, 4 if slices == 1 else 3, warps=slices)


def rows(query: Query, processors: int) -> Config:
    """Parameters of the kernel for elements by rows: BK elements of BM rows at a time.

    One warp holds two rows, which keeps its loads together; wide results of short rows leave it
    nothing to do for long, so there four warps share a tile. Rows of few elements leave room for
    more rows. The shapes are those that were the quickest for 16 and 164 elements a row.
    """
    size = itemsize(query.a_dtype or "float32")
    bn, mean = min(width_of(query.n), 512 // size), (query.nnz or 0) / max(1, query.m)
    if bn < 16 or size == 8:
        return _narrow_rows(bn, mean, size)
    many = mean >= 64
    if bn == 16:
        bm, bk, warps = (2, 16, 1) if many else (4, 8, 2)
    elif many:
        bm, bn, bk, warps = (2, min(bn, 64), 8, 1) if size < 4 else (4, 32, 16, 2)
    elif bn < 128:
        bm, bk, warps = 2, 8, 1
    elif size < 4:
        bm, bn, bk, warps = (4, 256, 4, 4) if query.n >= 256 else (2, 128, 4, 1)
    else:
        bm, bk, warps = 4, 4, 4
    while bk > 4 and bk >= 2 * mean:
        bm, bk = 2 * bm, bk // 2
    return Config(bm, bn, bk, stages=1, warps=warps)


def _narrow_rows(bn: int, mean: float, size: int) -> Config:
    """The same for few columns and for float64, where a thread holds up to 32 sums.

    With fewer elements at a time than threads, each thread reads the indices that it needs itself;
    more have to be exchanged at every step, which pays only where an element has no two threads.
    """
    elements = 512 if bn < 4 else 128 if bn <= 16 // size else 64
    elements = min((2048 if size == 8 else 4096) // bn, elements)
    most, bk = 8 if bn >= 64 else 16 if bn >= 8 else 32, 4
    while bk < most and 2 * bk < mean:
        bk *= 2
    return Config(elements // bk, bn, bk, stages=1)


def width_of(n: int) -> int:
    """Columns of a tile that n columns are made in, of up to 128."""
    return min(128, 1 << (max(n, 1) - 1).bit_length())


def grouped(query: Query, processors: int) -> Config:
    """Parameters of the kernel for 2:4 matrices and few columns; its warps divide the columns.

    Every tile of rows reads the operand again, so 64 of them at a time where that leaves more than
    a program for every processor, two of which fit side by side; else 16, of which several do.
    """
    bn = next((w for w in (8, 16, 32) if query.n <= w), 64)
    columns, tiles = -(-max(1, query.n) // bn), max(1, -(-query.k // 64))
    enough = 0.9 * processors
    bm = 64 if -(-query.m // 64) * columns >= 1.5 * processors else 16
    programs = -(-query.m // bm) * columns
    warps = 4 if bm == 64 and bn > 16 else 8
    while warps > 1 and warps > tiles:
        warps //= 2
    parts = 1
    while programs * parts < enough and tiles >= 4 * warps * parts:
        parts *= 2
    return Config(bm, bn, 64, parts, 2 if bm == 64 and warps == 8 else 4, warps=warps)


RULES = {
    "triton-blocks": specialised,
    "triton-shared": shared,
    "triton-tiles": gathered,
    "triton-few": few,
    "triton-nm": grouped,
    "triton-csr": rows,
}


def block_of(query: Query) -> tuple[int, int]:
    """Block of the matrix that is multiplied."""
    if query.blocksize is None:
        raise ValueError("a block kernel's query must name the block size")
    r, c = query.blocksize
    return (c, r) if query.transposed else (r, c)
