"""SciPy's product of two sparse matrices, for NumPy arrays."""

from __future__ import annotations

import numpy as np

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
        product = as_compressed(A, False, dtype) @ as_compressed(B, False, dtype)
        product.sort_indices()
        data = lib.astype(product.data, query.out_dtype or dtype)
    wide = "int64" in (lib.dtype_name(A.indices), lib.dtype_name(B.indices))
    shape = (A.shape[0], B.shape[1])
    name = index_width("int64" if wide else "int32", *shape, product.nnz)
    indices, indptr = (lib.astype(x, name) for x in (product.indices, product.indptr))
    return CSR.trusted(data=data, indices=indices, indptr=indptr, shape=shape)
