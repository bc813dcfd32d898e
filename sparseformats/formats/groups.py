"""Index arithmetic of n:m groups: layout, canonical form and checks.

`encode` and `decode` are the two halves of every conversion to and from n:m; the constructor
uses them too, so there is one definition of where a value goes.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import index_width, itemsize
from sparseformats.errors import PatternError, Problem
from sparseformats.formats import checks, slots
from sparseformats.formats.canonical import canonical_coordinates

if TYPE_CHECKING:
    from sparseformats.formats.nm import NM

__all__ = [
    "Encoded",
    "canonical",
    "check_pattern_numbers",
    "decode",
    "encode",
    "inside",
    "problems",
    "side_structure",
    "structure",
]


class Encoded(NamedTuple):
    """Fields of an n:m matrix made from elements."""

    data: Array
    indices: Array
    zeros: Array | None
    side: tuple[Array, Array, Array] | None  # data, row, col of stored zeros without a slot


def check_pattern_numbers(n: Any, m: Any) -> None:
    """n and m as integers with ``1 <= n <= m <= 256``.

    Raises
    ------
    TypeError, ValueError
        Anything else.
    """
    try:
        small, large = operator.index(n), operator.index(m)
    except TypeError as error:
        raise TypeError(f"n:m needs two integers, got n={n!r}, m={m!r}") from error
    if not 1 <= small <= large <= 256:
        raise ValueError(f"n:m needs 1 <= n <= m <= 256, got n={n}, m={m}")


def _positions(lib: ArrayLibrary, indices: Array, m: int) -> Array:
    """Column of each slot, int64, shaped as `indices`."""
    count = int(indices.shape[1])
    group = lib.arange(count, device=lib.device(indices))
    return group[None, :, None] * m + lib.astype(indices, "int64")


def inside(a: NM) -> Array | None:
    """Mask of slots whose column exists; None where all do."""
    k = a.shape[1]
    if k % a.m == 0:
        return None
    return _positions(a.lib, a.indices, a.m) < k


def decode(a: NM) -> tuple[Array, Array, Array]:
    """Data, row and column (int64) of every stored element, sorted by row, then column."""
    lib = a.lib
    mask = slots.stored_slots(
        lib, a.data, a.zeros, inside(a) if isinstance(a.zeros, str) else None
    )
    return _decoded(a, mask)


def _decoded(a: NM, mask: Array) -> tuple[Array, Array, Array]:
    lib = a.lib
    where = lib.flatnonzero(mask)
    per_row = max(1, int(a.data.shape[1]) * a.n)
    row = where // per_row
    col = lib.take(lib.xp.reshape(_positions(lib, a.indices, a.m), (-1,)), where)
    data = lib.take(lib.xp.reshape(a.data, (-1,)), where)
    if a.side is None:
        return data, row, col
    data = lib.concat([data, a.side.data])
    row = lib.concat([row, lib.astype(a.side.row, "int64")])
    col = lib.concat([col, lib.astype(a.side.col, "int64")])
    order = lib.lexsort(row, col)
    return lib.take(data, order), lib.take(row, order), lib.take(col, order)


def _rank(lib: ArrayLibrary, key: Array, groups: int) -> Array:
    """Position of each element among those of equal key, given ascending keys."""
    ends = lib.cumsum(lib.bincount(key, groups))
    starts = ends - lib.bincount(key, groups)
    return lib.arange(int(key.shape[0]), device=lib.device(key)) - lib.take(starts, key)


def encode(
    lib: ArrayLibrary, data: Array, row: Array, col: Array, shape: tuple[int, int], n: int, m: int
) -> Encoded:
    """Lay sorted, distinct elements out as n:m.

    Non-zeros take slots; then stored zeros by ascending column take what is left of their
    group; the others go to the side record.

    Raises
    ------
    PatternError
        A group has more than n non-zeros; names the first, its count, and how many there are.
    MemoryError
        The layout would not fit into free memory.
    """
    rows, k = shape
    count = -(-k // m)
    device = lib.device(data)
    size = rows * count
    cost = n * (itemsize(lib.dtype_name(data)) + 1) + 4 * m
    lib.ensure_fits(size * cost, device, f"{n}:{m} form of a {rows} x {k} matrix")
    col = lib.astype(col, "int64")
    group = lib.astype(row, "int64") * count + col // m
    full = lib.nonzero_mask(data)
    nonzero, zero = lib.flatnonzero(full), lib.flatnonzero(~full)
    filled = lib.bincount(lib.take(group, nonzero), size)
    _refuse_crowded(lib, filled, count, n, m)
    zero_group = lib.take(group, zero)
    fits = _rank(lib, zero_group, size) < n - lib.take(filled, zero_group)
    in_slot = lib.concat([nonzero, lib.take(zero, lib.flatnonzero(fits))])
    aside = lib.take(zero, lib.flatnonzero(~fits))
    place = lib.take(group, in_slot) * m + lib.take(col, in_slot) % m
    true = lib.full(int(place.shape[0]), True, "bool", device)
    chosen = _with_free(lib, lib.scatter((rows, count, m), place, true), n)
    slot_of = lib.cumsum(lib.astype(lib.xp.reshape(chosen, (-1,)), "int64")) - 1
    slot = lib.take(slot_of, place)
    position = lib.astype(lib.flatnonzero(chosen) % m, "uint8")
    values = lib.take(data, in_slot)
    stored_zero = slot[int(nonzero.shape[0]) :]
    zeros = lib.take(stored_zero, lib.argsort(stored_zero))
    side = None
    if int(aside.shape[0]):
        width = index_width("int32", *shape)
        side_row, side_col = (
            lib.astype(lib.take(x, aside), width) for x in (row, col)
        )
        side = (lib.take(data, aside), side_row, side_col)
    return Encoded(
        lib.scatter((rows, count, n), slot, values),
        lib.xp.reshape(position, (rows, count, n)),
        zeros if int(zeros.shape[0]) else None,
        side,
    )


def _refuse_crowded(lib: ArrayLibrary, filled: Array, count: int, n: int, m: int) -> None:
    crowded = lib.flatnonzero(filled > n)
    many = int(crowded.shape[0])
    if many:
        first = int(lib.item(crowded[:1]))
        found = int(lib.item(filled[first : first + 1]))
        raise PatternError(
            f"{n}:{m} allows {n} non-zeros in each group of {m}; row {first // count}, group "
            f"{first % count} has {found} ({many} group{'s' * (many > 1)} violate in all); "
            "conversions never prune, use sparseformats.prune"
        )


def _with_free(lib: ArrayLibrary, used: Array, n: int) -> Array:
    """Mask (rows, groups, m) of exactly n positions a group: `used`, then the smallest free."""
    flags = lib.astype(used, "int32")
    free = 1 - flags
    need = n - lib.xp.sum(flags, axis=-1, keepdims=True)
    before = lib.xp.cumulative_sum(free, axis=-1) - free
    return used | ((free > 0) & (before < need))


def canonical(a: NM, stored: Array | str | None, check: bool) -> dict[str, Any]:
    """Fields of `a` in canonical form, given what its constructor was told of stored slots."""
    lib = a.lib
    fields: dict[str, Any] = {
        **{k: v for k, v in a.buffers().items() if not k.startswith("side_")},
        **a.static(),
        "side": a.side,
        "zeros": stored,
    }
    mask_given = stored is not None and not isinstance(stored, str)
    if mask_given:
        fields["zeros"] = slots.marks(lib, a.data, stored)
    if not check:
        return fields
    mask = stored if mask_given else slots.stored_slots(
        lib, a.data, stored, inside(a) if isinstance(stored, str) else None
    )
    draft = type(a).trusted(**fields)
    if not (_order_problems(draft) or _free_problems(draft, mask)):
        return fields
    data, row, col = _decoded(a, mask)
    given = int(data.shape[0])
    data, row, col = canonical_coordinates(lib, data, row, col)
    made = encode(lib, data, row, col, a.shape, a.n, a.m)
    from sparseformats.formats.coo import COO

    side = None
    if made.side is not None:
        side = COO.trusted(
            data=made.side[0], row=made.side[1], col=made.side[2], shape=a.shape
        )
    fields |= {"data": made.data, "indices": made.indices, "side": side}
    # Once equal positions were merged, a slot is free and "all" would say too much.
    alone = int(data.shape[0]) == given
    fields["zeros"] = stored if isinstance(stored, str) and alone else made.zeros
    return fields


def structure(a: NM) -> list[Problem]:
    """Shapes, placement, ranges, and zeros beyond the last column."""
    lib = a.lib
    found = checks.same_placement(lib, a.buffers())
    rows, k = a.shape
    want = (rows, -(-k // a.m), a.n)
    found += checks.lengths(
        {name: (want, tuple(int(s) for s in x.shape)) for name, x in _slot_arrays(a).items()}
    )
    if found:
        return found
    found = checks.violations(
        lib,
        a.indices >= a.m if a.m < 256 else a.indices != a.indices,
        a.indices,
        "position-range",
        lambda p: f"indices.flat[{p}]",
        lambda v: f"position {v} is not within 0 … {a.m - 1}",
    )
    legal = inside(a)
    if found or legal is None:
        return found
    return checks.violations(
        lib,
        lib.nonzero_mask(a.data) & ~legal,
        a.data,
        "padding",
        lambda p: f"data.flat[{p}]",
        lambda v: f"a slot beyond column {k - 1} must hold 0, got {v}",
    )


def _slot_arrays(a: NM) -> dict[str, Array]:
    return {"data": a.data, "indices": a.indices}


def side_structure(a: NM) -> list[Problem]:
    """Rules of the side record by itself."""
    side, lib = a.side, a.lib
    if side is None:
        return []
    if getattr(side, "family", None) != "coo":
        text = f"must be a COO, got {type(side).__name__}"
        return [Problem("side-type", "side", type(side).__name__, text)]
    facts = {
        "shape": (a.shape, side.shape),
        "library": (a.library, side.library),
        "dtype": (a.dtype_name, side.dtype_name),
    }
    found = [
        Problem(f"side-{name}", "side", has, f"must have {name} {want}, got {has}")
        for name, (want, has) in facts.items()
        if want != has
    ]
    if found:
        return found
    found = side.problems()
    return found + checks.violations(
        lib,
        lib.nonzero_mask(side.data),
        side.data,
        "side-value",
        lambda p: f"side.data[{p}]",
        lambda v: f"the side record holds zeros only, got {v}",
    )


def _order_problems(a: NM) -> list[Problem]:
    later, earlier = a.indices[:, :, 1:], a.indices[:, :, :-1]
    return checks.violations(
        a.lib,
        later <= earlier,
        later,
        "sorted",
        lambda p: f"group {p // max(1, a.n - 1)}",
        lambda v: f"positions must ascend strictly within a group, got {v}",
    )


def _free_problems(a: NM, stored: Array) -> list[Problem]:
    """Unstored slots: +0 at the smallest free positions; no element both in a slot and aside."""
    lib = a.lib
    rows, count, n = (int(s) for s in a.data.shape)
    m = a.m
    base = lib.xp.reshape(lib.arange(rows * count, device=a.device), (rows, count, 1)) * m
    place = base + lib.astype(a.indices, "int64")
    taken = lib.xp.reshape(place, (-1,))
    where = lib.flatnonzero(stored)
    true = lib.full(int(where.shape[0]), True, "bool", a.device)
    used = lib.scatter((rows, count, m), lib.take(taken, where), true)
    chosen = lib.xp.reshape(_with_free(lib, used, n), (-1,))
    at = lib.xp.reshape(lib.take(chosen, taken), (rows, count, n))
    minus = _minus_zero_mask(lib, a.data)
    found = checks.violations(
        lib,
        ~stored & (~at | minus),
        a.indices,
        "free-position",
        lambda p: f"slot {p}",
        lambda v: f"an unstored slot must hold +0 at the smallest free position, got {v}",
    )
    if a.side is None or not a.side.nnz:
        return found
    row, col = lib.astype(a.side.row, "int64"), lib.astype(a.side.col, "int64")
    key = (row * count + col // m) * m + col % m
    return found + checks.violations(
        lib,
        lib.take(lib.xp.reshape(used, (-1,)), key),
        col,
        "side-slot",
        lambda p: f"side.col[{p}]",
        lambda v: f"the zero at column {v} is stored in a slot already",
    )


def _minus_zero_mask(lib: ArrayLibrary, data: Array) -> Array:
    """True where a zero is not all zero bits."""
    name = lib.dtype_name(data)
    if name == "complex128":
        return _minus_zero_mask(lib, data.real) | _minus_zero_mask(lib, data.imag)
    return (lib.bits(data) != 0) & ~lib.nonzero_mask(data)


def problems(a: NM) -> list[Problem]:
    """Every broken rule of an n:m matrix."""
    found = structure(a) or side_structure(a)
    if found:
        return found
    found = _order_problems(a)
    if a.zeros is not None and not isinstance(a.zeros, str):
        found += checks.zeros_mark(a.lib, a.zeros, a.data, inside(a))
    if found:
        return found
    stored = slots.stored_slots(
        a.lib, a.data, a.zeros, inside(a) if isinstance(a.zeros, str) else None
    )
    return _free_problems(a, stored)
