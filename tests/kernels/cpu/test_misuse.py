"""Kernels say what they need when they are called past dispatch."""

from __future__ import annotations

import numpy as np
import pytest

import sparseformats as sf
from sparseformats.dispatch import Query
from sparseformats_kernels.cpu.common import compute_dtype
from sparseformats_kernels.cpu.elements import block_list
from sparseformats_kernels.cpu.spmm_nm import Unpacked


def test_formats_that_a_kernel_cannot_pack() -> None:
    A = sf.from_dense(np.eye(2), "csr")
    with pytest.raises(TypeError, match="expected an n:m matrix, got csr"):
        Unpacked.pack(A, Query("matmul", "csr", out_dtype="float64"))
    with pytest.raises(TypeError, match="expected a block format, got csr"):
        block_list(A)


def test_the_dtype_of_computation() -> None:
    assert compute_dtype("bfloat16") == "float32"
    assert compute_dtype("int8") == "int8"
    with pytest.raises(ValueError, match="dtype of its result"):
        compute_dtype(None)
