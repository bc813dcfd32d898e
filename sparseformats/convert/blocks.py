"""Block rows taken apart and put together again."""

from __future__ import annotations

import math
from typing import NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.convert.chunks import Chunk
from sparseformats.convert.options import Options
from sparseformats.formats import BSR
from sparseformats.formats.canonical import expand
from sparseformats.formats.slots import count_inside

__all__ = [
    "Part",
    "any_in_blocks",
    "as_bsr",
    "inside_count",
    "joined",
    "joined_pointers",
    "rows_of",
]


class Part(NamedTuple):
    """Blocks of a chunk of rows.

    `indptr` is int64 still: how many blocks there are is known at the end. `zeros` are positions
    of stored zeros, None without any.
    """

    data: Array
    indices: Array
    indptr: Array
    zeros: Array | None


def rows_of(a: BSR, chunk: Chunk) -> BSR:
    """The block rows of a chunk as a matrix of their own; marks are those of the chunk."""
    first, last, start, stop = chunk
    if stop - start == a.nnzb and last - first == int(a.indptr.shape[0]) - 1:
        return a
    lib, (g, h), (m, n) = a.lib, a.blocksize, a.shape
    zeros = a.zeros
    if zeros is not None and not isinstance(zeros, str):
        ends = lib.asarray([start * g * h, stop * g * h], "int64", a.device)
        low, high = (int(x) for x in lib.to_numpy(lib.searchsorted(zeros, ends)))
        zeros = zeros[low:high] - start * g * h
    return BSR.trusted(
        data=a.data[start:stop, ...],
        indices=a.indices[start:stop],
        indptr=a.indptr[first : last + 1] - start,
        shape=(min(last * g, m) - first * g, n),
        zeros=zeros,
    )


def joined(lib: ArrayLibrary, parts: list[Part]) -> Part:
    """Chunks of rows one below the other."""
    if len(parts) == 1:
        return parts[0]
    zeros, slots = [], 0
    for part in parts:
        if part.zeros is not None:
            zeros.append(part.zeros + slots)
        slots += math.prod(int(s) for s in part.data.shape)
    return Part(
        lib.concat([part.data for part in parts]),
        lib.concat([part.indices for part in parts]),
        joined_pointers(lib, [part.indptr for part in parts]),
        lib.concat(zeros) if zeros else None,
    )


def joined_pointers(lib: ArrayLibrary, parts: list[Array]) -> Array:
    """Pointers over the rows of all parts, each of which begins at 0."""
    found, before = parts[:1], parts[0][-1:]
    for indptr in parts[1:]:
        found.append(indptr[1:] + before)
        before = before + indptr[-1:]
    return lib.concat(found) if len(found) > 1 else found[0]


def inside_count(
    lib: ArrayLibrary, indptr: Array, indices: Array, size: tuple[int, int], shape: tuple[int, int]
) -> int:
    """Slots of blocks that lie inside the shape; reads positions only where it is ragged."""
    count = int(indices.shape[0])
    if not (shape[0] % size[0] or shape[1] % size[1]):
        return count * size[0] * size[1]
    return count_inside(lib, expand(lib, indptr, count), indices, size, shape)


def any_in_blocks(lib: ArrayLibrary, mask: Array, grid: tuple[int, int, int, int]) -> Array:
    """Which blocks of a mask (rows, R, columns, C) hold anything: (rows, columns)."""
    rows, r, cols, c = grid
    xp = lib.xp
    # Rows first: they are long, and leave little for the short axis.
    if r > 1:
        mask = xp.any(xp.reshape(mask, (rows, r, cols * c)), axis=1)
    mask = xp.reshape(mask, (rows, cols, c))
    return xp.any(mask, axis=2) if c > 1 else mask


def as_bsr(
    lib: ArrayLibrary,
    part: Part,
    zeros: Array | str | None,
    shape: tuple[int, int],
    options: Options,
) -> BSR:
    """The whole matrix, with index arrays as wide as they must be."""
    count = int(part.indices.shape[0])
    cols = -(-shape[1] // int(part.data.shape[2]))
    width = options.width(lib.dtype_name(part.indices), cols, count)
    return BSR.trusted(
        data=part.data,
        indices=lib.astype(part.indices, width),
        indptr=lib.astype(part.indptr, width),
        shape=shape,
        zeros=zeros,
    )
