"""Options and Hypothesis profiles for the whole suite."""

import os

import pytest
from hypothesis import HealthCheck, settings

# `ci` is what every change runs and is the same each time; `nightly` searches on. Choose one by
# the environment variable HYPOTHESIS_PROFILE or by pytest's --hypothesis-profile.
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.register_profile(
    "nightly",
    max_examples=2000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        default=None,
        help="device of the GPU suite, for example cuda:0; a device that is missing fails",
    )
    parser.addoption("--report", default=None, help="file for the GPU suite's JSON report")
