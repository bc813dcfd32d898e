"""Packed block rows times dense by NumPy: many products too small for the threads of BLAS.

Each product of a block row is cut along its length, and along the columns of a wide operand, until
BLAS runs it in the thread that calls it; partial sums are added in the order of the columns. The
cores are used by whole tasks instead, see `threads`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sparseformats._arrays import Array
from sparseformats_kernels.cpu.threads import share, workers

__all__ = ["multiply"]

GATHER = 1 << 20  # bytes of the operand gathered at a time: stays in a core's cache
ALONE = 1 << 18  # multiplications up to which OpenBLAS uses one thread
LARGE = 1 << 24  # multiplications of a block row for which its threads are worth their meeting
SHARED = 1 << 24  # multiplications of a whole product from which several cores are
SHORTEST = 32  # columns or length that a product is not cut below


class _Task(NamedTuple):
    """Some block rows of one group."""

    group: Any
    start: int
    size: int


def multiply(
    groups: tuple[Any, ...], shape: tuple[int, int], block: tuple[int, int], x: Array, y: Array
) -> None:
    """Write the block rows of `groups` into `y`.

    Parameters
    ----------
    groups : tuple of spmm_blocks.Group
    shape, block : (int, int)
        Of the matrix.
    x : (k, n) array
        Contiguous, n > 0.
    y : (m, n) array
        Any strides.
    """
    tasks = [task for group in groups for task in _tasks(group, x)]
    total = sum(group.values.size for group in groups) * x.shape[1]
    count = min(workers(), len(tasks)) if total >= SHARED else 1
    share(partial(_work, x=x, y=y, shape=shape, block=block), tasks, count)


def _tasks(group: Any, x: Array) -> Iterator[_Task]:
    """As many block rows at a time as the cache holds operands of."""
    g, _, length = group.values.shape
    step = max(1, GATHER // (length * x.shape[1] * x.itemsize))
    return (_Task(group, i, min(step, g - i)) for i in range(0, g, step))


def _work(
    tasks: Iterator[_Task], x: Array, y: Array, shape: tuple[int, int], block: tuple[int, int]
) -> None:
    (m, k), (r, c), n = shape, block, x.shape[1]
    whole, tail = x[: k // c * c].reshape(k // c, c, n), x[k // c * c :]
    row, column = y.strides
    by_row = np.lib.stride_tricks.as_strided(y, (m // r, r, n), (r * row, row, column))
    memory = np.empty(0, x.dtype)
    with np.errstate(all="ignore"):  # which does not reach from thread to thread
        for group, start, size in tasks:
            _, height, length = group.values.shape
            if memory.size < size * length * n:
                memory = np.empty(size * length * n, x.dtype)
            xs = memory[: size * length * n].reshape(size, length, n)
            here = slice(start, start + size)
            _gather(whole, group.columns[here], xs, tail if group.tail else None)
            product = _product(group.values[here], xs)
            if height == r:
                by_row[group.rows[here]] = product
            else:
                top = int(group.rows[start]) * r
                y[top : top + height, :] = product[0]


def _gather(whole: Array, columns: Array, xs: Array, tail: Array | None) -> None:
    """Fill xs (g, length, n) with the rows of the operand that the blocks meet."""
    g, blocks = columns.shape
    _, c, n = whole.shape
    if tail is None:
        np.take(whole, columns, axis=0, out=xs.reshape(g, blocks, c, n), mode="clip")
        return
    xs[:, : blocks * c] = whole[columns].reshape(g, blocks * c, n)
    xs[:, blocks * c :] = tail


def _product(values: Array, xs: Array) -> Array:
    """Batched GEMM: (g, height, length) times (g, length, n)."""
    g, height, length = values.shape
    n = xs.shape[2]
    if height * length * n <= ALONE or height * length * n >= LARGE:
        return np.matmul(values, xs)
    wide, deep = _cut(height, n)
    y = np.empty((g, height, n), xs.dtype)
    part = np.empty((g, height, wide), xs.dtype)
    for j in range(0, n, wide):
        columns = slice(j, min(n, j + wide))
        target, some = y[:, :, columns], part[:, :, : columns.stop - j]
        np.matmul(values[:, :, :deep], xs[:, :deep, columns], out=target)
        for i in range(deep, length, deep):
            np.matmul(values[:, :, i : i + deep], xs[:, i : i + deep, columns], out=some)
            target += some
    return y


def _cut(height: int, n: int) -> tuple[int, int]:
    """Columns and length of a product that BLAS runs alone; about as long as wide."""
    room = ALONE // height
    wide = n
    while wide > SHORTEST and room // wide < min(2 * SHORTEST, wide):
        wide = -(-wide // 2)
    return wide, max(SHORTEST // 2, room // wide)
