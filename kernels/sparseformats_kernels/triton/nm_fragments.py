"""2:4 times few columns: weights go from memory into the registers of tensor core instructions.

The plan has laid the stored values out so that 16 bytes of a thread's load are the registers that
``mma`` expects of it (`nm_packing`): nothing passes through shared memory and nothing is shuffled.
Tensors here have one row a thread, in the order of threads, so that an inline instruction, which
Triton applies to elements, is given the registers of the thread that executes it.

Two instructions can be asked for. ``mma.sp`` multiplies compressed values: the hardware expands
them. The other way expands two values to four by a byte permutation and multiplies with plain
``mma``. The warps of a program share rows and divide the columns of the matrix; their sums are
added in the order of warps, so that bits do not vary.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from sparseformats_kernels.triton.activations import activate
from sparseformats_kernels.triton.nm_bringing import TILE_WORDS, bring, rows_met
from sparseformats_kernels.triton.nm_instructions import (
    EXCHANGE,
    EXCHANGE_CONSTRAINTS,
    PRODUCT_CONSTRAINTS,
)

__all__ = ["multiply"]

_WORDS = gl.constexpr(TILE_WORDS)
_EMPTY = gl.constexpr(0x44444444)  # positions 0 and 1 in each group, which are legal ones
_CONSTRAINTS = gl.constexpr(PRODUCT_CONSTRAINTS)
_EXCHANGE = gl.constexpr(EXCHANGE)
_EXCHANGE_CONSTRAINTS = gl.constexpr(EXCHANGE_CONSTRAINTS)

# Renamed between the oldest and the newest release that we serve.
barrier = getattr(gl, "barrier", None) or gl.thread_barrier


@gluon.jit
def _product(a, e, b, acc, TEXT: gl.constexpr):
    """16 rows x 32 columns of the matrix times 8 columns, all tensors (threads, 4)."""
    return gl.inline_asm_elementwise(
        TEXT, _CONSTRAINTS, [a, b, acc, e], dtype=gl.float32, is_pure=True, pack=4
    )


@gluon.jit
def _pick(x, PIECE: gl.constexpr, COUNT: gl.constexpr, layout: gl.constexpr):
    """Piece `PIECE` of (threads, COUNT, 4) as (threads, 4)."""
    if COUNT == 1:
        piece = x.reshape([x.shape[0], 4])
    else:
        HALF: gl.constexpr = COUNT // 2
        low, high = gl.split(x.reshape([x.shape[0], 2, HALF, 4]).permute((0, 2, 3, 1)))
        if PIECE < HALF:
            piece = _pick(low, PIECE, HALF, layout)
        else:
            piece = _pick(high, PIECE - HALF, HALF, layout)
    return gl.convert_layout(piece, layout, assert_trivial=True)


@gluon.jit
def _position(x, PIECE: gl.constexpr, COUNT: gl.constexpr, layout: gl.constexpr):
    """Column `PIECE` of (threads, COUNT), once for each of the four registers of an instruction."""
    if COUNT == 1:
        found = gl.convert_layout(x.broadcast_to([x.shape[0], 4]), layout, assert_trivial=True)
    else:
        HALF: gl.constexpr = COUNT // 2
        low, high = gl.split(x.reshape([x.shape[0], 2, HALF]).permute((0, 2, 1)))
        if PIECE < HALF:
            found = _position(low, PIECE, HALF, layout)
        else:
            found = _position(high, PIECE - HALF, HALF, layout)
    return found


@gluon.jit
def _step(
    values,
    positions,
    operand,
    sums,
    MT: gl.constexpr,
    KS: gl.constexpr,
    NT: gl.constexpr,
    FIRST: gl.constexpr,
    SECOND: gl.constexpr,
    EXCHANGE: gl.constexpr,
    layout: gl.constexpr,
):
    """Multiply what a step has brought; `sums` has MT * NT pieces (threads, 4)."""
    if EXCHANGE:
        operand = gl.inline_asm_elementwise(
            _EXCHANGE, _EXCHANGE_CONSTRAINTS, [operand], gl.int32, is_pure=True, pack=4
        )
    for step in gl.static_range(KS * 2):
        made = ()  # in the same order
        for mt in gl.static_range(MT):
            a = _pick(values, (mt * KS + step // 2) * 2 + step % 2, MT * KS * 2, layout)
            e = _position(positions, mt * KS + step // 2, MT * KS, layout)
            for nt in gl.static_range(NT):
                b = _pick(operand, step * NT + nt, KS * 2 * NT, layout)
                if step % 2 == 0:
                    c = _product(a, e, b, sums[mt * NT + nt], FIRST)
                else:
                    c = _product(a, e, b, sums[mt * NT + nt], SECOND)
                made = made + (c,)  # type: ignore[assignment]
        sums = made
    return sums


@gluon.jit
def _finish(
    y,
    m,
    n,
    out,
    out_row,
    out_column,
    bias,
    alpha,
    beta,
    M,
    N,
    ALPHA: gl.constexpr,
    BETA: gl.constexpr,
    BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    inside = (m < M) & (n < N)
    place = out + m.to(gl.int64) * out_row + n.to(gl.int64) * out_column
    if ALPHA:
        y = y * alpha
    if BETA:
        y += beta * gl.load(place, mask=inside, other=0.0).to(gl.float32)
    if BIAS:
        y += gl.load(bias + m, mask=m < M, other=0.0).to(gl.float32)
    y = activate(y, ACTIVATION)
    gl.store(place, y.to(out.dtype.element_ty), mask=inside)


@gluon.jit
def multiply(
    packed,
    x,
    x_row,
    x_column,
    out,
    out_row,
    out_column,
    partial,
    bias,
    alpha,
    beta,
    M,
    K,
    N,
    TILES,
    STEPS,
    COLUMNS,
    MT: gl.constexpr,
    NT: gl.constexpr,
    KS: gl.constexpr,
    STAGES: gl.constexpr,
    SPLIT: gl.constexpr,
    SPARSE: gl.constexpr,
    FIRST: gl.constexpr,
    SECOND: gl.constexpr,
    K_FAST: gl.constexpr,
    VECTOR: gl.constexpr,
    ALPHA: gl.constexpr,
    BETA: gl.constexpr,
    BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    num_warps: gl.constexpr,
):
    """``out <- activation(alpha * (A @ x) + beta * out + bias)``, or sums of a part of the columns.

    A program makes 16 MT rows and 8 NT columns of the result from one of SPLIT parts of the
    matrix's columns, a part being STEPS steps of KS tiles of 64 columns for each warp; COLUMNS
    programs stand side by side. With more parts than one, sums go to ``partial``, tile by tile,
    for `combining.combine`. FIRST and SECOND are the instructions of a tile's two halves; SPARSE
    says which order of rows they expect of the operand (`nm_packing`).
    """
    THREADS: gl.constexpr = num_warps * 32
    flat: gl.constexpr = gl.BlockedLayout([1, 4], [32, 1], [num_warps, 1], [1, 0])
    L2: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [num_warps, 1], [1, 0])
    L3: gl.constexpr = gl.BlockedLayout([1, 1, 4], [32, 1, 1], [num_warps, 1, 1], [2, 1, 0])
    L4: gl.constexpr = gl.BlockedLayout(
        [1, 1, 1, NT], [32, 1, 1, 1], [num_warps, 1, 1, 1], [3, 2, 1, 0]
    )
    n0 = gl.program_id(0) % COLUMNS * (8 * NT)
    row = gl.program_id(0) // COLUMNS // SPLIT
    part = gl.program_id(0) // COLUMNS % SPLIT
    base = packed + (row * MT).to(gl.int64) * TILES * _WORDS
    thread = gl.arange(0, THREADS, gl.SliceLayout(1, flat))
    begin = part * STEPS * (KS * num_warps)
    end = gl.minimum(TILES, begin + STEPS * (KS * num_warps))
    tile = begin + (thread // 32) * KS
    sums = ()
    for _ in gl.static_range(MT * NT):
        sums = sums + (gl.zeros([THREADS, 4], gl.float32, flat),)  # type: ignore[assignment]
    JUMP: gl.constexpr = KS * num_warps

    # Neighbouring threads' words lie side by side, so that each access is without conflicts.
    of_values: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 0, 1])
    of_positions: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
    values = gl.allocate_shared_memory(gl.int32, [STAGES, THREADS, MT * KS * 2, 4], of_values)
    positions = gl.allocate_shared_memory(gl.int32, [STAGES, THREADS, MT * KS], of_positions)
    for stage in gl.static_range(STAGES - 1):
        bring(
            *(values.index(stage), positions.index(stage), base, tile + stage * JUMP, end, TILES),
            *(MT, KS, L2, L3),
        )
    EARLY: gl.constexpr = KS * NT <= 4  # registers for two steps of the operand
    if EARLY:
        following = rows_met(
            *(x, x_row, x_column, tile, end, n0, K, N), *(KS, NT, SPARSE, K_FAST, VECTOR, L3, L4)
        )
    for step in range(STEPS):
        ahead = (step + STAGES - 1) % STAGES
        bring(
            *(values.index(ahead), positions.index(ahead), base, tile + (STAGES - 1) * JUMP, end),
            *(TILES, MT, KS, L2, L3),
        )
        if not EARLY:
            b = rows_met(
                *(x, x_row, x_column, tile, end, n0, K, N),
                *(KS, NT, SPARSE, K_FAST, VECTOR, L3, L4),
            )
        else:  # a step ahead, so that nobody waits for the second cache
            b = following
            following = rows_met(
                *(x, x_row, x_column, tile + JUMP, end, n0, K, N),
                *(KS, NT, SPARSE, K_FAST, VECTOR, L3, L4),
            )
        async_copy.wait_group(STAGES - 1)
        v = values.index(step % STAGES).load(L3)
        e = positions.index(step % STAGES).load(L2)
        q = gl.arange(0, MT * KS, gl.SliceLayout(0, L2))[None, :]
        there = gl.convert_layout(tile, gl.SliceLayout(1, L2))[:, None] + q % KS
        e = gl.where(there < end, e, _EMPTY)
        sums = _step(v, e, b, sums, MT, KS, NT, FIRST, SECOND, VECTOR and SPARSE, flat)
        tile += JUMP
    async_copy.wait_group(0)

    # One row of shared memory a warp; then every thread adds its elements over the warps.
    COUNT: gl.constexpr = MT * NT * 128
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    room = gl.allocate_shared_memory(gl.float32, [num_warps, COUNT], plain)
    for i in gl.static_range(MT * NT):
        room.slice(i * 128, 128, 1).store(sums[i].reshape([num_warps, 128]))
    barrier()
    line: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, num_warps], [1, 0])
    y = room.slice(0, 1, 0).load(line)
    for warp in gl.static_range(1, num_warps):
        y += room.slice(warp, 1, 0).load(line)
    e = gl.arange(0, COUNT, gl.SliceLayout(0, line))[None, :]
    c, lane, tile_of = e % 4, (e // 4) % 32, e // 128
    m = (tile_of // NT) * 16 + lane // 4 + (c // 2) * 8
    slot = (lane % 4) * 2 + c % 2
    if K_FAST:
        n = (tile_of % NT) * 8 + slot
    else:
        n = slot * NT + tile_of % NT
    if SPLIT == 1:
        _finish(
            *(y, row * (16 * MT) + m, n0 + n, out, out_row, out_column, bias, alpha, beta, M, N),
            *(ALPHA, BETA, BIAS, ACTIVATION),
        )
    else:
        number = gl.program_id(0).to(gl.int64)
        gl.store(partial + number * (128 * MT * NT) + m * (8 * NT) + n, y)
