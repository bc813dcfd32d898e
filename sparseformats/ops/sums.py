"""Products of a `Sum`: every part by the kernel that is best for it, added before one rounding.

In dtypes that are their own accumulator (float32 and wider, complex, integers, bool) the first
part writes the result and the others add to it, by ``beta=1`` of their kernels: another order of
the same sum of products. Half types and fp8 are added in float32: each part's kernel leaves its
result there if it can (`KernelRecord.wide`), else what it gives is one rounding further off.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import accumulator
from sparseformats.formats import SparseMatrix, Sum
from sparseformats.ops.light import Light, execute
from sparseformats.ops.operands import Operands, separate
from sparseformats.ops.scalars import Scalar

__all__ = ["LightOf", "delivered", "multiply", "unrounded", "working"]

LightOf = Callable[[SparseMatrix, Array, "Array | None", Scalar, Scalar, bool], Light]
"""``(part, x, out, alpha, beta, unrounded) -> light``, found or prepared."""

_EXACT = ("coo", "csr", "csc")


def working(A: Sum) -> list[SparseMatrix]:
    """Parts that a product meets: all but those that are known to be empty, and at least one."""
    met = [part for part in A.parts if not is_idle(part)]
    return met or [A.parts[0]]


def is_idle(part: SparseMatrix) -> bool:
    """Whether a part stores nothing, as far as its shapes tell: then it has no term."""
    return part.family in _EXACT and part.nnz == 0


def multiply(
    o: Operands,
    x: Array,
    out: Array | None,
    alpha: Scalar,
    beta: Scalar,
    light_of: LightOf,
) -> Array:
    """``alpha * (A @ x) + beta * out`` for a `Sum`; nothing is written before all is prepared.

    Parameters
    ----------
    o : Operands
        The call as a whole.
    x, out : array
        The operands as they were given; they may overlap.
    """
    assert isinstance(o.matrix, Sum)
    parts = working(o.matrix)
    if out is not None:
        x = separate(o.lib, x, out, o.matrix.buffers().values())
    if len(parts) > 1 and accumulator(o.dtype) != o.dtype:
        return delivered(o.lib, unrounded(o, x, alpha, light_of), out, beta, o.dtype)
    first, *others = parts
    if out is None:
        light = light_of(first, x, None, alpha, 0, False)
        out = execute(light, x, None, alpha, 0)
        lights = []
    else:
        lights = [(light_of(first, x, out, alpha, beta, False), beta)]
    lights += [(light_of(part, x, out, alpha, 1, False), 1) for part in others]
    for light, summand in lights:
        execute(light, x, out, alpha, summand)
    return out


def unrounded(o: Operands, x: Array, alpha: Scalar, light_of: LightOf) -> Array:
    """``alpha * (A @ x)`` in the dtype of sums, a new array."""
    assert isinstance(o.matrix, Sum)
    products = []
    for part in working(o.matrix):
        light = light_of(part, x, None, alpha, 0, True)
        products.append(execute(light, x, None, alpha, 0))
    return added(o.lib, products, accumulator(o.dtype))


def added(lib: ArrayLibrary, products: list[Array], dtype: str) -> Array:
    """Sum of new arrays, from left to right in `dtype`; may write to the first."""
    with np.errstate(all="ignore"):
        total, *others = (lib.astype(y, dtype) for y in products)
        for y in others:
            total += y
    return total


def delivered(
    lib: ArrayLibrary, total: Array, out: Array | None, beta: Scalar, dtype: str
) -> Array:
    """``total + beta * out`` rounded once to `dtype`; writes to `out` where it is given."""
    with np.errstate(all="ignore"):
        if out is not None and beta != 0:
            total += beta * lib.astype(out, lib.dtype_name(total))
        y = lib.astype(total, dtype)
    if out is None:
        return y
    out[...] = y
    return out
