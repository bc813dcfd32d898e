"""How a call is served: which problem the library gets, and what is copied for it.

The library reads and writes whole rows or whole columns at multiples of 16 bytes, and sizes that
are multiples of 8 to 32. What lies otherwise is copied: an operand into memory of the right sizes,
a result out of it. 8-bit operands must lie column by column, so those in rows are turned as well.
"""

from __future__ import annotations

from typing import NamedTuple

from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats_kernels.cusparse.products import view
from sparseformats_kernels.cusparselt.api import ORDER_COL, ORDER_ROW
from sparseformats_kernels.cusparselt.packing import Blob, padded, tile
from sparseformats_kernels.cusparselt.plans import ALIGNED, OWN_BIAS, Problem

__all__ = ["Given", "Served", "given", "laid", "serve", "usual"]

Lies = tuple[int, int]
"""Order and leading dimension of a matrix in memory."""


class Given(NamedTuple):
    """What a call brings.

    Attributes
    ----------
    n : int
        Columns.
    x, y : (order, step) or None
        Where the operand lies, and the array for the result; None where they must be copied.
    x_order, y_order : int
        The nearest order, for a copy.
    bias : int
        Address, 0 for none.
    """

    n: int
    x: Lies | None
    y: Lies | None
    x_order: int = ORDER_ROW
    y_order: int = ORDER_ROW
    bias: int = 0


class Served(NamedTuple):
    """How it is served.

    Attributes
    ----------
    problem : Problem
    copies, aside : bool
        The operand is copied before; the result is made in other memory and copied behind.
    """

    problem: Problem
    copies: bool
    aside: bool


def laid(steps: tuple[int, ...], address: int, size: tuple[int, int], dtype: str) -> Lies | None:
    """Where a matrix lies, if the library can use it there."""
    found = view(steps, *size)
    if found is None or address % ALIGNED or found[1] * itemsize(dtype) % ALIGNED:
        return None
    return found


def given(
    shape: tuple[int, int, int],
    dtypes: tuple[str, str],
    x: tuple[tuple[int, ...], int],
    y: tuple[tuple[int, ...], int] | None,
    bias: int,
) -> Given:
    """What a call brings.

    Parameters
    ----------
    shape : (m, k, n)
    dtypes : (dtype, dtype)
        Of the operand and of the result.
    x, y : (steps, address)
        None for a result in new, row-major memory.
    """
    m, k, n = shape
    x_lies = laid(*x, (k, n), dtypes[0])
    if y is None:
        y = (n, 1), 0
    y_lies = laid(*y, (m, n), dtypes[1])
    orders = _order(x[0], k, n), _order(y[0], m, n)
    return Given(n, x_lies, y_lies, *orders, bias)


def _order(steps: tuple[int, ...], rows: int, n: int) -> int:
    """The order in which a copy of a matrix is read or written most easily."""
    if n == 1 or rows == 1:
        return ORDER_ROW if n > 1 else ORDER_COL
    return ORDER_ROW if steps[1] <= steps[0] else ORDER_COL


def usual(query: Query, n: int) -> Given:
    """What calls with these facts will bring, most likely: whole rows or columns, aligned."""
    m, k = query.m, query.k
    dtypes = query.a_dtype or "float16", query.out_dtype or "float16"
    x = _steps(query.x_layout, k, n), 0 if query.x_aligned is not False else 1
    y = _steps(query.out_layout, m, n), 0 if query.out_aligned is not False else 1
    return given((m, k, n), dtypes, x, y, 0)


def _steps(layout: str | None, rows: int, n: int) -> tuple[int, int]:
    return (1, rows) if layout == "F" else (2 * n, 2) if layout == "strided" else (n, 1)


def serve(blob: Blob, shape: tuple[int, int], call: Given, direct: bool) -> Served:
    """Work out how to serve a call.

    Parameters
    ----------
    shape : (m, k)
        Of the matrix.
    direct : bool
        The library may write into the array for the result, types and numbers allowing.
    """
    m, k = shape
    n = padded(call.n, tile(blob.dtype).dense)
    wide = n != call.n
    x, y = call.x, call.y
    if x is not None and (wide or blob.k != k or (_by_column(blob) and x[0] == ORDER_ROW)):
        x = None
    if y is not None and (wide or blob.m != m or not direct):
        y = None
    x_order = ORDER_COL if _by_column(blob) else call.x_order
    copies, aside = x is None, y is None
    x = x or (x_order, n if x_order == ORDER_ROW else blob.k)
    y = y or (call.y_order, n if call.y_order == ORDER_ROW else blob.m)
    bias = OWN_BIAS if call.bias and (call.bias % ALIGNED or blob.m != m) else call.bias
    return Served(Problem(n, *x, *y, bias), copies, aside)


def _by_column(blob: Blob) -> bool:
    """Whether the operand must lie column by column: 8-bit types have kernels of no other kind."""
    return itemsize(blob.dtype) == 1
