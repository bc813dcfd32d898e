"""SciPy's products, for NumPy arrays and, through views of their memory, torch tensors."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, final

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cpu import sparsetools
from sparseformats_kernels.cpu.common import (
    Run,
    compute_dtype,
    deliver,
    host,
    is_plain,
    unhost,
)
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

    @staticmethod
    def bind(state: State, query: Query) -> Run:
        """Leave out what operands of these facts do not need."""
        return _bare(state, query) or partial(ScipyCSR.run, state)

    @staticmethod
    def bind_vector(state: State, query: Query) -> Run | None:
        """Multiply the vector itself, without a view as one column."""
        return _bare(state, query)


def _bare(state: State, query: Query) -> Run | None:
    """The product alone, where it is the whole result."""
    matrix, padded = state.matrix, state.matrix.shape != state.shape
    if state.lib.name != "numpy" or padded or not is_plain(query, state.computes):
        return None
    if sparsetools.AVAILABLE:
        add = sparsetools.add_product(matrix, vector=query.n * query.batch == 1)
        return _added(add, state.shape[0], state.computes)

    def run(x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        y: Array = matrix @ x
        if out is None:
            return y
        out[...] = y
        return out

    return run


def _added(add: sparsetools.AddProduct, m: int, computes: str) -> Run:
    """The product added to zeros: those of `out` where it is contiguous."""
    dtype = np.dtype(computes)

    def run(x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        if not x.flags.c_contiguous:
            x = np.ascontiguousarray(x)
        if out is None or not out.flags.c_contiguous:
            y = np.zeros((m, *x.shape[1:]), dtype)
            add(x, y)
            if out is None:
                return y
            out[...] = y
        else:
            out.fill(0)
            add(x, out)
        return out

    return run


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

    @staticmethod
    def bind(state: State, query: Query) -> Run:
        """As `ScipyCSR.bind`."""
        return _bare(state, query) or partial(ScipyBSR.run, state)

    @staticmethod
    def bind_vector(state: State, query: Query) -> Run | None:
        """As `ScipyCSR.bind_vector`."""
        return _bare(state, query)
