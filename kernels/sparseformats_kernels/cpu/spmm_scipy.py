"""SciPy's products, for NumPy arrays and, through views of their memory, torch tensors."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cpu.common import compute_dtype, deliver, host, unhost
from sparseformats_kernels.cpu.elements import as_bsr, as_compressed

__all__ = ["ScipyBSR", "ScipyCSR", "State"]


class State(NamedTuple):
    """A packed matrix."""

    lib: ArrayLibrary
    matrix: Any  # of SciPy
    shape: tuple[int, int]
    computes: str
    gives: str


def _state(A: SparseMatrix, query: Query, matrix: Any, computes: str) -> State:
    return State(A.lib, matrix, (query.m, query.k), computes, query.out_dtype or computes)


@final
class ScipyCSR:
    """Any format as CSR or CSC of the elements that meet the operand."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Bring the elements into CSR or CSC, in the dtype of computation."""
        dtype = compute_dtype(query.out_dtype)
        return _state(A, query, as_compressed(A, query.transposed, dtype), dtype)

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply; a row-major operand is read in place."""
        y = state.matrix @ host(x, state.computes)
        return deliver(state.lib, unhost(state.lib, y), out, alpha, beta, state.gives)


@final
class ScipyBSR:
    """Block formats as SciPy's BSR: least memory traffic for a single vector."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Collect the stored blocks."""
        dtype = compute_dtype(query.out_dtype)
        matrix = as_bsr(A, dtype)
        return _state(A, query, matrix.T if query.transposed else matrix, dtype)

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply; where the shape is ragged, zeros stand in for rows that x does not have."""
        dense = host(x, state.computes)
        (m, k), padded = state.shape, state.matrix.shape[1]
        if padded != k:
            whole = np.zeros((padded, dense.shape[1]), dense.dtype)
            whole[:k] = dense
            dense = whole
        y = (state.matrix @ dense)[:m]
        return deliver(state.lib, unhost(state.lib, y), out, alpha, beta, state.gives)
