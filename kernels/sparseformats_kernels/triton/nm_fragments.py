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

__all__ = ["TILE_WORDS", "multiply"]

TILE_WORDS = 288
"""32-bit words of 16 rows x 64 columns: 256 of values, and one of positions for each lane."""

_WORDS = gl.constexpr(TILE_WORDS)
_EMPTY = gl.constexpr(0x44444444)  # positions 0 and 1 in each group, which are legal ones
# These were renamed between the oldest and the newest release that we serve.
barrier = getattr(gl, "barrier", None) or gl.thread_barrier
copy_in = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared


@gluon.constexpr_function
def _sparse_asm(kind, selector):
    """``mma.sp``: registers 0-3 sums, 4-7 A, 8-11 B, 12-15 sums before, 16 positions."""
    return (
        f"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.{kind}.{kind}.f32 "
        f"{{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9,$10,$11}}, {{$12,$13,$14,$15}}, $16, "
        f"{selector};"
    )


@gluon.constexpr_function
def _dense_asm(kind, selector):
    """Expand four words of values, then ``mma`` twice; registers as in `_sparse_asm`.

    A group's code, 3 bits of a nibble, says which of the six pairs of positions it holds. Byte j
    of a look-up by four codes is half a selector of group j: which of the two values, or zero,
    goes to a position.
    """
    nibbles = 0 if selector == 0 else 16
    step = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
    lines = ["{ .reg .b32 m, p<4>, s<8>, e<8>, z; .reg .f32 h<4>;", "mov.b32 z, 0;"]
    lines.append(f"shr.u32 m, $16, {nibbles};")
    for position in range(4):
        low, high = _table(position)
        lines.append(f"{{ .reg .b32 lo, hi; mov.b32 lo, {low}; mov.b32 hi, {high};")
        lines.append(f"prmt.b32 p{position}, lo, hi, m; }}")
    for group in range(4):
        take = group | (4 + group) << 4
        lines.append(f"prmt.b32 s{2 * group}, p0, p1, {take};")
        lines.append(f"prmt.b32 s{2 * group + 1}, p2, p3, {take};")
        lines.append(f"prmt.b32 e{2 * group}, ${4 + group}, z, s{2 * group};")
        lines.append(f"prmt.b32 e{2 * group + 1}, ${4 + group}, z, s{2 * group + 1};")
    lines.append(f"{step} {{h0,h1,h2,h3}}, {{e0,e2,e1,e3}}, {{$8,$9}}, {{$12,$13,$14,$15}};")
    lines.append(f"{step} {{$0,$1,$2,$3}}, {{e4,e6,e5,e7}}, {{$10,$11}}, {{h0,h1,h2,h3}}; }}")
    return "\n".join(lines)


@gluon.constexpr_function
def _table(position):
    """Two words of bytes by code: selectors of the first value, the second, or zero."""
    pairs = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 1), (0, 1))
    found = [0x10 if a == position else 0x32 if b == position else 0x44 for a, b in pairs]
    return tuple(sum(byte << 8 * i for i, byte in enumerate(found[j : j + 4])) for j in (0, 4))


_CONSTRAINTS = gl.constexpr("=&f,=&f,=&f,=&f,r,r,r,r,r,r,r,r,f,f,f,f,r,r,r,r")
# Neighbouring lanes hold two groups of four each; each needs halves of all four.
_EXCHANGE = gl.constexpr("""{ .reg .pred odd; .reg .b32 l, s<2>, q<2>;
mov.u32 l, %laneid; and.b32 l, l, 1; setp.ne.u32 odd, l, 0;
selp.b32 s0, $4, $5, odd; selp.b32 s1, $6, $7, odd;
shfl.sync.bfly.b32 q0, s0, 1, 0x1f, 0xffffffff; shfl.sync.bfly.b32 q1, s1, 1, 0x1f, 0xffffffff;
selp.b32 $0, q0, $4, odd; selp.b32 $1, q1, $6, odd;
selp.b32 $2, $5, q0, odd; selp.b32 $3, $7, q1, odd; }""")


