"""Index arithmetic of n:m groups: the two halves of every conversion to and from n:m.

The constructor uses them too, so there is one definition of where a value goes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import index_width, itemsize
from sparseformats.errors import PatternError

if TYPE_CHECKING:
    from sparseformats.formats.nm import NM

__all__ = [
    "Encoded",
    "check_pattern_numbers",
    "decode",
    "encode",
    "inside",
    "outside",
    "refuse_crowded",
    "with_free",
]

CHUNK = 1 << 15  # groups laid out together: bounds what is held beside input and output
DEVICE_CHUNK = 1 << 21  # the same on a device, where a launch costs more than memory


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


def outside(a: NM) -> Array | None:
    """Mask (rows, 1, n) over the last group: slots beyond the last column; None without such."""
    rest = a.shape[1] % a.m
    return None if rest == 0 else a.indices[:, -1:, :] >= rest


def inside(a: NM) -> Array | None:
    """Mask of slots whose column exists, (rows, groups, n); None where all do."""
    beyond = outside(a)
    if beyond is None:
        return None
    rows, count, n = (int(s) for s in a.data.shape)
    lib = a.lib
    return lib.concat([lib.full((rows, count - 1, n), True, "bool", a.device), ~beyond], axis=1)


def decode(a: NM) -> tuple[Array, Array, Array]:
    """Data, row and column (int64) of every stored element, sorted by row, then column."""
    lib = a.lib
    where = lib.flatnonzero(a.stored_mask())
    count = max(1, int(a.data.shape[1]))
    group = where // a.n
    row = group // count
    position = lib.take(lib.xp.reshape(a.indices, (-1,)), where)
    col = group % count * a.m + lib.astype(position, "int64")
    data = lib.take(lib.xp.reshape(a.data, (-1,)), where)
    if a.side is None:
        return data, row, col
    data = lib.concat([data, a.side.data])
    row = lib.concat([row, lib.astype(a.side.row, "int64")])
    col = lib.concat([col, lib.astype(a.side.col, "int64")])
    order = lib.lexsort(row, col)
    return lib.take(data, order), lib.take(row, order), lib.take(col, order)


def with_free(lib: ArrayLibrary, used: Array, n: int) -> Array:
    """Mask (rows, groups, m) of exactly n positions a group: `used`, then the smallest free."""
    xp, small = lib.xp, lib.dtype("int16")
    free = lib.astype(~used, "int16")
    need = n - used.shape[-1] + xp.sum(free, axis=-1, keepdims=True, dtype=small)
    before = xp.cumulative_sum(free, axis=-1, dtype=small) - free
    return used | ((free > 0) & (before < need))


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
    name, device = lib.dtype_name(data), lib.device(data)
    size = rows * count * n
    lib.ensure_fits(size * (itemsize(name) + 1), device, f"{n}:{m} form of a {rows} x {k} matrix")
    out = lib.zeros((rows, count, n), name, device)
    positions = lib.zeros((rows, count, n), "uint8", device)
    zeros, aside, crowded = [], [], []
    for i, j, part in _chunks(lib, row, rows, count):
        values = data[part]
        column = lib.astype(col[part], "int64")
        group = (lib.astype(row[part], "int64") - i) * count + column // m
        full = lib.nonzero_mask(values)
        filled = lib.bincount(lib.take(group, lib.flatnonzero(full)), (j - i) * count)
        crowded += _crowded(lib, filled, i * count, n)
        if crowded:
            continue  # only counted from here on
        made = _lay_out(lib, values, group, column % m, full, filled, n, m)
        out[i:j, ...] = lib.xp.reshape(made.data, (j - i, count, n))
        positions[i:j, ...] = lib.xp.reshape(made.indices, (j - i, count, n))
        zeros.append(made.zeros + i * count * n)
        aside.append(made.aside + part.start)
    if crowded:
        first, many = crowded[0], sum(number for _, _, number in crowded)
        refuse_crowded(*first[:2], many, count, n, m)
    marks = lib.concat(zeros) if zeros else lib.zeros(0, "int64", device)
    side = _side(lib, data, row, col, aside, shape)
    return Encoded(out, positions, marks if int(marks.shape[0]) else None, side)


def _chunks(
    lib: ArrayLibrary, row: Array, rows: int, count: int
) -> Iterator[tuple[int, int, slice]]:
    """First and last row of each chunk, and where its elements lie among sorted rows."""
    if not rows * count:
        return
    together = CHUNK if lib.device(row) == "cpu" else DEVICE_CHUNK
    step = max(1, together // count)
    steps = lib.arange(-(-rows // step), lib.dtype_name(row), lib.device(row)) * step
    starts = lib.to_numpy(lib.searchsorted(row, steps)).tolist()
    ends = [*starts[1:], int(row.shape[0])]
    for i, start, end in zip(range(0, rows, step), starts, ends, strict=True):
        yield i, min(i + step, rows), slice(start, end)


class _Part(NamedTuple):
    """One chunk laid out: flat slots, flat slots of stored zeros, elements without a slot."""

    data: Array
    indices: Array
    zeros: Array
    aside: Array


def _lay_out(
    lib: ArrayLibrary,
    data: Array,
    group: Array,
    position: Array,
    full: Array,
    filled: Array,
    n: int,
    m: int,
) -> _Part:
    """Give each non-zero a slot, then stored zeros what is left of their group."""
    groups, device = int(filled.shape[0]), lib.device(data)
    nonzero, zero = lib.flatnonzero(full), lib.flatnonzero(~full)
    zero_group = lib.take(group, zero)
    fits = _rank(lib, zero_group, groups) < n - lib.take(filled, zero_group)
    in_slot = lib.concat([nonzero, lib.take(zero, lib.flatnonzero(fits))])
    place = lib.take(group, in_slot) * m + lib.take(position, in_slot)
    true = lib.full(int(place.shape[0]), True, "bool", device)
    chosen = with_free(lib, lib.scatter((groups, m), place, true), n)
    slot = lib.take(lib.cumsum(lib.xp.reshape(chosen, (-1,))), place) - 1
    stored_zero = slot[int(nonzero.shape[0]) :]
    return _Part(
        lib.scatter(groups * n, slot, lib.take(data, in_slot)),
        lib.astype(lib.flatnonzero(chosen) % m, "uint8"),
        lib.take(stored_zero, lib.argsort(stored_zero)),
        lib.take(zero, lib.flatnonzero(~fits)),
    )


def _rank(lib: ArrayLibrary, key: Array, groups: int) -> Array:
    """Position of each element among those of equal key, given ascending keys."""
    counts = lib.bincount(key, groups)
    starts = lib.cumsum(counts) - counts
    return lib.arange(int(key.shape[0]), device=lib.device(key)) - lib.take(starts, key)


def _crowded(lib: ArrayLibrary, filled: Array, first: int, n: int) -> list[tuple[int, int, int]]:
    """First crowded group, its non-zeros, and the number of such groups; empty without any."""
    where = lib.flatnonzero(filled > n)
    many = int(where.shape[0])
    if not many:
        return []
    at = where[:1]
    return [(first + int(lib.item(at)), int(lib.item(lib.take(filled, at))), many)]


def refuse_crowded(first: int, found: int, many: int, count: int, n: int, m: int) -> NoReturn:
    """Refuse a matrix with crowded groups.

    Parameters
    ----------
    first, found : int
        The first crowded group, counted through rows of `count` groups, and its non-zeros.
    many : int
        Crowded groups in all.

    Raises
    ------
    PatternError
    """
    raise PatternError(
        f"{n}:{m} allows {n} non-zeros in each group of {m}; row {first // count}, group "
        f"{first % count} has {found} ({many} group{'s' * (many > 1)} violate in all); "
        "conversions never prune, use sparseformats.prune"
    )


def _side(
    lib: ArrayLibrary,
    data: Array,
    row: Array,
    col: Array,
    parts: list[Array],
    shape: tuple[int, int],
) -> tuple[Array, Array, Array] | None:
    """Data, row and column of the elements that got no slot."""
    if not any(int(part.shape[0]) for part in parts):
        return None
    aside = lib.concat(parts)
    width = index_width("int32", *shape)
    side_row, side_col = (lib.astype(lib.take(x, aside), width) for x in (row, col))
    return lib.take(data, aside), side_row, side_col
