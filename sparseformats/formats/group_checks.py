"""Rules of n:m matrices.

Checks run over chunks of rows, so that huge shared arrays are neither copied nor matched by
index arrays of their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.errors import Problem
from sparseformats.formats import checks, slots
from sparseformats.formats.groups import inside, outside, with_free

if TYPE_CHECKING:
    from sparseformats.formats.nm import NM

__all__ = ["is_canonical", "problems", "side_problems", "structure"]


def problems(a: NM) -> list[Problem]:
    """Every broken rule of an n:m matrix."""
    found = structure(a) + side_problems(a)
    if found:
        return found
    for first, part in _parts(a):
        found += _order_problems(part, first)
    if a.zeros is not None and not isinstance(a.zeros, str):
        found += checks.zeros_mark(a.lib, a.zeros, a.data, inside(a))
    if found:
        return found
    for first, part in _parts(a):
        found += _free_problems(part, first)
    return found


def is_canonical(a: NM) -> bool:
    """Whether a matrix of sound structure has every slot where it belongs."""
    return not any(
        _order_problems(part, first) or _free_problems(part, first) for first, part in _parts(a)
    )


def structure(a: NM) -> list[Problem]:
    """Shapes, placement, ranges, and zeros beyond the last column."""
    arrays = {"data": a.data, "indices": a.indices}
    found = checks.same_placement(a.lib, arrays)
    if found:
        return found
    rows, k = a.shape
    want = (rows, -(-k // a.m), a.n)
    found = checks.lengths(
        {name: (want, tuple(int(s) for s in x.shape)) for name, x in arrays.items()}
    )
    if a.lib.dtype_name(a.indices) != "uint8":
        name = a.lib.dtype_name(a.indices)
        found.append(Problem("position-type", "indices", name, f"must be uint8, got {name}"))
    if found:
        return found
    for first, part in _parts(a):
        found += _range_problems(part, first) or _padding_problems(part, first)
    return found


def side_problems(a: NM) -> list[Problem]:
    """Rules of the side record by itself."""
    side, lib = a.side, a.lib
    if side is None:
        return []
    if getattr(side, "family", None) != "coo":
        text = f"must be a COO, got {type(side).__name__}"
        return [Problem("side-type", "side", type(side).__name__, text)]
    facts: dict[str, tuple[object, object]] = {
        "shape": (a.shape, side.shape),
        "library": (a.library, side.library),
        "device": (a.device, side.device),
        "dtype": (a.dtype_name, side.dtype_name),
    }
    found = [
        Problem(f"side-{name}", "side", has, f"must have {name} {want}, got {has}")
        for name, (want, has) in facts.items()
        if want != has
    ]
    if found:
        return found
    return [
        Problem("side-coo", f"side.{p.place}", p.value, p.message) for p in side.problems()
    ] + checks.violations(
        lib,
        lib.nonzero_mask(side.data),
        side.data,
        "side-value",
        lambda p: f"side.data[{p}]",
        lambda v: f"the side record holds zeros only, got {v}",
    )


def _parts(a: NM) -> Iterator[tuple[int, NM]]:
    """Chunks of rows as matrices of their own, each with the number of its first row."""
    rows, count, n = (int(s) for s in a.data.shape)
    step = max(1, slots.CHUNK // max(1, count * max(n, a.m)))
    if step >= rows:
        yield 0, a
        return
    for i in range(0, rows, step):
        j = min(i + step, rows)
        yield (
            i,
            type(a).trusted(
                data=a.data[i:j, ...],
                indices=a.indices[i:j, ...],
                shape=(j - i, a.shape[1]),
                n=n,
                m=a.m,
                zeros=_marks_between(a, i * count * n, j * count * n),
                side=_side_between(a, i, j),
            ),
        )


def _cut(lib: ArrayLibrary, sorted_: Array, first: int, last: int) -> slice:
    bounds = lib.asarray([first, last], lib.dtype_name(sorted_), lib.device(sorted_))
    start, end = lib.to_numpy(lib.searchsorted(sorted_, bounds)).tolist()
    return slice(start, end)


def _marks_between(a: NM, first: int, last: int) -> Array | str | None:
    if a.zeros is None or isinstance(a.zeros, str):
        return a.zeros
    return a.zeros[_cut(a.lib, a.zeros, first, last)] - first


def _side_between(a: NM, first: int, last: int) -> object:
    if a.side is None:
        return None
    cut = _cut(a.lib, a.side.row, first, last)
    return type(a.side).trusted(
        data=a.side.data[cut],
        row=a.side.row[cut] - first,
        col=a.side.col[cut],
        shape=(last - first, a.shape[1]),
    )


def _place(name: str, first: int, shape: tuple[int, ...]) -> Callable[[int], str]:
    """Words for a flat position in rows from `first` on of the last axes' shape."""

    def words(p: int) -> str:
        i, *rest = (int(x) for x in np.unravel_index(p, shape))
        return f"{name}[{', '.join(str(x) for x in (i + first, *rest))}]"

    return words


