"""Dense NumPy arrays to and from BSR.

A block is present if the bits of its elements, or-ed together, are those of no zero: one pass over
the dense array that reads whole rows. Rows of blocks are then moved as units of ``C`` elements.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparseformats._dtypes import index_width
from sparseformats_kernels.cpu.convert._bits import (
    CHUNK,
    Array,
    as_bits,
    nonzero,
    ranges,
    row_units,
)

__all__ = ["bsr_to_dense", "dense_to_bsr"]

# Elements of the dense array that are looked at together: a few hundred runs on a large array, as
# the first pass only streams; and slots of blocks that are written to a dense array together.
SLAB = 16 * CHUNK
SLOTS = 2 * CHUNK


def dense_to_bsr(dense: Array, blocksize: tuple[int, int]) -> tuple[Array, Array, Array]:
    """Canonical BSR of the blocks that hold anything but zeros: data, indices, indptr."""
    (m, n), (R, C) = dense.shape, blocksize
    brows, bcols = -(-m // R), -(-n // C)
    name = index_width("int32", brows * R, bcols * C)
    step = max(1, SLAB // max(1, R * n))
    parts, indptr = [np.empty(0, name)], np.zeros(brows + 1, np.int64)
    for first in range(0, brows, step):
        present = _present(_slab(dense, first, step, R), R, C)
        rows = len(present)
        found = np.flatnonzero(present)
        edges = np.searchsorted(found, np.arange(rows + 1) * bcols)
        indptr[first + 1 : first + rows + 1] = edges[1:] + indptr[first]
        found -= np.repeat(np.arange(rows) * bcols, np.diff(edges))
        parts.append(found.astype(name))
    indices = np.concatenate(parts)
    blocks = np.empty((len(indices), R, C), as_bits(dense[:0]).dtype)
    for first in range(0, brows, step):
        last = min(first + step, brows)
        begin, end = int(indptr[first]), int(indptr[last])
        if begin < end:
            slab = _padded(_slab(dense, first, step, R), (last - first) * R, bcols * C)
            row = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
            _gather(slab, row, indices[begin:end], blocks[begin:end])
    name = index_width(name, len(indices))
    return blocks.view(dense.dtype), indices.astype(name, copy=False), indptr.astype(name)


def _slab(dense: Array, first: int, step: int, R: int) -> Array:
    return np.ascontiguousarray(dense[first * R : (first + step) * R])


def _padded(slab: Array, rows: int, columns: int) -> Array:
    """Bits of the slab with zeros to whole blocks."""
    bits = as_bits(slab)
    if slab.shape == (rows, columns):
        return bits
    full = np.zeros((rows, columns), bits.dtype)
    full[: slab.shape[0], : slab.shape[1]] = bits
    return full


def _present(slab: Array, R: int, C: int) -> NDArray[np.bool_]:
    """Mask ``(brows, bcols)`` of blocks that are not all zeros."""
    (rows, n), bcols = slab.shape, -(-slab.shape[1] // C)
    whole, words = rows // R, as_bits(slab)
    if words.dtype.kind == "c":
        words = words.view("i8")
    width = words.shape[1]
    ored = np.empty((-(-rows // R), width), words.dtype)
    np.bitwise_or.reduce(words[: whole * R].reshape(whole, R, width), axis=1, out=ored[:whole])
    if rows % R:
        np.bitwise_or.reduce(words[whole * R :], axis=0, out=ored[whole])
    mask = np.zeros((len(ored), bcols * C), np.bool_)
    mask[:, :n] = nonzero(ored.view(slab.dtype))
    return _any_of(mask.reshape(-1), C).reshape(len(ored), bcols)


def _any_of(mask: NDArray[np.bool_], group: int) -> NDArray[np.bool_]:
    """Or of each `group` neighbours."""
    length = min(8, group & -group)
    words = mask.view(f"u{length}").reshape(-1, group // length)
    if words.shape[1] > 16:
        return np.asarray(words.any(axis=1))
    ored = words[:, 0]
    for column in range(1, words.shape[1]):
        ored = ored | words[:, column]
    return np.asarray(ored != 0)


def _gather(slab: Array, row: Array, column: Array, out: Array) -> None:
    """Copy blocks of the slab."""
    count, R, C = out.shape
    bcols = slab.shape[1] // C
    if count * R * C == slab.size:
        grid = slab.reshape(-1, R, bcols, C)
        out.reshape(-1, bcols, R, C)[...] = grid.transpose(0, 2, 1, 3)
        return
    units, into = row_units(slab, C), row_units(out, C)
    place = _places(row, column, R, bcols)
    np.take(units, place, axis=0, out=into, mode="clip")  # the other modes copy `out` once more


def _places(row: Array, column: Array, R: int, bcols: int) -> Array:
    """Number of each row of each block among the rows of C elements of a slab."""
    first = row * (R * bcols) + column
    return (first[:, None] + np.arange(0, R * bcols, bcols)).reshape(-1)


def bsr_to_dense(
    data: Array,
    indices: Array,
    indptr: Array,
    shape: tuple[int, int],
    zeros: Array | str | None = None,
) -> Array:
    """Dense ``(m, n)`` array; what is stored keeps its bits, fill becomes +0.0."""
    n, (_, R, C) = shape[1], data.shape
    bcols = -(-n // C)
    dense = np.zeros(shape, as_bits(data[:0]).dtype)
    for first, last in ranges(indptr, max(1, SLOTS // (R * C))):
        begin, end = int(indptr[first]), int(indptr[last])
        if begin == end:
            continue
        into = dense[first * R : last * R]
        shaped = into.shape == ((last - first) * R, bcols * C)
        slab = into if shaped else np.zeros(((last - first) * R, bcols * C), dense.dtype)
        row = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
        blocks = _without_negative_fill(data, begin, end, zeros)
        _spread(as_bits(blocks), row, indices[begin:end], slab)
        if not shaped:
            into[...] = slab[: into.shape[0], :n]
    return dense.view(data.dtype)


def _without_negative_fill(data: Array, begin: int, end: int, zeros: Array | str | None) -> Array:
    """Blocks whose fill is +0.0; a copy only where there is a -0.0."""
    blocks = data[begin:end]
    if isinstance(zeros, str) or data.dtype.kind in "biu":
        return blocks
    parts = blocks.view(f"i{data.dtype.itemsize // (1 + (data.dtype.kind == 'c'))}")
    if parts.min() != np.iinfo(parts.dtype).min:  # the bits of -0.0 are the smallest integer
        return blocks
    fill = ~nonzero(blocks)
    if zeros is not None:
        size = data[0].size
        low, high = np.searchsorted(zeros, [begin * size, end * size])
        fill.reshape(-1)[zeros[low:high] - begin * size] = False
    cleaned = blocks.copy()
    cleaned[fill] = 0
    return cleaned


def _spread(blocks: Array, row: Array, column: Array, slab: Array) -> None:
    """Copy blocks into a slab of zeros."""
    count, R, C = blocks.shape
    bcols = slab.shape[1] // C
    if count * R * C == slab.size:
        grid = slab.reshape(-1, R, bcols, C)
        grid[...] = blocks.reshape(-1, bcols, R, C).transpose(0, 2, 1, 3)
        return
    row_units(slab, C)[_places(row, column, R, bcols)] = row_units(blocks, C)
