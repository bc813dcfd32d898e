"""Conversion through a dict of elements: slow, obviously right, and easy to sabotage.

It lets the law checkers be tested without the library's own conversions: a checker must accept
these and reject every planted bug.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats import formats, reference
from sparseformats.errors import PatternError
from sparseformats.reference.decoding import host_dtype, is_nonzero

Elements = dict[tuple[int, int], Any]

FORMATS = ["coo", "csr", "csc", "bsr", "blocked_ell", "n:m"]
"""What `build` can make."""
SOURCES = [*FORMATS, "bsr.T", "blocked_ell.T", "n:m.T"]


def convert(A: Any, format: str, **options: Any) -> Any:
    """Like ``A.to(format, **options)`` for NumPy arrays."""
    return build(format, reference.entries(A), A, **options)


def build(format: str, elements: Elements, A: Any, **options: Any) -> Any:
    """A matrix of A's shape and types with these elements."""
    elements = dict(sorted(elements.items()))
    index = index_dtype(A)
    if format == "coo":
        return _coo(elements, A, index)
    if format in ("csr", "csc"):
        return _compressed(format, elements, A, index)
    if format == "bsr":
        return _bsr(elements, A, index, options.get("blocksize", (1, 1)))
    if format == "blocked_ell":
        return _blocked_ell(elements, A, index, options.get("blocksize", 1))
    n, colon, m = format.partition(":")
    if not colon:  # a format that was added later: its own conversion must do
        return _coo(elements, A, index).to(format, **options)
    return _nm(elements, A, int(n), int(m))


def index_dtype(A: Any) -> Any:
    base = A.base if A.format.endswith(".T") else A
    return np.int64 if ":" in base.format else base.index_dtype


def stack(values: Any, A: Any) -> Any:
    found = list(values)
    data = np.zeros(len(found), host_dtype(A.dtype_name))
    for at, value in enumerate(found):
        data[at] = value
    return data


def _coo(elements: Elements, A: Any, index: Any) -> Any:
    row, col = (np.array([place[axis] for place in elements], index) for axis in (0, 1))
    return formats.COO(stack(elements.values(), A), row, col, A.shape)


def _compressed(format: str, elements: Elements, A: Any, index: Any) -> Any:
    make, axis = (formats.CSR, 0) if format == "csr" else (formats.CSC, 1)
    places = sorted(elements, key=lambda place: (place[axis], place[1 - axis]))
    counts = np.bincount([place[axis] for place in places], minlength=A.shape[axis])
    return make(
        stack((elements[place] for place in places), A),
        np.array([place[1 - axis] for place in places], index),
        np.array([0, *np.cumsum(counts)], index),
        A.shape,
    )


def blocks(elements: Elements, A: Any, R: int, C: int) -> tuple[list[tuple[int, int]], Any, Any]:
    """Block positions, blocks (nnzb, R, C) and masks of their stored slots."""
    places = sorted({(i // R, j // C) for i, j in elements})
    data = np.zeros((len(places), R, C), host_dtype(A.dtype_name))
    stored = np.zeros(data.shape, np.bool_)
    for (i, j), value in elements.items():
        slot = places.index((i // R, j // C)), i % R, j % C
        data[slot], stored[slot] = value, True
    return places, data, stored


def _bsr(elements: Elements, A: Any, index: Any, blocksize: Any) -> Any:
    R, C = blocksize
    places, data, stored = blocks(elements, A, R, C)
    counts = np.bincount([i for i, _ in places], minlength=-(-A.shape[0] // R))
    indices, indptr = np.array([j for _, j in places], index), np.array([0, *np.cumsum(counts)])
    return formats.BSR(data, indices, indptr.astype(index), A.shape, stored=stored)


def _blocked_ell(elements: Elements, A: Any, index: Any, blocksize: Any) -> Any:
    b = blocksize if isinstance(blocksize, int) else blocksize[0]
    places, found, marks = blocks(elements, A, b, b)
    rows = -(-A.shape[0] // b)
    width = max(np.bincount([i for i, _ in places], minlength=rows), default=0) if places else 0
    data = np.zeros((rows, width, b, b), found.dtype)
    stored, col_indices = np.zeros(data.shape, np.bool_), np.full((rows, width), -1, index)
    used = [0] * rows
    for (i, j), block, mark in zip(places, found, marks, strict=True):
        slot = i, used[i]
        data[slot], stored[slot], col_indices[slot] = block, mark, j
        used[i] += 1
    return formats.BlockedELL(data, col_indices, A.shape, stored=stored)


def _nm(elements: Elements, A: Any, n: int, m: int) -> Any:
    shape = (A.shape[0], -(-A.shape[1] // m), n)
    data = np.zeros(shape, host_dtype(A.dtype_name))
    stored, indices = np.zeros(shape, np.bool_), np.zeros(shape, np.uint8)
    side: Elements = {}
    for i in range(shape[0]):
        for g in range(shape[1]):
            mine = {j % m: v for (r, j), v in elements.items() if (r, j // m) == (i, g)}
            full = [p for p, v in mine.items() if is_nonzero(v.reshape(1))[0]]
            if len(full) > n:
                raise PatternError(f"row {i}, group {g}: {len(full)} non-zeros, at most {n} fit")
            zeros = [p for p in sorted(mine) if p not in full]
            used = full + zeros[: n - len(full)]
            side |= {(i, g * m + p): mine[p] for p in zeros[n - len(full) :]}
            free = [p for p in range(m) if p not in used][: n - len(used)]
            for s, p in enumerate(sorted(used + free)):
                indices[i, g, s], stored[i, g, s] = p, p in used
                data[i, g, s] = mine.get(p, np.zeros((), data.dtype))
    aside = _coo(dict(sorted(side.items())), A, np.int64) if side else None
    return formats.NM(data, indices, A.shape, n, m, stored=stored, side=aside)
