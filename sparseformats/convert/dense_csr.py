"""Dense <-> CSR, and COO and CSC -> dense. Values are gathered and scattered, never added."""

from __future__ import annotations

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.convert.chunks import even_chunks, limit
from sparseformats.convert.options import Options
from sparseformats.convert.pointers import bounds
from sparseformats.formats import COO, CSC, CSR
from sparseformats.formats.canonical import expand

__all__ = ["coo_to_dense", "csc_to_dense", "csr_to_dense", "dense_to_csr", "empty_dense"]


def dense_to_csr(D: Array, options: Options) -> CSR:
    """Store what is not zero, or exactly what the mask selects."""
    lib = _arrays.of(D)
    m, n = (int(s) for s in D.shape)
    device = lib.device(D)
    parts = [_rows(lib, D, options.mask, i, j) for i, j in even_chunks(lib, D)]
    data = lib.concat([part[0] for part in parts]) if len(parts) > 1 else parts[0][0]
    width = options.width("int32", n, int(data.shape[0]))
    indptr, nnz = [lib.zeros(1, width, device)], 0
    for part in parts:
        indptr.append(lib.astype(part[2][1:] + nnz, width))
        nnz += int(part[0].shape[0])
    return CSR.trusted(
        data=data,
        indices=lib.concat([lib.astype(part[1], width) for part in parts]),
        indptr=lib.concat(indptr),
        shape=(m, n),
    )


def _rows(
    lib: ArrayLibrary, D: Array, mask: Array | None, first: int, last: int
) -> tuple[Array, Array, Array]:
    """Values, columns and pointers of some rows."""
    rows, n = last - first, int(D.shape[1])
    part = lib.contiguous(D[first:last, :])
    chosen = lib.nonzero_mask(part) if mask is None else mask[first:last, :]
    kept = lib.flatnonzero(chosen)
    pointers = bounds(lib, kept, rows, n) if n else lib.zeros(rows + 1, "int64", lib.device(D))
    return lib.take(lib.xp.reshape(part, (rows * n,)), kept), kept % max(1, n), pointers


def empty_dense(lib: ArrayLibrary, shape: tuple[int, int], name: str, device: str) -> Array:
    """Array of zeros, after a look at free memory."""
    m, n = shape
    lib.ensure_fits(m * n * itemsize(name), device, f"dense form of a {m} x {n} matrix")
    return lib.zeros((m, n), name, device)


def coo_to_dense(A: COO, options: Options) -> Array:
    """Write each stored value to its place."""
    return _scattered(A, A.row, A.col)


def csr_to_dense(A: CSR, options: Options) -> Array:
    """Write each stored value to its place."""
    return _scattered(A, expand(A.lib, A.indptr, A.nnz), A.indices)


def csc_to_dense(A: CSC, options: Options) -> Array:
    """Write each stored value to its place."""
    return _scattered(A, A.indices, expand(A.lib, A.indptr, A.nnz))


def _scattered(A: COO | CSR | CSC, row: Array, col: Array) -> Array:
    lib, step = A.lib, limit(A.device)
    out = empty_dense(lib, A.shape, A.dtype_name, A.device)
    for i in range(0, A.nnz, step):
        # The array exists, so its addresses fit int64.
        place = lib.astype(row[i : i + step], "int64") * A.shape[1]
        place += col[i : i + step]
        lib.put(out, place, A.data[i : i + step])
    return out
