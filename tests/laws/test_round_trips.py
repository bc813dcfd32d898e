"""Chains of conversions keep the content bit for bit, for every row of the contract table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sparseformats import testing
from sparseformats.testing import matrices
from tests.laws.contract import FORMATS, LIBRARIES, chains, sources, steps


def test_the_table_covers_every_format_that_strategies_draw() -> None:
    assert set(FORMATS) == set(testing.FORMATS)


@pytest.mark.parametrize("library", LIBRARIES)
def test_chains_keep_the_content(library: str) -> None:
    @settings(max_examples=2 * settings().max_examples)
    @given(matrices(sources(), library=library), chains())
    def law(A: Any, chain: list[Any]) -> None:
        testing.check_round_trip(A, chain)

    law()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", sources())
def test_every_pair_keeps_the_content(source: str, target: str, library: str) -> None:
    @settings(max_examples=max(10, settings().max_examples // 10))
    @given(matrices(source, library=library), steps(target))
    def law(A: Any, step: Any) -> None:
        testing.check_round_trip(A, [step])

    law()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("target", FORMATS)
def test_transposed_matrices_convert_by_their_logical_rows(target: str, library: str) -> None:
    @settings(max_examples=max(10, settings().max_examples // 5))
    @given(matrices(testing.FORMATS, library=library), steps(target), st.booleans())
    def law(A: Any, step: Any, twice: bool) -> None:
        B = A.T.T if twice else A.T
        testing.check_round_trip(B, [step])

    law()
