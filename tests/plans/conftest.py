"""Each test begins and ends with an empty cache and the default limit."""

from collections.abc import Iterator

import pytest

import sparseformats as sf
from sparseformats import ops


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    ops.set_cache_limit(None)
    sf.clear_cache()
    yield
    ops.set_cache_limit(None)
    sf.clear_cache()
