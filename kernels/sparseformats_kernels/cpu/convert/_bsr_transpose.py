"""Transposed BSR as BSR for NumPy arrays: a counting sort of the blocks, each turned on its way."""

from __future__ import annotations

import numpy as np
from scipy.sparse import _sparsetools as sparsetools

from sparseformats._dtypes import index_width
from sparseformats_kernels.cpu.convert._bits import Array, as_bits, to_width

__all__ = ["bsr_transpose"]


def bsr_transpose(
    data: Array,
    indices: Array,
    indptr: Array,
    shape: tuple[int, int],
    zeros: Array | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    """BSR of the transpose.

    Parameters
    ----------
    data, indices, indptr : arrays
        Canonical BSR.
    shape : (m, n)
    zeros : int64 array or None
        Flat positions of stored zeros.

    Returns
    -------
    data, indices, indptr : arrays
    zeros : int64 array or None
    """
    count, R, C = data.shape
    bits, brows, bcols = as_bits(data), len(indptr) - 1, -(-shape[1] // C)
    name = index_width(str(indices.dtype), brows, bcols)
    work = index_width(name, data.size)  # SciPy computes positions of values in it
    indices, indptr = to_width(indices, work), to_width(indptr, work)
    pointers, index = np.empty(bcols + 1, work), np.empty(count, work)
    out = np.empty((count, C, R), bits.dtype)
    given, made = (indptr, indices), (pointers, index)
    sparsetools.bsr_transpose(brows, bcols, R, C, *given, bits.reshape(-1), *made, out.reshape(-1))
    if zeros is not None:
        # The same sort tells where each block went.
        order = np.empty(count, np.int64)
        numbers = np.arange(count)
        sparsetools.csr_tocsc(brows, bcols, *given, numbers, np.empty_like(pointers), index, order)
        place = np.empty(count, np.int64)
        place[order] = numbers
        block, slot = np.divmod(zeros, R * C)
        zeros = np.sort(place[block] * (R * C) + slot % C * R + slot // C)
    return out.view(data.dtype), to_width(index, name), to_width(pointers, name), zeros
