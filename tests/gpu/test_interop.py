"""Zero-copy between torch and CuPy, sparse objects of both, and moves that are asked for."""

from __future__ import annotations

from typing import Any

import cupy
import cupyx.scipy.sparse as csp
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import reference
from sparseformats.testing import matrices
from tests.gpu.streams import forbidden_synchronisation

FLOATS = ("float32", "float64", "complex64", "complex128")


def pointers(matrix: Any) -> dict[str, int]:
    return {
        name: int(x.data_ptr() if matrix.library == "torch" else x.data.ptr)
        for name, x in matrix.buffers().items()
        if x.shape[0]
    }


def test_libraries_share_memory_on_the_device(device: str) -> None:
    @given(matrices(dtypes=FLOATS, library="torch", device=device))
    def law(matrix: Any) -> None:
        there = matrix.to_library("cupy")
        assert (there.library, there.device) == ("cupy", device)
        assert pointers(there) == pointers(matrix)
        back = there.to_library("torch")
        assert pointers(back) == pointers(matrix)
        assert sf.same(back, matrix, level="buffers")

    law()


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_there_and_back(library: str, device: str) -> None:
    @given(matrices(dtypes=[*FLOATS, "int32", "bool"]))
    def law(matrix: Any) -> None:
        moved = matrix.to_device(device, library=library)
        assert (moved.library, moved.device) == (library, device)
        assert moved.problems() == []
        back = moved.to_device("cpu", library="numpy")
        assert sf.same(back, matrix, level="buffers")

    law()


@pytest.mark.parametrize("format", ["coo", "csr", "csc"])
def test_cupyx(format: str, device: str) -> None:
    @given(matrices(format, dtypes=[*FLOATS, "bool"], library="cupy", device=device))
    def law(matrix: Any) -> None:
        theirs = matrix.to_cupy()
        assert csp.issparse(theirs)
        assert theirs.format == format
        back = sf.from_cupy(theirs)
        assert reference.same_content(back, matrix)
        assert back.device == device

    law()


def test_from_cupyx_unsorted_with_duplicates(device: str) -> None:
    with cupy.cuda.Device(torch.device(device).index or 0):
        data = cupy.asarray([1.0, 2.0, 4.0])
        row, col = cupy.asarray([1, 1, 0]), cupy.asarray([0, 0, 2])
        theirs = csp.coo_matrix((data, (row, col)), shape=(2, 3))
    ours = sf.from_cupy(theirs)
    assert ours.to_dense().tolist() == [[0, 0, 4], [3, 0, 0]]
    assert theirs.nnz == 3  # the source is as it was
    assert theirs.data.tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_cupyx_refuses_other_dtypes(dtype: str, device: str) -> None:
    with cupy.cuda.Device(torch.device(device).index or 0):
        matrix = sf.CSR(cupy.ones(1, dtype), cupy.zeros(1, "int32"), cupy.asarray([0, 1]), (1, 1))
    with pytest.raises(TypeError, match=dtype):
        matrix.to_cupy()


@pytest.mark.parametrize("format", ["coo", "csr", "csc", "bsr", "bsr.T"])
def test_torch_layouts(format: str, device: str) -> None:
    shapes = st.sampled_from([(4, 6), (2, 2), (0, 2), (6, 4)])
    made = matrices(
        format,
        library="torch",
        device=device,
        dtypes=["float32", "float64", "bfloat16", "int64"],
        shapes=shapes,
        blocksizes=(2, 2),
    )

    @given(made)
    def law(matrix: Any) -> None:
        theirs = matrix.to_torch()
        assert theirs.layout != torch.strided
        assert str(theirs.device) == device
        back = sf.from_torch(theirs)
        assert (back.format, back.device) == (format, device)
        ours = {k: v for k, v in reference.entries(matrix).items() if v != 0}
        kept = {k: v for k, v in reference.entries(back).items() if v != 0}
        assert ours.keys() == kept.keys()
        assert all(ours[k].tobytes() == kept[k].tobytes() for k in ours)

    law()


def test_no_hidden_moves(device: str) -> None:
    here = sf.CSR(np.ones(1), np.zeros(1, np.int32), np.array([0, 1]), (1, 1))
    there = here.to_device(device, library="torch")
    with pytest.raises(TypeError):
        here @ torch.ones(1, 1, device=device)
    with pytest.raises(sf.DeviceMismatchError):
        there @ torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(sf.DeviceMismatchError):
        sf.CSR(torch.ones(1, device=device), torch.zeros(1, dtype=torch.int32), [0, 1], (1, 1))
    with pytest.raises(TypeError):
        there.to_scipy()


def test_repr_does_not_synchronise(device: str) -> None:
    values = torch.ones(1, 16, 16, device=device)
    matrix = sf.BSR(values, [0], [0, 1], (16, 16))
    with forbidden_synchronisation():
        text = repr(matrix)
        facts = matrix.shape, matrix.dtype, matrix.device, matrix.nbytes, matrix.T.format
    assert "nnz" not in text
    assert facts[0] == (16, 16)
