"""Raw constructor input of COO, CSR and CSC."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from sparseformats.formats import COO, CSC, CSR
from sparseformats.testing._values import Draw, Host, masks, sizes, value_arrays
from sparseformats.testing.raw import Choices, Meaning, RawInput

__all__ = ["draw_coo", "draw_csc", "draw_csr"]

_MOST = 12  # stored elements drawn one by one for a matrix
_DENSE = 256  # size of a matrix up to which half of it may be stored


def draw_order(draw: Draw, choices: Choices) -> tuple[bool, bool]:
    """Draw whether the input is sorted and whether it may hold duplicates."""
    if not choices.messy:
        return True, False
    # Duplicates are drawn seldom, since their values must be small for sums to be exact.
    styles = ["sorted", "sorted", "unsorted", "unsorted", "duplicates"]
    style = draw(st.sampled_from(styles))
    return style == "sorted", style == "duplicates" and isinstance(choices.values, str)


def draw_places(
    draw: Draw, shape: tuple[int, int], ordered: bool, duplicates: bool, most: int | None = None
) -> list[tuple[int, int]]:
    """Draw positions of a grid: few by number, or, without a limit, about half of all."""
    rows, cols = shape
    if rows * cols == 0:
        return []
    if most is None and not duplicates and rows * cols <= _DENSE and draw(st.booleans()):
        return _draw_many(draw, rows, cols, ordered)
    one = st.tuples(st.integers(0, rows - 1), st.integers(0, cols - 1))
    size = draw(sizes((most or _MOST) if duplicates else min(most or _MOST, rows * cols)))
    every = st.lists(one, min_size=size, max_size=size, unique=not duplicates)
    places: list[tuple[int, int]] = draw(every)
    return sorted(places) if ordered else places


def _draw_many(draw: Draw, rows: int, cols: int, ordered: bool) -> list[tuple[int, int]]:
    grid = np.argwhere(~draw(masks(rows * cols)).reshape(rows, cols))
    if not ordered:
        np.random.default_rng(draw(st.integers(0, 999))).shuffle(grid)
    return [(int(i), int(j)) for i, j in grid]


def draw_coo(draw: Draw, choices: Choices) -> RawInput:
    """Draw input of COO."""
    shape, dtype = draw(choices.shapes), str(draw(choices.dtypes))
    ordered, duplicates = draw_order(draw, choices)
    places = draw_places(draw, shape, ordered, duplicates)
    values = draw(value_arrays(dtype, len(places), choices.values_for(duplicates)))
    index = str(draw(choices.index_dtypes))
    meaning = Meaning(shape, dtype)
    for (i, j), value in zip(places, values[:, None], strict=True):
        meaning.add(i, j, value)
    arrays = {
        "data": values,
        "row": np.array([i for i, _ in places], index),
        "col": np.array([j for _, j in places], index),
    }
    canonical = places == sorted(set(places))
    return RawInput("coo", COO, arrays, {"shape": shape}, **meaning.finish(), canonical=canonical)


def draw_csr(draw: Draw, choices: Choices) -> RawInput:
    """Draw input of CSR."""
    return _compressed(draw, choices, CSR, "csr")


def draw_csc(draw: Draw, choices: Choices) -> RawInput:
    """Draw input of CSC."""
    return _compressed(draw, choices, CSC, "csc")


def _compressed(draw: Draw, choices: Choices, make: Any, name: str) -> RawInput:
    shape, dtype = draw(choices.shapes), str(draw(choices.dtypes))
    major, minor = shape if name == "csr" else shape[::-1]
    ordered, duplicates = draw_order(draw, choices)
    places = draw_places(draw, (major, minor), ordered, duplicates)
    lines = [[j for i, j in places if i == line] for line in range(major)]
    values = draw(value_arrays(dtype, len(places), choices.values_for(duplicates)))
    index = str(draw(choices.index_dtypes))
    meaning, at = Meaning(shape, dtype), 0
    for i, line in enumerate(lines):
        for j in line:
            meaning.add(*((i, j) if name == "csr" else (j, i)), values[at : at + 1])
            at += 1
    arrays = {
        "data": values,
        "indices": np.array([j for line in lines for j in line], index),
        "indptr": running(lines, index),
    }
    canonical = all(line == sorted(set(line)) for line in lines)
    return RawInput(name, make, arrays, {"shape": shape}, **meaning.finish(), canonical=canonical)


def running(lines: list[list[int]], index: str) -> Host:
    """Pointer array of lines of these lengths."""
    return np.array([0, *np.cumsum([len(line) for line in lines], dtype=np.int64)], index)
