"""The lossless laws on device arrays: every format drawn directly, chains of conversions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from sparseformats import testing
from sparseformats.testing import matrices, raw_inputs

LIBRARIES = ("torch", "cupy")
STEPS = st.one_of(
    st.sampled_from(["coo", "csr", "csc", "2:4", "1:2", "sum"]),
    st.tuples(st.just("bsr"), st.fixed_dictionaries({"blocksize": testing.blocksizes()})),
    st.tuples(st.just("blocked_ell"), st.fixed_dictionaries({"blocksize": st.integers(1, 4)})),
)


@pytest.mark.parametrize("library", LIBRARIES)
def test_chains_keep_the_content(library: str, device: str) -> None:
    @given(matrices(library=library, device=device), st.lists(STEPS, max_size=4))
    def law(matrix: Any, chain: list[Any]) -> None:
        testing.check_round_trip(matrix, chain)

    law()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", testing.FORMATS)
def test_constructors_mean_what_they_say(library: str, format: str, device: str) -> None:
    @given(raw_inputs(format, library=library))
    def law(raw: Any) -> None:
        try:
            matrix = raw.build(library, device)
        except OverflowError:
            return  # an integer sum that does not fit; the CPU suite pins when
        testing.check_valid(matrix)
        raw.check(matrix)

    law()


@pytest.mark.parametrize("library", LIBRARIES)
def test_dense_round_trip(library: str, device: str) -> None:
    @given(matrices(library=library, device=device))
    def law(matrix: Any) -> None:
        testing.check_dense_round_trip(matrix)

    law()


@pytest.mark.parametrize("library", LIBRARIES)
def test_copies_and_pickles(library: str, device: str) -> None:
    @given(matrices(library=library, device=device))
    def law(matrix: Any) -> None:
        testing.check_copy(matrix)
        testing.check_pickle(matrix)

    law()
