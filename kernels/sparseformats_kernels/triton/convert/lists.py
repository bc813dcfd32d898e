"""Conversions to CSR and between CSR and CSC where CUDA arrays lie.

Sorting would order each element by all others. Rows are sorted already: it is enough to know how
many elements of each column earlier rows have. Of 32 rows that is a number of bits.
"""

from __future__ import annotations

from typing import Any

from sparseformats import _arrays
from sparseformats._arrays import Array
from sparseformats._dtypes import itemsize, kind
from sparseformats.formats import CSC, CSR
from sparseformats_kernels.triton.convert import listing
from sparseformats_kernels.triton.convert.common import LINE, kind_of, whole
from sparseformats_kernels.triton.convert.numbering import Options, pointers
from sparseformats_kernels.triton.launching import Launcher

__all__ = ["csc_to_csr", "csr_to_csc", "dense_to_csr", "parts_of", "piece_of"]

COUNTED = 8  # rows of which a program counts pieces
VECTOR = 16  # bytes of a row that a lane looks at
ROWS = 32  # that share an integer for each column: a bit a row
MARKED = 1024  # elements of a row that are marked at a time
STACK, WIDE = 128, 16  # integers whose bits are summed at a time: chunks of rows, and columns
PLACED = 8  # elements of each of the rows that are placed at a time
PARTS, BUSY = 64, 2  # programs that share the rows of a chunk at most, and turns that each takes


def dense_to_csr(D: Array, options: Options) -> CSR:
    """Store what is not zero: count it in pieces of rows, then write it."""
    lib, (m, n) = _arrays.of(D), (int(s) for s in D.shape)
    name, place = lib.dtype_name(D), lib.device(D)
    most, steps = options.width("int32", n, m * n), lib.strides(D)
    if steps[1] != itemsize(name) or kind(name) == "c":
        D = lib.contiguous(D)
        steps = lib.strides(D)
    launch, piece = Launcher(lib, D, bits=True), piece_of(name)
    parts = -(-n // piece)
    given: dict[str, Any] = {"dense": D, "row_step": steps[0] // itemsize(name), "n": n}
    constants = {"E": piece, "KIND": kind_of(name)}
    counts = lib.empty(m * parts, "int32", place)
    counting = given | {"counts": counts, "m": m, "parts": parts}
    programs = -(-m // COUNTED) * parts
    launch(listing.count_pieces, programs, counting, constants | {"RB": COUNTED})
    starts = pointers(lib, launch, counts, most)
    if parts == 1:
        indptr = starts
    else:
        indptr = lib.contiguous(starts[::parts]) if parts else lib.zeros(m + 1, most, place)
    nnz = int(lib.item(starts[m * parts])) if m * parts else 0
    width = options.width("int32", n, nnz)
    values, columns = lib.empty(nnz, name, place), lib.empty(nnz, width, place)
    given |= {"starts": starts, "values": values, "columns": columns, "parts": parts}
    each = VECTOR // itemsize(name)
    constants |= {"W": 32 * each, "V": each}
    launch(listing.write_pieces, m * parts if nnz else 0, given, constants, warps=1)
    indptr = indptr if width == most else lib.astype(indptr, width)
    return CSR.trusted(data=values, indices=columns, indptr=indptr, shape=(m, n))


def piece_of(name: str) -> int:
    """Columns of a row that are counted and written by themselves."""
    return LINE // itemsize(name)


def csr_to_csc(A: CSR, options: Options) -> CSC:
    """Mark which rows have a column, sum the marks above each, and place all elements at once."""
    lib, (m, n), name, place = A.lib, A.shape, A.dtype_name, A.device
    width = options.width(lib.dtype_name(A.indices), m, A.nnz)
    values, rows = lib.empty(A.nnz, name, place), lib.empty(A.nnz, width, place)
    if not A.nnz:
        indptr = lib.zeros(n + 1, width, place)
        return CSC.trusted(data=values, indices=rows, indptr=indptr, shape=A.shape)
    chunks, launch = -(-m // ROWS), Launcher(lib, A.indptr, bits=True)
    marks, above = lib.zeros(chunks * n, "int32", place), lib.empty(chunks * n, "int32", place)
    totals = lib.empty(n, "int32", place)
    given: dict[str, Any] = {"indices": A.indices, "indptr": A.indptr, "marks": marks, "n": n}
    launch(listing.mark_rows, m, given, {"ROWS": ROWS, "E": MARKED})
    stacking = {"marks": marks, "above": above, "totals": totals, "chunks": chunks, "n": n}
    launch(listing.stack_marks, -(-n // WIDE), stacking, {"T": STACK, "W": WIDE})
    indptr = pointers(lib, launch, totals, width)
    parts = parts_of(m, A.nnz)
    given |= {"data": whole(lib, A.data), "above": above, "starts": indptr}
    given |= {"values": values, "rows": rows, "m": m, "parts": parts}
    launch(listing.place_columns, chunks * parts, given, {"ROWS": ROWS, "E": PLACED})
    return CSC.trusted(data=values, indices=rows, indptr=indptr, shape=A.shape)


def parts_of(m: int, nnz: int) -> int:
    """Programs that share the rows of a chunk: each takes some turns if rows are even."""
    return max(1, min(PARTS, nnz // (m * PLACED * BUSY)))


def csc_to_csr(A: CSC, options: Options) -> CSR:
    """The same on the transpose."""
    return csr_to_csc(A.T, options).T
