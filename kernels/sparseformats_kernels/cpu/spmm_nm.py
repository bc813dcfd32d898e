"""n:m times dense by one GEMM over the unpacked matrix.

An n:m matrix is at most m / n times smaller than its dense form, and a dense GEMM beats any gather
by more than that. It is legal at non-finite operands too: within a group of an n:m matrix a zero
may or may not meet the operand.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats.formats import NM, SparseMatrix
from sparseformats_kernels.cpu.common import compute_dtype, deliver, gemm

__all__ = ["State", "Unpacked"]


class State(NamedTuple):
    """A packed matrix."""

    lib: ArrayLibrary
    dense: Array
    computes: str
    gives: str


@final
class Unpacked:
    """NumPy's or torch's GEMM over the dense form."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Scatter the slots into a dense array in the dtype of computation."""
        if not isinstance(A, NM):
            raise TypeError(f"expected an n:m matrix, got {A.format}")
        lib, dtype = A.lib, compute_dtype(query.out_dtype)
        rows, groups, _ = (int(s) for s in A.data.shape)
        group = lib.arange(rows * groups, device=A.device)
        place = lib.xp.reshape(group, (rows, groups, 1)) * A.m + lib.astype(A.indices, "int64")
        # Slots that hold no element write their +0 to a position of its own.
        flat = (lib.xp.reshape(x, (-1,)) for x in (place, lib.astype(A.data, dtype)))
        dense = lib.scatter((rows, groups * A.m), *flat)[:, : A.shape[1]]
        dense = dense.mT if query.transposed else dense
        return State(lib, dense, dtype, query.out_dtype or dtype)

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply, straight into `out` where nothing is left to do afterwards."""
        lib = state.lib
        x = lib.astype(x, state.computes)
        with np.errstate(all="ignore"):
            if out is not None and state.computes == state.gives and alpha == 1 and beta == 0:
                return gemm(lib, state.dense, x, out)
            y = gemm(lib, state.dense, x)
        return deliver(lib, y, out, alpha, beta, state.gives)
