"""torch's switches for cuBLAS: off for a call that needs them off, and back as they were found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sparseformats_kernels.cuda.spmm_dense import exact

SWITCH = torch.backends.cuda.matmul
HALVES = {
    torch.float16: "allow_fp16_reduced_precision_reduction",
    torch.bfloat16: "allow_bf16_reduced_precision_reduction",
}


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = {name: getattr(SWITCH, name) for name in HALVES.values()}
    yield
    SWITCH.fp32_precision = "ieee"
    for name, value in before.items():
        setattr(SWITCH, name, value)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("dtype", HALVES)
def test_half_types_are_summed_in_float32(dtype: torch.dtype, before: bool) -> None:
    name = HALVES[dtype]
    setattr(SWITCH, name, before)
    with exact(torch, dtype, True):
        assert getattr(SWITCH, name) is False
    assert getattr(SWITCH, name) is before


@pytest.mark.parametrize("ieee", [True, False])
@pytest.mark.parametrize("before", ["tf32", "ieee"])
def test_ieee_calls_are_not_rounded(before: str, ieee: bool) -> None:
    SWITCH.fp32_precision = before
    with exact(torch, torch.float32, ieee):
        assert SWITCH.fp32_precision == ("ieee" if ieee else before)
    assert SWITCH.fp32_precision == before


def test_it_is_put_back_after_an_error() -> None:
    SWITCH.fp32_precision = "tf32"
    with pytest.raises(ZeroDivisionError), exact(torch, torch.float32, True):
        1 / 0
    assert SWITCH.fp32_precision == "tf32"


def test_other_dtypes_are_left_alone() -> None:
    SWITCH.fp32_precision = "tf32"
    with exact(torch, torch.float64, True):
        assert SWITCH.fp32_precision == "tf32"
