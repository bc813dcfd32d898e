"""The steps of a product of two sparse matrices, and what is made of its result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats.dispatch import Query
from sparseformats_kernels.cusparse.spgemm import spgemm
from tests.kernels.cpu.products import matrix
from tests.kernels.cusparse.fake import Fake, FakeDevice


def product(A: Any, B: Any) -> Any:
    query = Query("spgemm", "csr", out_dtype=A.dtype_name, library="torch", device="cuda")
    return spgemm(A, B, query)


def expected(A: Any, B: Any) -> Any:
    """By the CPU's kernel, which has tests of its own."""
    host = [x.to_device("cpu", library="numpy") for x in (A, B)]
    return sf.matmul(*host, kernel="scipy-spgemm")


def agree(C: Any, A: Any, B: Any) -> None:
    assert C.problems() == []
    D = expected(A, B)
    assert C.shape == D.shape
    assert np.array_equal(C.indptr.numpy(), D.indptr)
    assert np.array_equal(C.indices.numpy(), D.indices)
    assert np.allclose(C.data.numpy(), D.data, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("unsorted", [False, True])
def test_values_and_pattern(dtype: str, index: str, unsorted: bool, library: Fake) -> None:
    library.unsorted = unsorted
    A = matrix("csr", (14, 11), "torch", dtype, index=index)
    B = matrix("csr", (11, 9), "torch", dtype, index=index, seed=3)
    C = product(A, B)
    agree(C, A, B)
    assert (C.dtype_name, str(C.indices.dtype)) == (dtype, f"torch.{index}")


def test_too_many_intermediate_products_are_computed_in_parts(library: Fake) -> None:
    A, B = matrix("csr", (14, 11), "torch"), matrix("csr", (11, 9), "torch", seed=3)
    library.crowded = True
    agree(product(A, B), A, B)
    assert [call[11] for call in library.named("cusparseSpGEMM_estimateMemory")] == [0.2, 0.2]
    assert {call[9] for call in library.named("cusparseSpGEMM_copy")} == {5}


def test_too_little_memory_is_answered_in_the_same_way(
    library: Fake, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    A, B = matrix("csr", (14, 11), "torch"), matrix("csr", (11, 9), "torch", seed=3)
    library.workspace = 1 << 20
    empty, refused = FakeDevice.empty, []

    def stingy(self: Any, shape: Any, dtype: str) -> Any:
        if dtype == "uint8" and not refused:
            refused.append(shape)
            raise MemoryError("out of memory")
        return empty(self, shape, dtype)

    monkeypatch.setattr(FakeDevice, "empty", stingy)
    agree(product(A, B), A, B)
    assert len(refused) == 1
    monkeypatch.setattr(FakeDevice, "empty", lambda self, shape, dtype: never(shape))
    with pytest.raises(MemoryError, match="never enough"):
        product(A, B)


def never(shape: Any) -> Any:
    raise MemoryError(f"never enough for {shape}")


@pytest.mark.parametrize("shapes", [((0, 4), (4, 3)), ((3, 0), (0, 4)), ((3, 4), (4, 0))])
def test_empty_shapes(shapes: Any, library: Fake) -> None:
    A, B = (sf.from_dense(torch.zeros(shape), "csr") for shape in shapes)
    C = product(A, B)
    assert (C.shape, C.nnz) == ((shapes[0][0], shapes[1][1]), 0)
    assert C.problems() == []
    assert library.calls == []


def test_elements_that_do_not_meet(library: Fake) -> None:
    A = sf.CSR(torch.ones(1), torch.tensor([0]), torch.tensor([0, 1, 1]), (2, 2))
    B = sf.CSR(torch.ones(1), torch.tensor([1]), torch.tensor([0, 0, 1]), (2, 2))
    C = product(A, B)
    assert (C.nnz, C.problems()) == (0, [])
    assert C.indptr.tolist() == [0, 0, 0]


def test_what_cancels_stays_stored(library: Fake) -> None:
    A = sf.CSR(torch.ones(2), torch.tensor([0, 1]), torch.tensor([0, 2]), (1, 2))
    B = sf.CSR(torch.tensor([1.0, -1.0]), torch.tensor([0, 0]), torch.tensor([0, 1, 2]), (2, 1))
    C = product(A, B)
    assert (C.nnz, C.data.tolist()) == (1, [0.0])


def test_it_cannot_be_recorded(library: Fake, device: FakeDevice) -> None:
    A = matrix("csr", (14, 14), "torch")
    device.graph = 9
    with pytest.raises(RuntimeError, match="cannot be recorded into a graph"):
        product(A, A)


def test_a_failure_names_the_step(library: Fake) -> None:
    A = matrix("csr", (14, 14), "torch")
    library.fails["cusparseSpGEMM_compute"] = 7
    with pytest.raises(RuntimeError, match=r"cusparseSpGEMM_compute .*INTERNAL_ERROR \(7\)"):
        product(A, A)
