"""Every rule of every format is reported when it is broken, and constructors refuse or repair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from sparseformats import InvalidTensorError, formats, testing
from sparseformats.testing import RULES, BrokenInput, broken_inputs

EVERY = [(format, rule) for format, rules in RULES.items() for rule in rules]
SOME = settings(max_examples=10, suppress_health_check=[HealthCheck.filter_too_much])


@pytest.mark.parametrize(("format", "rule"), EVERY)
def test_a_broken_rule_is_reported(format: str, rule: str) -> None:
    @SOME
    @given(broken_inputs(format, rule))
    def law(broken: BrokenInput) -> None:
        broken.check()

    law()


@pytest.mark.parametrize(("format", "rule"), EVERY)
def test_a_constructor_refuses_or_repairs(format: str, rule: str) -> None:
    @SOME
    @given(broken_inputs(format, rule))
    def law(broken: BrokenInput) -> None:
        arguments = dict(broken.fields)
        arguments.pop("zeros", None)
        with testing.unchanged(arguments):
            try:
                A = broken.make(**arguments)
            except InvalidTensorError as found:
                error = found
            else:
                error = None
        if error is not None:
            assert broken.rule in {problem.rule for problem in error.problems}
            assert "{" not in str(error)
            return
        # What a constructor repairs; marks are no argument of one, and empty slots are cleared.
        assert broken.rule.startswith(
            ("sorted", "free", "zeros", "index-range", "side-slot", "pad")
        )
        testing.check_valid(A)

    law()


@given(broken_inputs("csr"))
def test_any_rule_may_be_drawn(broken: Any) -> None:
    broken.check()


def test_a_validator_that_sees_nothing_fails() -> None:
    data, index = np.ones(2), np.array([1, 0])
    fields = {"data": data, "row": index, "col": index, "shape": (2, 2)}
    broken = BrokenInput("coo", "sorted", formats.COO, fields)
    broken.check()
    with pytest.raises(AssertionError, match="breaks 'sorted', reported: none"):
        broken.check(lambda A: [])