@gluon.jit
def _tile_mma(a, e, b, acc, KIND: gl.constexpr, SELECTOR: gl.constexpr, SPARSE: gl.constexpr):
    """16 rows x 32 columns of the matrix times 8 columns, all tensors (threads, 4)."""
    if SPARSE:
        text: gl.constexpr = _sparse_asm(KIND, SELECTOR)
    else:
        text: gl.constexpr = _dense_asm(KIND, SELECTOR)
    return gl.inline_asm_elementwise(
        text, _CONSTRAINTS, [a, b, acc, e], dtype=gl.float32, is_pure=True, pack=4
    )


@gluon.jit
def _pick(x, I: gl.constexpr, COUNT: gl.constexpr, layout: gl.constexpr):
    """Piece `I` of (threads, COUNT, 4) as (threads, 4)."""
    if COUNT == 1:
        piece = x.reshape([x.shape[0], 4])
    else:
        HALF: gl.constexpr = COUNT // 2
        low, high = gl.split(x.reshape([x.shape[0], 2, HALF, 4]).permute((0, 2, 3, 1)))
        if I < HALF:
            piece = _pick(low, I, HALF, layout)
        else:
            piece = _pick(high, I - HALF, HALF, layout)
    return gl.convert_layout(piece, layout, assert_trivial=True)


@gluon.jit
def _position(x, I: gl.constexpr, COUNT: gl.constexpr, layout: gl.constexpr):
    """Column `I` of (threads, COUNT), once for each of the four registers of an instruction."""
    if COUNT == 1:
        found = gl.convert_layout(x.broadcast_to([x.shape[0], 4]), layout, assert_trivial=True)
    else:
        HALF: gl.constexpr = COUNT // 2
        low, high = gl.split(x.reshape([x.shape[0], 2, HALF]).permute((0, 2, 1)))
        if I < HALF:
            found = _position(low, I, HALF, layout)
        else:
            found = _position(high, I - HALF, HALF, layout)
    return found


