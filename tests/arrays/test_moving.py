"""Gather, scatter, sort, count, sums of runs, memory: one meaning in every library."""

import numpy as np
import pytest
import torch

from sparseformats import _arrays
from sparseformats._dtypes import VALUE_DTYPES, itemsize
from sparseformats.testing import register_strict

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


# Gather, scatter, sort, count.


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_take_and_scatter_move_bits(name, dtype):
    lib, width = _arrays.library(name), itemsize(dtype)
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, 6 * width).astype("uint8")
    if dtype == "bool":
        raw &= 1
    host = raw.view(_arrays.library("numpy").dtype(dtype))
    x = lib.from_numpy(host, "cpu")
    for index_dtype in ("int32", "int64"):
        index = _in(lib, [5, 0, 0, 3], index_dtype)
        assert lib.to_numpy(lib.take(x, index)).tobytes() == host[[5, 0, 0, 3]].tobytes()
    out = lib.scatter((2, 4), _in(lib, [7, 1]), x[:2])
    expected = np.zeros(8, host.dtype)
    expected[[7, 1]] = host[:2]
    assert tuple(out.shape) == (2, 4)
    assert lib.to_numpy(out).tobytes() == expected.tobytes()
    both = lib.concat([x, x[:1]])
    assert lib.to_numpy(both).tobytes() == host.tobytes() + host[:1].tobytes()


@pytest.mark.parametrize("order", ["C", "F", "broadcast", "strided"])
@pytest.mark.parametrize("axis", [0, 1])
def test_take_along_an_axis_of_any_layout(axis, order):
    x = np.arange(12).reshape(3, 4)
    views = {
        "C": x,
        "F": np.asfortranarray(x),
        "broadcast": np.broadcast_to(x[:1], (3, 4)),
        "strided": np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
    }
    lib = _arrays.library("numpy")
    found = lib.take(views[order], np.array([2, 0]), axis=axis)
    assert np.array_equal(found, views[order].take([2, 0], axis=axis))
    assert found.flags.c_contiguous
    t = torch.from_numpy(np.array(views[order]))
    assert np.array_equal(_arrays.library("torch").take(t, torch.tensor([2, 0]), axis=axis), found)


def test_take_does_not_copy_all_of_a_broadcast_array():
    huge = np.broadcast_to(np.float64(2), (2**40, 3))
    found = _arrays.library("numpy").take(huge, np.array([2**39, 1]))
    assert found.tolist() == [[2, 2, 2]] * 2


def test_sorting_is_stable(lib):
    x = _in(lib, [3, 1, 3, 1, 2])
    assert _host(lib, lib.argsort(x)) == [1, 3, 4, 0, 2]
    minor = _in(lib, [5, 5, 4, 5, 0])
    assert _host(lib, lib.lexsort(x, minor)) == [1, 3, 4, 2, 0]
    assert lib.dtype_name(lib.lexsort(x, minor)) == "int64"
    for name in ("argsort",):
        assert lib.dtype_name(getattr(lib, name)(x)) == "int64"


def test_base_class_lexsort_agrees_with_that_of_numpy():
    rng = np.random.default_rng(1)
    lib = _arrays.library("numpy")
    major, minor = rng.integers(0, 9, 500), rng.integers(0, 9, 500)
    assert np.array_equal(
        _arrays.ArrayLibrary.lexsort(lib, major, minor), lib.lexsort(major, minor)
    )


