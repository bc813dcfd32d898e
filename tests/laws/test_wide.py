"""Shapes whose addresses do not fit 32 bits, as products of extents or by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sparseformats import _arrays, testing
from sparseformats.formats import COO
from tests.laws.contract import LIBRARIES

BSR: Any = ("bsr", {"blocksize": (2, 3)})
# m * n is beyond int32 in the first, n itself in the second.
SHAPES = {(70_001, 70_003): ["csr", "csc", BSR], (3, 2**31 + 5): ["csr", BSR]}


def coordinates(library: str, shape: tuple[int, int], index: str) -> Any:
    """Strategy of COO matrices with elements at both ends of a large shape."""
    lib = _arrays.library(library)
    ends = [st.sampled_from([0, 1, n // 2, n - 2, n - 1]) for n in shape]
    places = st.lists(st.tuples(*ends), unique=True, max_size=6)

    def make(found: list[tuple[int, int]]) -> Any:
        row, col = (lib.from_numpy(np.array([p[axis] for p in found], index)) for axis in (0, 1))
        return COO(lib.from_numpy(np.arange(len(found)) - 2.0), row, col, shape)

    return places.map(make)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_wide_shapes_keep_the_content(shape: tuple[int, int], library: str) -> None:
    testing.register_strict()
    index = "int64" if shape[1] > 2**31 else "int32"

    @settings(max_examples=max(4, settings().max_examples // 20))
    @given(coordinates(library, shape, index), st.permutations(SHAPES[shape]))
    def law(A: Any, chain: list[Any]) -> None:
        testing.check_round_trip(A, chain)

    law()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_column_beyond_int32_widens_what_was_narrow_as_blocks(library: str) -> None:
    testing.register_strict()
    lib = _arrays.library(library)
    n = 2**31 + 4
    row, col = (lib.from_numpy(np.array([i], np.int64)) for i in (1, n - 1))
    A = COO(lib.from_numpy(np.array([5.0])), row, col, (2, n))
    B = A.to("bsr", blocksize=(2, 4), index_dtype="int32")
    assert "int32" in str(B.index_dtype)
    C = B.to("csr")
    assert "int64" in str(C.index_dtype)
    testing.check_content_preserved(A, C)
