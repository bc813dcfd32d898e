"""Sums of elements at equal positions: exact for integers, in a fixed order for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparseformats._dtypes import accumulator, itemsize, kind

if TYPE_CHECKING:
    from sparseformats._arrays.base import ArrayLibrary

__all__ = ["segment_sum"]

Array = Any

_LOW = 0xFFFFFFFF


def segment_sum(lib: ArrayLibrary, values: Array, starts: Array, counts: Array) -> Array:
    """Sum runs of `values` along the first axis.

    Parameters
    ----------
    values : (N, ...) array
    starts, counts : (S,) int64 arrays
        Run s is ``values[starts[s] : starts[s] + counts[s]]``; ``counts >= 1``.

    Returns
    -------
    (S, ...) array of the same dtype. A run of one element keeps its bits. Half types are
    summed in float32, bool by *or*.

    Raises
    ------
    OverflowError
        An integer sum does not fit its dtype.
    """
    out = lib.take(values, starts)
    many = lib.flatnonzero(counts > 1)
    if not many.shape[0]:
        return out
    runs = lib.take(counts, many)
    first = lib.take(starts, many) - (lib.cumsum(runs) - runs)
    total = int(lib.item(runs.sum()))
    index = lib.repeat(first, runs, total) + lib.arange(total, device=lib.device(values))
    sums = _sum_runs(lib, lib.take(values, index), runs)
    out = lib.copy(out)
    out[many, ...] = sums
    return out


def _sum_runs(lib: ArrayLibrary, values: Array, counts: Array) -> Array:
    name = lib.dtype_name(values)
    if kind(name) in "iu":
        return _sum_integer_runs(lib, values, counts)
    if kind(name) == "b":
        return _halve(lib, lib.astype(values, "int64"), counts) > 0
    return lib.astype(_halve(lib, lib.astype(values, accumulator(name)), counts), name)


def _halve(lib: ArrayLibrary, values: Array, counts: Array) -> Array:
    """Sum adjacent pairs of each run until one element a run is left (fixed order)."""
    device = lib.device(values)
    while lib.max_int(counts) > 1:
        ends = lib.cumsum(counts)
        total = int(values.shape[0])
        within = lib.arange(total, device=device) - lib.repeat(ends - counts, counts, total)
        even = lib.flatnonzero(within % 2 == 0)
        partner = lib.take(lib.repeat(counts, counts, total) - within, even) > 1
        summed = lib.take(values, even)
        has = lib.flatnonzero(partner)
        summed[has, ...] = lib.take(summed, has) + lib.take(values, lib.take(even, has) + 1)
        values, counts = summed, (counts + 1) // 2
    return values


def _sum_integer_runs(lib: ArrayLibrary, values: Array, counts: Array) -> Array:
    """Exact integer sums by 32-bit halves, so that no order of addition can overflow."""
    name = lib.dtype_name(values)
    bits = 8 * itemsize(name)
    signed = kind(name) == "i"
    wide = lib.bits(values) if name == "uint64" else lib.astype(values, "int64")
    high = wide >> 32 if signed else (wide >> 32) & _LOW
    low = _halve(lib, wide & _LOW, counts)
    high = _halve(lib, high, counts) + (low >> 32)
    low = low & _LOW
    if bits == 64:
        limit = 2**31 if signed else 2**32
        bad = (high >= limit) | (high < (-limit if signed else 0))
        total = (high << 32) | low
    else:
        total = (high << 32) | low
        limit = 2 ** (bits - signed)
        bad = (total >= limit) | (total < (-limit if signed else 0))
    if lib.any(bad):
        raise OverflowError(f"the sum of duplicate entries does not fit {name}")
    return lib.from_bits(total, name) if bits == 64 else lib.astype(total, name)
