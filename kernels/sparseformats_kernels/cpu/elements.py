"""Any format as SciPy's CSR or CSC of the elements that meet a dense operand.

These are the stored elements of COO, CSR, CSC, every place inside the logical shape of a stored
block of BSR and Blocked-ELL, and the non-zeros of n:m. Padding and empty slots never appear.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from sparseformats import _arrays
from sparseformats._dtypes import index_width
from sparseformats.formats import BSR, COO, CSC, CSR, NM, BlockedELL, SparseMatrix
from sparseformats_kernels.cpu.common import Host, host

__all__ = ["Blocks", "as_bsr", "as_compressed", "block_list"]

Blocks = tuple[Host, Host, Any]


def as_compressed(A: SparseMatrix, transposed: bool, dtype: str) -> Any:
    """Elements of `A` (of its transpose) in `dtype` as a SciPy CSR or CSC array.

    Shares the buffers of CSR and CSC where the dtype is theirs.
    """
    if isinstance(A, CSR):
        found = _wrap(sparse.csr_array, A, dtype)
    elif isinstance(A, CSC):
        found = _wrap(sparse.csc_array, A, dtype)
    elif isinstance(A, COO):
        data, row, col = host(A.data, dtype), _index(A.row), _index(A.col)
        found = _from_rows(data, row, col, A.shape)
    elif isinstance(A, NM):
        found = _from_groups(A, dtype)
    else:
        m, k = A.shape
        found = as_bsr(A, dtype).tocsr()
        if found.shape != (m, k):
            found = found[:m, :k]
    return found.T if transposed else found


def _wrap(cls: Any, A: CSR | CSC, dtype: str) -> Any:
    parts = host(A.data, dtype), _index(A.indices), _index(A.indptr)
    return cls(parts, shape=A.shape, copy=False)


def _index(x: Any) -> Host:
    return _arrays.of(x).to_numpy(x)


def _from_rows(data: Host, row: Host, col: Host, shape: tuple[int, int]) -> Any:
    """CSR of elements that are sorted by row."""
    return _from_counts(data, np.bincount(row, minlength=shape[0]), col, shape)


def _from_counts(data: Host, counts: Host, col: Host, shape: tuple[int, int]) -> Any:
    indptr = np.zeros(shape[0] + 1, index_width(col.dtype.name, col.size))
    np.cumsum(counts, out=indptr[1:])
    return sparse.csr_array((data, col, indptr), shape=shape, copy=False)


def _from_groups(A: NM, dtype: str) -> Any:
    """CSR of the non-zeros of an n:m matrix."""
    lib = A.lib
    rows, groups, n = (int(s) for s in A.data.shape)
    width = np.dtype(index_width("int32", *A.shape, rows * groups * n))
    col = (np.arange(groups, dtype=width) * A.m)[:, None] + _index(A.indices)
    data, full = host(A.data, dtype), lib.to_numpy(lib.nonzero_mask(A.data))
    if full.all():
        counts = np.full(rows, groups * n)
        return _from_counts(data.reshape(-1), counts, col.reshape(-1), A.shape)
    return _from_counts(data[full], full.reshape(rows, -1).sum(axis=1), col[full], A.shape)


def block_list(A: SparseMatrix) -> Blocks:
    """Block row, block column and values (nnzb, R, C) of the stored blocks, sorted by row.

    The values stay an array of the matrix's library and dtype.
    """
    if isinstance(A, BSR):
        indptr, col = _index(A.indptr), _index(A.indices)
        row = np.repeat(np.arange(indptr.size - 1, dtype=col.dtype), np.diff(indptr))
        return row, col, A.data
    if not isinstance(A, BlockedELL):
        raise TypeError(f"expected a block format, got {A.format}")
    columns = _index(A.col_indices)
    used = columns >= 0
    row = np.nonzero(used)[0].astype(columns.dtype)
    lib, (b, c) = A.lib, A.blocksize
    data = lib.xp.reshape(A.data, (columns.size, b, c))
    if not used.all():
        slots = lib.from_numpy(np.flatnonzero(used))
        data = lib.take(data, slots)
    return row, columns[used], data


def as_bsr(A: SparseMatrix, dtype: str) -> Any:
    """Stored blocks of a block format in `dtype` as a SciPy BSR array over whole blocks."""
    row, col, data = block_list(A)
    (m, k), (r, c) = A.shape, A.blocksize
    rows, cols = -(-m // r), -(-k // c)
    indptr = np.zeros(rows + 1, col.dtype)
    np.cumsum(np.bincount(row, minlength=rows), out=indptr[1:])
    values = host(data, dtype)
    return sparse.bsr_array((values, col, indptr), shape=(rows * r, cols * c), copy=False)
