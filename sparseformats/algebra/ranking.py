"""Which non-zeros of each n:m group are the largest: what checking and pruning both ask.

Rows are taken in chunks. Groups that keep the pattern need no ranking; the others are laid out as
dense keys, (groups, m), and sorted along their last axis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import VALUE_DTYPES, itemsize, kind
from sparseformats.algebra.common import as_csr, cast, refuse_grad
from sparseformats.algebra.slicing import select_rows
from sparseformats.algebra.values import eliminate_zeros
from sparseformats.convert import asformat, from_dense
from sparseformats.convert.chunks import even_chunks, row_chunks
from sparseformats.formats import CSR, SparseMatrix
from sparseformats.formats.canonical import expand
from sparseformats.formats.groups import check_pattern_numbers

__all__ = ["Part", "descending", "operand", "parsed", "parts"]

_PATTERN = re.compile(r"([1-9][0-9]*):([1-9][0-9]*)")


def parsed(what: str, pattern: Any) -> tuple[int, int]:
    """n and m of a pattern string.

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(pattern, str):
        raise TypeError(f"{what}: pattern must be a string such as '2:4', got {pattern!r}")
    match = _PATTERN.fullmatch(pattern)
    if match is None:
        raise ValueError(f"{what}: pattern must be 'n:m' such as '2:4', got {pattern!r}")
    n, m = int(match[1]), int(match[2])
    check_pattern_numbers(n, m)
    return n, m


def operand(what: str, W: Any) -> Any:
    """A matrix of ours, or a dense 2-D array; sparse objects of others are converted.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
    """
    if isinstance(W, (list, tuple)):
        W = np.asarray(W)
    if not isinstance(W, SparseMatrix) and not _is_dense(W):
        W = asformat(W)
    lib = W.lib if isinstance(W, SparseMatrix) else _arrays.of(W)
    if isinstance(W, SparseMatrix):
        refuse_grad(what, lib, *W.value_buffers())
        return W
    refuse_grad(what, lib, W)
    name = lib.dtype_name(W)
    if name not in VALUE_DTYPES[lib.name]:
        raise TypeError(
            f"{what}: values of dtype {name} are not supported for {lib.name} arrays, "
            f"expected one of {', '.join(VALUE_DTYPES[lib.name])}"
        )
    if len(W.shape) != 2:
        raise ValueError(f"{what} takes a 2-D array, got shape {tuple(W.shape)}")
    return lib.native(W)


def _is_dense(W: Any) -> bool:
    strided = str(getattr(W, "layout", "torch.strided")) == "torch.strided"
    return strided and _arrays.is_array(W) and not _arrays.is_packed(W)


class Part(NamedTuple):
    """Non-zeros of some rows, and the groups that have any.

    `kept` (nnz,) marks the n largest of each group; `group_row`, `group` and `counts` say of
    each group where it is and how many non-zeros it has.
    """

    lib: ArrayLibrary
    data: Array
    row: Array
    col: Array
    kept: Array
    group_row: Array
    group: Array
    counts: Array


def parts(W: Any, n: int, m: int) -> Iterator[Part]:
    """Chunks of rows with a verdict on each non-zero; chunks without non-zeros are left out."""
    for first, A in _chunks(W):
        if A.nnz:
            yield _judged(A, first, n, m)


def _chunks(W: Any) -> Iterator[tuple[int, CSR]]:
    """Non-zeros in CSR by chunks of rows."""
    if not isinstance(W, SparseMatrix):
        lib = _arrays.of(W)
        for i, j in even_chunks(lib, W):
            made = from_dense(W[i:j, :], "csr")
            assert isinstance(made, CSR)
            yield i, made
        return
    A = eliminate_zeros(as_csr(W))
    assert isinstance(A, CSR)
    for chunk in row_chunks(A.lib, A.indptr, A.nnz):
        yield chunk.first, select_rows(A, range(chunk.first, chunk.last))


def _judged(A: CSR, first: int, n: int, m: int) -> Part:
    lib = A.lib
    row = expand(lib, lib.astype(A.indptr, "int64"), A.nnz)
    col = lib.astype(A.indices, "int64")
    group = col // m
    same = (row[1:] == row[:-1]) & (group[1:] == group[:-1])
    starts = lib.concat([lib.zeros(1, "int64", A.device), lib.flatnonzero(~same) + 1])
    end = lib.full(1, A.nnz, "int64", A.device)
    counts = lib.concat([starts[1:], end]) - starts
    kept = _largest(lib, A.data, col - group * m, counts, n, m)
    return Part(
        lib,
        A.data,
        row + first,
        col,
        kept,
        lib.take(row, starts) + first,
        lib.take(group, starts),
        counts,
    )


def _largest(
    lib: ArrayLibrary, data: Array, position: Array, counts: Array, n: int, m: int
) -> Array:
    """Mask of the n largest of each group, of equal ones those that come first."""
    device, nnz = lib.device(data), int(data.shape[0])
    crowded = counts > n
    number = lib.cumsum(lib.astype(crowded, "int64")) - 1
    judged = lib.flatnonzero(lib.repeat(crowded, counts, nnz))
    kept = lib.full(nnz, True, "bool", device)
    if not int(judged.shape[0]):
        return kept
    group = lib.take(lib.repeat(number, counts, nnz), judged)
    place = group * m + lib.take(position, judged)
    groups = lib.count_nonzero(crowded)
    keys = lib.full((groups, m), 2**63 - 1, "int64", device)  # places without a value come last
    lib.put(keys, place, descending(lib, lib.take(data, judged)))
    best = lib.xp.argsort(keys, axis=-1, stable=True)[:, :n]
    best = best + (lib.arange(groups, device=device) * m)[:, None]
    best = lib.xp.reshape(best, (-1,))
    chosen = lib.scatter(groups * m, best, lib.full(groups * n, True, "bool", device))
    lib.put(kept, judged, lib.take(chosen, place))
    return kept


def descending(lib: ArrayLibrary, x: Array) -> Array:
    """int64 keys that ascend where sizes descend; every NaN is the largest.

    Sizes of floating values are compared by their bits, which order as they do: no value is
    flushed, and none overflows.
    """
    name = lib.dtype_name(x)
    if kind(name) == "c":
        real, imag = lib.xp.real(x), lib.xp.imag(x)
        with np.errstate(all="ignore"):
            size = lib.xp.abs(x)
        nan = (real != real) | (imag != imag)
        keys = descending(lib, size)
        return lib.where(nan, lib.full(1, -(2**63), "int64", lib.device(x)), keys)
    if kind(name) == "f":
        bits = lib.astype(lib.bits(x), "int64") & (2 ** (8 * itemsize(name) - 1) - 1)
        nan = lib.full(1, -(2**63), "int64", lib.device(x))
        wide = cast(lib, x, "float64") if itemsize(name) < 8 else x
        return lib.where(wide != wide, nan, -bits)
    if name == "uint64":
        return ~(lib.bits(x) ^ -(2**63))  # the order of unsigned numbers, in signed ones
    wide = lib.astype(x, "int64")
    return lib.where(wide < 0, wide, -wide)
