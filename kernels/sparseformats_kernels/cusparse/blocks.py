"""Products of whole blocks: Blocked-ELL on tensor cores, and BSR.

Both read blocks only where they lie side by side to the end of the matrix: shapes that blocks do
not divide are refused by the records, so no place outside the operand is ever read. The limits
are those of "cusparseSpMM()", "cusparseCreateBlockedEll()" and "cusparseCreateBsr()" in NVIDIA's
documentation: no transposed matrix, int32 indices, row-major blocks. Two more were found on an
H200 with version 12.6.3, and are not in the documentation:

- Blocked-ELL reads an empty slot as block column 0 and multiplies it by the slot's zeros, so the
  records ask for a finite operand. Which slots are empty no shape tells.
- BSR wraps where an element of an operand lies 2**31 or more elements from the first.
"""

from __future__ import annotations

from typing import Any, final

from sparseformats._arrays import Array
from sparseformats._dtypes import INT32_MAX, accumulator
from sparseformats.dispatch.query import Query
from sparseformats.formats import BSR, BlockedELL, SparseMatrix
from sparseformats_kernels.cuda.devices import device_of
from sparseformats_kernels.cusparse import api as c
from sparseformats_kernels.cusparse.finding import the_api
from sparseformats_kernels.cusparse.spmm import Bound, Rules, bind
from sparseformats_kernels.cusparse.state import State
from sparseformats_kernels.cusparse.times import Case

__all__ = ["BSRProduct", "BlockedELLProduct"]


def _by_ell(state: State, case: Case) -> int:
    return c.SPMM_BLOCKED_ELL_ALG1


def _by_bsr(state: State, case: Case) -> int:
    return c.SPMM_BSR_ALG1


def _dtypes(A: SparseMatrix, query: Query) -> tuple[str, str, str]:
    gives = query.out_dtype or A.dtype_name
    return gives, gives, accumulator(gives)


@final
class BlockedELLProduct:
    """SpMM of Blocked-ELL."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Lay the values out as the library reads them: whole rows, slots side by side."""
        if not isinstance(A, BlockedELL):
            raise TypeError(f"expected a Blocked-ELL matrix, got {A.format}")
        lib, device = A.lib, device_of(A.data, A.lib)
        rows, slots, b, _ = (int(s) for s in A.data.shape)
        width = min(slots, A.shape[1] // b)  # more slots than block columns are empty
        dtypes = _dtypes(A, query)
        with device.here():
            data = lib.astype(lib.native(A.data)[:, :width], dtypes[0])
            data = lib.contiguous(lib.xp.permute_dims(data, (0, 2, 1, 3)))
            columns = lib.contiguous(lib.astype(A.col_indices[:, :width], "int32"))
            device.settle()
            where = lib.address(columns), lib.address(data)
            return State(
                device,
                the_api(),
                "cusparseCreateBlockedEll",
                (*A.shape, b, width * b, *where, c.INDEX_32I, c.BASE_ZERO, c.VALUES[dtypes[0]]),
                (data, columns),
                shape=A.shape,
                nnz=rows * width * b * b,
                dtypes=dtypes,
            )

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply on the current stream."""
        return Bound(state, Rules(_by_ell, False))(x, out, alpha, beta)

    @staticmethod
    def bind(state: State, query: Query) -> Bound:
        """A run for calls of these facts."""
        return bind(state, query, _by_ell, False)


@final
class BSRProduct:
    """SpMM of BSR."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Take the buffers as they are, with int32 indices."""
        if not isinstance(A, BSR):
            raise TypeError(f"expected a BSR matrix, got {A.format}")
        lib, device = A.lib, device_of(A.data, A.lib)
        (m, k), (count, r, s) = A.shape, (int(s) for s in A.data.shape)
        dtypes = _dtypes(A, query)
        with device.here():
            data = lib.contiguous(lib.astype(lib.native(A.data), dtypes[0]))
            indices = lib.contiguous(lib.astype(A.indices, "int32"))
            indptr = lib.contiguous(lib.astype(A.indptr, "int32"))
            device.settle()
            where = lib.address(indptr), lib.address(indices), lib.address(data)
            kinds = c.INDEX_32I, c.INDEX_32I, c.BASE_ZERO, c.VALUES[dtypes[0]], c.ORDER_ROW
            return State(
                device,
                the_api(),
                "cusparseCreateBsr",
                (m // r, k // s, count, r, s, *where, *kinds),
                (data, indices, indptr),
                shape=A.shape,
                nnz=count * r * s,
                dtypes=dtypes,
                reach=INT32_MAX,
            )

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply on the current stream."""
        return Bound(state, Rules(_by_bsr, False))(x, out, alpha, beta)

    @staticmethod
    def bind(state: State, query: Query) -> Bound:
        """A run for calls of these facts."""
        return bind(state, query, _by_bsr, False)
