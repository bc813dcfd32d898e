"""Estimated microseconds of a warm call of cuSPARSELt on an H200, for the order of kernels."""

from __future__ import annotations

from sparseformats._dtypes import itemsize
from sparseformats.dispatch.record import Query
from sparseformats_kernels.cuda.costs import LAUNCH, columns, moving, width

__all__ = ["by_torch", "product"]

# Multiplications and additions a microsecond of the whole shape, zeros counted: what large products
# reach with an algorithm that was searched for.
_RATES = {"float16": 1.1e9, "bfloat16": 1.1e9}
_BYTES = {"int8": 1.8e9, "float8_e4m3fn": 1.55e9}
# Columns up to which weights are read at so large a part of the device's rate only.
_READING = {64: 0.4, 256: 0.5}
_FEW = 32  # columns that take as long to multiply as fewer
_PLANNED = 2.0  # of a call that does nothing, beyond that of other kernels
_HOST = 800.0  # of torch's operator, which makes a plan on each call
_COPY = 4.0  # of a copy, however small


def product(query: Query) -> float:
    """Reading, multiplying and writing, and copies of what the library cannot use where it lies."""
    m, k, n = query.m, query.k, columns(query)
    name = query.a_dtype or "float16"
    item = itemsize(name)
    weights = m * k * item * 9 / 16
    rate = next((part for most, part in _READING.items() if n <= most), 1.0)
    moved = moving(weights) / rate + moving(float(k) * n * item + float(m) * n * width(query))
    work = 2.0 * m * k * max(n, _FEW) / (_RATES | _BYTES).get(name, 1.1e9)
    return LAUNCH + _PLANNED + max(moved, work) + _copies(query, n)


def _copies(query: Query, n: int) -> float:
    item = itemsize(query.a_dtype or "float16")
    edge, wide = 32 // item, 16 // item
    found = 0.0
    ragged = query.n % wide != 0
    turned = item == 1 and query.x_layout != "F" and query.n > 1
    if ragged or query.k % edge or turned or _lies_badly(query.x_layout, query.x_aligned):
        found += _COPY + moving(2.0 * query.k * n * item)
    scaled = query.out_dtype == "int32" and not (query.alpha_one and query.beta_zero)
    other = query.out_dtype == "float8_e4m3fn" or scaled
    bad = _lies_badly(query.out_layout, query.out_aligned)
    if ragged or query.m % edge or other or bad:
        found += _COPY + moving(2.0 * query.m * n * max(width(query), 4 if other else 0))
    return found


def _lies_badly(layout: str | None, aligned: bool | None) -> bool:
    return layout == "strided" or aligned is False


def by_torch(query: Query) -> float:
    """The same, with a plan made on each call."""
    return max(_HOST, product(query))
