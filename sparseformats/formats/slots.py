"""Which slots of a block are stored.

Block formats hold more slots than stored elements. A slot is stored if its value is not zero,
or if it is marked: `zeros` is None (no marks), `ALL` (every slot inside the logical shape), or
the ascending flat positions, in C order of `data`, of stored slots whose value is zero.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.errors import DeviceMismatchError, InvalidTensorError, Problem
from sparseformats.formats.base import ALL
from sparseformats.formats.checks import violations

__all__ = [
    "Sampled",
    "count_inside",
    "count_nonzero",
    "count_stored",
    "marks",
    "padding_problems",
    "requested",
    "slots_inside",
    "stored_slots",
]

CHUNK = 1 << 22  # elements looked at together, so that huge shared arrays are never copied


class Sampled(NamedTuple):
    """Values of a sampled product, from a kernel that looks at the pattern of blocks itself.

    Attributes
    ----------
    values : array
        In the shape of ``A.data``, zero in slots that hold no stored element.
    vanished : (1,) int32 array or None
        How many stored elements were computed as zero; None where every slot is stored.
    """

    values: Array
    vanished: Array | None


def slots_inside(
    lib: ArrayLibrary, row: Array, col: Array, block: tuple[int, int], shape: tuple[int, int]
) -> Array | None:
    """Mask of slots inside the logical shape.

    Parameters
    ----------
    row, col : (nnzb,) arrays
        Block position of each block; a negative column is an empty slot of Blocked-ELL.
    block : (R, C)
    shape : (m, n)

    Returns
    -------
    (nnzb, R, C) bool array, or None where every slot is inside.
    """
    (r, c), (m, n) = block, shape
    ragged = bool(m % r or n % c)
    if not ragged and not lib.any(col < 0):
        return None
    device = lib.device(row)
    row, col = lib.astype(row, "int64"), lib.astype(col, "int64")
    rows_left = (m - row * r)[:, None]
    cols_left = lib.where(col < 0, lib.zeros(1, "int64", device), n - col * c)[:, None]
    inside_rows = lib.arange(r, device=device)[None, :] < rows_left
    inside_cols = lib.arange(c, device=device)[None, :] < cols_left
    return inside_rows[:, :, None] & inside_cols[:, None, :]


def count_nonzero(lib: ArrayLibrary, data: Array) -> int:
    """Slots whose value is not zero, in chunks; synchronises."""
    step = max(1, CHUNK // max(1, math.prod(data.shape[1:])))
    return sum(
        lib.count_nonzero(lib.nonzero_mask(data[i : i + step, ...]))
        for i in range(0, int(data.shape[0]), step)
    )


def count_stored(lib: ArrayLibrary, data: Array, zeros: Array | str | None, inside: int) -> int:
    """Stored slots, given how many slots lie inside the logical shape."""
    if isinstance(zeros, str):
        return inside
    listed = 0 if zeros is None else int(zeros.shape[0])
    return count_nonzero(lib, data) + listed


def stored_slots(
    lib: ArrayLibrary, data: Array, zeros: Array | str | None, inside: Array | None
) -> Array:
    """Mask of stored slots, shaped as `data`."""
    if isinstance(zeros, str):
        if inside is None:
            return lib.full(tuple(data.shape), True, "bool", lib.device(data))
        return inside
    mask = lib.nonzero_mask(data)
    if zeros is not None and int(zeros.shape[0]):
        mask = lib.copy(mask)
        lib.put(mask, zeros, True)
    return mask


def marks(lib: ArrayLibrary, data: Array, stored: Array) -> Array | None:
    """The `zeros` of a format from the mask of its stored slots."""
    positions = lib.flatnonzero(stored & ~lib.nonzero_mask(data))
    return positions if int(positions.shape[0]) else None


def requested(
    lib: ArrayLibrary, what: str, stored: Any, data: Array, inside: Array | None
) -> Array | str | None:
    """Read a constructor's ``stored=``: None, `ALL` or the mask of stored slots.

    Raises
    ------
    InvalidTensorError
        A mask leaves out a non-zero value or marks a slot outside the logical shape.
    TypeError, ValueError, DeviceMismatchError
        Neither ``"nonzero"``, ``"all"`` nor a bool array shaped as the data and beside it.
    """
    if isinstance(stored, str):
        if stored not in ("nonzero", ALL):
            raise ValueError(f"{what}: stored must be 'nonzero', 'all' or a mask, got {stored!r}")
        return ALL if stored == ALL else None
    if not lib.owns(stored) or lib.dtype_name(stored) != "bool":
        found = lib.dtype_name(stored) if lib.owns(stored) else type(stored).__name__
        raise TypeError(
            f"{what}: stored must be 'nonzero', 'all' or a bool array of the data's library, "
            f"got {found}"
        )
    if tuple(stored.shape) != tuple(data.shape):
        raise ValueError(
            f"{what}: a stored mask must have the data's shape {tuple(data.shape)}, "
            f"got {tuple(stored.shape)}"
        )
    if lib.device(stored) != lib.device(data):
        raise DeviceMismatchError(
            f"{what}: data is on {lib.device(data)!r} but stored is on {lib.device(stored)!r}"
        )
    problems = violations(
        lib,
        lib.nonzero_mask(data) & ~stored,
        data,
        "stored-mask",
        lambda p: f"stored.flat[{p}]",
        lambda v: f"the mask leaves out the non-zero value {v}",
    )
    if inside is not None:
        problems += violations(
            lib,
            stored & ~inside,
            stored,
            "stored-mask",
            lambda p: f"stored.flat[{p}]",
            lambda v: "the mask marks a slot outside the logical shape or in an empty slot",
        )
    if problems:
        raise InvalidTensorError(what, problems)
    return lib.copy(stored)


def count_inside(
    lib: ArrayLibrary, row: Array, col: Array, block: tuple[int, int], shape: tuple[int, int]
) -> int:
    """Number of slots inside the logical shape; negative columns are empty slots."""
    (r, c), (m, n) = block, shape
    count = int(row.shape[0])
    if not (m % r or n % c):
        return r * c * (count - lib.count_nonzero(col < 0))
    device = lib.device(row)
    limit_r, limit_c = (lib.full(1, size, "int64", device) for size in (r, c))
    rows, cols = m - lib.astype(row, "int64") * r, n - lib.astype(col, "int64") * c
    rows = lib.where(rows < r, rows, limit_r)
    cols = lib.where(cols < c, cols, limit_c)
    cols = lib.where(col < 0, lib.zeros(1, "int64", device), cols)
    return int(lib.item(lib.xp.sum(rows * cols))) if count else 0


def padding_problems(
    lib: ArrayLibrary,
    data: Array,
    row: Array,
    col: Array,
    shape: tuple[int, int],
    lead: tuple[int, ...] | None = None,
) -> list[Problem]:
    """Slots outside the logical shape, and slots of empty blocks, must hold zeros.

    Reads only blocks that have such slots, in chunks. `lead` is how the caller's data numbers
    its blocks, where that is not by one index.
    """
    r, c = int(data.shape[1]), int(data.shape[2])
    m, n = shape
    lead = (int(data.shape[0]),) if lead is None else lead
    edge = col < 0
    if m % r:
        edge = edge | (lib.astype(row, "int64") == m // r)
    if n % c:
        edge = edge | (lib.astype(col, "int64") == n // c)
    blocks = lib.flatnonzero(edge)
    problems: list[Problem] = []
    step = max(1, CHUNK // (r * c))
    for i in range(0, int(blocks.shape[0]), step):
        some = blocks[i : i + step]
        values = lib.take(data, some)
        inside = slots_inside(lib, lib.take(row, some), lib.take(col, some), (r, c), shape)
        if inside is None:
            continue
        problems += violations(
            lib,
            lib.nonzero_mask(values) & ~inside,
            values,
            "padding",
            functools.partial(_slot_place, lib.to_numpy(some).tolist(), lead, (r, c)),
            lambda v: f"a slot outside the logical shape must hold 0, got {v}",
        )
    return problems


def _slot_place(
    blocks: Sequence[int], lead: tuple[int, ...], block: tuple[int, int], p: int
) -> str:
    size = math.prod(block)
    at = np.unravel_index(blocks[p // size] * size + p % size, (*lead, *block))
    return f"data[{', '.join(str(i) for i in at)}]"
