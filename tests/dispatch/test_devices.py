"""Kernels of a device that this machine does not show say so where kernels are listed."""

from pathlib import Path

import pytest
from dispatch_fakes import Q, record

from sparseformats.dispatch import checks, devices, explain, kernels, register


@pytest.fixture(autouse=True)
def on_linux(monkeypatch, tmp_path):
    """No device is hidden; a driver shows itself by one file, which is not there."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices.sys, "platform", "linux")
    monkeypatch.setattr(devices, "_SIGNS", (str(tmp_path / "driver"),))
    return tmp_path / "driver"


def three():
    register(record("gpu", checks=(checks.library_is("torch"), checks.device_is("cuda"))))
    register(record("both", checks=(checks.device_is("cpu", "cuda"),)))
    register(record("host", checks=(checks.device_is("cpu"),)))


def codes():
    return {info.name: [reason.code for reason in info.reasons] for info in kernels()}


def test_only_kernels_of_that_device_alone_are_unavailable():
    three()
    assert codes() == {"gpu": ["no-device"], "both": [], "host": []}
    assert "needs a CUDA device, this machine shows none [no-device]" in str(kernels())
    assert not kernels()[1].available


def test_a_driver_or_another_system_is_given_the_benefit_of_the_doubt(on_linux, monkeypatch):
    three()
    on_linux.touch()
    assert codes()["gpu"] == []
    Path.unlink(on_linux)
    monkeypatch.setattr(devices.sys, "platform", "win32")
    assert codes()["gpu"] == []


@pytest.mark.parametrize(("value", "hides"), [("", True), ("-1", True), ("0", False)])
def test_devices_can_be_hidden(on_linux, monkeypatch, value, hides):
    on_linux.touch()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    reason = devices.missing_device("cuda")
    assert (reason is not None) == hides
    if reason is not None:
        assert reason.message == f"needs a CUDA device, CUDA_VISIBLE_DEVICES={value!r} hides all"


def test_a_call_is_judged_by_where_its_arrays_are():
    three()
    assert [reason.code for reason in explain(Q).row("gpu").reasons] == ["library", "device"]
    assert devices.missing_device("cpu") is None
