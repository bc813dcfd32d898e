"""What the crossings share: spare room, options that only blocks have, and refusals."""

from __future__ import annotations

from typing import Any

from sparseformats._arrays import Array
from sparseformats.formats import SparseMatrix

__all__ = ["instead_of", "only_blocks_choose", "ragged", "without_spare_room"]


def instead_of(A: SparseMatrix) -> str:
    """What to write where a library has no form of A's format."""
    return 'A.to("csr")' if ":" in A.format or A.format == "sum" else 'A.to("bsr") or A.to("csr")'


def only_blocks_choose(what: str, stored: Any) -> None:
    """Refuse a mask for a format in which every element present is a stored one.

    Raises
    ------
    ValueError
        `stored` is neither ``"nonzero"`` nor ``"all"``.
    """
    if not isinstance(stored, str):
        raise ValueError(
            f"{what}: stored= takes a mask for block formats only, every element of other formats "
            f"is stored; got {type(stored).__name__}"
        )
    if stored not in ("nonzero", "all"):
        raise ValueError(f"{what}: stored must be 'nonzero', 'all' or a mask, got {stored!r}")


def without_spare_room(data: Array, indices: Array, indptr: Array) -> tuple[Array, Array]:
    """Cut what lies behind ``indptr[-1]``, which SciPy and CuPy allow; unsound input is left."""
    if len(indptr.shape) != 1 or not indptr.shape[0]:
        return data, indices
    last = int(indptr[-1])
    if 0 <= last <= min(data.shape[0], indices.shape[0]):
        return data[:last], indices[:last]
    return data, indices


def ragged(A: SparseMatrix) -> str:
    """How A's blocks fail to divide its shape, in words; empty where they divide it."""
    (m, n), (r, c) = A.shape, A.blocksize
    if m % r == 0 and n % c == 0:
        return ""
    return f"shape {(m, n)} is not a multiple of blocksize {(r, c)}"
