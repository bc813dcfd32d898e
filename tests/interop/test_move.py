"""Other libraries, other devices: every buffer, mark and side record travels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from sparseformats import CSR, NM, DeviceMismatchError
from sparseformats.convert.interop import to_device, to_library
from sparseformats.testing import (
    FORMATS,
    check_content_preserved,
    check_immutable,
    check_no_shared_memory,
    check_same_buffers,
    check_valid,
    matrices,
    shares_memory,
    unchanged,
)

torch = pytest.importorskip("torch")

EVERY = (*FORMATS, "bsr.T", "blocked_ell.T", "n:m.T")
BOTH = (
    *("bool", "int8", "int16", "int32", "int64", "uint8"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


@given(matrices(EVERY, dtypes=BOTH))
def test_numpy_to_torch_copies_and_back_is_equal(A: Any) -> None:
    with unchanged(A):
        T = to_library(A, "torch")
    assert (T.library, T.device, T.format, T.shape) == ("torch", "cpu", A.format, A.shape)
    assert T.static() == A.static()
    assert T.buffers().keys() == A.buffers().keys()
    check_valid(T)
    check_content_preserved(A, T)
    check_no_shared_memory(A, T)
    check_same_buffers(A, to_library(T, "numpy"))


@given(matrices(EVERY, dtypes=BOTH, library="torch"))
def test_torch_to_numpy_shares_and_is_read_only(T: Any) -> None:
    A = to_library(T, "numpy")
    check_content_preserved(T, A)
    check_immutable(A)
    for name, x in A.buffers().items():
        if x.size:
            assert shares_memory(x, T.buffers()[name])


@given(matrices(EVERY, dtypes=BOTH))
def test_to_device_of_another_library_on_the_same_device(A: Any) -> None:
    T = to_device(A, "cpu", "torch")
    assert T.library == "torch"
    check_content_preserved(A, T)


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu")])
def test_the_same_place_is_the_same_object(device: Any) -> None:
    A = CSR([1.0], [0], [0, 1], (1, 1))
    T = to_library(A, "torch")
    assert to_library(A, "numpy") is A
    assert to_device(A, device) is A
    assert to_device(T, device) is T
    assert to_device(T, device, "torch") is T


def test_a_writer_to_the_result_cannot_reach_a_numpy_matrix() -> None:
    A = CSR([1.0], [0], [0, 1], (1, 1))
    to_library(A, "torch").data[0] = 5.0
    assert A.data.tolist() == [1.0]


def test_side_record_and_marks_travel() -> None:
    side = {"data": [0.0], "row": [0], "col": [3]}
    from sparseformats import COO

    A = NM([[[1.0, 0.0]]], [[[0, 1]]], (1, 4), stored="all", side=COO(**side, shape=(1, 4)))
    T = to_library(A, "torch")
    assert T.zeros == "all"
    assert T.side.col.tolist() == [3]
    assert T.nnz == A.nnz == 3


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_torch_has_no_wide_unsigned(dtype: str) -> None:
    A = CSR(np.ones(1, dtype), [0], [0, 1], (1, 1))
    with pytest.raises(TypeError, match=f"torch arrays of {dtype}") as error:
        to_library(A, "torch")
    assert "{" not in str(error.value)
    with pytest.raises(TypeError, match=dtype):
        to_device(A, "cpu", "torch")


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_is_torch_only(dtype: str) -> None:
    values = torch.ones(1).to(getattr(torch, dtype))
    T = CSR(values, torch.tensor([0]), torch.tensor([0, 1]), (1, 1))
    with pytest.raises(TypeError, match=f"numpy arrays of {dtype}"):
        to_library(T, "numpy")
    assert to_device(T, "cpu") is T


@pytest.mark.parametrize("bad", ["jax", "", "NumPy"])
def test_unknown_library(bad: str) -> None:
    A = CSR([1.0], [0], [0, 1], (1, 1))
    with pytest.raises(ValueError, match="unknown array library"):
        to_library(A, bad)
    with pytest.raises(ValueError, match="unknown array library"):
        to_device(A, "cpu", bad)


def test_numpy_needs_a_library_to_reach_a_gpu() -> None:
    A = CSR([1.0], [0], [0, 1], (1, 1))
    with pytest.raises(ValueError, match="'torch' or 'cupy'") as error:
        to_device(A, "cuda")
    assert "'cuda'" in str(error.value)
    assert "{" not in str(error.value)
    with pytest.raises(ValueError, match="'torch' or 'cupy'"):
        to_device(A, "cuda:0", "numpy")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device exists here")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda")])
def test_a_missing_device_is_named(device: Any) -> None:
    A = CSR([1.0], [0], [0, 1], (1, 1))
    with pytest.raises(ValueError, match="torch cannot use device 'cuda"):
        to_device(A, device, "torch")


@pytest.mark.parametrize("bad", [3, None, ("cuda", 0), np.float64])
def test_what_is_no_device(bad: Any) -> None:
    with pytest.raises(TypeError, match="device must be"):
        to_device(CSR([1.0], [0], [0, 1], (1, 1)), bad)


@pytest.mark.parametrize("bad", ["", "cuda:", "cuda:x", "cuda 0", "cuda:-1"])
def test_what_is_no_device_name(bad: str) -> None:
    with pytest.raises(ValueError, match="device must look like"):
        to_device(CSR([1.0], [0], [0, 1], (1, 1)), bad)


def test_unknown_kind_of_device() -> None:
    with pytest.raises(ValueError, match="torch cannot use device 'quux'"):
        to_device(CSR([1.0], [0], [0, 1], (1, 1)), "quux", "torch")


def test_meta_holds_no_values() -> None:
    with pytest.raises(ValueError, match="meta"):
        to_device(CSR([1.0], [0], [0, 1], (1, 1)), "meta", "torch")


def test_a_library_that_does_not_live_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparseformats import _arrays

    class Elsewhere(_arrays.CuPyLibrary):
        def owns(self, x: object) -> bool:
            return False

    monkeypatch.setitem(_arrays._LOADED, "cupy", Elsewhere(np))
    A = CSR([1.0], [0], [0, 1], (1, 1))
    with pytest.raises(DeviceMismatchError, match=r"A.to_device\('cuda', 'cupy'\)"):
        to_library(A, "cupy")
    with pytest.raises(ValueError, match="'numpy' or 'torch'"):
        to_device(A, "cpu", "cupy")


def test_array_api_strict_on_the_host() -> None:
    from sparseformats.testing import register_strict

    register_strict()
    A = CSR([1.0, 0.0], [0, 2], [0, 2], (1, 3))
    S = to_library(A, "array_api_strict")
    assert S.library == "array_api_strict"
    check_content_preserved(A, S)
    check_same_buffers(A, to_library(S, "numpy"))
