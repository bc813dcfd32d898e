"""Losing values on purpose: by magnitude, to an n:m pattern or to whole blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import kind
from sparseformats.algebra.common import coordinates
from sparseformats.algebra.ranking import descending, operand, parsed, parts
from sparseformats.algebra.values import eliminate_zeros
from sparseformats.convert import convert, from_dense
from sparseformats.convert.pointers import sorted_pointers
from sparseformats.formats import BSR, COO, NM, SparseMatrix
from sparseformats.formats.canonical import expand
from sparseformats.formats.inputs import as_blocksize
from sparseformats.formats.slots import CHUNK

__all__ = ["prune"]


@placed
def prune(
    W: Any, pattern: str = "2:4", *, blocksize: Any = None, density: float | None = None
) -> SparseMatrix:
    """Drop small values until a matrix has a pattern that kernels can use.

    Parameters
    ----------
    W : SparseMatrix, or (rows, k) array of any library, or nested lists
    pattern : str
        ``"2:4"`` or another ``"n:m"``: the n largest of each m neighbours of a row are kept.
        ``"bsr"``: the blocks of largest Frobenius norm are kept. Of equal ones the first is
        kept, and NaN is larger than everything.
    blocksize : (R, C) or int
        For ``"bsr"``; a matrix in a block format brings its own.
    density : float
        For ``"bsr"``: the share of all blocks that are kept at most, rounded to whole blocks.

    Returns
    -------
    NM or BSR
        What is kept has its bits; zeros are not stored.

    Raises
    ------
    TypeError, ValueError
        `W` is no matrix; bad pattern, block size or density; a missing or superfluous one.
    NotImplementedError
        `W` requires grad while grad mode is on.

    Notes
    -----
    *Loses*: every value that is not kept; `check_pattern` says beforehand how much that is.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.prune([[1.0, -4.0, 3.0, 0.5]], "2:4").to_dense()
    array([[ 0., -4.,  3.,  0.]])
    >>> W = [[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 5.0]]
    >>> sf.prune(W, "bsr", blocksize=2, density=0.5).to_dense()
    array([[0., 0., 0., 0.],
           [0., 0., 0., 5.]])
    """
    if pattern == "bsr":
        return _to_blocks(operand("prune", W), blocksize, density)
    n, m = parsed("prune", pattern)
    for option, value in (("blocksize", blocksize), ("density", density)):
        if value is not None:
            raise ValueError(f"prune: {option}={value!r} goes with 'bsr', not with {pattern!r}")
    return _to_groups(operand("prune", W), n, m)


def _to_groups(W: Any, n: int, m: int) -> SparseMatrix:
    rows, k = (int(s) for s in W.shape)
    found = []
    for part in parts(W, n, m):
        kept = part.lib.flatnonzero(part.kept)
        found.append([part.lib.take(x, kept) for x in (part.data, part.row, part.col)])
    if not found:
        empty = eliminate_zeros(_sparse(W))
        return convert(empty, f"{n}:{m}")
    lib = part.lib
    data, row, col = (lib.concat(list(column)) for column in zip(*found, strict=True))
    made = convert(COO.trusted(data=data, row=row, col=col, shape=(rows, k)), f"{n}:{m}")
    assert isinstance(made, NM)
    return made


def _sparse(W: Any) -> COO:
    if isinstance(W, SparseMatrix):
        return coordinates(W)
    made = from_dense(W, "coo")
    assert isinstance(made, COO)
    return made


def _to_blocks(W: Any, blocksize: Any, density: Any) -> BSR:
    if density is None:
        raise ValueError("prune to 'bsr' needs density=, the share of blocks to keep")
    if isinstance(density, bool) or not isinstance(density, (int, float, np.number)):
        raise TypeError(f"prune: density must be a number, got {density!r}")
    if not 0 <= density <= 1:
        raise ValueError(f"prune: density must be within 0 … 1, got {density}")
    if isinstance(W, SparseMatrix):
        made = eliminate_zeros(convert(W, "bsr", blocksize=blocksize))
    elif blocksize is None:
        raise ValueError("prune to 'bsr' needs a block size: pass blocksize=(R, C)")
    else:
        made = from_dense(W, "bsr", blocksize=as_blocksize(blocksize))
    assert isinstance(made, BSR)
    (m, n), (r, c) = made.shape, made.blocksize
    count = int(float(density) * -(-m // r) * -(-n // c) + 0.5)
    return made if made.nnzb <= count else _keep(made, count)


def _keep(A: BSR, count: int) -> BSR:
    """The `count` blocks of largest norm, in their order."""
    lib = A.lib
    order = lib.argsort(descending(lib, _energies(lib, A.data)))[:count]
    kept = lib.take(order, lib.argsort(order))
    row = lib.take(expand(lib, A.indptr, A.nnzb), kept)
    rows, width = int(A.indptr.shape[0]) - 1, lib.dtype_name(A.indptr)
    return BSR.trusted(
        data=lib.take(A.data, kept),
        indices=lib.take(A.indices, kept),
        indptr=sorted_pointers(lib, row, rows, width),
        shape=A.shape,
    )


def _energies(lib: ArrayLibrary, data: Array) -> Array:
    """Sum of squares of each block in float64, (nnzb,)."""
    step = max(1, CHUNK // (int(data.shape[1]) * int(data.shape[2])))
    found = []
    for i in range(0, int(data.shape[0]), step):
        block = data[i : i + step, ...]
        halves = [block]
        if kind(lib.dtype_name(data)) == "c":
            halves = [lib.xp.real(block), lib.xp.imag(block)]
        with np.errstate(all="ignore"):
            squares = [lib.astype(x, "float64") ** 2 for x in halves]
            found.append(lib.xp.sum(sum(squares[1:], squares[0]), axis=(1, 2)))
    return lib.concat(found)
