"""Block-sparse products on Hopper, warp-specialised: one warp loads, the others multiply.

A program works through a list of output tiles. Its loading warp runs over the stored blocks of all
of them without a pause, ahead of the multiplying warps by as many stages as shared memory holds, so
the loads of a tile begin while the one before it is still being multiplied or written. With two
groups of multiplying warps these take tiles in turn, and one multiplies while the other writes.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from sparseformats_kernels.triton.writing import keep, write

__all__ = ["multiply"]

# Renamed between the oldest and the newest release that we serve.
copy_in = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared


@gluon.jit
def _load(
    values,
    dense,
    program_ptr,
    items,
    columns,
    places,
    value_rows,
    a_buffers,
    x_buffers,
    full,
    empty,
    R: gl.constexpr,
    C: gl.constexpr,
    BM: gl.constexpr,
    BN: gl.constexpr,
    BK: gl.constexpr,
    G: gl.constexpr,
    STAGES: gl.constexpr,
    TRANSPOSED: gl.constexpr,
    INDIRECT: gl.constexpr,
    X_ROWS: gl.constexpr,
    ITEM: gl.constexpr,
):
    """Bring the tiles of every step into shared memory, as far ahead as there is room."""
    SUB: gl.constexpr = R // BM  # tiles of a block row
    PARTS: gl.constexpr = C // BK  # steps of a block
    size: gl.constexpr = G * (BM * BK + BK * BN) * 2
    first = gl.load(program_ptr + gl.program_id(0))
    last = gl.load(program_ptr + gl.program_id(0) + 1)
    step = 0
    for item in range(first, last):
        tile_row = gl.load(items + item * ITEM)
        n = gl.load(items + item * ITEM + 1) * BN
        begin = gl.load(items + item * ITEM + 2)
        end = gl.load(items + item * ITEM + 3)
        inner = (tile_row % SUB) * BM
        column = gl.load(columns + begin)  # both arrays are padded by G entries
        for block in range(begin, end, G):
            for part in gl.static_range(PARTS):
                stage = step % STAGES
                mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
                ready = full.index(stage)
                mbarrier.expect(ready, size)
                for g in gl.static_range(G):
                    if G > 1:
                        column = gl.load(columns + block + g)
                    present = block + g < end
                    place = block + g
                    if INDIRECT:
                        place = gl.load(places + block + g)
                    # What lies beyond the arrays arrives as zeros and touches no memory.
                    top = gl.where(present, place * R if not TRANSPOSED else place * C, value_rows)
                    k = gl.where(present, column * C, 0x7FFFFF00 - C) + part * BK
                    a_buffer = a_buffers.index(stage * G + g)
                    x_buffer = x_buffers.index(stage * G + g)
                    if TRANSPOSED:
                        copy_in(values, [top + part * BK, inner], ready, a_buffer)
                    else:
                        copy_in(values, [top + inner, part * BK], ready, a_buffer)
                    if X_ROWS:
                        copy_in(dense, [k, n], ready, x_buffer)
                    else:
                        copy_in(dense, [n, k], ready, x_buffer)
                step += 1
            if G == 1:
                column = gl.load(columns + block + 1)


@gluon.jit
def _consume(
    turn,
    result,
    bias,
    out,
    out_row,
    out_column,
    alpha,
    beta,
    M,
    N,
    program_ptr,
    items,
    a_buffers,
    x_buffers,
    y_buffer,
    partial,
    full,
    empty,
    turns,
    C: gl.constexpr,
    BM: gl.constexpr,
    BN: gl.constexpr,
    BK: gl.constexpr,
    G: gl.constexpr,
    STAGES: gl.constexpr,
    TURNS: gl.constexpr,
    WARPS: gl.constexpr,
    TRANSPOSED: gl.constexpr,
    SWAP: gl.constexpr,
    X_ROWS: gl.constexpr,
    Y_ROWS: gl.constexpr,
    ALPHA: gl.constexpr,
    BETA: gl.constexpr,
    BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    PIECES: gl.constexpr,
    ITEM: gl.constexpr,
):
    """Multiply and write every tile whose turn it is."""
    ROWS: gl.constexpr = BN if SWAP else BM
    COLS: gl.constexpr = BM if SWAP else BN
    PARTS: gl.constexpr = C // BK
    DOWN: gl.constexpr = min(WARPS, ROWS // 16)  # warps over rows; the rest over columns
    ACROSS: gl.constexpr = WARPS // DOWN
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[DOWN, ACROSS],
        instr_shape=[16, min(256, COLS // ACROSS), 16],
    )
    first = gl.load(program_ptr + gl.program_id(0))
    last = gl.load(program_ptr + gl.program_id(0) + 1)
    step = 0
    for item in range(first, last):
        begin = gl.load(items + item * ITEM + 2)
        end = gl.load(items + item * ITEM + 3)
        steps = (end - begin + G - 1) // G * PARTS
        if (item - first) % TURNS == turn:
            tile_row = gl.load(items + item * ITEM)
            n = gl.load(items + item * ITEM + 1) * BN
            if TURNS > 1:
                # Barriers of stages tell only odd from even rounds: nobody may run a round ahead.
                mine = (item - first) // TURNS
                mbarrier.wait(turns.index(turn), (mine & 1) ^ (1 if turn == 0 else 0))
            acc = gl.zeros([ROWS, COLS], gl.float32, layout)
            for i in range(steps):
                stage = step % STAGES
                mbarrier.wait(full.index(stage), (step // STAGES) & 1)
                for g in gl.static_range(G):
                    a = a_buffers.index(stage * G + g)
                    x = x_buffers.index(stage * G + g)
                    if TRANSPOSED:
                        a = a.permute((1, 0))
                    if not X_ROWS:
                        x = x.permute((1, 0))
                    if SWAP:
                        acc = warpgroup_mma(
                            x.permute((1, 0)), a.permute((1, 0)), acc, is_async=True
                        )
                    else:
                        acc = warpgroup_mma(a, x, acc, is_async=True)
                # All but the products of this step are done: the stage before it may be refilled.
                acc = warpgroup_mma_wait(num_outstanding=G, deps=(acc,))
                mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), pred=i > 0)
                step += 1
            if TURNS > 1:
                mbarrier.arrive(turns.index((turn + 1) % TURNS))
            y = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
            mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), pred=steps > 0)
            part = 0
            if ITEM > 4:
                part = gl.load(items + item * ITEM + 4)
            if ITEM > 4 and part > 0:
                keep(y, partial, part - 1, BM, BN, SWAP)
            else:
                write(
                    *(y, result, bias, out, out_row, out_column, alpha, beta, tile_row, n, M, N),
                    *(y_buffer, BM, BN, SWAP, Y_ROWS, ALPHA, BETA, BIAS, ACTIVATION, PIECES),
                )
        else:
            step += steps
    tma.store_wait(0)


@gluon.jit
def multiply(
    values,
    dense,
    result,
    bias,
    out,
    out_row,
    out_column,
    alpha,
    beta,
    M,
    N,
    value_rows,
    program_ptr,
    items,
    columns,
    places,
    partial,
    R: gl.constexpr,
    C: gl.constexpr,
    BM: gl.constexpr,
    BN: gl.constexpr,
    BK: gl.constexpr,
    G: gl.constexpr,
    STAGES: gl.constexpr,
    TURNS: gl.constexpr,
    PIECES: gl.constexpr,
    TRANSPOSED: gl.constexpr,
    INDIRECT: gl.constexpr,
    SWAP: gl.constexpr,
    X_ROWS: gl.constexpr,
    Y_ROWS: gl.constexpr,
    ALPHA: gl.constexpr,
    BETA: gl.constexpr,
    BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    SPLIT: gl.constexpr,
    LOADER_REGISTERS: gl.constexpr,
    TURN_REGISTERS: gl.constexpr,
    num_warps: gl.constexpr,
):
    """``result <- activation(alpha * (A @ dense) + beta * out + bias)``, half types.

    A has blocks of R x C (as stored; of C x R where TRANSPOSED), all of them in `values`, seen as
    a matrix of `value_rows` rows. The list `items` holds (tile row, tile column, begin, end) of
    BM x BN tiles of the result: the blocks of ``columns[begin:end]`` make it. Program p makes the
    tiles from ``program_ptr[p]`` on. SWAP computes the transpose of each tile, which puts the
    columns of `dense` on the long side of the tensor core where blocks have few rows. X_ROWS and
    Y_ROWS say that rows, not columns, of `dense` and `result` are contiguous. With SPLIT an item
    has a fifth number p: if it is not 0, tile p - 1 of `partial` takes the bare sums.
    """
    ITEM: gl.constexpr = 5 if SPLIT else 4
    a_type: gl.constexpr = values.dtype
    a_buffers = gl.allocate_shared_memory(a_type, [STAGES * G] + values.block_shape, values.layout)
    x_buffers = gl.allocate_shared_memory(a_type, [STAGES * G] + dense.block_shape, dense.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [TURNS, 1], mbarrier.MBarrierLayout())
    y_buffers = gl.allocate_shared_memory(a_type, [TURNS] + result.block_shape, result.layout)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(TURNS):
        mbarrier.init(turns.index(i), count=1)
    fence_async_shared()
    # fmt: off
    if TURNS == 1:
        gl.warp_specialize(
            [
                (_consume, (
                    0, result, bias, out, out_row, out_column, alpha, beta, M, N, program_ptr,
                    items, a_buffers, x_buffers, y_buffers.index(0), partial, full, empty, turns,
                    C, BM, BN, BK, G, STAGES, TURNS, num_warps, TRANSPOSED, SWAP, X_ROWS, Y_ROWS,
                    ALPHA, BETA, BIAS, ACTIVATION, PIECES, ITEM,
                )),
                (_load, (
                    values, dense, program_ptr, items, columns, places, value_rows, a_buffers,
                    x_buffers, full, empty, R, C, BM, BN, BK, G, STAGES, TRANSPOSED, INDIRECT,
                    X_ROWS, ITEM,
                )),
            ],
            [1],
            [LOADER_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (
                    0, result, bias, out, out_row, out_column, alpha, beta, M, N, program_ptr,
                    items, a_buffers, x_buffers, y_buffers.index(0), partial, full, empty, turns,
                    C, BM, BN, BK, G, STAGES, TURNS, num_warps, TRANSPOSED, SWAP, X_ROWS, Y_ROWS,
                    ALPHA, BETA, BIAS, ACTIVATION, PIECES, ITEM,
                )),
                (_consume, (
                    1, result, bias, out, out_row, out_column, alpha, beta, M, N, program_ptr,
                    items, a_buffers, x_buffers, y_buffers.index(1), partial, full, empty, turns,
                    C, BM, BN, BK, G, STAGES, TURNS, num_warps, TRANSPOSED, SWAP, X_ROWS, Y_ROWS,
                    ALPHA, BETA, BIAS, ACTIVATION, PIECES, ITEM,
                )),
                (_load, (
                    values, dense, program_ptr, items, columns, places, value_rows, a_buffers,
                    x_buffers, full, empty, R, C, BM, BN, BK, G, STAGES, TRANSPOSED, INDIRECT,
                    X_ROWS, ITEM,
                )),
            ],
            [num_warps, 1],
            [TURN_REGISTERS, LOADER_REGISTERS],
        )
    # fmt: on
