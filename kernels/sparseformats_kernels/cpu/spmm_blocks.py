"""BSR and Blocked-ELL times dense: one GEMM a block row over its concatenated blocks.

`pack` lays the blocks of a block row side by side, (R, count C); `run` gathers the rows of the
operand that they meet, (count C, n), and multiplies. Block rows of equal count are packed together,
so that small ones go through one batched GEMM. A ragged last block row or column is cut to the
logical shape while packing: padding is never multiplied, and a row of the operand that does not
exist is never read.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cpu.common import Host, compute_dtype, deliver
from sparseformats_kernels.cpu.elements import block_list

__all__ = ["BlockRows", "State"]

GATHER = 1 << 20  # bytes of the operand gathered at a time: stays in a core's cache
DIRECT = 1 << 21  # multiplications of a block row from which it is worth a call of its own


class Group(NamedTuple):
    """Block rows with equally many blocks.

    Attributes
    ----------
    rows : (g,) NumPy int64
        Their numbers.
    index : (g,) array of the library
        The same.
    columns : (g, c) array of the library, int64
        Block columns of their whole blocks.
    values : (g, height, length) array
        Blocks side by side; length = c C, and the tail's columns where there is one.
    tail : bool
        Each ends with the ragged last block column.
    """

    rows: Host
    index: Array
    columns: Array
    values: Array
    tail: bool


class State(NamedTuple):
    """A packed matrix."""

    lib: ArrayLibrary
    groups: tuple[Group, ...]
    empty: Host
    shape: tuple[int, int]
    block: tuple[int, int]
    device: str
    computes: str
    gives: str


@final
class BlockRows:
    """NumPy's or torch's GEMM, one a block row, or one batch for many small block rows."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Lay the blocks of each block row side by side, in the dtype of computation."""
        lib, dtype = A.lib, compute_dtype(query.out_dtype)
        row, col, data = block_list(A)
        block = A.blocksize
        if query.transposed:
            order = np.lexsort((row, col))
            row, col, block = col[order], row[order], block[::-1]
            data = lib.take(data, lib.from_numpy(order)).mT
        data = lib.astype(data, dtype)
        shape = (query.m, query.k)
        count = np.bincount(row, minlength=-(-shape[0] // block[0]))
        groups = tuple(_groups(lib, count, col, data, shape, block))
        empty = np.flatnonzero(count == 0)
        return State(lib, groups, empty, shape, block, A.device, dtype, query.out_dtype or dtype)

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply, straight into `out` where nothing is left to do afterwards."""
        lib = state.lib
        x = lib.contiguous(lib.astype(x, state.computes))
        plain = state.computes == state.gives and alpha == 1 and beta == 0
        shape = (state.shape[0], int(x.shape[1]))
        y = out if plain and out is not None else lib.empty(shape, state.computes, state.device)
        with np.errstate(all="ignore"):
            _multiply(state, x, y)
        return y if plain else deliver(lib, y, out, alpha, beta, state.gives)


def _groups(
    lib: ArrayLibrary,
    count: Host,
    col: Host,
    data: Array,
    shape: tuple[int, int],
    block: tuple[int, int],
) -> Any:
    """Pack block rows that have the same count, height and tail."""
    (m, k), (r, c) = shape, block
    starts = np.cumsum(count) - count
    last = starts + count - 1
    full = count > 0
    ragged = np.zeros(count.size, np.bool_)
    ragged[full] = (k % c != 0) & (col[last[full]] == k // c)
    short = np.zeros(count.size, np.bool_)
    if m % r and count.size:
        short[-1] = True
    kinds = np.stack([count, ragged, short], axis=1)[full]
    for kind in np.unique(kinds, axis=0):
        blocks, tail, low = int(kind[0]), bool(kind[1]), bool(kind[2])
        rows = np.flatnonzero(full)[(kinds == kind).all(axis=1)]
        which = starts[rows][:, None] + np.arange(blocks)
        height = m % r if low else r
        length = (blocks - 1) * c + k % c if tail else blocks * c
        values = _beside(lib, data, which, height, length)
        columns = col[which].astype(np.int64)
        whole = lib.from_numpy(columns[:, : blocks - tail])
        yield Group(rows, lib.from_numpy(rows), whole, values, tail)


def _beside(lib: ArrayLibrary, data: Array, which: Host, height: int, length: int) -> Array:
    """Blocks of each block row side by side, (g, height, length)."""
    g, blocks = which.shape
    r, c = int(data.shape[1]), int(data.shape[2])
    found = lib.take(data, lib.from_numpy(which.reshape(-1)))
    xp = lib.xp
    found = xp.permute_dims(xp.reshape(found, (g, blocks, r, c)), (0, 2, 1, 3))
    return lib.contiguous(xp.reshape(found, (g, r, blocks * c))[:, :height, :length])


def _multiply(state: State, x: Array, y: Array) -> None:
    (m, k), (r, c) = state.shape, state.block
    n = int(x.shape[1])
    xp = state.lib.xp
    for i in state.empty.tolist():
        y[i * r : (i + 1) * r, :] = 0
    if n == 0:
        return
    whole = xp.reshape(x[: k // c * c, :], (k // c, c, n))
    tail = x[k // c * c :, :]
    by_row = xp.reshape(y[: m // r * r, :], (m // r, r, n))
    calls = Torch if state.lib.name == "torch" else NumPy
    for group in state.groups:
        g, height, length = (int(s) for s in group.values.shape)
        step = min(g, max(1, GATHER // (length * n * int(x.itemsize))))
        if height * length * n >= DIRECT:
            step = 1
        buffer = calls.empty((step, length, n), x)
        for i in range(0, g, step):
            size = min(step, g - i)
            xs = buffer[:size]
            calls.gather(whole, group.columns[i : i + size], xs, tail if group.tail else None)
            if size == 1:
                top = int(group.rows[i]) * r
                calls.matmul(group.values[i], xs[0], y[top : top + height, :])
            else:
                calls.put(by_row, group.index[i : i + size], group.values[i : i + size], xs)


@final
class NumPy:
    """What `_multiply` calls, in NumPy."""

    @staticmethod
    def empty(shape: tuple[int, ...], like: Array) -> Array:
        return np.empty(shape, like.dtype)

    @staticmethod
    def gather(whole: Array, columns: Array, xs: Array, tail: Array | None) -> None:
        """Fill xs (g, length, n) with the rows of the operand that the blocks meet."""
        g, blocks = columns.shape
        _, c, n = whole.shape
        if tail is None:
            np.take(whole, columns, axis=0, out=xs.reshape(g, blocks, c, n), mode="clip")
            return
        xs[:, : blocks * c] = whole[columns].reshape(g, blocks * c, n)
        xs[:, blocks * c :] = tail

    @staticmethod
    def matmul(values: Array, xs: Array, out: Array) -> None:
        np.matmul(values, xs, out=out)

    @staticmethod
    def put(by_row: Array, rows: Array, values: Array, xs: Array) -> None:
        by_row[rows] = np.matmul(values, xs)


@final
class Torch:
    """What `_multiply` calls, in torch."""

    @staticmethod
    def empty(shape: tuple[int, ...], like: Array) -> Array:
        return like.new_empty(shape)

    @staticmethod
    def gather(whole: Array, columns: Array, xs: Array, tail: Array | None) -> None:
        """As `NumPy.gather`."""
        import torch

        g, blocks = columns.shape
        _, c, n = whole.shape
        if tail is None:
            torch.index_select(whole, 0, columns.reshape(-1), out=xs.view(g * blocks, c, n))
            return
        found = whole.index_select(0, columns.reshape(-1))
        xs[:, : blocks * c] = found.reshape(g, blocks * c, n)
        xs[:, blocks * c :] = tail

    @staticmethod
    def matmul(values: Array, xs: Array, out: Array) -> None:
        import torch

        torch.mm(values, xs, out=out)

    @staticmethod
    def put(by_row: Array, rows: Array, values: Array, xs: Array) -> None:
        by_row[rows] = values @ xs