def test_counting(lib):
    x = _in(lib, [0, 2, 2, 5])
    assert _host(lib, lib.bincount(x, 7)) == [1, 0, 2, 0, 0, 1, 0]
    assert _host(lib, lib.bincount(x[:0], 3)) == [0, 0, 0]
    assert _host(lib, lib.cumsum(_in(lib, [1, 2, 3], "int8"))) == [1, 3, 6]
    assert lib.dtype_name(lib.cumsum(_in(lib, [True, True]))) == "int64"
    mask = _in(lib, [[True, False], [False, True]])
    assert _host(lib, lib.flatnonzero(mask)) == [0, 3]
    assert lib.count_nonzero(mask) == 2
    assert lib.any(mask) is True
    assert lib.any(mask[:0, ...]) is False
    assert lib.max_int(x) == 5
    assert lib.max_int(x[:0], default=-7) == -7


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_repeating_and_searching(lib, index):
    x, counts = _in(lib, [7, 8, 9], index), _in(lib, [2, 0, 1], index)
    assert _host(lib, lib.repeat(x, counts, 3)) == [7, 7, 9]
    assert _host(lib, lib.repeat(x, counts)) == [7, 7, 9]
    assert _host(lib, lib.repeat(x, 2)) == [7, 7, 8, 8, 9, 9]
    assert _host(lib, lib.repeat(x[:0], counts[:0], 0)) == []
    assert _host(lib, lib.searchsorted(x, _in(lib, [8, 10], index))) == [1, 3]
    assert _host(lib, lib.searchsorted(x, _in(lib, [8, 10], index), side="right")) == [2, 3]


def test_put_writes_in_place(lib):
    out = lib.zeros((2, 2), "int64", "cpu")
    lib.put(out, _in(lib, [3, 0]), _in(lib, [5, 6]))
    lib.put(out, _in(lib, [1]), 9)
    assert _host(lib, out) == [[6, 9], [0, 5]]


# Sums of runs.


def test_segment_sum_of_blocks(lib):
    values = _in(lib, np.arange(12.0).reshape(3, 2, 2))
    found = lib.segment_sum(values, _in(lib, [0, 2]), _in(lib, [2, 1]))
    assert _host(lib, found) == [[[4, 6], [8, 10]], [[8, 9], [10, 11]]]


def test_segment_sum_leaves_its_input_alone(lib):
    values = _in(lib, [1.0, 2.0, 4.0])
    lib.segment_sum(values, _in(lib, [0, 2]), _in(lib, [2, 1]))
    assert _host(lib, values) == [1, 2, 4]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 1000])
def test_segment_sum_adds_in_a_fixed_order(length):
    rng = np.random.default_rng(2)
    x = rng.standard_normal(length) * 10.0 ** rng.integers(-9, 9, length)

    def pairwise(v):
        while len(v) > 1:
            v = [a + b for a, b in zip(v[::2], v[1::2], strict=False)] + v[len(v) & ~1 :]
        return v[0]

    for name in LIBRARIES:
        lib = _arrays.library(name)
        found = lib.segment_sum(_in(lib, x), _in(lib, [0]), _in(lib, [length]))
        assert _host(lib, found) == [pairwise(x.tolist())]


# Memory.


def test_memory_guard():
    for name in LIBRARIES:
        lib = _arrays.library(name)
        free = lib.free_bytes("cpu")
        assert free is None or free > 2**20
        lib.ensure_fits(1, "cpu", "a byte")
        with pytest.raises(
            MemoryError, match=r"the thing needs 1,125,899,906,842,624 bytes on 'cpu'"
        ):
            lib.ensure_fits(2**50, "cpu", "the thing")


def test_memory_guard_lets_pass_what_it_cannot_judge(monkeypatch):
    lib = _arrays.library("numpy")
    monkeypatch.setattr(type(lib), "free_bytes", lambda self, device: None)
    lib.ensure_fits(2**60, "cpu", "anything")


@pytest.mark.parametrize(("name", "dtype"), EVERY)
@pytest.mark.parametrize("layout", ["C", "F", "column"])
def test_take_into_fills_an_array_of_any_strides(name, dtype, layout):
    lib = _arrays.library(name)
    x = lib.astype(lib.from_numpy(np.arange(12, dtype="float32").reshape(4, 3)), dtype)
    out = lib.zeros((3, 5) if layout == "F" else (5, 3), dtype)
    out = {"C": out, "F": out.T, "column": lib.zeros((5, 6), dtype)[:, ::2]}[layout]
    index = lib.from_numpy(np.array([3, 0, 2, 1, 0]))
    assert lib.take_into(x, index, out) is out
    assert lib.equal_bits(lib.contiguous(out), lib.take(x, index))
