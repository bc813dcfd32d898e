"""The fast conversions, from format to format: raw arrays in, trusted objects out."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from sparseformats import _arrays
from sparseformats._dtypes import itemsize
from sparseformats.formats import ALL, BSR, COO, CSC, CSR, Transposed
from sparseformats.formats.slots import count_inside
from sparseformats_kernels.cpu.convert._bits import Array, to_width
from sparseformats_kernels.cpu.convert._bsr_csr import bsr_to_csr as _bsr_to_csr
from sparseformats_kernels.cpu.convert._bsr_transpose import bsr_transpose
from sparseformats_kernels.cpu.convert._compressed import (
    compress,
    expand,
    sort_by_column,
    transpose,
)
from sparseformats_kernels.cpu.convert._csr_bsr import csr_to_bsr as _csr_to_bsr
from sparseformats_kernels.cpu.convert._dense import (
    csr_to_dense as _csr_to_dense,
    dense_to_csr as _dense_to_csr,
)
from sparseformats_kernels.cpu.convert._dense_bsr import (
    bsr_to_dense as _bsr_to_dense,
    dense_to_bsr as _dense_to_bsr,
)

__all__ = [
    "bsr_to_csr",
    "bsr_to_dense",
    "bsr_transposed_to_bsr",
    "coo_to_csc",
    "coo_to_csr",
    "coo_to_dense",
    "csc_to_coo",
    "csc_to_csr",
    "csc_to_dense",
    "csr_to_bsr",
    "csr_to_coo",
    "csr_to_csc",
    "csr_to_dense",
    "dense_to_bsr",
    "dense_to_csr",
]


class Options(Protocol):
    """What these edges read of a step's options."""

    @property
    def blocksize(self) -> tuple[int, int] | None: ...

    def width(self, current: str, *extents: int) -> Any: ...


def coo_to_csr(A: COO, options: Options) -> CSR:
    """Pointers from rows; values and columns are shared."""
    name = options.width(str(A.col.dtype), A.shape[1], A.nnz)
    return CSR.trusted(
        data=A.data,
        indices=to_width(A.col, name),
        indptr=to_width(compress(A.row, A.shape[0]), name),
        shape=A.shape,
    )


def csr_to_coo(A: CSR, options: Options) -> COO:
    """Rows from pointers; values and columns are shared."""
    name = options.width(str(A.indices.dtype), *A.shape)
    row = expand(to_width(A.indptr, name))
    return COO.trusted(data=A.data, row=row, col=to_width(A.indices, name), shape=A.shape)


def csr_to_csc(A: CSR, options: Options) -> CSC:
    """A counting sort by column."""
    data, indices, indptr = _transposed(A, A.shape, options)
    return CSC.trusted(data=data, indices=indices, indptr=indptr, shape=A.shape)


def csc_to_csr(A: CSC, options: Options) -> CSR:
    """A counting sort by row."""
    m, n = A.shape
    data, indices, indptr = _transposed(A, (n, m), options)
    return CSR.trusted(data=data, indices=indices, indptr=indptr, shape=A.shape)


def _transposed(
    A: CSR | CSC, shape: tuple[int, int], options: Options
) -> tuple[Array, Array, Array]:
    name = options.width(str(A.indices.dtype), shape[0], A.nnz)
    return transpose(A.data, to_width(A.indices, name), to_width(A.indptr, name), shape)


def coo_to_csc(A: COO, options: Options) -> CSC:
    """A counting sort by column."""
    m, n = A.shape
    # SciPy is told both extents, in the width of the indices.
    name = options.width(str(A.row.dtype), m, n, A.nnz)
    data, indices, indptr = sort_by_column(
        A.data, to_width(A.row, name), to_width(A.col, name), A.shape
    )
    return CSC.trusted(data=data, indices=indices, indptr=indptr, shape=A.shape)


def csc_to_coo(A: CSC, options: Options) -> COO:
    """Through CSR."""
    return csr_to_coo(csc_to_csr(A, options), options)


