"""Rules that formats share. Each check is pure and returns problems instead of raising.

Cheap rules come first; a rule that reads values runs only when those it relies on hold, so that
a broken pointer array is reported as such and not as an index error from inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import INT32_MAX
from sparseformats.errors import Problem

__all__ = [
    "PLACES",
    "ascending",
    "compressed_structure",
    "index_range",
    "lengths",
    "only_range",
    "same_placement",
    "violations",
    "zeros_mark",
]

PLACES = 100  # places spelled out a rule; beyond, one more problem says how many remain


def violations(
    lib: ArrayLibrary,
    bad: Array,
    values: Array,
    rule: str,
    place: Callable[[int], str],
    message: Callable[[Any], str],
    shown: Callable[[Any], object] = lambda v: v,
) -> list[Problem]:
    """Problems for the true elements of `bad`, with the elements of `values` found there.

    Parameters
    ----------
    bad, values : arrays of one shape
    rule : str
    place : callable
        Words for a flat position.
    message : callable
        Text for a value, after `shown`.
    shown : callable
        What to report for an element of `values`.
    """
    where = lib.flatnonzero(bad)
    count = int(where.shape[0])
    if not count:
        return []
    some = where[:PLACES]
    at = lib.take(lib.xp.reshape(values, (-1,)), some)
    found = [shown(v) for v in lib.to_numpy(at).tolist()]
    places = lib.to_numpy(some).tolist()
    problems = [Problem(rule, place(p), v, message(v)) for p, v in zip(places, found, strict=True)]
    if count > PLACES:
        rest = count - PLACES
        problems.append(Problem(rule, "more places", rest, f"and {rest} more places like these"))
    return problems


def only_range(problems: list[Problem]) -> bool:
    """Whether rules that walk the rows may run: nothing but single indices is out of order."""
    return all(p.rule == "index-range" for p in problems)


def lengths(expected: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]) -> list[Problem]:
    """Compare shapes: name -> (expected, found)."""
    return [
        Problem("length", name, found, f"{name} must have shape {want}, got {found}")
        for name, (want, found) in expected.items()
        if want != found
    ]


def same_placement(lib: ArrayLibrary, arrays: dict[str, Array]) -> list[Problem]:
    """All arrays of one library on one device."""
    problems: list[Problem] = []
    first, *others = arrays.items()
    for name, x in others:
        if not lib.owns(x):
            found = type(x).__name__
            text = f"{name} is a {found}, {first[0]} is a {lib.name} array"
            problems.append(Problem("library", name, found, text))
        elif lib.device(x) != lib.device(first[1]):
            found = lib.device(x)
            text = f"{name} is on {found!r}, {first[0]} on {lib.device(first[1])!r}"
            problems.append(Problem("device", name, found, text))
    return problems


def index_range(
    lib: ArrayLibrary, name: str, x: Array, bound: int, what: str, lowest: int = 0
) -> list[Problem]:
    """Elements within ``lowest … bound - 1``."""
    # A bound that the type cannot express is no bound (and would wrap in the comparison).
    bad = x < lowest
    if bound <= INT32_MAX or lib.dtype_name(x) == "int64":
        bad = bad | (x >= bound)
    return violations(
        lib,
        bad,
        x,
        "index-range",
        lambda p: f"{name}[{p}]" if len(x.shape) == 1 else f"{name}.flat[{p}]",
        lambda v: f"{what} index {v} is not within {lowest} … {bound - 1}",
    )


def compressed_structure(
    lib: ArrayLibrary, indptr: Array, indices: Array, *, major: int, minor: int, what: str
) -> list[Problem]:
    """Rules of a pointer array and the indices it cuts into rows (or columns, or block rows)."""
    in_range = index_range(lib, "indices", indices, minor, what)
    problems = lengths({"indptr": ((major + 1,), tuple(indptr.shape))})
    if problems:
        return problems + in_range
    count = int(indices.shape[0])
    first, last = int(lib.item(indptr[:1])), int(lib.item(indptr[-1:]))
    if first != 0:
        problems.append(Problem("indptr-start", "indptr[0]", first, f"must be 0, got {first}"))
    if last != count:
        text = f"must be the number of indices, {count}, got {last}"
        problems.append(Problem("indptr-end", f"indptr[{major}]", last, text))
    problems += violations(
        lib,
        indptr[1:] < indptr[:-1],
        indptr[1:],
        "indptr-ascending",
        lambda p: f"indptr[{p + 1}]",
        lambda v: f"must not be smaller than the pointer before it, got {v}",
    )
    return problems + in_range


def ascending(lib: ArrayLibrary, indptr: Array, indices: Array, what: str) -> list[Problem]:
    """Indices strictly ascending within each row, given a sound structure."""
    bad = not_ascending(lib, indptr, indices)
    if bad is None:
        return []
    return violations(
        lib,
        bad,
        indices[1:],
        "sorted",
        lambda p: f"indices[{p + 1}]",
        lambda v: f"{what} indices must be strictly ascending, got {v} after one not smaller",
    )


def not_ascending(lib: ArrayLibrary, indptr: Array, indices: Array) -> Array | None:
    """Mask over neighbours (i, i+1) of one row that do not ascend; None where there are none."""
    count = int(indices.shape[0])
    if count < 2:
        return None
    bad = indices[1:] <= indices[:-1]
    if not lib.any(bad):
        return None
    starts = indptr[1:-1]
    starts = starts[(starts > 0) & (starts < count)]
    bad = lib.copy(bad)
    lib.put(bad, lib.astype(starts, "int64") - 1, False)
    return bad if lib.any(bad) else None


def zeros_mark(
    lib: ArrayLibrary, zeros: Array, data: Array, allowed: Array | None
) -> list[Problem]:
    """Rules of the list of stored zeros: int64, ascending, in range, at zeros, in legal slots."""
    if lib.dtype_name(zeros) != "int64" or len(zeros.shape) != 1:
        found = lib.dtype_name(zeros), tuple(zeros.shape)
        return [Problem("zeros-type", "zeros", found, f"must be 1-D int64, got {found}")]
    size = 1
    for extent in data.shape:
        size *= int(extent)
    problems = index_range(lib, "zeros", zeros, size, "slot")
    if problems:
        return problems
    if int(zeros.shape[0]) > 1:
        problems += violations(
            lib,
            zeros[1:] <= zeros[:-1],
            zeros[1:],
            "zeros-sorted",
            lambda p: f"zeros[{p + 1}]",
            lambda v: f"slots must be strictly ascending, got {v}",
        )
    at = lib.take(lib.xp.reshape(data, (-1,)), zeros)
    problems += violations(
        lib,
        lib.nonzero_mask(at),
        zeros,
        "zeros-value",
        lambda p: f"zeros[{p}]",
        lambda v: f"slot {v} is listed as a stored zero but holds a non-zero value",
    )
    if allowed is not None:
        problems += violations(
            lib,
            ~lib.take(lib.xp.reshape(allowed, (-1,)), zeros),
            zeros,
            "zeros-slot",
            lambda p: f"zeros[{p}]",
            lambda v: f"slot {v} lies outside the logical shape or in an empty slot",
        )
    return problems
