"""array-api-strict as one more array library."""

from __future__ import annotations

import numpy as np
import pytest

from sparseformats import _arrays, testing
from sparseformats.formats import COO


@pytest.fixture
def lib() -> _arrays.ArrayLibrary:
    testing.register_strict()
    return _arrays.library("array_api_strict")


def test_names_of_types(lib: _arrays.ArrayLibrary) -> None:
    for name in ("bool", "int8", "uint64", "float32", "complex128"):
        assert lib.dtype_name(lib.dtype(name)) == name
        assert lib.dtype_name(lib.zeros(2, name)) == name
    assert lib.result_dtype("int8", "int16") == "int16"
    with pytest.raises(TypeError):
        lib.result_dtype("int8", "float32")


def test_primitives_give_arrays_of_the_library(lib: _arrays.ArrayLibrary) -> None:
    x = lib.asarray([3, 0, 1], "int64")
    assert lib.owns(lib.argsort(x))
    assert lib.to_numpy(lib.take(x, lib.argsort(x))).tolist() == [0, 1, 3]
    assert lib.max_int(x) == 3
    lib.put(x, lib.asarray([1]), 7)
    assert lib.to_numpy(x).tolist() == [3, 7, 1]
    assert _arrays.of(x) is lib


def test_what_the_standard_lacks_fails(lib: _arrays.ArrayLibrary) -> None:
    x = lib.zeros((2, 3), "float64")
    with pytest.raises(AttributeError):
        x.reshape(-1)
    with pytest.raises(IndexError):
        x[0]  # the standard wants every axis named


@pytest.mark.parametrize(
    "key",
    [
        np.s_[1:, :, :],
        np.s_[9:, ...],
        np.s_[..., 9:],
        np.s_[..., :-9],
        np.s_[:, None, 1:, 5:9],
        np.s_[1:, ..., 0],
        np.s_[..., 0, 2:],
        np.s_[::-1, :, :],
        np.s_[0, 1, 2],
    ],
)
def test_slices_are_clipped(lib: _arrays.ArrayLibrary, key: object) -> None:
    x = np.arange(24).reshape(2, 3, 4)
    assert np.array_equal(lib.to_numpy(lib.from_numpy(x)[key]), x[key])


def test_slices_are_clipped_on_assignment(lib: _arrays.ArrayLibrary) -> None:
    x = lib.zeros((2, 3), "int64")
    x[1:9, :] = lib.asarray([1, 2, 3])
    assert lib.to_numpy(x).tolist() == [[0, 0, 0], [1, 2, 3]]


def test_a_matrix_of_strict_arrays(lib: _arrays.ArrayLibrary) -> None:
    data, index = lib.asarray([1.0, 2.0]), lib.asarray([1, 0])
    A = COO(data, index, index, (2, 2))
    assert A.library == "array_api_strict"
    testing.check_valid(A)
    testing.check_round_trip(A, ["csr", ("bsr", {"blocksize": (1, 2)}), "2:4"])
