"""Estimated microseconds of a warm call of cuSPARSE on an H200, for the order of kernels."""

from __future__ import annotations

import math

from sparseformats._dtypes import itemsize, kind
from sparseformats.dispatch.record import Query, checks
from sparseformats_kernels.cuda.costs import LAUNCH, columns, moving, rearranging, slots, width
from sparseformats_kernels.cusparse import times

__all__ = ["FINITE", "bell", "bsr", "csr", "spgemm"]

FINITE = checks.finite_operand()

_VECTOR = 45.0  # between calls with a vector, however small
_BSR = 1.1e7  # multiplications and additions a microsecond
_TF32 = 4.0  # times as long as half types
_PRODUCTS = 4e3  # elements met a microsecond by a sparse product


def _reading(query: Query) -> float:
    return moving(slots(query) * (4 + width(query)))


def _longest(query: Query) -> float:
    """Elements of the longest row; where nobody told, of rows that are even but for chance."""
    mean = slots(query) / max(1, query.m)
    if query.row_skew is not None:
        return mean * math.exp2(query.row_skew + 0.5)
    return mean + 4 * math.sqrt(mean)


def csr(query: Query) -> float:
    """The quickest algorithm that may be taken."""
    n = columns(query)
    if n == 1:
        return max(_VECTOR, LAUNCH + 2 * _reading(query)) + rearranging(query)
    facts = query.m, query.k, slots(query), _longest(query), width(query)
    by_row = query.x_layout != "F", query.out_layout != "F"
    case = times.Case(n, *by_row, query.deterministic, FINITE.holds(query))
    found, _ = times.best(times.Work(*facts), case, times.offered(query.out_dtype, case))
    return found + rearranging(query)


def bell(query: Query) -> float:
    """Dense tiles on tensor cores, the larger the better."""
    edge = min(query.blocksize or (1, 1))
    rate = 2.1e8 if edge >= 64 else 1.4e8 if edge >= 32 else 4e6 * edge
    if itemsize(query.out_dtype or "float16") > 2:
        rate /= _TF32 if query.out_dtype == "float32" else 2 * _TF32
    work = 2.0 * slots(query) * max(16, columns(query))
    writing = moving(float(query.m) * columns(query) * width(query))
    return LAUNCH + work / rate + writing + rearranging(query)


def bsr(query: Query) -> float:
    """Blocks without tensor cores."""
    name = query.out_dtype or "float32"
    work = 2.0 * slots(query) * columns(query) * (4 if kind(name) == "c" else 1)
    work *= 2 if name in ("float64", "complex128") else 1
    return LAUNCH + _reading(query) + work / _BSR + rearranging(query)


def spgemm(query: Query) -> float:
    """Each element meets one row of the other matrix; several launches and one wait."""
    return 200 + slots(query) / _PRODUCTS