def _extents(a: NM) -> tuple[int, ...]:
    return tuple(int(s) for s in a.data.shape)


def _range_problems(a: NM, first: int) -> list[Problem]:
    if a.m == 256:
        return []  # whatever fits a byte
    return checks.violations(
        a.lib,
        a.indices >= a.m,
        a.indices,
        "position-range",
        _place("indices", first, _extents(a)),
        lambda v: f"position {v} is not within 0 … {a.m - 1}",
    )


def _padding_problems(a: NM, first: int) -> list[Problem]:
    beyond = outside(a)
    if beyond is None:
        return []
    _, count, n = _extents(a)
    last = a.data[:, -1:, :]
    return checks.violations(
        a.lib,
        a.lib.nonzero_mask(last) & beyond,
        last,
        "padding",
        lambda p: f"data[{first + p // n}, {count - 1}, {p % n}]",
        lambda v: f"a slot beyond column {a.shape[1] - 1} must hold 0, got {v}",
    )


def _order_problems(a: NM, first: int) -> list[Problem]:
    later, earlier = a.indices[:, :, 1:], a.indices[:, :, :-1]
    _, count, n = _extents(a)
    rest = max(1, n - 1)
    return checks.violations(
        a.lib,
        later <= earlier,
        later,
        "sorted",
        lambda p: f"indices[{first + p // rest // count}, {p // rest % count}, {p % rest + 1}]",
        lambda v: f"positions must ascend strictly within a group, got {v}",
    )


def _free_problems(a: NM, first: int) -> list[Problem]:
    """Unstored slots: +0 at the smallest free positions; no element both in a slot and aside."""
    lib, m, stored = a.lib, a.m, a.stored_mask()
    rows, count, n = _extents(a)
    base = lib.xp.reshape(lib.arange(rows * count, device=a.device), (rows, count, 1)) * m
    taken = lib.xp.reshape(base + lib.astype(a.indices, "int64"), (-1,))
    where = lib.flatnonzero(stored)
    true = lib.full(int(where.shape[0]), True, "bool", a.device)
    used = lib.scatter((rows, count, m), lib.take(taken, where), true)
    chosen = lib.xp.reshape(with_free(lib, used, n), (-1,))
    at = lib.xp.reshape(lib.take(chosen, taken), (rows, count, n))
    found = checks.violations(
        lib,
        ~stored & (~at | _minus_zero_mask(lib, a.data)),
        a.indices,
        "free-position",
        _place("indices", first, (rows, count, n)),
        lambda v: f"an unstored slot must hold +0 at the smallest free position, got {v}",
    )
    if a.side is None or not a.side.nnz:
        return found
    row, col = lib.astype(a.side.row, "int64"), lib.astype(a.side.col, "int64")
    return found + checks.violations(
        lib,
        lib.take(lib.xp.reshape(used, (-1,)), (row * count + col // m) * m + col % m),
        col,
        "side-slot",
        lambda p: f"side (row {first + int(lib.item(row[p : p + 1]))})",
        lambda v: f"the zero at column {v} is stored in a slot already",
    )


def _minus_zero_mask(lib: ArrayLibrary, data: Array) -> Array:
    """True where a zero is not all zero bits."""
    name = lib.dtype_name(data)
    if name == "complex128":
        real, imag = lib.xp.real(data), lib.xp.imag(data)
        return (_minus_zero_mask(lib, real) | _minus_zero_mask(lib, imag)) & ~lib.nonzero_mask(data)
    return (lib.bits(data) != 0) & ~lib.nonzero_mask(data)
