"""Every interpreted kernel runs as a GPU would run it; `checked` adds a check of all accesses."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _repaired() -> Iterator[None]:
    from tests.kernels.triton.interpreter import repaired

    with repaired():
        yield
