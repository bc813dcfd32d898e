"""Kernels over a stand-in for the library and the device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparseformats_kernels.cusparselt import handles, results, spmm, state
from sparseformats_kernels.cusparselt.choices import CHOICES
from tests.kernels.cusparse.fake import FakeDevice
from tests.kernels.cusparselt.fake import Fake


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's file of algorithms is this test's."""
    monkeypatch.setenv("SPARSEFORMATS_CACHE", str(tmp_path))
    CHOICES.forget()
    yield
    CHOICES.forget()


@pytest.fixture(params=[False, True], ids=["plan-keeps-bias", "launch-reads-bias"])
def library(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Fake]:
    """What the kernels of this test call, of both kinds that the real library may be of."""
    fake = Fake(late=request.param)
    api = fake.api()
    monkeypatch.setattr(spmm, "the_api", lambda: api)
    monkeypatch.setattr(results, "known_api", lambda: api)
    monkeypatch.setattr(results, "_known", {})
    monkeypatch.setattr(spmm, "device_of", lambda x, lib: device)
    monkeypatch.setattr(spmm, "_name_of", lambda device: "a stand-in")
    monkeypatch.setattr(state.timing, "elapsed_on", lambda device: fake.clock)
    yield fake
    handles._local.handles.clear()
