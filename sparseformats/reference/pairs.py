"""Products of two sparse matrices by plain loops over pairs of stored elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats.reference.decoding import entries
from sparseformats.reference.product import Product, _size, _wide

__all__ = ["sparse_matmul"]

Place = tuple[int, int]


def sparse_matmul(A: Any, B: Any, dtype: str) -> tuple[list[Place], Product]:
    """Compute ``A @ B`` where a stored element of A meets one of B, and what bounds its error.

    Parameters
    ----------
    A, B : SparseMatrix
        (m, k) and (k, n).
    dtype : str
        Type that the result must have.

    Returns
    -------
    places : list of (i, j)
        Stored elements of the result, in the order of rows.
    product : Product
        Of arrays (s,): one element a place.
    """
    wide, rows = _wide(dtype), {}  # type: ignore[var-annotated]
    for (k, j), b in entries(B).items():
        rows.setdefault(k, []).append((j, b))
    terms: dict[Place, list[tuple[Any, Any]]] = {}
    for (i, k), a in entries(A).items():
        for j, b in rows.get(k, ()):
            terms.setdefault((i, j), []).append((a, b))
    places = sorted(terms)
    value, magnitude = np.zeros(len(places), wide), np.zeros(len(places), np.float64)
    with np.errstate(all="ignore"):
        for at, place in enumerate(places):
            a, b = (np.asarray(x).astype(wide) for x in zip(*terms[place], strict=True))
            value[at] = (a & b).any() if wide == np.bool_ else (a * b).sum()
            magnitude[at] = (_size(a) * _size(b)).sum()
    length = np.asarray([len(terms[place]) for place in places], np.int64)
    return places, Product(dtype, value, magnitude, length, np.zeros(len(places), np.bool_))
