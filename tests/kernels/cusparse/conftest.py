"""Kernels over a stand-in for the library and the device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparseformats_kernels.cusparse import blocks, csr, handles, spgemm
from tests.kernels.cusparse.fake import Fake, FakeDevice


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def library(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """What the kernels of this test call."""
    fake = Fake()
    api = fake.api()
    for module in (csr, blocks, spgemm):
        monkeypatch.setattr(module, "the_api", lambda: api)
        monkeypatch.setattr(module, "device_of", lambda x, lib: device)
    yield fake
    handles._local.handles.clear()
