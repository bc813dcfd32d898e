"""What an array is, and making and moving arrays: one meaning in every library."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch

from sparseformats import _arrays
from sparseformats._dtypes import VALUE_DTYPES, bits_name, itemsize, kind
from sparseformats.testing import register_strict, shares_memory

register_strict()

LIBRARIES = ("numpy", "torch", "array_api_strict")
EVERY = [(name, dtype) for name in LIBRARIES for dtype in VALUE_DTYPES[name]]


def _in(lib, x, dtype=None):
    return lib.from_numpy(np.array(x, dtype), "cpu")


def _host(lib, x):
    return lib.to_numpy(x).tolist()


@pytest.fixture(params=LIBRARIES)
def lib(request):
    return _arrays.library(request.param)


def _values(lib, dtype, numbers):
    """Numbers in a dtype, by its bits where no conversion exists."""
    host = np.array(numbers).astype(_arrays.library("numpy").dtype(dtype))
    return lib.from_numpy(host, "cpu")


# Telling libraries apart.


def test_of_names_the_library(lib):
    x = _in(lib, [1.0])
    assert _arrays.of(x) is _arrays.of(x, x) is lib
    assert _arrays.library(lib.name) is lib
    assert _arrays.is_array(x)
    assert lib.device(x) == "cpu"


@pytest.mark.parametrize(
    "x", [[1], (1,), 1, 1.5, None, "a", np.float64(1), np.ma.masked_array([1]), {1: 2}]
)
def test_no_arrays(x):
    assert not _arrays.is_array(x)
    with pytest.raises(TypeError, match=f"got {type(x).__name__}"):
        _arrays.of(x)


def test_of_refuses_mixtures_and_nothing():
    with pytest.raises(TypeError, match="from one library, got numpy and torch"):
        _arrays.of(np.ones(1), torch.ones(1))
    with pytest.raises(TypeError, match="at least one array"):
        _arrays.of()


def test_unknown_library(monkeypatch):
    with pytest.raises(ValueError, match="unknown array library 'jax', expected one of"):
        _arrays.library("jax")
    monkeypatch.setitem(_arrays._KNOWN, "absent", ("no_such_module", _arrays.ArrayLibrary))
    with pytest.raises(ImportError, match="no_such_module"):
        _arrays.library("absent")


def test_torch_is_not_imported_to_look_at_a_numpy_array():
    code = (
        "import sys, numpy as np; from sparseformats import _arrays;"
        "_arrays.of(np.ones(1)); _arrays.is_array([1]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# dtypes.


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_dtype_names_round_trip(name, dtype):
    lib = _arrays.library(name)
    assert lib.dtype_name(lib.dtype(dtype)) == dtype
    x = lib.zeros((2, 3), dtype, "cpu")
    assert lib.dtype_name(x) == dtype
    assert tuple(x.shape) == (2, 3)
    assert not lib.any(lib.nonzero_mask(x))


def test_float8_of_numpy_is_that_of_ml_dtypes():
    assert _arrays.library("numpy").dtype("float8_e5m2") == np.dtype(ml_dtypes.float8_e5m2)


def test_promotion_is_the_librarys_own():
    numpy_, torch_ = _arrays.library("numpy"), _arrays.library("torch")
    assert numpy_.result_dtype("int32", "float32") == "float64"
    assert torch_.result_dtype("int32", "float32") == "float32"
    assert numpy_.result_dtype("bfloat16", "bfloat16") == "bfloat16"
    assert torch_.result_dtype("float8_e4m3fn", "float8_e4m3fn") == "float8_e4m3fn"
    assert _arrays.library("array_api_strict").result_dtype("float32", "float64") == "float64"


# Bits.


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_bits_and_back(name, dtype):
    lib = _arrays.library(name)
    x = _values(lib, dtype, [0, 1, 1, 0])
    bits = lib.bits(x)
    assert lib.dtype_name(bits) == bits_name(dtype)
    again = lib.from_bits(bits, dtype)
    assert lib.equal_bits(again, x)
    assert _host(lib, lib.nonzero_mask(x)) == [False, True, True, False]


FLOATS = [(name, dtype) for name, dtype in EVERY if kind(dtype) == "f"]


@pytest.mark.parametrize(("name", "dtype"), FLOATS)
def test_what_is_zero_is_read_from_bits(name, dtype):
    lib, width = _arrays.library(name), 8 * itemsize(dtype)
    sign = 1 << (width - 1)
    patterns = [0, sign, 1, sign | 1, sign - 1, 2 * sign - 1]
    bits = np.array(patterns, f"uint{width}").view(_arrays.library("numpy").dtype(dtype))
    x = lib.from_numpy(bits, "cpu")
    assert _host(lib, lib.nonzero_mask(x)) == [False, False, True, True, True, True]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_zeros(lib, dtype):
    x = _in(lib, [0, complex(-0.0, -0.0), 1j, 1, complex(np.nan, 0), complex(0, 5e-324)], dtype)
    last = dtype == "complex128"  # the other rounds it to zero
    assert _host(lib, lib.nonzero_mask(x)) == [False, False, True, True, True, last]


def test_equal_bits(lib):
    x = _in(lib, [0.0, np.nan])
    assert lib.equal_bits(x, lib.copy(x))
    assert not lib.equal_bits(x, _in(lib, [-0.0, np.nan]))
    assert not lib.equal_bits(x, _in(lib, [0.0]))
    assert not lib.equal_bits(x, _in(lib, [0.0, np.nan], "float32"))
    assert lib.equal_bits(_in(lib, [1 + 2j]), _in(lib, [1 + 2j]))
    assert not lib.equal_bits(_in(lib, [complex(0, -0.0)]), _in(lib, [0j]))


def test_equal_bits_on_two_devices_is_false():
    lib = _arrays.library("torch")
    assert not lib.equal_bits(torch.zeros(1), torch.zeros(1, device="meta"))


# Making and moving.


def test_copies_are_contiguous_and_apart(lib):
    x = lib.xp.permute_dims(_in(lib, np.arange(6.0).reshape(2, 3)), (1, 0))
    y = lib.copy(x)
    assert lib.is_contiguous(y)
    assert not lib.is_contiguous(x)
    assert not shares_memory(x, y)
    z = lib.contiguous(x)
    assert lib.is_contiguous(z)
    assert _host(lib, z) == _host(lib, y) == _host(lib, x)
    assert lib.equal_bits(lib.compact(x), x)


def test_contiguous_of_one_element_keeps_its_dimensions():
    lib = _arrays.library("numpy")
    assert lib.contiguous(np.float64(3).reshape(())).shape == ()


def test_read_only_views():
    lib = _arrays.library("numpy")
    x = np.ones(3)
    y = lib.readonly(x)
    assert (y.flags.writeable, x.flags.writeable) == (False, True)
    assert lib.readonly(y) is y
    t = torch.ones(3)
    assert _arrays.library("torch").readonly(t) is t


def test_native_byte_order():
    lib = _arrays.library("numpy")
    x = np.array([1.5, -2.0], ">f8")
    assert lib.native(x).dtype.isnative
    assert lib.native(x).tolist() == x.tolist()
    y = np.array([1.5])
    assert lib.native(y) is y


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_to_numpy_and_back(name, dtype):
    lib = _arrays.library(name)
    x = _values(lib, dtype, [1, 0, 1])
    host = lib.to_numpy(x)
    assert isinstance(host, np.ndarray)
    assert host.dtype.name == dtype
    assert lib.equal_bits(lib.from_numpy(host, "cpu"), x)


def test_read_only_numpy_memory_becomes_a_tensor_of_its_own():
    lib = _arrays.library("torch")
    x = np.ones(3)
    x.flags.writeable = False
    t = lib.from_numpy(x)
    t[0] = 5
    assert x.tolist() == [1, 1, 1]


def test_host_libraries_live_on_the_cpu():
    for name in ("numpy", "array_api_strict"):
        lib = _arrays.library(name)
        x = _in(lib, [1.0])
        assert lib.to_device(x, "cpu") is x
        with pytest.raises(ValueError, match="'cpu' only, asked for 'cuda:0'"):
            lib.to_device(x, "cuda:0")
    assert _arrays.library("torch").to_device(torch.ones(1), "meta").device.type == "meta"


def test_versions():
    lib = _arrays.library("torch")
    t = torch.zeros(3)
    before = lib.version(t)
    t[0] = 1
    assert lib.version(t) == before + 1
    with torch.inference_mode():
        assert lib.version(torch.zeros(1)) is None
    assert _arrays.library("numpy").version(np.zeros(1)) is None


def test_requires_grad_only_where_it_would_be_recorded():
    lib = _arrays.library("torch")
    t = torch.zeros(1, requires_grad=True)
    assert lib.requires_grad(t)
    assert not lib.requires_grad(t.detach())
    with torch.no_grad():
        assert not lib.requires_grad(t)
    assert not _arrays.library("numpy").requires_grad(np.zeros(1))
