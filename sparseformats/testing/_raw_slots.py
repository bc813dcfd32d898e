"""Raw constructor input of the formats with slots: BSR, Blocked-ELL and n:m."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from sparseformats.formats import BSR, COO, NM, BlockedELL
from sparseformats.reference.decoding import is_nonzero
from sparseformats.testing._raw_plain import draw_order, draw_places, running
from sparseformats.testing._values import Draw, Host, host_dtype, masks, sizes, value_arrays
from sparseformats.testing.raw import Choices, Meaning, RawInput

__all__ = ["draw_blocked_ell", "draw_bsr", "draw_nm"]

_MOST = 5  # blocks drawn for one matrix


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _draw_blocks(
    draw: Draw, choices: Choices, dtype: str, inside: Host, duplicates: bool
) -> tuple[Host, Host, Any]:
    """Draw values and marks of blocks: data, stored slots, and the argument `stored`.

    `inside` (..., R, C) tells the slots inside the logical shape; the others stay zero.
    """
    data = np.zeros(inside.shape, host_dtype(dtype))
    style = draw(st.sampled_from(["nonzero", "all", "mask"]))
    mask = draw(masks(inside.size)).reshape(inside.shape)
    filled = inside & mask
    wanted = inside if style == "all" else filled
    count = int(wanted.sum())
    data[wanted] = draw(value_arrays(dtype, count, choices.values_for(duplicates)))
    if style == "all":
        return data, inside, "all"
    if style == "mask":
        stored = inside & (mask | np.roll(mask, 1))
        return data, stored, stored
    return data, is_nonzero(data), "nonzero"


def _inside(shape: tuple[int, int], R: int, C: int, corners: list[tuple[int, int]]) -> Host:
    """Slots (blocks, R, C) inside the logical shape; a corner of (-1, -1) has none."""
    inside = np.zeros((len(corners), R, C), np.bool_)
    for at, (top, left) in enumerate(corners):
        if left >= 0:
            inside[at, : max(shape[0] - top, 0), : max(shape[1] - left, 0)] = True
    return inside


def _note(meaning: Meaning, corners: list[tuple[int, int]], data: Host, stored: Host) -> None:
    """Add every stored slot of blocks (blocks, R, C) to a meaning."""
    for at, (top, left) in enumerate(corners):
        for r, c in np.argwhere(stored[at]).tolist():
            meaning.add(top + r, left + c, data[at, r, c : c + 1])
            if corners.count((top, left)) > 1:
                meaning.loose.add((top + r, left + c))


def draw_bsr(draw: Draw, choices: Choices) -> RawInput:
    """Draw input of BSR."""
    shape, dtype = draw(choices.shapes), str(draw(choices.dtypes))
    R, C = draw(choices.blocksizes)
    block_rows, block_cols = _ceil(shape[0], R), _ceil(shape[1], C)
    ordered, duplicates = draw_order(draw, choices)
    places = draw_places(draw, (block_rows, block_cols), ordered, duplicates, _MOST)
    lines = [[j for i, j in places if i == line] for line in range(block_rows)]
    corners = [(i * R, j * C) for i, line in enumerate(lines) for j in line]
    inside = _inside(shape, R, C, corners)
    data, stored, mark = _draw_blocks(draw, choices, dtype, inside, duplicates)
    index = str(draw(choices.index_dtypes))
    meaning = Meaning(shape, dtype)
    _note(meaning, corners, data, stored)
    arrays = {
        "data": data,
        "indices": np.array([j for line in lines for j in line], index),
        "indptr": running(lines, index),
    }
    canonical = all(line == sorted(set(line)) for line in lines)
    options = {"shape": shape, "stored": mark}
    return RawInput("bsr", BSR, arrays, options, **meaning.finish(), canonical=canonical)


def draw_blocked_ell(draw: Draw, choices: Choices) -> RawInput:
    """Draw input of Blocked-ELL."""
    shape, dtype = draw(choices.shapes), str(draw(choices.dtypes))
    b = draw(choices.blocksizes)[0]
    block_rows, block_cols = _ceil(shape[0], b), _ceil(shape[1], b)
    ordered, duplicates = draw_order(draw, choices)
    width = draw(sizes(min(block_cols + 1, 4)))
    lines = [_draw_line(draw, width, block_cols, ordered, duplicates) for _ in range(block_rows)]
    corners = [(i * b, j * b) if j >= 0 else (-1, -1) for i, line in enumerate(lines) for j in line]
    inside = _inside(shape, b, b, corners)
    data, stored, mark = _draw_blocks(draw, choices, dtype, inside, duplicates)
    meaning = Meaning(shape, dtype)
    _note(meaning, corners, data, stored)
    slots = (block_rows, width)
    col_indices = np.array(lines, str(draw(choices.index_dtypes))).reshape(slots)
    data, canonical = data.reshape(*slots, b, b), all(map(_is_canonical, lines))
    if not canonical:  # whatever lies in empty slots is no part of the matrix
        data[col_indices == -1] = 1
    options = {
        "shape": shape,
        "stored": mark if isinstance(mark, str) else mark.reshape(data.shape),
    }
    return RawInput(
        "blocked_ell",
        BlockedELL,
        {"data": data, "col_indices": col_indices},
        options,
        **meaning.finish(),
        canonical=canonical,
    )


def _is_canonical(line: list[int]) -> bool:
    used = [j for j in line if j != -1]
    return line == sorted(set(used)) + [-1] * (len(line) - len(used))


def _draw_line(
    draw: Draw, width: int, block_cols: int, ordered: bool, duplicates: bool
) -> list[int]:
    """Draw the block columns of one block row, -1 for empty slots."""
    if not block_cols:
        return [-1] * width
    col = st.integers(0, block_cols - 1)
    count = draw(sizes(width if duplicates else min(width, block_cols)))
    every = st.lists(col, min_size=count, max_size=count, unique=not duplicates)
    used: list[int] = draw(every)
    line = used + [-1] * (width - len(used))
    if ordered:
        return sorted(used) + [-1] * (width - len(used))
    return list(draw(st.permutations(line)))


def draw_nm(draw: Draw, choices: Choices) -> RawInput:
    """Draw input of n:m."""
    shape, dtype = draw(choices.shapes), str(draw(choices.dtypes))
    n, m = draw(choices.patterns)
    ordered, duplicates = draw_order(draw, choices)
    groups = _ceil(shape[1], m)
    indices = np.zeros((shape[0], groups, n), np.uint8)
    real = np.zeros(indices.shape, np.bool_)  # slots that the matrix uses
    for i in range(shape[0]):
        for g in range(groups):
            columns = min(m, shape[1] - g * m)
            indices[i, g], real[i, g] = _draw_group(draw, (n, m), columns, ordered, duplicates)
    cols = np.arange(groups)[:, None] * m + indices
    data = np.zeros(indices.shape, host_dtype(dtype))
    data[real] = draw(value_arrays(dtype, int(real.sum()), choices.values_for(duplicates)))
    style = draw(st.sampled_from(["nonzero", "all", "mask"]))
    if style == "all":
        real = cols < shape[1]
    stored = is_nonzero(data) if style == "nonzero" else real | is_nonzero(data)
    meaning, taken = Meaning(shape, dtype), set()
    for i, g, s in np.argwhere(stored).tolist():
        meaning.add(i, int(cols[i, g, s]), data[i, g, s : s + 1])
        taken.add((i, int(cols[i, g, s])))
    side = _draw_side(draw, choices, shape, dtype, taken)
    if side is not None:
        meaning.found.update({at: [_scalar(dtype, bits)] for at, bits in _elements(side)})
    options = {"shape": shape, "n": n, "m": m, "side": side}
    options["stored"] = stored if style == "mask" else style
    arrays = {"data": data, "indices": indices}
    canonical = ordered and not (real & ~stored).any()  # a zero that is not stored lies anywhere
    return RawInput(f"{n}:{m}", NM, arrays, options, **meaning.finish(), canonical=canonical)


def _draw_group(
    draw: Draw, pattern: tuple[int, int], columns: int, ordered: bool, duplicates: bool
) -> tuple[list[int], list[bool]]:
    """Draw the positions of one group's slots and which of them the matrix uses.

    In canonical input unused slots lie at the smallest free positions, columns of the matrix
    before padding.
    """
    n, m = pattern
    position = st.integers(0, columns - 1)
    most = n if duplicates else min(n, columns)
    count = draw(sizes(most))
    used = draw(st.lists(position, min_size=count, max_size=count, unique=not duplicates))
    free = [p for p in range(m) if p not in used]
    if ordered:
        found = sorted(used + free[: n - len(used)])
        return found, [p in used for p in found]
    unused = draw(st.permutations(free))[: n - len(used)]
    return used + unused + [0] * (n - len(used) - len(unused)), [s < len(used) for s in range(n)]


def _draw_side(
    draw: Draw, choices: Choices, shape: tuple[int, int], dtype: str, taken: set[tuple[int, int]]
) -> RawInput | None:
    """Draw stored zeros that have no slot."""
    free = [at for at in draw_places(draw, shape, True, False, 3) if at not in taken]
    if not free:
        return None
    zeros = np.zeros(len(free), host_dtype(dtype))
    if zeros.dtype.kind not in "biu":
        minus = draw(masks(len(free)))
        zeros[minus] = -zeros[minus]
    index = str(draw(choices.index_dtypes))
    meaning = Meaning(shape, dtype)
    for at, value in zip(free, zeros[:, None], strict=True):
        meaning.add(*at, value)
    row, col = (np.array(part, index) for part in zip(*free, strict=True))
    arrays = {"data": zeros, "row": row, "col": col}
    return RawInput("coo", COO, arrays, {"shape": shape}, **meaning.finish())


def _elements(side: RawInput) -> Any:
    return side.meaning.elements.items()


def _scalar(dtype: str, bits: bytes) -> Host:
    return np.frombuffer(bits, host_dtype(dtype)).reshape(())
