"""The dense copy and its product: torch shows on the CPU what cuBLAS is asked for on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sparseformats import _arrays
from sparseformats.testing import assert_close
from sparseformats.testing.operands import LAYOUTS, backed
from sparseformats_kernels.cuda import common, devices, spmm_dense
from sparseformats_kernels.cuda.spmm_dense import Dense
from tests.kernels.cpu.products import FORMATS, matrix
from tests.kernels.cusparse.fake import FakeDevice
from tests.kernels.cusparse.test_products import DTYPES, operand, packed

TORCH = _arrays.library("torch")


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    monkeypatch.setattr(spmm_dense, "device_of", lambda x, lib: device)


def product(A: Any, X: Any, out: Any = None, alpha: Any = 1, beta: Any = 0) -> Any:
    state, _ = packed(Dense, A, X)
    return Dense.run(state, X, out, alpha, beta)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", FORMATS)
def test_every_format(format: str, dtype: str) -> None:
    A, X = matrix(format, (14, 11), "torch", dtype), operand(11, 5, dtype)
    assert_close(product(A, X), A, X)
    assert_close(product(A, X[:, :0]), A, X[:, :0])


@pytest.mark.parametrize("out_layout", [x for x in LAYOUTS if x != "broadcast"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, out_layout: str) -> None:
    A, X = matrix("csr", (14, 11), "torch"), operand(11, 5, layout=layout)
    for beta in (0, 2):
        fill = np.nan if beta == 0 else 1
        _, out = backed(np.full((14, 5), fill, np.float32), out_layout, TORCH)
        before = out.clone()
        assert product(A, X, out, 0.5, beta) is out
        assert_close(out, A, X, alpha=0.5, beta=beta, out=before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scalars_are_rounded_with_the_product(dtype: str) -> None:
    A, X, Y = matrix("csr", (14, 11), "torch", dtype), operand(11, 5, dtype), operand(14, 5, dtype)
    for alpha, beta in ((2, 0), (0.3, 1), (1, 0.7)):
        out = product(A, X, Y.clone(), alpha, beta)
        assert_close(out, A, X, alpha=alpha, beta=beta, out=Y)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
@pytest.mark.parametrize("beta", [0, 1, 2])
def test_empty_shapes(shape: tuple[int, int], beta: int) -> None:
    A = matrix("csr", shape, "torch")
    Y = torch.full((shape[0], 3), 3.0 if beta else torch.nan)
    out = product(A, torch.ones(shape[1], 3), Y, 1, beta)
    assert out is Y
    assert torch.equal(out, torch.full((shape[0], 3), 3.0 * beta))
    assert product(A, torch.ones(shape[1], 3)).shape == (shape[0], 3)


def test_autocast_changes_nothing() -> None:
    A, X = matrix("csr", (14, 11), "torch"), operand(11, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for alpha in (1, 2):
            y = product(A, X, None, alpha)
            assert y.dtype == torch.float32
            assert_close(y, A, X, alpha=alpha)


def test_by_cupys_functions() -> None:
    """NumPy mirrors them; its arrays show layouts that are written to without a copy."""
    A = matrix("csr", (14, 11))
    state = spmm_dense.State(A.lib, A.to_dense(), "float32", "cpu")
    X = np.random.default_rng(1).standard_normal((11, 5)).astype(np.float32)
    assert_close(spmm_dense._by_cupy(state, X, None, 1, 0), A, X)
    for layout in ("C", "F", "columns"):
        for alpha, beta in ((1, 0), (0.5, 2)):
            _, out = backed(np.full((14, 5), 3, np.float32), layout, A.lib)
            before = out.copy()
            assert spmm_dense._by_cupy(state, X, out, alpha, beta) is out
            assert_close(out, A, X, alpha=alpha, beta=beta, out=before)
    assert_close(spmm_dense._by_cupy(state, X, None, 3, 0), A, X, alpha=3)


def test_results_are_rounded_once() -> None:
    y = torch.tensor([[1 + 2**-11 + 2**-20]])
    out = torch.tensor([[2.0**-11]], dtype=torch.float16)
    common.deliver(TORCH, y, out, 1, 1)
    assert out.item() == 1 + 2**-10


class Driver:
    """What the CUDA driver answers about a stream."""

    def __init__(self, code: int, status: int) -> None:
        self.code, self.status, self.asked = code, status, 0

    def __call__(self, stream: Any, status: Any, number: Any, *rest: Any) -> int:
        self.asked = stream.value
        status._obj.value, number._obj.value = self.status, 17
        assert rest == (None, None, None)
        return self.code


@pytest.mark.parametrize(
    ("code", "status", "number"), [(0, 1, 17), (0, 0, 0), (0, 2, 0), (906, 1, 0)]
)
def test_graphs_are_told_apart_by_number(
    code: int, status: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(code, status)
    monkeypatch.setattr(devices, "_capture_info", driver)
    device = devices.Device(0, "torch")
    assert device.capture(5) == number
    assert driver.asked == 5
    assert device.capture(0) == 0  # the default stream cannot be recorded


def test_without_a_driver_nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_capture_info", None)
    monkeypatch.setattr(devices, "_find_capture_info", lambda: None)
    with pytest.raises(RuntimeError, match=r"needs libcuda\.so\.1"):
        devices.Device(0, "torch").capture(5)


def test_a_device_of_no_library_offers_nothing() -> None:
    device = devices.Device(0, "torch")
    for ask in (device.here, device.is_current, device.stream, device.settle):
        with pytest.raises(NotImplementedError):
            ask()
    with pytest.raises(NotImplementedError):
        device.steps(torch.ones(2))
    assert not device.can_allocate_in_capture()
