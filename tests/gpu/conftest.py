"""The GPU suite runs on a requested device, and only then: `pytest tests/gpu --device cuda:0`.

A requested device that is missing fails every test; nothing is skipped. Without a request nothing
here is collected, so that machines without a GPU run the rest of the suite unchanged.
"""

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    path, device = config.getoption("--report"), config.getoption("--device")
    if path is not None and device is not None:
        from tests.gpu.report import Report

        config.pluginmanager.register(Report(Path(path), device), "gpu-report")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = config.getoption("--device") is not None
    return None if asked or collection_path.name == "conftest.py" else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Name of the requested device, proved to exist."""
    import torch

    name = str(request.config.getoption("--device"))
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        pytest.fail(f"the requested device {name} is not there: {error}")
    return name


@pytest.fixture(autouse=True)
def _device_exists(device: str) -> None:
    """Every test here needs the device, whether it names it or not."""
