"""Products of a `Sum`: every part by the kernel that is best for it, added before one rounding.

In dtypes that are their own accumulator (float32 and wider, complex, integers, bool) the first
part writes the result and the others add to it, by ``beta=1`` of their kernels: another order of
the same sum of products. Half types and fp8 are added in float32: each part's kernel leaves its
result there if it can (`KernelRecord.wide`), else what it gives is one rounding further off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import accumulator
from sparseformats.dispatch.plan_cache import Packed
from sparseformats.formats import SparseMatrix, Sum
from sparseformats.ops.light import Light, execute
from sparseformats.ops.operands import Operands, guard
from sparseformats.ops.scalars import Scalar

__all__ = ["LightOf", "Parted", "delivered", "multiply", "unrounded", "working"]

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


@final
class Parted:
    """What calls of equal facts to one sum have in common; refers to no matrix and no operand.

    Attributes
    ----------
    run : callable
        ``(A, x, out, alpha, beta, light_of) -> y`` for operands with those facts.
    dtype : str
        Of the result.
    packed : Packed
        Nothing: the parts have states of their own.
    stamp : int
        When it was last used.
    """

    __slots__ = ("_guard", "_lib", "_multiply", "_native", "dtype", "packed", "stamp")

    def __init__(self, o: Operands, x: Array, out: Array | None) -> None:
        self.dtype, self._lib = o.dtype, o.lib
        self._native = o.lib.is_native(x)
        self._guard = None
        if out is not None:
            self._guard = guard(o.lib, o.lib.native(x), out, o.matrix.buffers().values())
        self._multiply = o.lib.here(o.matrix.device, multiply)
        self.packed, self.stamp = Packed(None, 0, None), 0

    def run(
        self,
        A: Sum,
        x: Array,
        out: Array | None,
        alpha: Scalar,
        beta: Scalar,
        light_of: LightOf,
    ) -> Array:
        """``alpha * (A @ x) + beta * out``.

        Raises
        ------
        ValueError
            `out` shares memory with a buffer of a part.
        """
        if not self._native:
            x = self._lib.native(x)
        if self._guard is not None:
            x = self._guard(x, out)
        return self._multiply(self._lib, self.dtype, working(A), x, out, alpha, beta, light_of)


def multiply(
    lib: ArrayLibrary,
    dtype: str,
    parts: Sequence[SparseMatrix],
    x: Array,
    out: Array | None,
    alpha: Scalar,
    beta: Scalar,
    light_of: LightOf,
) -> Array:
    """``alpha * (parts @ x) + beta * out``; nothing is written before all is prepared.

    Parameters
    ----------
    dtype : str
        Of the result.
    x, out : array
        They share no memory.
    """
    if len(parts) > 1 and accumulator(dtype) != dtype:
        total = unrounded(lib, dtype, parts, x, alpha, light_of)
        return delivered(lib, total, out, beta, dtype)
    first, *others = parts
    lights = []
    if out is None:
        out = execute(light_of(first, x, None, alpha, 0, False), x, None, alpha, 0)
    else:
        lights = [(light_of(first, x, out, alpha, beta, False), beta)]
    lights += [(light_of(part, x, out, alpha, 1, False), 1) for part in others]
    for light, summand in lights:
        execute(light, x, out, alpha, summand)
    return out


def unrounded(
    lib: ArrayLibrary,
    dtype: str,
    parts: Sequence[SparseMatrix],
    x: Array,
    alpha: Scalar,
    light_of: LightOf,
) -> Array:
    """``alpha * (parts @ x)`` in the dtype in which results of `dtype` are summed, a new array."""
    products = []
    for part in parts:
        light = light_of(part, x, None, alpha, 0, True)
        products.append(execute(light, x, None, alpha, 0))
    return added(lib, products, accumulator(dtype))


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
