"""Conversions to CSR and between CSR and CSC where CUDA arrays lie.

Sorting would order each element by all others. Rows are sorted already: it is enough to know how
many elements of each column earlier rows have.
"""

from __future__ import annotations

from typing import Any

from sparseformats import _arrays
from sparseformats._arrays import Array
from sparseformats._dtypes import itemsize, kind
from sparseformats.formats import CSC, CSR
from sparseformats_kernels.triton.convert import listing
from sparseformats_kernels.triton.convert.edges import LINE, kind_of, whole
from sparseformats_kernels.triton.convert.numbering import Options, pointers
from sparseformats_kernels.triton.launching import Launcher

__all__ = ["csc_to_csr", "csr_to_csc", "dense_to_csr", "piece_of", "rows_of"]

COUNTED = 8  # rows of which a program counts pieces
MANY = 1 << 22  # entries of a table of counts that is always made
FEWEST, MOST = 16, 32  # rows whose elements a program places, one row after the other
ELEMENTS = 1024  # that it places at a time
STACK, WIDE = 128, 16  # counts that are summed at a time: chunks and columns


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
    constants |= {"W": piece // 4}
    launch(listing.write_pieces, m * parts if nnz else 0, given, constants, warps=1)
    indptr = indptr if width == most else lib.astype(indptr, width)
    return CSR.trusted(data=values, indices=columns, indptr=indptr, shape=(m, n))


def piece_of(name: str) -> int:
    """Columns of a row that are counted and written by themselves."""
    return LINE // itemsize(name)


def csr_to_csc(A: CSR, options: Options) -> CSC:
    """Count the columns of some rows each, add up what lies above them, and place each row."""
    lib, (m, n), name, place = A.lib, A.shape, A.dtype_name, A.device
    width = options.width(lib.dtype_name(A.indices), m, A.nnz)
    values, rows = lib.empty(A.nnz, name, place), lib.empty(A.nnz, width, place)
    if not A.nnz:
        indptr = lib.zeros(n + 1, width, place)
        return CSC.trusted(data=values, indices=rows, indptr=indptr, shape=A.shape)
    height, launch = rows_of(m, n, A.nnz), Launcher(lib, A.indptr, bits=True)
    chunks = -(-m // height)
    table, totals = lib.empty(chunks * n, "int32", place), lib.empty(n, "int32", place)
    given: dict[str, Any] = {"indices": A.indices, "indptr": A.indptr, "table": table}
    given |= {"m": m, "n": n}
    constants = {"ROWS": height, "E": ELEMENTS}
    launch(listing.count_columns, chunks, given, constants, warps=8)
    stacking = {"table": table, "totals": totals, "chunks": chunks, "n": n}
    launch(listing.stack_counts, -(-n // WIDE), stacking, {"T": STACK, "W": WIDE})
    indptr = pointers(lib, launch, totals, width)
    given |= {"data": whole(lib, A.data), "starts": indptr, "values": values, "rows": rows}
    launch(listing.place_columns, chunks, given, constants, warps=8)
    return CSC.trusted(data=values, indices=rows, indptr=indptr, shape=A.shape)


def rows_of(m: int, n: int, nnz: int) -> int:
    """Rows that a program takes: as few as the table of counts has room for."""
    return FEWEST if -(-m // FEWEST) * n <= max(MANY, nnz) else MOST


def csc_to_csr(A: CSC, options: Options) -> CSR:
    """The same on the transpose."""
    return csr_to_csc(A.T, options).T
