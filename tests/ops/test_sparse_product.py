"""Products of two sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

import sparseformats as sf
from sparseformats import reference
from sparseformats.testing import assert_product, check_valid, matrices


def promotes(A: Any, B: Any) -> bool:
    try:
        np.result_type(A.dtype, B.dtype)
    except TypeError:
        return False
    return True


@given(matrices(values="small"), matrices(values="small"))
def test_agrees_with_the_dense_product(A: Any, B: Any) -> None:
    if A.shape[1] != B.shape[0]:
        B = sf.from_dense(np.ones((A.shape[1], 3), A.dtype), "csr")
    if not promotes(A, B):
        with pytest.raises(TypeError, match="common dtype"):
            A @ B
        return
    C = A @ B
    assert C.format == "csr"
    check_valid(C)
    # Only stored elements meet, as in CSR; small integers leave no room for rounding.
    product = reference.matmul(A.to("csr"), B.to_dense())
    assert C.dtype_name == product.dtype
    assert_product(reference.dense(C), product)


def test_the_kernel_is_traced_and_explained() -> None:
    A = sf.from_dense(np.array([[1.0, 0], [2, 3]]), "bsr", blocksize=(2, 2))
    with sf.tracing() as trace:
        C = A.T @ A
    assert [run.kernel for run in trace if run.op == "spgemm"] == ["scipy-spgemm"]
    assert C.to_dense().tolist() == [[5, 6], [6, 9]]
    assert sf.explain(A, A).chosen == "scipy-spgemm"


@pytest.mark.parametrize("width", ["int32", "int64"])
def test_index_width_is_kept(width: str) -> None:
    A = sf.CSR([1.0], [0], [0, 1, 1], (2, 2), index_dtype=width)
    assert (A @ A).index_dtype == width


def test_half_types_are_summed_in_float32() -> None:
    A = sf.from_dense(np.ones((1, 4096), np.float16), "csr")
    C = A @ A.T
    assert (C.dtype, C.data.tolist()) == (np.float16, [4096])


def test_refusals() -> None:
    A = sf.from_dense(np.eye(2), "csr")
    for options in ({"alpha": 2}, {"beta": 1}, {"out": np.eye(2)}):
        with pytest.raises(ValueError, match="takes no alpha, beta or out"):
            sf.matmul(A, A, **options)
    T = sf.from_dense(torch.eye(2), "csr")
    with pytest.raises(sf.NoKernelError, match=r"hint: A.to_library\('numpy'\)"):
        T @ T