@gluon.jit
def _bring(
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
def _operand(
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
    """Rows of the operand that a step meets, as fragments: (threads, KS * 2 * NT, 4) words."""
    THREADS: gl.constexpr = tile.shape[0]
    STEPS: gl.constexpr = KS * 2
    if VECTOR:
        thread: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, L3))
        piece: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, L3))
        word: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, L3))
        lane = gl.arange(0, THREADS, thread)[:, None, None] % 32
        r = gl.arange(0, STEPS * NT, piece)[None, :, None]
        step, nt = r // NT, r % NT
        here = gl.convert_layout(tile, thread)[:, None, None] + step // 2
        k = here * 64 + (step % 2) * 32 + (lane % 4) * 8
        n = n0 + nt * 8 + lane // 4
        words = x.to(gl.pointer_type(gl.int32), bitcast=True)
        at = k.to(gl.int64) // 2 + n.to(gl.int64) * (x_column // 2)
        inside = (k < K) & (n < N) & (here < end)
        i = gl.arange(0, 4, word)[None, None, :]
        found = gl.load(words + at + i, mask=inside, other=0)
    else:
        thread: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, L4)))
        piece: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, L4)))
        word: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, L4)))
        column: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, L4)))
        lane = gl.arange(0, THREADS, thread)[:, None, None, None] % 32
        step = gl.arange(0, STEPS, piece)[None, :, None, None]
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
        found = both.permute((0, 1, 3, 2)).reshape([THREADS, STEPS * NT, 4])
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
    KIND: gl.constexpr,
    SPARSE: gl.constexpr,
    EXCHANGE: gl.constexpr,
    layout: gl.constexpr,
):
    """Multiply what a step has brought; `sums` has MT * NT pieces (threads, 4)."""
    if EXCHANGE:
        operand = gl.inline_asm_elementwise(
            _EXCHANGE, "=&r,=&r,=&r,=&r,r,r,r,r", [operand], gl.int32, is_pure=True, pack=4
        )
    for step in gl.static_range(KS * 2):
        made = ()
        for mt in gl.static_range(MT):
            a = _pick(values, (mt * KS + step // 2) * 2 + step % 2, MT * KS * 2, layout)
            e = _position(positions, mt * KS + step // 2, MT * KS, layout)
            for nt in gl.static_range(NT):
                b = _pick(operand, step * NT + nt, KS * 2 * NT, layout)
                c = _tile_mma(a, e, b, sums[mt * NT + nt], KIND, step % 2, SPARSE)
                made = made + (c,)
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
    MT: gl.constexpr,
    NT: gl.constexpr,
    KS: gl.constexpr,
    STAGES: gl.constexpr,
    SPLIT: gl.constexpr,
    SPARSE: gl.constexpr,
    KIND: gl.constexpr,
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
    matrix's columns, a part being STEPS steps of KS tiles of 64 columns for each warp. With more
    parts than one, sums go to ``partial``, tile by tile, for `combining.combine`.
    """
    THREADS: gl.constexpr = num_warps * 32
    flat: gl.constexpr = gl.BlockedLayout([1, 4], [32, 1], [num_warps, 1], [1, 0])
    L2: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [num_warps, 1], [1, 0])
    L3: gl.constexpr = gl.BlockedLayout([1, 1, 4], [32, 1, 1], [num_warps, 1, 1], [2, 1, 0])
    L4: gl.constexpr = gl.BlockedLayout(
        [1, 1, 1, NT], [32, 1, 1, 1], [num_warps, 1, 1, 1], [3, 2, 1, 0]
    )
    row, part = gl.program_id(0) // SPLIT, gl.program_id(0) % SPLIT
    n0 = gl.program_id(1) * (8 * NT)
    base = packed + (row * MT).to(gl.int64) * TILES * _WORDS
    thread = gl.arange(0, THREADS, gl.SliceLayout(1, flat))
    begin = part * STEPS * (KS * num_warps)
    end = gl.minimum(TILES, begin + STEPS * (KS * num_warps))
    tile = begin + (thread // 32) * KS
    sums = ()
    for _ in gl.static_range(MT * NT):
        sums = sums + (gl.zeros([THREADS, 4], gl.float32, flat),)
    JUMP: gl.constexpr = KS * num_warps

    # Neighbouring threads' words lie side by side, so that each access is without conflicts.
    of_values: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 0, 1])
    of_positions: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
    values = gl.allocate_shared_memory(gl.int32, [STAGES, THREADS, MT * KS * 2, 4], of_values)
    positions = gl.allocate_shared_memory(gl.int32, [STAGES, THREADS, MT * KS], of_positions)
    for stage in gl.static_range(STAGES - 1):
        _bring(
            *(values.index(stage), positions.index(stage), base, tile + stage * JUMP, end, TILES),
            *(MT, KS, L2, L3),
        )
    for step in range(0, STEPS):
        ahead = (step + STAGES - 1) % STAGES
        _bring(
            *(values.index(ahead), positions.index(ahead), base, tile + (STAGES - 1) * JUMP, end),
            *(TILES, MT, KS, L2, L3),
        )
        b = _operand(
            *(x, x_row, x_column, tile, end, n0, K, N), *(KS, NT, SPARSE, K_FAST, VECTOR, L3, L4)
        )
        async_copy.wait_group(STAGES - 1)
        v = values.index(step % STAGES).load(L3)
        e = positions.index(step % STAGES).load(L2)
        q = gl.arange(0, MT * KS, gl.SliceLayout(0, L2))[None, :]
        there = gl.convert_layout(tile, gl.SliceLayout(1, L2))[:, None] + q % KS
        e = gl.where(there < end, e, _EMPTY)
        sums = _step(v, e, b, sums, MT, KS, NT, KIND, SPARSE, VECTOR and SPARSE, flat)
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
        number = gl.program_id(0).to(gl.int64) * gl.num_programs(1) + gl.program_id(1)
        gl.store(partial + number * (128 * MT * NT) + m * (8 * NT) + n, y)
