"""Packed block rows times dense by torch: its GEMM has the threads."""

from __future__ import annotations

from typing import Any

import torch

from sparseformats._arrays import Array

__all__ = ["multiply"]

GATHER = 1 << 20  # bytes of the operand gathered at a time: stays in a core's cache
DIRECT = 1 << 21  # multiplications of a block row from which it is worth a call of its own


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
    (m, k), (r, c), n = shape, block, int(x.shape[1])
    whole, tail = x[: k // c * c].reshape(k // c, c, n), x[k // c * c :]
    by_row = _by_row(y, m // r, r, n)
    for group in groups:
        g, height, length = group.values.shape
        step = min(g, max(1, GATHER // (length * n * x.element_size())))
        if height * length * n >= DIRECT:
            step = 1
        buffer = x.new_empty((step, length, n))
        for i in range(0, g, step):
            size = min(step, g - i)
            xs = buffer[:size]
            _gather(whole, group.columns[i : i + size], xs, tail if group.tail else None)
            if size == 1 or height != r:
                top = int(group.rows[i]) * r
                torch.mm(group.values[i], xs[0], out=y[top : top + height, :])
            else:
                product = x.new_empty((size, r, n))  # autocast leaves it alone, unlike a new one
                torch.bmm(group.values[i : i + size], xs, out=product)
                by_row[group.index[i : i + size]] = product


def _by_row(y: Array, rows: int, r: int, n: int) -> Array:
    """View of `y` as (rows, r, n)."""
    row, column = y.stride()
    return y.as_strided((rows, r, n), (r * row, row, column))


def _gather(whole: Array, columns: Array, xs: Array, tail: Array | None) -> None:
    """Fill xs (g, length, n) with the rows of the operand that the blocks meet."""
    g, blocks = columns.shape
    _, c, n = whole.shape
    if tail is None:
        torch.index_select(whole, 0, columns.reshape(-1), out=xs.view(g * blocks, c, n))
        return
    found = whole.index_select(0, columns.reshape(-1))
    xs[:, : blocks * c] = found.reshape(g, blocks * c, n)
    xs[:, blocks * c :] = tail
