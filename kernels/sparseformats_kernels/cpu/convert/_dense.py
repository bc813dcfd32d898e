"""Dense NumPy arrays to and from CSR."""

from __future__ import annotations

import numpy as np
from scipy.sparse import _sparsetools as sparsetools

from sparseformats._dtypes import INT32_MAX, index_width
from sparseformats_kernels.cpu.convert._bits import CHUNK, Array, as_bits, nonzero, units
from sparseformats_kernels.cpu.convert._compressed import transpose
from sparseformats_kernels.cpu.convert._scratch import scratch

__all__ = ["csr_to_dense", "dense_to_csr"]

# Elements of the dense array that are looked at together.
SLAB = 2 * CHUNK


def dense_to_csr(dense: Array) -> tuple[Array, Array, Array]:
    """Canonical CSR of what is not zero: data, indices, indptr."""
    m, n = dense.shape
    if dense.flags.f_contiguous and not dense.flags.c_contiguous:
        return transpose(*dense_to_csr(dense.T), (n, m))
    # Columns are narrow until the number of elements is known.
    name, step = index_width("int32", m, n), max(1, SLAB // max(1, n))
    values, columns = [np.empty(0, dense.dtype)], [np.empty(0, name)]
    indptr = np.zeros(m + 1, np.int64)
    for first in range(0, m, step):
        slab = np.ascontiguousarray(dense[first : first + step])
        rows = len(slab)
        mask = scratch("mask", slab.size, np.bool_)
        found = np.flatnonzero(nonzero(slab.reshape(-1), mask))
        edges = np.searchsorted(found, np.arange(rows + 1) * n)
        indptr[first + 1 : first + rows + 1] = edges[1:] + indptr[first]
        values.append(as_bits(slab).reshape(-1).take(found).view(dense.dtype))
        if rows > 1:
            found -= np.repeat(np.arange(rows) * n, np.diff(edges))
        columns.append(found.astype(name))
    name = index_width(name, int(indptr[-1]))
    index = np.concatenate(columns).astype(name, copy=False)
    return np.concatenate(values), index, indptr.astype(name)


def csr_to_dense(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> Array:
    """Dense ``(m, n)`` array; every value keeps its bits."""
    m, n = shape
    dense = np.zeros(shape, data.dtype)
    bits, per = units(data)
    flat = units(dense.reshape(-1))[0]
    if n * per > INT32_MAX:
        indices, indptr = indices.astype("int64", copy=False), indptr.astype("int64", copy=False)
    if per == 1:
        # Added to zero as an integer, once, a value is moved.
        sparsetools.csr_todense(m, n, indptr, indices, bits, flat)
        return dense
    step = max(1, SLAB // max(1, n))
    for first in range(0, m, step):
        rows = indptr[first : min(first + step, m) + 1]
        begin, end = int(rows[0]), int(rows[-1])
        columns = (indices[begin:end, None] * per + np.arange(per, dtype=indices.dtype)).reshape(-1)
        pointers = (rows - rows[0]) * per
        part = bits[begin * per : end * per]
        into = flat[first * n * per :]
        sparsetools.csr_todense(len(rows) - 1, n * per, pointers, columns, part, into)
    return dense
