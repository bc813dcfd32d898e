"""The GPU suite runs on a requested device, and only then: `pytest tests/gpu --device cuda:0`.

A requested device that is missing fails every test; nothing is skipped. Without a request nothing
here is collected, so that machines without a GPU run the rest of the suite unchanged. Tests of
kernels are parametrized by what the registry has for the device, so ``--device cpu -k "..."`` tries
the tests themselves, on the CPU's kernels.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu import run


def pytest_configure(config: pytest.Config) -> None:
    path, device = config.getoption("--report"), config.getoption("--device")
    if path is not None and device is not None:
        from tests.gpu.report import Report

        config.pluginmanager.register(Report(Path(path), device), "gpu-report")
    journal = os.environ.get(run.JOURNAL)
    if journal is not None and device is not None:
        config.pluginmanager.register(run.Journal(Path(journal)), "gpu-journal")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = config.getoption("--device") is not None
    return None if asked or collection_path.name == "conftest.py" else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
    if config.getoption("--device") is not None:
        run.keep_share(items)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `kernel_case` or `block_kernel` for every kernel of the device."""
    name = metafunc.config.getoption("--device")
    if name is None or not {"kernel_case", "block_kernel"} & set(metafunc.fixturenames):
        return
    from tests.gpu import kernels

    if "kernel_case" in metafunc.fixturenames:
        cases = kernels.cases(name)
        metafunc.parametrize("kernel_case", cases, ids=["-".join(map(str, case)) for case in cases])
    if "block_kernel" in metafunc.fixturenames:
        metafunc.parametrize("block_kernel", kernels.block_kernels(name))


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
def _device_survives(device: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test needs the device, whether it names it or not, and leaves it alive.

    A kernel's fault is told at the next wait for the device, and nothing works in the process any
    more: the test that it belongs to fails, and no test after it runs here.
    """
    yield
    if not device.startswith("cuda"):
        return
    import torch

    try:
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        request.session.shouldstop = "the device's context is dead; no further test can run here"
        pytest.fail(f"this test killed the device's context: {error}")
