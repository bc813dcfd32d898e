"""Dense <-> n:m."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.convert.chunks import even_chunks
from sparseformats.convert.csr_nm import csr_to_nm
from sparseformats.convert.dense_csr import dense_to_csr, empty_dense
from sparseformats.convert.options import Options
from sparseformats.formats import NM
from sparseformats.formats.groups import crowded_groups, refuse_crowded

__all__ = ["dense_to_nm", "nm_to_dense"]

WIDEST = 8  # positions of a group whose patterns are looked up in a table


def dense_to_nm(D: Array, options: Options) -> NM:
    """Store what is not zero, or exactly what the mask selects.

    Raises
    ------
    PatternError
        A group has more than n non-zeros.
    MemoryError
        The target is larger than free memory.
    """
    n, m = options.n, options.m
    assert n is not None
    assert m is not None
    if options.mask is not None or m > WIDEST:
        return csr_to_nm(dense_to_csr(D, options), options)
    lib, (rows, k) = _arrays.of(D), (int(s) for s in D.shape)
    count, name, device = -(-k // m), lib.dtype_name(D), lib.device(D)
    size = rows * count * n
    lib.ensure_fits(size * (itemsize(name) + 1), device, f"{n}:{m} form of a {rows} x {k} matrix")
    data = lib.empty((rows, count, n), name, device)
    indices = lib.empty((rows, count, n), "uint8", device)
    tables = [lib.from_numpy(table, device) for table in _tables(n, m)]
    crowded: list[tuple[int, int, int]] = []
    for i, j in even_chunks(lib, D) if size else ():
        part = _padded(lib, D[i:j, :], count * m)
        nonzero = lib.nonzero_mask(part)
        code = _codes(lib, nonzero, m)
        crowded += crowded_groups(lib, lib.take(tables[0], code), i * count, n)
        if crowded:
            continue  # only counted from here on
        position = lib.take(tables[1], code)
        first = lib.arange((j - i) * count, device=device) * m
        place = lib.reshape(position + first[:, None], (-1,))
        values = lib.take(lib.reshape(part, (-1,)), place)
        used = lib.take(lib.reshape(nonzero, (-1,)), place)
        # What is left of a group is +0.0, whatever zero lay there.
        values = lib.where(used, values, lib.zeros(1, name, device))
        data[i:j, ...] = lib.reshape(values, (j - i, count, n))
        indices[i:j, ...] = lib.reshape(position, (j - i, count, n))
    if crowded:
        refuse_crowded(crowded, count, n, m)
    return NM.trusted(data=data, indices=indices, shape=(rows, k), n=n, m=m, zeros=None, side=None)


@lru_cache(maxsize=32)
def _tables(n: int, m: int) -> tuple[Any, Any]:
    """By the pattern of a group, bit i for position i: non-zeros, and the n positions of slots.

    Slots are the non-zeros and the smallest free positions, ascending. Of crowded groups the first
    n non-zeros are named.
    """
    pattern = np.arange(1 << m)
    used = (pattern[:, None] >> np.arange(m)[None, :] & 1).astype(bool)
    order = np.argsort(~used, axis=1, kind="stable")[:, :n]
    return used.sum(axis=1).astype(np.uint8), np.sort(order, axis=1).astype(np.uint8)


def _padded(lib: ArrayLibrary, D: Array, width: int) -> Array:
    """Contiguous rows, filled up with zeros to whole groups."""
    rows, k = (int(s) for s in D.shape)
    if k == width:
        return lib.contiguous(D)
    out = lib.zeros((rows, width), lib.dtype_name(D), lib.device(D))
    out[:, :k] = D
    return out


def _codes(lib: ArrayLibrary, nonzero: Array, m: int) -> Array:
    """Pattern of each group as an index of the tables."""
    bits = lib.reshape(lib.astype(nonzero, "uint8"), (-1, m))
    code = bits[:, 0]
    for i in range(1, m):
        code = code | (bits[:, i] << i)
    return lib.astype(code, "int64")


def nm_to_dense(A: NM, options: Options) -> Array:
    """Write every slot to its place: those that are not stored hold +0, as the rest does."""
    lib, xp, (rows, k) = A.lib, A.lib.xp, A.shape
    count = int(A.data.shape[1])
    out = empty_dense(lib, (rows, k), A.dtype_name, A.device)
    group = (lib.arange(count, device=A.device) * A.m)[None, :, None]
    for i, j in even_chunks(lib, A.data):
        row = lib.arange(j - i, device=A.device) + i
        col = group + lib.astype(A.indices[i:j, :, :], "int64")
        place = xp.reshape(row[:, None, None] * k + col, (-1,))
        values = xp.reshape(A.data[i:j, :, :], (-1,))
        if k % A.m:
            inside = lib.flatnonzero(col < k)
            place, values = lib.take(place, inside), lib.take(values, inside)
        lib.put(out, place, values)
    if A.side is not None:
        place = lib.astype(A.side.row, "int64") * k + A.side.col
        lib.put(out, place, A.side.data)
    return out
