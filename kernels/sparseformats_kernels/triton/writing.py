"""The end of a tile: scaled, added to, activated, rounded once, and written by the copy engine."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from sparseformats_kernels.triton.activations import activate

__all__ = ["keep", "write"]

# These were renamed between the oldest and the newest release that we serve.
copy_out = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
barrier = getattr(gl, "barrier", None) or gl.thread_barrier


@gluon.jit
def write(
    acc,
    result,
    bias,
    out,
    out_row,
    out_column,
    alpha,
    beta,
    tile_row,
    n,
    M,
    N,
    y_buffer,
    BM: gl.constexpr,
    BN: gl.constexpr,
    SWAP: gl.constexpr,
    Y_ROWS: gl.constexpr,
    ALPHA: gl.constexpr,
    BETA: gl.constexpr,
    BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    PIECES: gl.constexpr,
):
    """Scale, add, activate, round once, and store a tile by the copy engine."""
    ROWS: gl.constexpr = BN if SWAP else BM
    COLS: gl.constexpr = BM if SWAP else BN
    y = _finish(
        *(acc, bias, out, out_row, out_column, alpha, beta, tile_row, n, M, N),
        *(BM, ROWS, COLS, SWAP, ALPHA, BETA, BIAS, ACTIVATION),
    )
    y = y.to(result.dtype)
    if PIECES == 1:
        tma.store_wait(0)
        _store(y, result, y_buffer, tile_row * BM, n, SWAP, Y_ROWS)
    else:
        left, right = gl.split(y.reshape([ROWS, 2, COLS // 2]).permute((0, 2, 1)))
        tma.store_wait(0)
        _store(left, result, y_buffer, tile_row * BM, n, SWAP, Y_ROWS)
        tma.store_wait(0)
        _store(right, result, y_buffer, tile_row * BM, n + COLS // 2, SWAP, Y_ROWS)


@gluon.jit
def keep(acc, partial, part, BM: gl.constexpr, BN: gl.constexpr, SWAP: gl.constexpr):
    """Put the sums of one part of a long row into a tile of their own, in float32."""
    layout: gl.constexpr = acc.type.layout
    down = gl.arange(0, acc.shape[0], gl.SliceLayout(1, layout))
    right = gl.arange(0, acc.shape[1], gl.SliceLayout(0, layout))
    if SWAP:
        place = gl.expand_dims(down, 1) + gl.expand_dims(right, 0) * BN
    else:
        place = gl.expand_dims(down, 1) * BN + gl.expand_dims(right, 0)
    gl.store(partial + part.to(gl.int64) * (BM * BN) + place, acc)


@gluon.jit
def _store(y, result, y_buffer, m, n, SWAP: gl.constexpr, Y_ROWS: gl.constexpr):
    barrier()
    if SWAP == Y_ROWS:
        y_buffer.permute((1, 0)).store(y)
    else:
        y_buffer.store(y)
    fence_async_shared()
    barrier()
    if Y_ROWS:
        copy_out(result, [m, n], y_buffer)
    else:
        copy_out(result, [n, m], y_buffer)


@gluon.jit
def _finish(
    acc,
    bias,
    out,
    out_row,
    out_column,
    alpha,
    beta,
    tile_row,
    n,
    M,
    N,
    BM: gl.constexpr,
    ROWS: gl.constexpr,
    COLS: gl.constexpr,
    SWAP: gl.constexpr,
    ALPHA: gl.constexpr,
    BETA: gl.constexpr,
    BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    layout: gl.constexpr = acc.type.layout
    down = gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    right = gl.arange(0, COLS, gl.SliceLayout(0, layout))
    if SWAP:
        ns = gl.expand_dims(n + down, 1)
        ms = gl.expand_dims(tile_row * BM + right, 0)
    else:
        ms = gl.expand_dims(tile_row * BM + down, 1)
        ns = gl.expand_dims(n + right, 0)
    if ALPHA:
        acc = acc * alpha
    if BETA:
        inside = (ms < M) & (ns < N)
        place = ms.to(gl.int64) * out_row + ns.to(gl.int64) * out_column
        acc += beta * gl.load(out + place, mask=inside, other=0.0).to(gl.float32)
    if BIAS:
        acc += gl.load(bias + ms, mask=ms < M, other=0.0).to(gl.float32)
    return activate(acc, ACTIVATION)
