"""SciPy's compiled products without the Python around them.

``S @ x`` checks and allocates what a plan has checked and allocated once: for a small matrix that
is most of the time, and it cannot write into an array that is there. The compiled functions are
not public, so a trial with a known answer decides at import; where it fails, ``S @ x`` does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["AVAILABLE", "add_product"]

AddProduct = Callable[[Any, Any], None]
"""``(x, y)``: add the product with C-contiguous `x` to C-contiguous `y`, both of one rank."""

try:
    from scipy.sparse import _sparsetools as compiled
except ImportError:
    compiled = None


def add_product(S: Any, vector: bool) -> AddProduct:
    """Bind a CSR, CSC or BSR array of SciPy to its compiled ``y += S @ x``.

    Parameters
    ----------
    S : SciPy array
        In canonical dtypes: those of `x` and `y` will be its own.
    vector : bool
        `x` and `y` have one column, or are vectors: twice as fast as one column of many.
    """
    (m, k), parts = S.shape, (S.indptr, S.indices, S.data)
    sizes: tuple[int, ...] = (m, k)
    block: tuple[int, ...] = ()
    if S.format == "bsr":
        block = S.blocksize
        sizes = (m // block[0], k // block[1])
        parts = (*parts[:2], parts[2].ravel())
    if vector:
        one = getattr(compiled, f"{S.format}_matvec")
        return lambda x, y: one(*sizes, *block, *parts, x.reshape(-1), y.reshape(-1))
    many = getattr(compiled, f"{S.format}_matvecs")
    return lambda x, y: many(*sizes, x.shape[1], *block, *parts, x.reshape(-1), y.reshape(-1))


def _answers() -> bool:
    """Whether the compiled functions do what they are expected to."""
    dense = np.array([[1.0, 0, 2, 0], [0, 3, 0, 0]])
    x = np.arange(8.0).reshape(4, 2)
    makers = (sparse.csr_array, sparse.csc_array, sparse.bsr_array)
    for S in (make(dense) for make in makers):
        y, v = np.ones((2, 2)), np.ones(2)
        add_product(S, False)(x, y)
        add_product(S, True)(x[:, 0].copy(), v)
        if not (np.array_equal(y, dense @ x + 1) and np.array_equal(v, dense @ x[:, 0] + 1)):
            return False
    return True


def _works() -> bool:
    try:
        return compiled is not None and _answers()
    except Exception:  # noqa: BLE001 - whatever has changed there, the public way remains
        return False


AVAILABLE = _works()
