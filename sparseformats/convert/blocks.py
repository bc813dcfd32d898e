"""Block rows taken apart and put together again."""

from __future__ import annotations

from typing import NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.convert.chunks import Chunk
from sparseformats.convert.options import Options
from sparseformats.formats import BSR
from sparseformats.formats.canonical import expand
from sparseformats.formats.slots import count_inside

__all__ = ["Part", "as_bsr", "inside_count", "joined", "rows_of"]


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
    indptr, zeros, blocks = [parts[0].indptr[:1]], [], 0
    size = int(parts[0].data.shape[1]) * int(parts[0].data.shape[2])
    for part in parts:
        indptr.append(part.indptr[1:] + blocks)
        if part.zeros is not None:
            zeros.append(part.zeros + blocks * size)
        blocks += int(part.data.shape[0])
    return Part(
        lib.concat([part.data for part in parts]),
        lib.concat([part.indices for part in parts]),
        lib.concat(indptr),
        lib.concat(zeros) if zeros else None,
    )


def inside_count(
    lib: ArrayLibrary, indptr: Array, indices: Array, size: tuple[int, int], shape: tuple[int, int]
) -> int:
    """Slots of blocks that lie inside the shape; reads positions only where it is ragged."""
    count = int(indices.shape[0])
    if not (shape[0] % size[0] or shape[1] % size[1]):
        return count * size[0] * size[1]
    return count_inside(lib, expand(lib, indptr, count), indices, size, shape)


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
