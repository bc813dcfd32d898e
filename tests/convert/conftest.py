"""Array libraries that every conversion is tested on."""

from __future__ import annotations

import pytest

from sparseformats.testing import register_strict
from tests.convert.samples import LIBRARIES

register_strict()


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """Name of an array library that lives on the CPU."""
    name: str = request.param
    return name
