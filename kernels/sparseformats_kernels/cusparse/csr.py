"""Products through compressed rows: the algorithm by case, never the library's default.

Formats other than CSR are brought into rows once, on the device, when the matrix is packed. The
algorithms are those of "cusparseSpMM()" and "cusparseSpMV()" in NVIDIA's documentation: of the
three for CSR only ALG3 gives the same bits on every run, as does ALG2 of the vector product. What
else they differ in is told in `sparseformats_kernels.cusparse.times`.
"""

from __future__ import annotations

from typing import Any, final

from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator, itemsize
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import device_of
from sparseformats_kernels.cuda.elements import as_rows
from sparseformats_kernels.cusparse import api as c
from sparseformats_kernels.cusparse.finding import the_api
from sparseformats_kernels.cusparse.spmm import Bound, Rules, bind
from sparseformats_kernels.cusparse.state import State
from sparseformats_kernels.cusparse.times import Case, Way, Work, best, offered

__all__ = ["CSRProduct", "choose"]


def choose(state: State, case: Case) -> Way:
    """The algorithm for a case, and whether operands are laid anew for it."""
    if case.n == 0:
        return Way(c.SPMV_CSR_ALG2, True, True)
    able = offered(state.gives, case)
    if not able:
        raise RuntimeError(
            "cuSPARSE has no product of the same bits on every run for operands that may hold NaN "
            "or infinity; pass assume_finite=True if they do not"
        )
    work = Work(state.m, state.k, state.nnz, state.longest, itemsize(state.dtype))
    return best(work, case, able)[1]


@final
class CSRProduct:
    """SpMM and SpMV of CSR."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Bring the elements into rows with int32 indices."""
        gives = query.out_dtype or A.dtype_name
        dtype = A.dtype_name if gives == "int32" else gives  # int8 is multiplied as it is
        lib, device = A.lib, device_of(A.data, A.lib)
        with device.here():
            rows = as_rows(A, query.transposed, dtype)
            longest = lib.max_int(rows.indptr[1:] - rows.indptr[:-1])
            device.settle()  # other streams may use them at once
            arrays = rows.data, rows.indices, rows.indptr
            data, indices, indptr = (lib.address(x) for x in arrays)
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
                longest=longest,
            )

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply on the current stream."""
        rules = Rules(choose, True, state.lib.deterministic(), state.gives == "int32")
        return Bound(state, rules)(x, out, alpha, beta)

    @staticmethod
    def bind(state: State, query: Query) -> Bound:
        """A run for calls of these facts."""
        return bind(state, query, choose, True)

    @staticmethod
    def bind_vector(state: State, query: Query) -> Bound:
        """A run for calls of these facts with vectors."""
        return bind(state, query, choose, True)
