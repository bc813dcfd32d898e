"""Fakes on the path, and a clean slate before and after each test."""

import sys
from pathlib import Path

import pytest

FAKES = Path(__file__).parent / "fakes"
if str(FAKES) not in sys.path:
    sys.path.insert(0, str(FAKES))


@pytest.fixture(autouse=True)
def clean_slate():
    """Only the kernels of the test are registered; nothing is loaded, failed or remembered."""
    from sparseformats.dispatch import REGISTRY, loading, requirement, selection

    def forget():
        loading.forget()
        requirement.forget()
        selection.clear()
        for name in [name for name in sys.modules if name.startswith("sfake_")]:
            del sys.modules[name]

    forget()
    with REGISTRY.temporary(only=True):
        yield
    forget()
