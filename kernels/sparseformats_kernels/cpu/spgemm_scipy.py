"""SciPy's product of two sparse matrices, for NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from sparseformats._dtypes import index_width
from sparseformats.dispatch.query import Query
from sparseformats.formats import CSR
from sparseformats_kernels.cpu.common import compute_dtype
from sparseformats_kernels.cpu.elements import as_compressed

__all__ = ["spgemm"]


def spgemm(A: CSR, B: CSR, query: Query) -> CSR:
    """``A @ B`` in canonical form; an element that cancels to zero stays stored."""
    dtype, lib = compute_dtype(query.out_dtype), A.lib
    with np.errstate(all="ignore"):
        product = _whole(as_compressed(A, False, dtype), as_compressed(B, False, dtype))
        data = lib.astype(product.data, query.out_dtype or dtype)
    wide = "int64" in (lib.dtype_name(A.indices), lib.dtype_name(B.indices))
    shape = (A.shape[0], B.shape[1])
    name = index_width("int64" if wide else "int32", *shape, product.nnz)
    indices, indptr = (lib.astype(x, name) for x in (product.indices, product.indptr))
    return CSR.trusted(data=data, indices=indices, indptr=indptr, shape=shape)


def _whole(left: Any, right: Any) -> Any:
    """SciPy's product with the elements that it leaves out because they came out as zero."""
    found, places = left @ right, _ones(left) @ _ones(right)
    found.sort_indices()
    if found.nnz == places.nnz:
        return found
    places.sort_indices()
    sizes = places.nnz, found.nnz
    row = np.concatenate([_rows(places), _rows(found)])
    order = np.lexsort((np.concatenate([places.indices, found.indices]), row))
    mine = order < sizes[0]  # the sort is stable: a place comes before what was found at it
    data = np.zeros(sizes[0], found.dtype)
    data[(np.cumsum(mine) - 1)[~mine]] = found.data[order[~mine] - sizes[0]]
    return sparse.csr_array((data, places.indices, places.indptr), shape=found.shape, copy=False)


def _ones(S: Any) -> Any:
    """The pattern alone: sums of true never come out as false."""
    parts = np.ones(S.nnz, np.bool_), S.indices, S.indptr
    return sparse.csr_array(parts, shape=S.shape, copy=False)


def _rows(S: Any) -> Any:
    return np.repeat(np.arange(S.shape[0]), np.diff(S.indptr))
