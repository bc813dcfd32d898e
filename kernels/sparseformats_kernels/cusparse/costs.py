"""Estimated microseconds of a warm call of cuSPARSE on an H200, for the order of kernels."""

from __future__ import annotations

from sparseformats._dtypes import itemsize, kind
from sparseformats.dispatch.record import Query
from sparseformats_kernels.cuda.costs import LAUNCH, columns, moving, rearranging, slots, width

__all__ = ["bell", "bsr", "csr", "spgemm"]

_GATHER = 2.6e6  # bytes a microsecond, of rows of the operand read out of the L2 cache
_SECTOR = 32  # bytes read for a number alone
_BSR = 1.1e7  # multiplications and additions a microsecond
_PRODUCTS = 4e3  # elements met a microsecond by a sparse product


def _reading(query: Query) -> float:
    return moving(slots(query) * (4 + width(query)))


def csr(query: Query) -> float:
    """A row of the operand gathered for each element."""
    n, size = columns(query), width(query)
    piece = max(_SECTOR, n * size) if query.x_layout != "F" else n * max(_SECTOR / 4, size)
    gathering = slots(query) * piece / _GATHER
    writing = moving(float(query.m) * n * size)
    arithmetic = 2 if kind(query.out_dtype or "float32") == "c" else 1
    return LAUNCH + _reading(query) + gathering * arithmetic + writing + rearranging(query)


def bell(query: Query) -> float:
    """Dense tiles on tensor cores, the larger the better."""
    edge = min(query.blocksize or (1, 1))
    rate = 2.1e8 if edge >= 64 else 1.4e8 if edge >= 32 else 4e6 * edge
    if itemsize(query.out_dtype or "float16") > 2:
        rate /= 8
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
