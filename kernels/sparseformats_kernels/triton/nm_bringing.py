"""2:4 times few columns: how weights and rows of the operand come to the threads that need them.

Weights are copied into words of shared memory that only the copying thread reads; rows of the
operand go straight into its registers. `nm_fragments` multiplies them.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

__all__ = ["TILE_WORDS", "bring", "rows_met"]

TILE_WORDS = 288
"""32-bit words of 16 rows x 64 columns: 256 of values, and one of positions for each lane."""

_WORDS = gl.constexpr(TILE_WORDS)

# Renamed between the oldest and the newest release that we serve.
copy_in = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared


@gluon.jit
def bring(
    values,
    positions,
    base,
    tile,
    end,
    TILES,
    MT: gl.constexpr,
    KS: gl.constexpr,
    L2: gl.constexpr,
    L3: gl.constexpr,
):
    """Start copies of a step's weights into shared memory, each thread's into words of its own."""
    THREADS: gl.constexpr = tile.shape[0]
    thread: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, L3))
    piece: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, L3))
    word: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, L3))
    lane = gl.arange(0, THREADS, thread)[:, None, None] % 32
    r = gl.arange(0, MT * KS * 2, piece)[None, :, None]
    i = gl.arange(0, 4, word)[None, None, :]
    here = gl.convert_layout(tile, thread)[:, None, None] + (r // 2) % KS
    at = ((r // (2 * KS)) * TILES + here) * _WORDS + (r % 2) * 128 + lane * 4 + i
    copy_in(values, base + at, mask=here < end)
    q = gl.arange(0, MT * KS, gl.SliceLayout(0, L2))[None, :]
    lane2 = gl.arange(0, THREADS, gl.SliceLayout(1, L2))[:, None] % 32
    here2 = gl.convert_layout(tile, gl.SliceLayout(1, L2))[:, None] + q % KS
    place = ((q // KS) * TILES + here2) * _WORDS + 256 + lane2
    copy_in(positions, base + place, mask=here2 < end)
    async_copy.commit_group()


@gluon.jit
def _vectors(
    x, x_column, tile, end, n0, K, N, KS: gl.constexpr, NT: gl.constexpr, L3: gl.constexpr
):
    """Rows of the operand that a step meets, (threads, KS * 2 * NT, 4) words, 16 bytes a load.

    Each lane brings the rows of two groups of four, side by side.
    """
    THREADS: gl.constexpr = tile.shape[0]
    thread: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, L3))
    piece: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, L3))
    word: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, L3))
    lane = gl.arange(0, THREADS, thread)[:, None, None] % 32
    r = gl.arange(0, KS * 2 * NT, piece)[None, :, None]
    i = gl.arange(0, 4, word)[None, None, :]
    step, nt = r // NT, r % NT
    here = gl.convert_layout(tile, thread)[:, None, None] + step // 2
    k = here * 64 + (step % 2) * 32 + (lane % 4) * 8
    n = n0 + nt * 8 + lane // 4
    words = x.to(gl.pointer_type(gl.int32), bitcast=True)
    at = k.to(gl.int64) // 2 + n.to(gl.int64) * (x_column // 2)
    inside = (k < K) & (n < N) & (here < end)
    return gl.load(words + at + i, mask=inside, other=0)


@gluon.jit
def _halves(
    x,
    x_row,
    x_column,
    tile,
    end,
    n0,
    K,
    N,
    KS: gl.constexpr,
    NT: gl.constexpr,
    SPARSE: gl.constexpr,
    K_FAST: gl.constexpr,
    L4: gl.constexpr,
):
    """The same for every layout of the operand, row by row, already as fragments.

    Where rows are contiguous a lane's NT columns lie side by side.
    """
    THREADS: gl.constexpr = tile.shape[0]
    thread: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, L4)))
    piece: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, L4)))
    word: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, L4)))
    column: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, L4)))
    lane = gl.arange(0, THREADS, thread)[:, None, None, None] % 32
    step = gl.arange(0, KS * 2, piece)[None, :, None, None]
    i = gl.arange(0, 4, word)[None, None, :, None]
    nt = gl.arange(0, NT, column)[None, None, None, :]
    t, g = lane % 4, lane // 4
    here = gl.convert_layout(tile, thread)[:, None, None, None] + step // 2
    if SPARSE:
        k = here * 64 + (step % 2) * 32 + (t // 2) * 16 + i * 4 + (t % 2) * 2
    else:
        k = here * 64 + (step % 2) * 32 + t * 8 + i * 2
    if K_FAST:
        n = n0 + nt * 8 + g
    else:
        n = n0 + g * NT + nt
    halves = x.to(gl.pointer_type(gl.uint16), bitcast=True)
    at = k.to(gl.int64) * x_row + n.to(gl.int64) * x_column
    inside = (n < N) & (here < end)
    low = gl.load(halves + at, mask=inside & (k < K), other=0)
    high = gl.load(halves + (at + x_row), mask=inside & (k + 1 < K), other=0)
    both = low.to(gl.int32) | (high.to(gl.int32) << 16)
    return both.permute((0, 1, 3, 2)).reshape([THREADS, KS * 2 * NT, 4])


@gluon.jit
def rows_met(
    x,
    x_row,
    x_column,
    tile,
    end,
    n0,
    K,
    N,
    KS: gl.constexpr,
    NT: gl.constexpr,
    SPARSE: gl.constexpr,
    K_FAST: gl.constexpr,
    VECTOR: gl.constexpr,
    L3: gl.constexpr,
    L4: gl.constexpr,
):
    """Rows of the operand that a step meets, by whole vectors where they lie so."""
    if VECTOR:
        found = _vectors(x, x_column, tile, end, n0, K, N, KS, NT, L3)
    else:
        found = _halves(x, x_row, x_column, tile, end, n0, K, N, KS, NT, SPARSE, K_FAST, L4)
    return found
