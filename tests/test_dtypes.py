"""Rules about dtypes, by name."""

import ml_dtypes
import numpy as np
import pytest
import torch

from sparseformats import _arrays, _dtypes
from sparseformats._dtypes import INT32_MAX, VALUE_DTYPES

NAMES = sorted({name for names in VALUE_DTYPES.values() for name in names})


@pytest.mark.parametrize("name", NAMES)
def test_sizes_and_kinds_agree_with_the_libraries(name):
    host = _arrays.library("numpy").dtype(name)
    assert _dtypes.itemsize(name) == host.itemsize
    kinds = {"b": "b", "i": "i", "u": "u", "f": "f", "c": "c", "V": "f"}
    assert _dtypes.kind(name) == kinds[host.kind]
    if name in VALUE_DTYPES["torch"]:
        dtype = getattr(torch, name)
        assert dtype.itemsize == host.itemsize
        assert dtype.is_floating_point == (_dtypes.kind(name) == "f")
        assert dtype.is_complex == (_dtypes.kind(name) == "c")


@pytest.mark.parametrize("name", NAMES)
def test_bits_have_the_same_width(name):
    bits = _dtypes.bits_name(name)
    assert _dtypes.itemsize(bits) == _dtypes.itemsize(name)
    assert _dtypes.kind(bits) in ("iu" if name != "complex128" else "c")


def test_which_library_has_what():
    everywhere = {"bool", "int8", "int64", "uint8", "float32", "float64", "complex64", "complex128"}
    for names in VALUE_DTYPES.values():
        assert everywhere <= set(names)
        assert len(set(names)) == len(names)
    assert "bfloat16" in VALUE_DTYPES["numpy"]
    assert "bfloat16" not in VALUE_DTYPES["cupy"]
    assert not {"uint16", "uint32", "uint64"} & set(VALUE_DTYPES["torch"])
    assert [lib for lib, names in VALUE_DTYPES.items() if "float8_e5m2" in names] == ["torch"]


@pytest.mark.parametrize("name", NAMES)
def test_accumulators(name):
    small = {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}
    assert _dtypes.accumulator(name) == ("float32" if name in small else name)


@pytest.mark.parametrize(
    ("current", "extents", "expected"),
    [
        ("int32", (), "int32"),
        ("int32", (0,), "int32"),
        ("int32", (INT32_MAX,), "int32"),
        ("int32", (INT32_MAX + 1,), "int64"),
        ("int32", (3, 2**40), "int64"),
        ("int64", (), "int64"),
        ("int64", (3,), "int64"),
    ],
)
def test_index_width_never_narrows(current, extents, expected):
    assert _dtypes.index_width(current, *extents) == expected


def test_offsets_need_64_bits():
    """A row number times a row length of int32 wraps in NumPy; Python integers do not."""
    rows, columns = 2**16 + 64, 2**15 + 64
    assert rows * columns > INT32_MAX
    assert _dtypes.index_width("int32", rows, columns) == "int32"
    assert _dtypes.index_width("int32", rows * columns) == "int64"


def test_bfloat16_is_that_of_ml_dtypes():
    assert _arrays.library("numpy").dtype("bfloat16") == np.dtype(ml_dtypes.bfloat16)
