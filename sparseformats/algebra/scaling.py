"""A scalar times a matrix, a matrix through a scalar, its sign and size: the pattern is kept."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import itemsize, kind
from sparseformats.algebra.casting import integer_range
from sparseformats.algebra.common import elementwise, is_boolean, promoted, refuse_grad
from sparseformats.algebra.values import mapped
from sparseformats.formats import SparseMatrix

__all__ = ["absolute", "divided", "is_scalar", "negated", "negative", "scaled"]

_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def is_scalar(x: object) -> bool:
    """Whether `x` is a number of Python or NumPy; arrays without axes are arrays."""
    return isinstance(x, (bool, int, float, complex, np.number, np.bool_))


@placed
def scaled(A: SparseMatrix, factor: Any) -> Any:
    """``A * factor``.

    Raises
    ------
    TypeError
        `factor` is a matrix or an array: the text names the products there are.
    OverflowError
        An integer factor does not fit the result's dtype.
    """
    if not is_scalar(factor):
        return _refuse("*", factor)
    lib = A.lib
    refuse_grad("*", lib, *A.value_buffers())
    name = _dtype_with(lib, A.dtype_name, factor)
    factor = _fitting(factor, name)
    op = operator.and_ if is_boolean(name) else operator.mul
    return mapped(A, lambda x: elementwise(lib, op, x, factor, name))


@placed
def divided(A: SparseMatrix, divisor: Any) -> Any:
    """``A / divisor``; integers become floating, a stored zero over 0 is NaN.

    Raises
    ------
    TypeError
        `divisor` is a matrix or an array.
    """
    if not is_scalar(divisor):
        return _refuse("/", divisor)
    lib = A.lib
    refuse_grad("/", lib, *A.value_buffers())
    name = _dtype_with(lib, A.dtype_name, divisor)
    if kind(name) in "biu":
        name = _default(lib, 1.0)
    factor = _fitting(divisor, name)
    return mapped(A, lambda x: elementwise(lib, operator.truediv, x, factor, name))


@placed
def negative(A: SparseMatrix) -> SparseMatrix:
    """``-A``, of floating values by their sign bit.

    Raises
    ------
    TypeError
        The values are bool.
    """
    lib, name = A.lib, A.dtype_name
    refuse_grad("-", lib, *A.value_buffers())
    if is_boolean(name):
        raise TypeError("- of a bool matrix has no meaning; use .astype first")
    return mapped(A, lambda x: negated(lib, x))


def negated(lib: ArrayLibrary, x: Array) -> Array:
    """Values with the other sign; integers wrap."""
    name = lib.dtype_name(x)
    if kind(name) == "c":  # torch's own keeps +0.0 in some parts
        parts = lib.from_bits(lib.contiguous(x), "float32" if name == "complex64" else "float64")
        return lib.from_bits(negated(lib, parts), name)
    if kind(name) == "f":
        return lib.from_bits(lib.bits(x) ^ -(2 ** (8 * itemsize(name) - 1)), name)
    return -x


@placed
def absolute(A: SparseMatrix) -> SparseMatrix:
    """``abs(A)``: real for complex values; the smallest integer wraps."""
    lib, name = A.lib, A.dtype_name
    refuse_grad("abs", lib, *A.value_buffers())
    if kind(name) in "bu":
        return A
    if kind(name) == "f":
        mask = 2 ** (8 * itemsize(name) - 1) - 1
        return mapped(A, lambda x: lib.from_bits(lib.bits(x) & mask, name))
    with np.errstate(all="ignore"):
        return mapped(A, lib.xp.abs)


def _refuse(symbol: str, other: Any) -> Any:
    if isinstance(other, SparseMatrix) or _arrays.is_array(other):
        instead = "A.multiply(B) element by element, A @ B for the matrix product"
        if symbol == "/":
            instead = "A.multiply(1 / D) element by element"
        raise TypeError(
            f"A {symbol} B takes a number for B, got {type(other).__name__}; use {instead}"
        )
    return NotImplemented


def _default(lib: ArrayLibrary, value: Any) -> str:
    """Dtype that the library gives a Python number."""
    return lib.dtype_name(lib.asarray(value))


def _dtype_with(lib: ArrayLibrary, name: str, factor: Any) -> str:
    """Dtype of values of dtype `name` times a number.

    A Python number has a kind but no width; a NumPy number has its own width with NumPy arrays.
    """
    if isinstance(factor, np.generic):
        if lib.name == "numpy":
            return promoted("*", lib, name, factor.dtype.name)
        factor = factor.item()
    wanted = {bool: 0, int: 1, float: 2, complex: 3}[_python_type(factor)]
    have = _RANK[kind(name)]
    if wanted <= have:
        return name
    if wanted == 3 and have == 2:
        return "complex128" if name == "float64" else "complex64"
    return _default(lib, _python_type(factor)(1))


def _python_type(x: Any) -> type:
    return next(cls for cls in (bool, int, float, complex) if isinstance(x, cls))


def _fitting(factor: Any, name: str) -> Any:
    """`factor` as a Python number that an array of dtype `name` takes."""
    value = factor.item() if isinstance(factor, np.generic) else factor
    if is_boolean(name):
        return bool(value)
    if kind(name) not in "iu":
        return complex(value) if kind(name) == "c" else float(value)
    low, high = integer_range(name)
    if not low <= value <= high:
        raise OverflowError(f"{value} does not fit {name}, which holds {low} … {high}")
    return int(value)
