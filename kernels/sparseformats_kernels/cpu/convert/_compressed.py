"""COO, CSR and CSC of NumPy arrays; canonical in, canonical out."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import _sparsetools as sparsetools

from sparseformats._dtypes import index_width
from sparseformats_kernels.cpu.convert._bits import Array, as_bits, to_width

__all__ = ["compress", "expand", "sort_by_column", "transpose"]

# A search in the sorted rows costs about 30 elements of a histogram (measured, 8192 rows).
_SEARCH_COST = 32


def compress(major: Array, count: int) -> Array:
    """Pointers ``(count + 1,)`` of ascending row numbers, in their dtype."""
    if len(major) > _SEARCH_COST * count:
        edges = np.arange(count + 1, dtype=major.dtype)
        return np.searchsorted(major, edges).astype(major.dtype)
    pointers = np.zeros(count + 1, major.dtype)
    if len(major):
        np.cumsum(np.bincount(major, minlength=count), out=pointers[1:])
    return pointers


def expand(pointers: Array) -> Array:
    """Row number of each element, in the dtype of the pointers."""
    rows = np.arange(len(pointers) - 1, dtype=pointers.dtype)
    return np.repeat(rows, np.diff(pointers))


def transpose(
    data: Array, indices: Array, pointers: Array, shape: tuple[int, int]
) -> tuple[Array, Array, Array]:
    """CSR ``(m, n)`` to CSC, and CSC of the transpose to CSR: data, indices, pointers."""
    m, n = shape
    name = index_width(str(indices.dtype), m, n)
    indices, pointers = to_width(indices, name), to_width(pointers, name)
    bits = as_bits(data)
    out: Any = np.empty_like(bits)
    index, out_pointers = np.empty_like(indices), np.empty(n + 1, name)
    sparsetools.csr_tocsc(m, n, pointers, indices, bits, out_pointers, index, out)
    return out.view(data.dtype), index, out_pointers


def sort_by_column(
    data: Array, row: Array, col: Array, shape: tuple[int, int]
) -> tuple[Array, Array, Array]:
    """COO ``(m, n)`` to CSC: data, indices, pointers."""
    m, n = shape
    bits, pointers = as_bits(data), np.empty(n + 1, row.dtype)
    out, index = np.empty_like(bits), np.empty_like(row)
    # Told that columns are rows; those of one column keep their order, that of their rows.
    sparsetools.coo_tocsr(n, m, len(data), col, row, bits, pointers, index, out)
    return out.view(data.dtype), index, pointers
