"""The laws of operations whose result is sparse: right elements at the right places."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from sparseformats import reference
from sparseformats.errors import PatternError
from sparseformats.testing import laws
from sparseformats.testing._memory import unchanged
from sparseformats.testing.bounds import assert_product

__all__ = ["check_sampled", "check_sparse_product"]


def check_sampled(
    pattern: Any, X: Any, Y: Any, *, alpha: Any = 1, bound: Any = None, **options: Any
) -> None:
    """Compute `sparseformats.sddmm` and check everything about it.

    The result is valid, of the pattern's format and stored elements, and each value is within
    `error_bound`; the operands are unchanged.

    Parameters
    ----------
    pattern : SparseMatrix
    X, Y : arrays (m, n) and (n, k)
    alpha : number
    bound : mapping, optional
        Options of `error_bound`.
    **options : object
        Passed on, such as ``kernel="reference"``.

    Raises
    ------
    AssertionError
        Telling what is wrong.
    """
    from sparseformats import sddmm

    with unchanged(pattern, X, Y):
        try:
            S = sddmm(pattern, X, Y, alpha=alpha, **options)
        except PatternError:
            if getattr(getattr(pattern, "base", pattern), "side", None) is None:
                raise
            return  # more elements in a group than slots, and not all of them are zeros
    laws.check_valid(S)
    if (S.format, S.shape, S.device) != (pattern.format, pattern.shape, pattern.device):
        raise AssertionError(f"expected the pattern's {pattern!r}, got {S!r}")
    lib, places = pattern.lib, list(reference.entries(pattern))
    left = SimpleNamespace(lib=lib, library=lib.name, dtype_name=lib.dtype_name(X))
    at = _slots(places, pattern.shape)
    dtype = reference.product_dtype(left, Y)
    product = reference.sampled(at, lib.to_numpy(X), lib.to_numpy(Y), dtype, alpha)
    _judge(S, places, product, bound)


def check_sparse_product(A: Any, B: Any, *, bound: Any = None, **options: Any) -> None:
    """Compute ``A @ B`` of two sparse matrices and check everything about it.

    The result is valid CSR; elements are stored where a stored one of `A` meets one of `B`, and
    each value is within `error_bound`; the operands are unchanged.

    Parameters
    ----------
    A, B : SparseMatrix
    bound : mapping, optional
        Options of `error_bound`.
    **options : object
        Passed on to `sparseformats.matmul`.

    Raises
    ------
    AssertionError
        Telling what is wrong.
    """
    from sparseformats import matmul

    with unchanged(A, B):
        C = matmul(A, B, **options)
    laws.check_valid(C)
    shape = (A.shape[0], B.shape[1])
    if (C.format, C.shape, C.device) != ("csr", shape, A.device):
        raise AssertionError(f"expected CSR of shape {shape} on {A.device}, got {C!r}")
    places, product = reference.sparse_matmul(
        A, B, reference.product_dtype(A, B.value_buffers()[0])
    )
    _judge(C, places, product, bound)


def _slots(places: list[tuple[int, int]], shape: tuple[int, int]) -> reference.Slots:
    row, col = np.asarray(places, np.int64).reshape(-1, 2).T
    return reference.Slots(shape, row, col, np.zeros(row.size), np.ones(row.size, np.bool_))


def _judge(S: Any, places: list[tuple[int, int]], product: reference.Product, bound: Any) -> None:
    if S.dtype_name != product.dtype:
        raise AssertionError(f"expected {product.dtype}, got {S.dtype_name}")
    found = reference.entries(S)
    if found.keys() != set(places):
        missing, surplus = set(places) - found.keys(), found.keys() - set(places)
        raise AssertionError(
            f"wrong elements are stored: {len(missing)} missing, such as {sorted(missing)[:3]}, "
            f"{len(surplus)} surplus, such as {sorted(surplus)[:3]}"
        )
    values = np.zeros(len(places), product.rounded().dtype)
    for at, place in enumerate(places):
        values[at] = found[place]
    assert_product(values, product, **(bound or {}))
