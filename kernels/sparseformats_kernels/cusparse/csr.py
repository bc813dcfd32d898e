"""Products through compressed rows: the algorithm by case, never the library's default.

Formats other than CSR are brought into rows once, on the device, when the matrix is packed. The
algorithms are those of "cusparseSpMM()" and "cusparseSpMV()" in NVIDIA's documentation: of the
three for CSR only ALG3 gives the same bits on every run, as does ALG2 of the vector product.
"""

from __future__ import annotations

from typing import Any, final

from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import device_of
from sparseformats_kernels.cuda.elements import as_rows
from sparseformats_kernels.cusparse import api as c
from sparseformats_kernels.cusparse.finding import the_api
from sparseformats_kernels.cusparse.spmm import Run, bind, multiply
from sparseformats_kernels.cusparse.state import State

__all__ = ["CSRProduct", "choose", "wide_and_sparse"]

NARROW = 128  # columns up to which ALG3 is ahead at every density
FEW = 48  # elements a row, on average, below which ALG2 is ahead in a wide product


def wide_and_sparse(n: int, mean: float) -> bool:
    """Whether ALG2, which takes one row a warp, is ahead of ALG3, which splits elements evenly."""
    return n > NARROW and mean < FEW


def choose(state: State, n: int, deterministic: bool) -> int:
    """The algorithm for n columns; 0 is a vector."""
    if n == 0:
        return c.SPMV_CSR_ALG2
    # Of products with more than one type only ALG3 is offered.
    if deterministic or state.dtype != state.computes:
        return c.SPMM_CSR_ALG3
    return c.SPMM_CSR_ALG2 if wide_and_sparse(n, state.nnz / state.m) else c.SPMM_CSR_ALG3


@final
class CSRProduct:
    """SpMM and SpMV of CSR."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Bring the elements into rows with int32 indices."""
        gives = query.out_dtype or A.dtype_name
        dtype = A.dtype_name if gives == "int32" else gives  # int8 is multiplied as it is
        device = device_of(A.data, A.lib)
        with device.here():
            rows = as_rows(A, query.transposed, dtype)
            device.settle()  # other streams may use them at once
            arrays = rows.data, rows.indices, rows.indptr
            data, indices, indptr = (A.lib.address(x) for x in arrays)
            index = (c.INDEX_32I, c.INDEX_32I, c.BASE_ZERO, c.VALUES[dtype])
            return State(
                device,
                the_api(),
                "cusparseCreateCsr",
                (*rows.shape, rows.nnz, indptr, indices, data, *index),
                arrays,
                shape=rows.shape,
                nnz=rows.nnz,
                dtypes=(dtype, gives, accumulator(gives)),
            )

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply on the current stream."""
        return multiply(state, x, out, alpha, beta, choose, True, state.lib.deterministic())

    @staticmethod
    def bind(state: State, query: Query) -> Run:
        """A run for calls of these facts."""
        return bind(state, query, choose, True)
