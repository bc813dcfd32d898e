"""Any matrix as a sum: what a fast format holds, and the rest in CSR."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

from sparseformats._arrays import Array, placed
from sparseformats._dtypes import itemsize
from sparseformats.algebra.common import coordinates, is_whole, restored
from sparseformats.algebra.ranking import operand, parsed, parts
from sparseformats.convert import from_dense
from sparseformats.convert.graph import Node
from sparseformats.convert.numbering import number
from sparseformats.convert.request import node_of, requested
from sparseformats.formats import COO, SparseMatrix, Sum

__all__ = ["split"]

_BLOCKED = ("bsr", "blocked_ell")


@placed
def split(
    W: Any, pattern: str = "2:4", *, blocksize: Any = None, min_fill: float | None = None
) -> Sum:
    """Divide a matrix into what a fast format holds and a rest, without losing anything.

    Parameters
    ----------
    W : SparseMatrix, or (rows, k) array of any library, or nested lists
    pattern : str
        ``"2:4"`` or another ``"n:m"``: the n largest of each m neighbours of a row, as `prune`
        chooses them, and every stored zero go to the n:m part. ``"bsr"`` or ``"blocked_ell"``:
        blocks that are full enough go there whole.
    blocksize : (R, C) or int
        For blocks; a matrix in a block format brings its own.
    min_fill : float, optional
        For blocks: the share of a block's places inside the matrix that must be stored, from 0
        (every block that stores anything) to 1 (full blocks). By default what pays in bytes:
        ``v / (v + i)`` for values of v bytes and column indices of i bytes, since an element in
        CSR takes v + i bytes and a place in a block v. That is 1/2 for float32 and 1/3 for the
        half types with int32 indices.

    Returns
    -------
    Sum
        Always of two parts: the NM, BSR or BlockedELL, and a CSR of everything else, which is
        empty where nothing is left. Both hold W's bits, stored zeros included.

    Raises
    ------
    TypeError, ValueError
        `W` is no matrix; bad pattern, block size or share; a missing or superfluous one.
    MemoryError
        The first part is larger than free memory.
    NotImplementedError
        `W` requires grad while grad mode is on.

    Notes
    -----
    *Loses*: nothing; of a dense `W`, as `from_dense`, the sign of zeros, which are not stored.
    A product skips an empty rest.

    Examples
    --------
    >>> import sparseformats as sf
    >>> S = sf.split([[1.0, -4.0, 3.0, 0.5]], "2:4")
    >>> [part.to_dense().tolist() for part in S.parts]
    [[[0.0, -4.0, 3.0, 0.0]], [[1.0, 0.0, 0.0, 0.5]]]
    >>> W = [[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 5.0]]
    >>> sf.split(W, "bsr", blocksize=2).parts[1]
    <CSR 2x4, float64, nnz=1, numpy on cpu>
    """
    W = operand("split", W)
    if pattern not in _BLOCKED:
        n, m = parsed("split", pattern)
        for option, value in (("blocksize", blocksize), ("min_fill", min_fill)):
            if value is not None:
                raise ValueError(f"split: {option}={value!r} goes with blocks, not {pattern!r}")
        found = _elements(W)
        return _divided(found, _fitting(W, found, n, m), Node("n:m", (n, m)))
    source = node_of(W) if isinstance(W, SparseMatrix) else Node("dense")
    target = requested(pattern, blocksize, source, "split")
    share = None if min_fill is None else _share(min_fill)
    found = _elements(W)
    whole = isinstance(W, SparseMatrix) and is_whole(W)
    return _divided(found, _crowded(found, target, share), target, whole)


class _Halves(NamedTuple):
    """Numbers of the elements that go to the first part, and of all others."""

    chosen: Array
    others: Array


def _elements(W: Any) -> COO:
    if isinstance(W, SparseMatrix):
        return coordinates(W)
    made = from_dense(W, "coo")
    assert isinstance(made, COO)
    return made


def _divided(A: COO, halves: _Halves, target: Node, whole: bool = False) -> Sum:
    name, key = target
    assert key is not None
    first = (f"{key[0]}:{key[1]}", None) if name == "n:m" else (name, key)
    chosen = restored(_taken(A, halves.chosen), first, whole)
    return Sum.trusted(parts=(chosen, restored(_taken(A, halves.others), ("csr", None))))


def _taken(A: COO, index: Array) -> COO:
    arrays = {name: A.lib.take(x, index) for name, x in A.buffers().items()}
    return COO.trusted(**arrays, shape=A.shape)


def _fitting(W: Any, A: COO, n: int, m: int) -> _Halves:
    """The n largest non-zeros of each group, and all zeros; `A` has the elements of `W`."""
    lib = A.lib
    verdicts = [part.kept for part in parts(W, n, m)]
    nonzeros = lib.flatnonzero(lib.nonzero_mask(A.data))
    kept = lib.concat(verdicts) if verdicts else lib.zeros(0, "bool", A.device)
    return _halves(A, lib.take(nonzeros, lib.flatnonzero(~kept)))


def _halves(A: COO, others: Array) -> _Halves:
    lib = A.lib
    mask = lib.full(A.nnz, True, "bool", A.device)
    lib.put(mask, others, False)
    return _Halves(lib.flatnonzero(mask), others)


def _crowded(A: COO, target: Node, share: float | None) -> _Halves:
    """Elements in blocks that are full enough."""
    assert target.key is not None
    lib, (r, c), (m, n) = A.lib, target.key, A.shape
    if not A.nnz:
        return _halves(A, lib.zeros(0, "int64", A.device))
    if share is None:
        value, index = itemsize(A.dtype_name), itemsize(lib.dtype_name(A.col))
        share = value / (value + index)
    row, col = (lib.astype(x, "int64") for x in (A.row, A.col))
    grid = -(-m // r), -(-n // c)
    blocks = number(lib, row // r, col // c, grid, ordered=r == 1 and c == 1)
    count = lib.bincount(blocks.owner, int(blocks.indices.shape[0]))
    # Of a block at the edge only the places inside the matrix count.
    first = lib.scatter(int(count.shape[0]), blocks.owner, lib.arange(A.nnz, device=A.device))
    down, along = (
        extent - lib.take(x, first) // size * size for x, size, extent in ((row, r, m), (col, c, n))
    )
    height, width = (lib.where(x < size, x, x * 0 + size) for x, size in ((down, r), (along, c)))
    places = lib.astype(height, "float64") * lib.astype(width, "float64")
    full = lib.astype(count, "float64") / places >= share
    return _halves(A, lib.flatnonzero(~lib.take(full, blocks.owner)))


def _share(min_fill: Any) -> float:
    if isinstance(min_fill, bool) or not isinstance(min_fill, Real):
        raise TypeError(f"split: min_fill must be a number, got {min_fill!r}")
    share = float(min_fill)
    if not 0 <= share <= 1:
        raise ValueError(f"split: min_fill must be within 0 … 1, got {min_fill}")
    return share
