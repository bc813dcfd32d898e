"""BSR and Blocked-ELL times dense: one GEMM a block row over its concatenated blocks.

`pack` lays the blocks of a block row side by side, (R, count C); `run` gathers the rows of the
operand that they meet, (count C, n), and multiplies. Block rows of equal count are packed together,
so that small ones share calls: see `blocks_numpy` and `blocks_torch`. A ragged last block row or
column is cut to the logical shape while packing: padding is never multiplied, and a row of the
operand that does not exist is never read.
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
    multiply: Any
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
        gives = query.out_dtype or dtype
        multiply = _multiplier(lib.name)
        return State(lib, groups, empty, multiply, shape, block, A.device, dtype, gives)

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply, straight into `out` where nothing is left to do afterwards."""
        lib = state.lib
        x = lib.contiguous(lib.astype(x, state.computes))
        plain = state.computes == state.gives and alpha == 1 and beta == 0
        shape = (state.shape[0], int(x.shape[1]))
        y = out if plain and out is not None else lib.empty(shape, state.computes, state.device)
        with np.errstate(all="ignore"):
            for i in state.empty.tolist():
                y[i * state.block[0] : (i + 1) * state.block[0], :] = 0
            if shape[1]:
                state.multiply(state.groups, state.shape, state.block, x, y)
        return y if plain else deliver(lib, y, out, alpha, beta, state.gives)


def _multiplier(library: str) -> Any:
    if library == "torch":
        from sparseformats_kernels.cpu.blocks_torch import multiply
    else:
        from sparseformats_kernels.cpu.blocks_numpy import multiply
    return multiply


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
