"""Any format as rows of the elements that meet a dense operand, made on the matrix's own device.

These are the stored elements of COO, CSR, CSC, every place inside the logical shape of a stored
block of BSR and Blocked-ELL, and the non-zeros of n:m. Padding and empty slots never appear.
"""

from __future__ import annotations

from typing import NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.formats import BSR, COO, CSC, CSR, NM, BlockedELL, SparseMatrix
from sparseformats.formats.canonical import expand

__all__ = ["Blocks", "Rows", "as_dense", "as_rows", "block_list"]


class Rows(NamedTuple):
    """Compressed rows; columns ascend within each row."""

    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        return int(self.data.shape[0])


class Blocks(NamedTuple):
    """Stored blocks: block row, block column (nnzb,) and values (nnzb, R, C), sorted by row."""

    row: Array
    col: Array
    data: Array


def as_rows(A: SparseMatrix, transposed: bool, dtype: str, index: str = "int32") -> Rows:
    """Elements of `A`, or of its transpose, in `dtype`.

    Shares buffers that are already of that kind. The shape and the number of elements must fit
    the type of indices.
    """
    lib = A.lib
    m, k = A.shape[::-1] if transposed else A.shape
    if isinstance(A, (BSR, BlockedELL)):
        data, indices, indptr = _rows_of_blocks(A, transposed, (m, k))
    elif isinstance(A, CSR) and not transposed:
        data, indices, indptr = lib.native(A.data), A.indices, A.indptr
    else:
        data, indices, indptr = _rows_of_elements(A, transposed, m)
    return Rows(
        lib.contiguous(lib.astype(data, dtype)),
        lib.contiguous(lib.astype(indices, index)),
        lib.contiguous(lib.astype(indptr, index)),
        (m, k),
    )


def _pointers(lib: ArrayLibrary, row: Array, rows: int) -> Array:
    """Pointers over rows from the ascending row of each element: no atomics, the same each time."""
    index = lib.arange(rows + 1, lib.dtype_name(row), lib.device(row))
    return lib.searchsorted(row, index)


def _rows_of_elements(A: SparseMatrix, transposed: bool, rows: int) -> tuple[Array, Array, Array]:
    lib = A.lib
    row, col, data, by_row = _triple(A)
    if transposed:
        row, col, by_row = col, row, False
    if not by_row:  # each column's elements follow each other in order: a stable sort keeps that
        order = lib.argsort(row)
        row, col, data = (lib.take(x, order) for x in (row, col, data))
    return data, col, _pointers(lib, row, rows)


def _triple(A: SparseMatrix) -> tuple[Array, Array, Array, bool]:
    """Row, column and value of each element, and whether they are sorted by row."""
    lib = A.lib
    if isinstance(A, NM):
        return (*_triple_of_groups(A), True)
    data = lib.native(A.data)
    if isinstance(A, COO):
        return A.row, A.col, data, True
    if isinstance(A, CSR):
        return expand(lib, A.indptr, A.nnz), A.indices, data, True
    if isinstance(A, CSC):
        return A.indices, expand(lib, A.indptr, A.nnz), data, False
    raise TypeError(f"expected a matrix of elements, got {A.format}")


def _triple_of_groups(A: NM) -> tuple[Array, Array, Array]:
    lib = A.lib
    groups, n = (int(s) for s in A.data.shape[1:])
    flat = lib.xp.reshape(lib.native(A.data), (-1,))
    keep = lib.flatnonzero(lib.nonzero_mask(flat))
    place = lib.astype(lib.take(lib.xp.reshape(A.indices, (-1,)), keep), "int64")
    group = keep // n
    col = group % groups * A.m + place if groups else place
    row = group // groups if groups else group
    return row, col, lib.take(flat, keep)


