"""Block-sparse products on Hopper in which several block rows share what they read of X.

A program makes a tile of several block rows. For each block column that any of them stores, the
rows of X come into shared memory once, and with them the blocks that are stored there; each group
of multiplying warps owns some of the rows and multiplies these blocks alone. A block that is not
stored meets nothing: there are no zeros that would turn an infinity of X into NaN.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
)

from sparseformats_kernels.triton.specialised import copy_in
from sparseformats_kernels.triton.unions import BITS
from sparseformats_kernels.triton.writing import write

__all__ = ["multiply_shared"]

PLACES = gl.constexpr(BITS)


@gluon.jit
def _load_dense(
    dense,
    program_ptr,
    items,
    columns,
    x_buffers,
    full,
    empty,
    C: gl.constexpr,
    BN: gl.constexpr,
    G: gl.constexpr,
    STAGES: gl.constexpr,
    X_ROWS: gl.constexpr,
):
    """Bring the rows of X of every step into shared memory, as far ahead as there is room."""
    first = gl.load(program_ptr + gl.program_id(0))
    last = gl.load(program_ptr + gl.program_id(0) + 1)
    step = 0
    for item in range(first, last):
        n = gl.load(items + item * 4 + 1) * BN
        begin = gl.load(items + item * 4 + 2)
        end = gl.load(items + item * 4 + 3)
        for s in range(begin, end):
            stage = step % STAGES
            ks = (gl.load(columns + s * G),)
            for g in gl.static_range(1, G):
                ks = ks + (gl.load(columns + s * G + g),)  # type: ignore[assignment]
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            ready = full.index(stage)
            mbarrier.expect(ready, G * C * BN * 2)
            for g in gl.static_range(G):
                x_buffer = x_buffers.index(stage * G + g)
                # A step of fewer columns names some beyond X: zeros arrive that nothing reads.
                if X_ROWS:
                    copy_in(dense, [ks[g], n], ready, x_buffer)
                else:
                    copy_in(dense, [n, ks[g]], ready, x_buffer)
            step += 1


@gluon.jit
def _load_blocks(
    values,
    program_ptr,
    items,
    starts,
    places,
    a_buffers,
    full,
    empty,
    R: gl.constexpr,
    C: gl.constexpr,
    SLOTS: gl.constexpr,
    DIGITS: gl.constexpr,
    STAGES: gl.constexpr,
    TRANSPOSED: gl.constexpr,
):
    """Bring the stored blocks of every step into shared memory, one behind the other."""
    HIGH: gl.constexpr = C if TRANSPOSED else R
    first = gl.load(program_ptr + gl.program_id(0))
    last = gl.load(program_ptr + gl.program_id(0) + 1)
    step = 0
    for item in range(first, last):
        begin = gl.load(items + item * 4 + 2)
        end = gl.load(items + item * 4 + 3)
        block = gl.load(starts + begin)
        place = gl.load(places + block)  # always two ahead; the list is padded
        ahead = gl.load(places + block + 1)
        for s in range(begin, end):
            stage = step % STAGES
            stop = gl.load(starts + s + 1)
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            ready = full.index(stage)
            # Bytes to expect are constants: one arrival for each binary digit of their number.
            count = stop - block
            for digit in gl.static_range(DIGITS):
                is_set = ((count >> digit) & 1) != 0
                mbarrier.expect(ready, (R * C * 2) << digit, pred=is_set)
                mbarrier.arrive(ready, count=1, pred=is_set == 0)
            slot = stage * SLOTS
            for b in range(block, stop):
                copy_in(values, [place * HIGH, 0], ready, a_buffers.index(slot))
                place = ahead
                ahead = gl.load(places + b + 2)
                slot += 1
            block = stop
            step += 1


@gluon.jit
def _multiply_present(
    accs,
    x,
    a_buffers,
    slot,
    here,
    PER: gl.constexpr,
    TRANSPOSED: gl.constexpr,
):
    """Multiply the blocks of one column that are stored: `here` has a bit for each row."""
    made = accs
    for row in gl.static_range(PER):
        acc = made[row]
        if (here >> row) & 1 != 0:
            a = a_buffers.index(slot)
            if not TRANSPOSED:
                a = a.permute((1, 0))
            acc = warpgroup_mma(x, a, acc)
            slot += 1
        made = made[:row] + (acc,) + made[row + 1 :]
    return made, slot


@gluon.jit
def _consume(
    group,
    y_buffer,
    common,
    R: gl.constexpr,
    BN: gl.constexpr,
    G: gl.constexpr,
    PER: gl.constexpr,
    GROUPS: gl.constexpr,
    SLOTS: gl.constexpr,
    STAGES: gl.constexpr,
    TRANSPOSED: gl.constexpr,
    X_ROWS: gl.constexpr,
    Y_ROWS: gl.constexpr,
    ALPHA: gl.constexpr,
    BETA: gl.constexpr,
    BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    WARPS: gl.constexpr,
):
    """Multiply and write this group's rows of every tile."""
    result, bias, out, out_row, out_column, alpha, beta, M, N, program_ptr, items = common[:11]
    present, a_buffers, x_buffers, full, empty = common[11:]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, R, 16]
    )
    first = gl.load(program_ptr + gl.program_id(0))
    last = gl.load(program_ptr + gl.program_id(0) + 1)
    step = 0
    for item in range(first, last):
        tile_row = (gl.load(items + item * 4) * GROUPS + group) * PER
        n = gl.load(items + item * 4 + 1) * BN
        begin = gl.load(items + item * 4 + 2)
        end = gl.load(items + item * 4 + 3)
        zero = gl.zeros([BN, R], gl.float32, layout)
        accs = (zero,)
        for _ in gl.static_range(PER - 1):
            accs = accs + (zero,)  # type: ignore[assignment]
        word = gl.load(present + begin * GROUPS + group)  # always one ahead
        for s in range(begin, end):
            stage = step % STAGES
            following = gl.load(present + (s + 1) * GROUPS + group)
            mbarrier.wait(full.index(stage), (step // STAGES) & 1)
            slot = stage * SLOTS + (word >> PLACES)
            for g in gl.static_range(G):
                x = x_buffers.index(stage * G + g)
                if X_ROWS:
                    x = x.permute((1, 0))
                here = (word >> (g * PER)) & ((1 << PER) - 1)
                if here != 0:
                    accs, slot = _multiply_present(accs, x, a_buffers, slot, here, PER, TRANSPOSED)
            mbarrier.arrive(empty.index(stage))
            word = following
            step += 1
        for row in gl.static_range(PER):
            write(
                *(accs[row], result, bias, out, out_row, out_column, alpha, beta),
                *(tile_row + row, n, M, N, y_buffer, R, BN, True, Y_ROWS, ALPHA, BETA, BIAS),
                *(ACTIVATION, 1),
            )
    tma.store_wait(0)


@gluon.jit
def multiply_shared(
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
    program_ptr,
    items,
    columns,
    present,
    starts,
    places,
    R: gl.constexpr,
    C: gl.constexpr,
    BN: gl.constexpr,
    G: gl.constexpr,
    PER: gl.constexpr,
    GROUPS: gl.constexpr,
    SLOTS: gl.constexpr,
    DIGITS: gl.constexpr,
    STAGES: gl.constexpr,
    TRANSPOSED: gl.constexpr,
    X_ROWS: gl.constexpr,
    Y_ROWS: gl.constexpr,
    ALPHA: gl.constexpr,
    BETA: gl.constexpr,
    BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    LOADER_REGISTERS: gl.constexpr,
    GROUP_REGISTERS: gl.constexpr,
    num_warps: gl.constexpr,
):
    """``result <- activation(alpha * (A @ dense) + beta * out + bias)``, half types.

    A has blocks of R x C (as stored; of C x R where TRANSPOSED), all of them in `values`, seen as a
    matrix as wide as a block. The list `items` holds (tile row, tile column, begin, end) of tiles
    of GROUPS * PER block rows and BN columns, which the steps ``begin:end`` make; `unions` says
    what a step is. Program p makes the tiles from ``program_ptr[p]`` on. X_ROWS and Y_ROWS say that
    rows, not columns, of `dense` and `result` are contiguous.
    """
    a_type: gl.constexpr = values.dtype
    a_buffers = gl.allocate_shared_memory(
        a_type, [STAGES * SLOTS] + values.block_shape, values.layout
    )
    x_buffers = gl.allocate_shared_memory(a_type, [STAGES * G] + dense.block_shape, dense.layout)
    y_buffers = gl.allocate_shared_memory(a_type, [GROUPS] + result.block_shape, result.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1 + DIGITS)
        mbarrier.init(empty.index(i), count=GROUPS)
    fence_async_shared()
    # fmt: off
    common = (
        result, bias, out, out_row, out_column, alpha, beta, M, N, program_ptr, items, present,
        a_buffers, x_buffers, full, empty,
    )
    if GROUPS == 2:
        gl.warp_specialize(
            [
                (_consume, (
                    0, y_buffers.index(0), common, R, BN, G, PER, GROUPS, SLOTS, STAGES,
                    TRANSPOSED, X_ROWS, Y_ROWS, ALPHA, BETA, BIAS, ACTIVATION, num_warps,
                )),
                (_consume, (
                    1, y_buffers.index(1), common, R, BN, G, PER, GROUPS, SLOTS, STAGES,
                    TRANSPOSED, X_ROWS, Y_ROWS, ALPHA, BETA, BIAS, ACTIVATION, num_warps,
                )),
                (_load_dense, (
                    dense, program_ptr, items, columns, x_buffers, full, empty, C, BN, G, STAGES,
                    X_ROWS,
                )),
                (_load_blocks, (
                    values, program_ptr, items, starts, places, a_buffers, full, empty, R, C, SLOTS,
                    DIGITS, STAGES, TRANSPOSED,
                )),
            ],
            [num_warps, 1, 1],
            [GROUP_REGISTERS, LOADER_REGISTERS, LOADER_REGISTERS],
        )
    elif GROUPS == 3:
        gl.warp_specialize(
            [
                (_consume, (
                    0, y_buffers.index(0), common, R, BN, G, PER, GROUPS, SLOTS, STAGES,
                    TRANSPOSED, X_ROWS, Y_ROWS, ALPHA, BETA, BIAS, ACTIVATION, num_warps,
                )),
                (_consume, (
                    1, y_buffers.index(1), common, R, BN, G, PER, GROUPS, SLOTS, STAGES,
                    TRANSPOSED, X_ROWS, Y_ROWS, ALPHA, BETA, BIAS, ACTIVATION, num_warps,
                )),
                (_consume, (
                    2, y_buffers.index(2), common, R, BN, G, PER, GROUPS, SLOTS, STAGES,
                    TRANSPOSED, X_ROWS, Y_ROWS, ALPHA, BETA, BIAS, ACTIVATION, num_warps,
                )),
                (_load_dense, (
                    dense, program_ptr, items, columns, x_buffers, full, empty, C, BN, G, STAGES,
                    X_ROWS,
                )),
                (_load_blocks, (
                    values, program_ptr, items, starts, places, a_buffers, full, empty, R, C, SLOTS,
                    DIGITS, STAGES, TRANSPOSED,
                )),
            ],
            [num_warps, num_warps, 1, 1],
            [GROUP_REGISTERS, GROUP_REGISTERS, LOADER_REGISTERS, LOADER_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (
                    0, y_buffers.index(0), common, R, BN, G, PER, GROUPS, SLOTS, STAGES,
                    TRANSPOSED, X_ROWS, Y_ROWS, ALPHA, BETA, BIAS, ACTIVATION, num_warps,
                )),
                (_consume, (
                    1, y_buffers.index(1), common, R, BN, G, PER, GROUPS, SLOTS, STAGES,
                    TRANSPOSED, X_ROWS, Y_ROWS, ALPHA, BETA, BIAS, ACTIVATION, num_warps,
                )),
                (_consume, (
                    2, y_buffers.index(2), common, R, BN, G, PER, GROUPS, SLOTS, STAGES,
                    TRANSPOSED, X_ROWS, Y_ROWS, ALPHA, BETA, BIAS, ACTIVATION, num_warps,
                )),
                (_consume, (
                    3, y_buffers.index(3), common, R, BN, G, PER, GROUPS, SLOTS, STAGES,
                    TRANSPOSED, X_ROWS, Y_ROWS, ALPHA, BETA, BIAS, ACTIVATION, num_warps,
                )),
                (_load_dense, (
                    dense, program_ptr, items, columns, x_buffers, full, empty, C, BN, G, STAGES,
                    X_ROWS,
                )),
                (_load_blocks, (
                    values, program_ptr, items, starts, places, a_buffers, full, empty, R, C, SLOTS,
                    DIGITS, STAGES, TRANSPOSED,
                )),
            ],
            [num_warps, num_warps, num_warps, 1, 1],
            [
                GROUP_REGISTERS, GROUP_REGISTERS, GROUP_REGISTERS,
                LOADER_REGISTERS, LOADER_REGISTERS,
            ],
        )
    # fmt: on
