"""What the demo proves, by means that do not depend on the library where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np

import sparseformats as sf


def differing(a: Any, b: Any) -> list[str]:
    """Names of what differs between two matrices of one format without slots, byte by byte."""
    left, right = a.buffers(), b.buffers()
    found = [] if (a.format, a.shape) == (b.format, b.shape) else ["format or shape"]
    found += sorted(left.keys() ^ right.keys())
    return found + [
        name
        for name in left.keys() & right.keys()
        if left[name].dtype != right[name].dtype or left[name].tobytes() != right[name].tobytes()
    ]


def differing_from_scipy(matrix: Any, scipy_matrix: Any) -> list[str]:
    """Names of what a CSR matrix holds otherwise than SciPy's sorted CSR array does."""
    parts = ("data", "indices", "indptr")
    return [
        f"{name} is not SciPy's"
        for name in parts
        if getattr(matrix, name).tobytes() != getattr(scipy_matrix, name).tobytes()
    ]


def round_trip(matrix: Any, converted: Any) -> list[str]:
    """What is wrong with `converted` as the same content as `matrix`; nothing if it is."""
    found = [f"invalid: {problem}" for problem in converted.problems()]
    back = converted.to(matrix.format)
    found += [f"{name} differs after the round trip" for name in differing(matrix, back)]
    if not sf.same(converted, matrix, level="content"):
        found.append("the content differs")
    return found


def worst_error(result: Any, sparse: Any, dense: Any, *, dense_first: bool = False) -> float:
    """Largest error of a product against SciPy in double precision, as a share of its bound.

    The bound of an element is that of a dot product of its length, in any order of summation and
    for both parties: ``2 * (terms + 2) * eps * (|left| @ |right|)``, four times that for complex
    numbers. Above 1 is wrong.
    """
    if dense_first:
        return worst_error(result.T, sparse.T, dense.T)
    double = np.result_type(sparse.dtype, np.float64)
    exact = sparse.astype(double) @ dense.astype(double)
    if result.shape != exact.shape or not np.isfinite(result).all():
        return float("inf")
    terms = np.diff(sparse.tocsr().indptr).reshape(-1, *[1] * (exact.ndim - 1))
    factor = 8 if np.iscomplexobj(exact) else 2
    bound = factor * (terms + 2) * np.finfo(result.dtype).eps * (abs(sparse) @ abs(dense))
    error = np.abs(result - exact)
    share = np.divide(error, bound, out=np.where(error > 0, np.inf, 0.0), where=bound > 0)
    return float(share.max(initial=0.0))
