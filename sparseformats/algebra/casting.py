"""Values in another dtype, on the same pattern."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import itemsize, kind
from sparseformats.algebra.common import cast, refuse_grad, value_name
from sparseformats.algebra.values import mapped
from sparseformats.formats import SparseMatrix

__all__ = ["astype", "integer_range"]


@placed
def astype(A: SparseMatrix, dtype: Any) -> SparseMatrix:
    """Cast every stored value; see `SparseMatrix.astype`."""
    lib, source = A.lib, A.dtype_name
    name = value_name("astype", lib, dtype)
    if name == source:
        return A
    refuse_grad("astype", lib, *A.value_buffers())
    if kind(source) == "c" and kind(name) not in "cb":
        raise TypeError(
            f"astype: {source} values have two parts and {name} takes one; choose it yourself, "
            "for example A.with_data(A.data.real)"
        )
    return mapped(A, lambda x: _cast(lib, x, source, name))


def _cast(lib: ArrayLibrary, x: Array, source: str, name: str) -> Array:
    if kind(name) == "b":
        return lib.nonzero_mask(x)
    if kind(name) in "iu" and kind(source) != "b":
        if kind(source) == "f":
            with np.errstate(all="ignore"):
                x = lib.xp.trunc(lib.astype(x, "float64"))
        _check_range(lib, x, source, name)
    return cast(lib, x, name)


def integer_range(name: str) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    bits = 8 * itemsize(name)
    return (0, 2**bits - 1) if kind(name) == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _check_range(lib: ArrayLibrary, x: Array, source: str, name: str) -> None:
    """Refuse values that an integer dtype cannot express.

    Raises
    ------
    OverflowError
        Names the first such value, where it stands, and how many there are.
    """
    low, high = integer_range(name)
    if kind(source) == "f":
        with np.errstate(all="ignore"):  # the bounds are powers of two, so exact; NaN is outside
            bad = ~((x >= float(low)) & (x < float(high + 1)))
    else:
        # A bound that the source cannot express is none, and would wrap in the comparison.
        lowest, highest = integer_range(source)
        bad = lib.full(tuple(x.shape), False, "bool", lib.device(x))
        bad = bad | (x < low) if low > lowest else bad
        bad = bad | (x > high) if high < highest else bad
    where = lib.flatnonzero(bad)
    count = int(where.shape[0])
    if count:
        value = lib.item(lib.take(x, where[:1]))
        more = f", and {count - 1} more do not" if count > 1 else ""
        raise OverflowError(
            f"astype: {name} holds {low} … {high}, stored value {value} does not fit{more}"
        )