def block_list(A: BSR | BlockedELL, transposed: bool = False) -> Blocks:
    """Stored blocks of a block format (of its transpose), indices int64."""
    lib = A.lib
    data = lib.native(A.data)
    if isinstance(A, BSR):
        row, col = expand(lib, A.indptr, int(A.indices.shape[0])), A.indices
    else:
        rows, width = (int(s) for s in A.col_indices.shape)
        flat = lib.xp.reshape(A.col_indices, (-1,))
        used = lib.flatnonzero(flat >= 0)
        row, col = used // max(1, width), lib.take(flat, used)
        data = lib.take(lib.xp.reshape(data, (rows * width, *A.blocksize)), used)
    row, col = lib.astype(row, "int64"), lib.astype(col, "int64")
    if transposed:
        order = lib.argsort(col)
        row, col = lib.take(col, order), lib.take(row, order)
        data = lib.take(data, order).mT
    return Blocks(row, col, data)


def _rows_of_blocks(
    A: BSR | BlockedELL, transposed: bool, shape: tuple[int, int]
) -> tuple[Array, Array, Array]:
    """Every place of a stored block: the rows of a block row one after the other."""
    lib, (row, col, data) = A.lib, block_list(A, transposed)
    (m, k), (count, r, c) = shape, (int(s) for s in data.shape)
    block_rows, device = -(-m // r), lib.device(data)
    starts = _pointers(lib, row, block_rows)
    lengths = starts[1:] - starts[:-1]
    inner = lib.arange(c, device=device)
    # Where row 0 of each block begins, and how far its block row's next row is from there.
    first = lib.take(starts, row) * (r * c)
    first = first + (lib.arange(count, device=device) - lib.take(starts, row)) * c
    step = lib.take(lengths, row) * c
    place = first[:, None, None] + step[:, None, None] * lib.arange(r, device=device)[None, :, None]
    place = lib.xp.reshape(place + inner[None, None, :], (-1,))
    column = col[:, None, None] * c + inner[None, None, :]
    column = lib.xp.broadcast_to(column, (count, r, c))
    total = (count * r * c,)
    values = lib.scatter(total, place, lib.xp.reshape(data, (-1,)))
    columns = lib.scatter(total, place, lib.xp.reshape(column, (-1,)))
    tops = starts[:-1, None] * (r * c)
    tops = tops + lengths[:, None] * c * lib.arange(r, device=device)[None, :]
    end = lib.full(1, count * r * c, "int64", device)
    indptr = lib.concat([lib.xp.reshape(tops, (-1,)), end])[: m + 1]
    return _inside(lib, values, columns, indptr, k)


def _inside(
    lib: ArrayLibrary, data: Array, col: Array, indptr: Array, k: int
) -> tuple[Array, Array, Array]:
    """What lies within `indptr` and left of column k."""
    end = int(lib.item(indptr[-1]))
    data, col = data[:end], col[:end]
    inside = col < k
    if lib.count_nonzero(inside) == end:
        return data, col, indptr
    keep = lib.flatnonzero(inside)
    before = lib.concat([lib.zeros(1, "int64", lib.device(col)), lib.cumsum(inside)])
    return lib.take(data, keep), lib.take(col, keep), lib.take(before, indptr)


def as_dense(A: SparseMatrix, transposed: bool, dtype: str) -> Array:
    """The elements in a dense array, +0 elsewhere; a view of a larger one where blocks jut out."""
    lib = A.lib
    if isinstance(A, (BSR, BlockedELL)):
        dense = _dense_of_blocks(A, dtype)
    else:
        m, k = A.shape
        row, col, data, _ = _triple(A)
        place = lib.astype(row, "int64") * k + lib.astype(col, "int64")
        dense = lib.scatter((m, k), place, lib.astype(data, dtype))
    return dense.mT if transposed else dense


def _dense_of_blocks(A: BSR | BlockedELL, dtype: str) -> Array:
    lib, (m, k) = A.lib, A.shape
    row, col, data = block_list(A)
    r, c = (int(s) for s in data.shape[1:])
    rows, cols = -(-m // r), -(-k // c)
    tiles = lib.zeros((rows * cols, r, c), dtype, A.device)
    lib.put_rows(tiles, row * cols + col, lib.astype(data, dtype))
    grid = lib.xp.permute_dims(lib.xp.reshape(tiles, (rows, cols, r, c)), (0, 2, 1, 3))
    return lib.xp.reshape(grid, (rows * r, cols * c))[:m, :k]
