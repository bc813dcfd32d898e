"""Matrices side by side, one below the other, and along a diagonal.

Elements get other positions and keep their bits; nothing is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from sparseformats._arrays import placed
from sparseformats._dtypes import index_width
from sparseformats.algebra.common import (
    cast,
    coordinates,
    grain,
    is_whole,
    promoted,
    refuse_grad,
    restored,
    same_place,
    target_of,
)
from sparseformats.formats import COO, SparseMatrix
from sparseformats.formats.canonical import canonical_coordinates

__all__ = ["block_diag", "hstack", "vstack"]


@placed
def hstack(
    matrices: Iterable[SparseMatrix], *, format: str | None = None, blocksize: Any = None
) -> SparseMatrix:
    """Put matrices of equal height side by side.

    Parameters
    ----------
    matrices : iterable of SparseMatrix
        At least one, of one library on one device.
    format : str, optional
        As of `SparseMatrix.to`. By default the matrices' own, if they share it with its block
        size and every one starts where a block or group may start; else ``"csr"``.
    blocksize : (R, C) or int, optional
        For a block `format`.

    Returns
    -------
    SparseMatrix
        (m, sum of the widths), of the promoted dtype. Values keep their bits where no dtype
        has to change.

    Raises
    ------
    ValueError
        No matrices, different heights, or a bad `format`.
    TypeError, DeviceMismatchError
        Something else than matrices; different libraries; different devices.
    PatternError
        `format` is an n:m that cannot hold the result.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.hstack([sf.eye(2), sf.eye(2)]).to_dense()
    array([[1., 0., 1., 0.],
           [0., 1., 0., 1.]])
    """
    parts = _matrices("hstack", matrices)
    heights = [A.shape[0] for A in parts]
    if len(set(heights)) > 1:
        raise ValueError(f"hstack: heights must be equal, got {heights}")
    starts = _starts([A.shape[1] for A in parts])
    places = [(0, left) for left in starts[:-1]]
    return _stacked("hstack", parts, places, (heights[0], starts[-1]), format, blocksize)


@placed
def vstack(
    matrices: Iterable[SparseMatrix], *, format: str | None = None, blocksize: Any = None
) -> SparseMatrix:
    """Put matrices of equal width one below the other.

    Parameters
    ----------
    matrices, format, blocksize
        As of `hstack`.

    Returns
    -------
    SparseMatrix
        (sum of the heights, n), see `hstack`.

    Raises
    ------
    ValueError, TypeError, DeviceMismatchError, PatternError
        As of `hstack`, with widths for heights.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.vstack([sf.eye(1, 2), sf.eye(1, 2, k=1)])
    <CSR 2x2, float64, nnz=2, numpy on cpu>
    """
    parts = _matrices("vstack", matrices)
    widths = [A.shape[1] for A in parts]
    if len(set(widths)) > 1:
        raise ValueError(f"vstack: widths must be equal, got {widths}")
    starts = _starts([A.shape[0] for A in parts])
    places = [(top, 0) for top in starts[:-1]]
    return _stacked("vstack", parts, places, (starts[-1], widths[0]), format, blocksize)


@placed
def block_diag(
    matrices: Iterable[SparseMatrix], *, format: str | None = None, blocksize: Any = None
) -> SparseMatrix:
    """Put matrices along the diagonal of a larger one.

    Parameters
    ----------
    matrices, format, blocksize
        As of `hstack`.

    Returns
    -------
    SparseMatrix
        (sum of the heights, sum of the widths), see `hstack`.

    Raises
    ------
    ValueError, TypeError, DeviceMismatchError, PatternError
        As of `hstack`; all sizes go together.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.block_diag([sf.eye(2), sf.eye(3)])
    <CSR 5x5, float64, nnz=5, numpy on cpu>
    """
    parts = _matrices("block_diag", matrices)
    tops, lefts = (_starts([A.shape[axis] for A in parts]) for axis in (0, 1))
    places = list(zip(tops[:-1], lefts[:-1], strict=True))
    return _stacked("block_diag", parts, places, (tops[-1], lefts[-1]), format, blocksize)


def _starts(sizes: Sequence[int]) -> list[int]:
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return starts


def _matrices(what: str, given: Iterable[SparseMatrix]) -> list[SparseMatrix]:
    if isinstance(given, SparseMatrix):
        raise TypeError(f"{what} takes a list of matrices, got one {type(given).__name__}")
    parts = list(given)
    if not parts:
        raise ValueError(f"{what} takes at least one matrix, got none")
    for A in parts:
        if not isinstance(A, SparseMatrix):
            raise TypeError(
                f"{what} takes matrices of this library, got {type(A).__name__}; "
                "use sparseformats.asformat first"
            )
        same_place(what, parts[0], A)
        refuse_grad(what, A.lib, *A.value_buffers())
    return parts


def _stacked(
    what: str,
    parts: list[SparseMatrix],
    places: list[tuple[int, int]],
    shape: tuple[int, int],
    format: str | None,
    blocksize: Any,
) -> SparseMatrix:
    """Matrices with their upper left corners at `places`."""
    if format is None:
        if blocksize is not None:
            raise ValueError(f"{what}: blocksize={blocksize!r} needs format=, a block format")
        target = _common(parts, places)
    else:
        target = format, blocksize
    if len(parts) == 1:
        return restored(parts[0], target, is_whole(parts[0]))
    lib = parts[0].lib
    name = reduce(lambda a, b: promoted(what, lib, a, b), (A.dtype_name for A in parts))
    found = [coordinates(A) for A in parts]
    current = "int64" if any(lib.dtype_name(x.row) == "int64" for x in found) else "int32"
    width = index_width(current, *shape)
    data = lib.concat([cast(lib, x.data, name) for x in found])
    corners = list(zip(found, places, strict=True))
    row = lib.concat([lib.astype(x.row, width) + top for x, (top, _) in corners])
    col = lib.concat([lib.astype(x.col, width) + left for x, (_, left) in corners])
    data, row, col = canonical_coordinates(lib, data, row, col)
    made = COO.trusted(data=data, row=row, col=col, shape=shape)
    whole = format is None and all(is_whole(A) for A in parts)
    return restored(made, target, whole)


def _common(
    parts: list[SparseMatrix], places: list[tuple[int, int]]
) -> tuple[str, tuple[int, int] | None]:
    target, (rows, cols) = target_of(parts[0]), grain(parts[0])
    shared = all(target_of(A) == target for A in parts)
    if shared and all(top % rows == 0 and left % cols == 0 for top, left in places):
        return target
    return "csr", None
