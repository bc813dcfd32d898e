"""Elements of a dense product at the slots of a pattern, by plain loops over slots."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats.reference.decoding import Host, Slots, slots
from sparseformats.reference.kernel import rounded
from sparseformats.reference.product import Product, _scaled, _size, _wide

__all__ = ["sampled", "sampled_values"]

Array = Any  # of any library


def sampled(s: Slots, X: Host, Y: Host, dtype: str, alpha: Any = 1) -> Product:
    """Compute ``alpha * (X @ Y)[i, j]`` for each slot (i, j), and what bounds its error.

    Parameters
    ----------
    s : Slots
        Where, as `sparseformats.reference.slots` makes them. Their values are not read.
    X : (m, n)
    Y : (n, k)
    dtype : str
        Type that the result must have.
    alpha : scalar

    Returns
    -------
    Product
        Of arrays (s,): one element a slot, in the order of the slots.
    """
    wide, count = _wide(dtype), s.row.size
    value, magnitude = np.zeros(count, wide), np.zeros(count, np.float64)
    with np.errstate(all="ignore"):  # signalling NaNs too
        x, y = X.astype(wide), Y.astype(wide)
        for at in range(count):
            a, b = x[s.row[at]], y[:, s.col[at]]
            value[at] = (a & b).any() if wide == np.bool_ else (a * b).sum()
            magnitude[at] = (_size(a) * _size(b)).sum()
        value, magnitude = _scaled(value, alpha), magnitude * abs(alpha)
    length = np.full(count, X.shape[1], np.int64)
    return Product(dtype, value, magnitude, length, np.zeros(count, np.bool_))


def sampled_values(A: Any, X: Array, Y: Array, alpha: Any, query: Any) -> Array:
    """`sampled` in the shape of a kernel: values in the layout of the pattern's ``data``."""
    lib, shape = A.lib, tuple(A.data.shape)
    s = slots(_numbered(A))
    product = sampled(s, lib.to_numpy(X), lib.to_numpy(Y), query.out_dtype, alpha)
    flat = lib.zeros((int(np.prod(shape)),), query.out_dtype, A.device)
    lib.put(flat, lib.from_numpy(s.values, A.device), rounded(lib, product, A.device))
    return lib.xp.reshape(flat, shape)


def _numbered(A: Any) -> Any:
    """The pattern with the flat position of each slot as its value."""
    beside = ("zeros", "side_data", "side_row", "side_col")
    buffers = {name: array for name, array in A.buffers().items() if name not in beside}
    count = int(np.prod(A.data.shape))
    buffers["data"] = A.lib.xp.reshape(A.lib.arange(count, device=A.device), tuple(A.data.shape))
    static = {name: value for name, value in A.static().items() if name != "zeros"}
    return type(A).from_parts(buffers, static)