def csr_to_bsr(A: CSR, options: Options) -> BSR:
    """Gather elements into blocks; stored zeros are marked."""
    size = options.blocksize
    if size is None:
        raise ValueError("csr_to_bsr needs options.blocksize, got None")
    name = options.width(str(A.indices.dtype), -(-A.shape[1] // size[1]), A.nnz)
    data, indices, indptr, zeros = _csr_to_bsr(
        A.data, to_width(A.indices, name), to_width(A.indptr, name), A.shape, size
    )
    marks: Array | str | None = zeros
    if zeros is not None and A.nnz == count_inside(A.lib, expand(indptr), indices, size, A.shape):
        marks = ALL
    return BSR.trusted(data=data, indices=indices, indptr=indptr, shape=A.shape, zeros=marks)


def bsr_to_csr(A: BSR, options: Options) -> CSR:
    """Keep what is stored: non-zeros and marked zeros."""
    name = options.width(str(A.indices.dtype), A.shape[1])
    data, indices, indptr = _bsr_to_csr(
        A.data, to_width(A.indices, name), to_width(A.indptr, name), A.shape, A.zeros
    )
    return CSR.trusted(data=data, indices=indices, indptr=indptr, shape=A.shape)


def bsr_transposed_to_bsr(A: Transposed, options: Options) -> BSR:
    """Sort and turn the blocks; their elements are not sorted."""
    base = A.base
    if not isinstance(base, BSR):
        raise TypeError(f"bsr_transposed_to_bsr needs a transposed BSR, got {base.format}.T")
    marks = None if isinstance(base.zeros, str) else base.zeros
    name = options.width(str(base.indices.dtype))
    data, indices, indptr, moved = bsr_transpose(
        base.data, to_width(base.indices, name), to_width(base.indptr, name), base.shape, marks
    )
    zeros = base.zeros if isinstance(base.zeros, str) else moved
    return BSR.trusted(data=data, indices=indices, indptr=indptr, shape=A.shape, zeros=zeros)


def dense_to_csr(D: Array, options: Options) -> CSR:
    """Store what is not zero."""
    data, indices, indptr = _dense_to_csr(D)
    name = options.width(str(indices.dtype))
    return CSR.trusted(
        data=data, indices=to_width(indices, name), indptr=to_width(indptr, name), shape=D.shape
    )


def dense_to_bsr(D: Array, options: Options) -> BSR:
    """Keep blocks with a non-zero."""
    if options.blocksize is None:
        raise ValueError("dense_to_bsr needs options.blocksize, got None")
    data, indices, indptr = _dense_to_bsr(D, options.blocksize)
    name = options.width(str(indices.dtype))
    return BSR.trusted(
        data=data, indices=to_width(indices, name), indptr=to_width(indptr, name), shape=D.shape
    )


def coo_to_dense(A: COO, options: Options) -> Array:
    """Write each stored value to its place."""
    _ensure_fits(A)
    return _csr_to_dense(A.data, A.col, compress(A.row, A.shape[0]), A.shape)


def csr_to_dense(A: CSR, options: Options) -> Array:
    """Write each stored value to its place."""
    _ensure_fits(A)
    return _csr_to_dense(A.data, A.indices, A.indptr, A.shape)


def csc_to_dense(A: CSC, options: Options) -> Array:
    """Write each stored value to its place, column by column: the array is in Fortran order."""
    _ensure_fits(A)
    m, n = A.shape
    return np.transpose(_csr_to_dense(A.data, A.indices, A.indptr, (n, m)))


def bsr_to_dense(A: BSR, options: Options) -> Array:
    """Write each row of each block to its place; fill becomes +0.0."""
    _ensure_fits(A)
    return _bsr_to_dense(A.data, A.indices, A.indptr, A.shape, A.zeros)


def _ensure_fits(A: COO | CSR | CSC | BSR) -> None:
    """Look at free memory before an output that the shape alone makes large."""
    m, n = A.shape
    lib = _arrays.of(A.data)
    lib.ensure_fits(m * n * itemsize(A.dtype_name), A.device, f"dense form of a {m} x {n} matrix")
