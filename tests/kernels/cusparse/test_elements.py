"""Rows and dense copies that CUDA kernels pack by array operations, shown on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparseformats import Transposed, _arrays
from sparseformats_kernels.cpu.elements import as_compressed
from sparseformats_kernels.cuda.elements import as_dense, as_rows
from tests.kernels.cpu.products import FORMATS, LIBRARIES, matrix

SHAPES = [(14, 11), (11, 14), (1, 7), (7, 1), (0, 5), (5, 0), (12, 12)]


def stored(A: Any) -> tuple[Any, bool]:
    """The matrix as a kernel gets it: the base of a transpose, and that it is one."""
    return (A.base, True) if isinstance(A, Transposed) else (A, False)


def host(x: Any) -> Any:
    return _arrays.of(x).to_numpy(x)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format", FORMATS)
def test_rows(format: str, shape: tuple[int, int], library: str, index: str) -> None:
    A = matrix(format, shape, library, index=index)
    base, transposed = stored(A)
    rows = as_rows(base, transposed, "float64")
    expected = as_compressed(base, transposed, "float64").tocsr()
    expected.sort_indices()
    assert rows.shape == shape == expected.shape
    names = [rows.data.dtype, rows.indices.dtype, rows.indptr.dtype]
    assert [str(x).removeprefix("torch.") for x in names] == ["float64", "int32", "int32"]
    assert np.array_equal(host(rows.indptr), expected.indptr)
    assert np.array_equal(host(rows.indices), expected.indices)
    assert np.array_equal(host(rows.data), expected.data)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format", FORMATS)
def test_dense(format: str, shape: tuple[int, int], library: str) -> None:
    A = matrix(format, shape, library)
    dense = as_dense(*stored(A), "float64")
    assert tuple(dense.shape) == shape
    assert np.array_equal(host(dense), host(A.to_dense()))


@pytest.mark.parametrize("block", [(3, 2), (1, 4), (4, 1), (16, 16)])
def test_blocks_of_every_shape_that_jut_out(block: tuple[int, int]) -> None:
    for format in ("bsr", "bsr.T"):
        A = matrix(format, (13, 9), block=block, seed=3)
        base, transposed = stored(A)
        rows = as_rows(base, transposed, "float32")
        expected = as_compressed(base, transposed, "float32").tocsr()
        expected.sort_indices()
        assert np.array_equal(host(rows.indptr), expected.indptr)
        assert np.array_equal(host(rows.indices), expected.indices)
        assert np.array_equal(host(rows.data), expected.data)


def test_buffers_of_the_right_kind_are_shared() -> None:
    A = matrix("csr", (14, 11), index="int32")
    rows = as_rows(A, False, "float32")
    assert np.shares_memory(rows.data, A.data)
    assert np.shares_memory(rows.indices, A.indices)


def test_a_format_of_others_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a matrix of elements, got"):
        as_rows(_Foreign(), False, "float32")


class _Foreign:
    format, shape, lib, data = "mine", (2, 2), _arrays.library("numpy"), np.zeros(2)
