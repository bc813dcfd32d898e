"""Dense <-> BSR."""

from __future__ import annotations

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import index_width, kind
from sparseformats.convert.blocks import Part, any_in_blocks, as_bsr, joined
from sparseformats.convert.chunks import even_chunks, limit
from sparseformats.convert.dense_csr import empty_dense
from sparseformats.convert.options import Options
from sparseformats.convert.pointers import bounds
from sparseformats.formats import BSR
from sparseformats.formats.canonical import expand
from sparseformats.formats.slots import marks

__all__ = ["bsr_to_dense", "dense_to_bsr"]


def dense_to_bsr(D: Array, options: Options) -> BSR:
    """Keep blocks with a non-zero, or with an element that the mask selects."""
    lib, size = _arrays.of(D), options.blocksize
    assert size is not None
    m, n = (int(s) for s in D.shape)
    parts = [
        _block_rows(lib, D[i:j, :], None if options.mask is None else options.mask[i:j, :], size)
        for i, j in even_chunks(lib, D, size[0])
    ]
    part = joined(lib, parts)
    return as_bsr(lib, part, part.zeros, (m, n), options)


def _block_rows(lib: ArrayLibrary, D: Array, mask: Array | None, size: tuple[int, int]) -> Part:
    """Blocks of some rows of a dense array."""
    r, c = size
    rows, cols = -(-int(D.shape[0]) // r), -(-int(D.shape[1]) // c)
    grid = (rows, r, cols, c)
    padded = _padded(lib, D, grid)
    chosen = lib.nonzero_mask(padded) if mask is None else _padded(lib, mask, grid)
    kept = lib.flatnonzero(any_in_blocks(lib, chosen, grid))
    data = _blocks(lib, padded, kept, grid)
    zeros = None
    if mask is not None:
        stored = _blocks(lib, chosen, kept, grid)
        data = lib.where(stored, data, lib.zeros(1, lib.dtype_name(data), lib.device(data)))
        zeros = marks(lib, data, stored)
    indptr = bounds(lib, kept, rows, cols) if cols else lib.zeros(rows + 1, "int64", lib.device(D))
    name = index_width("int32", cols)
    return Part(data, lib.astype(kept % max(1, cols), name), indptr, zeros)


def _padded(lib: ArrayLibrary, D: Array, grid: tuple[int, int, int, int]) -> Array:
    """Contiguous copy or view of D, filled up with zeros to whole blocks."""
    height, width = grid[0] * grid[1], grid[2] * grid[3]
    rows, cols = (int(s) for s in D.shape)
    if (rows, cols) == (height, width):
        return lib.contiguous(D)
    out = lib.zeros((height, width), lib.dtype_name(D), lib.device(D))
    out[:rows, :cols] = D
    return out


def _blocks(
    lib: ArrayLibrary, padded: Array, kept: Array, grid: tuple[int, int, int, int]
) -> Array:
    """Blocks (k, R, C) numbered in `kept` row by row."""
    rows, r, cols, c = grid
    number = int(kept.shape[0])
    brow = kept // max(1, cols)
    down = lib.arange(r, device=lib.device(kept)) * cols
    line = (brow * (r * cols) + kept - brow * cols)[:, None] + down[None, :]
    lines = lib.xp.reshape(padded, (rows * r * cols, c))
    taken = lib.take(lines, lib.xp.reshape(line, (number * r,)))
    return lib.xp.reshape(taken, (number, r, c))


def bsr_to_dense(A: BSR, options: Options) -> Array:
    """Write each row of each block to its place; fill becomes +0.0, which it need not have been."""
    lib, (m, n), (r, c) = A.lib, A.shape, A.blocksize
    rows, cols = int(A.indptr.shape[0]) - 1, -(-n // c)
    out = empty_dense(lib, (rows * r, cols * c), A.dtype_name, A.device)
    flat = lib.xp.reshape(out, (rows * r * cols, c))
    top = expand(lib, lib.astype(A.indptr, "int64"), A.nnzb) * (r * cols) + A.indices
    step = max(1, limit(A.device) // (r * c))
    down = lib.arange(r, device=A.device) * cols
    for i in range(0, A.nnzb, step):
        data = _without_fill(A, A.data[i : i + step, ...])
        line = lib.xp.reshape(top[i : i + step][:, None] + down[None, :], (-1,))
        lib.put_rows(flat, line, lib.xp.reshape(data, (int(line.shape[0]), c)))
    zeros = A.zeros
    if zeros is not None and not isinstance(zeros, str):
        line = lib.take(top, zeros // (r * c)) + zeros // c % r * cols
        lib.put(out, line * c + zeros % c, lib.take(lib.xp.reshape(A.data, (-1,)), zeros))
    return out if (rows * r, cols * c) == (m, n) else lib.copy(out[:m, :n])


def _without_fill(A: BSR, data: Array) -> Array:
    """Blocks with +0.0 wherever there is a zero that only fills, unless none can differ."""
    if isinstance(A.zeros, str) or kind(A.dtype_name) in "biu":
        return data
    zero = A.lib.zeros(1, A.dtype_name, A.device)
    return A.lib.where(A.lib.nonzero_mask(data), data, zero)
