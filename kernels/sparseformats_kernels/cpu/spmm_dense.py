"""Any format times dense by one GEMM over a dense copy of the matrix.

The copy is made once, when the matrix is packed. Zeros that are not stored meet the operand here,
so the record offers this kernel only where every element of the operand is known to be finite.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import kind
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cpu.common import compute_dtype, deliver, gemm, unhost
from sparseformats_kernels.cpu.costs import dense_dtype
from sparseformats_kernels.cpu.elements import as_compressed

__all__ = ["Dense", "State"]


class State(NamedTuple):
    """A packed matrix."""

    lib: ArrayLibrary
    dense: Array
    multiplies: str
    computes: str
    gives: str


@final
class Dense:
    """NumPy's or torch's GEMM."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Write the elements into a dense array, +0 elsewhere."""
        computes, multiplies = compute_dtype(query.out_dtype), dense_dtype(query)
        dense = as_compressed(A, query.transposed, multiplies).toarray(order="C")
        return State(A.lib, unhost(A.lib, dense), multiplies, computes, query.out_dtype or computes)

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply, straight into `out` where nothing is left to do afterwards."""
        lib = state.lib
        x = lib.astype(x, state.multiplies)
        direct = state.multiplies == state.gives and alpha == 1 and beta == 0
        with np.errstate(all="ignore"):
            if direct and out is not None:
                return gemm(lib, state.dense, x, out)
            y = _exact(lib, gemm(lib, state.dense, x), state)
        return deliver(lib, y, out, alpha, beta, state.gives)


def _exact(lib: ArrayLibrary, y: Array, state: State) -> Array:
    """The product in the dtype of computation; integers wrap as if computed in it."""
    if state.multiplies == state.computes:
        return y
    if kind(state.computes) == "b":
        return y > 0
    return lib.astype(lib.astype(y, "int64"), state.computes)
