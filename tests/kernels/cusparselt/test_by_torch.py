"""torch's operators as a way out: sizes, layouts and bias as they are handed over."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sparseformats_kernels.cusparselt import by_torch
from sparseformats_kernels.cusparselt.by_torch import TorchProduct
from tests.kernels.cusparse.fake import FakeDevice
from tests.kernels.cusparselt.support import HALVES, expected, matrix, operand, query_for, same


@pytest.fixture(autouse=True)
def operators(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """torch's two operators over dense tensors, as strict about operands as they are."""
    calls: list[Any] = []

    def compress(dense: Any) -> Any:
        assert dense.is_contiguous()
        assert all(size % 16 == 0 for size in dense.shape)
        return dense

    def multiply(packed: Any, x: Any, *, bias: Any = None, transpose_result: bool = False) -> Any:
        assert x.is_contiguous() or x.T.is_contiguous()
        assert x.shape[1] % 8 == 0
        assert x.shape[0] == packed.shape[1]
        calls.append(transpose_result)
        y = packed.double() @ x.double()
        y = (y if bias is None else y + bias.double()[:, None]).to(x.dtype)
        return y.T.contiguous() if transpose_result else y

    monkeypatch.setattr(by_torch, "device_of", lambda x, lib: device)
    monkeypatch.setattr(torch, "_cslt_compress", compress)
    monkeypatch.setattr(torch, "_cslt_sparse_mm", multiply)
    return calls


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(48, 64), (33, 50), (0, 16), (16, 0)])
def test_products(shape: tuple[int, int], dtype: str) -> None:
    A = matrix(shape, dtype)
    for n in (0, 1, 8, 13):
        for layout in ("C", "F", "rows"):
            X = operand(shape[1], n, dtype, layout)
            state = TorchProduct.pack(A, query_for(A, X))
            assert same(TorchProduct.run(state, X, None, 1, 0), expected(A, X))
            out = operand(shape[0], n, dtype, seed=4)
            assert TorchProduct.run(state, X, out, 1, 0) is out
            assert same(out, expected(A, X))


def test_a_result_in_columns_is_asked_for(operators: list[Any]) -> None:
    A, X = matrix((48, 64)), operand(64, 24)
    state = TorchProduct.pack(A, query_for(A, X))
    for layout in ("C", "F"):
        out = operand(48, 24, layout=layout)
        TorchProduct.run(state, X, out, 1, 0)
        assert same(out, expected(A, X))
    assert operators == [False, True]


def test_bias() -> None:
    for m in (48, 33):
        A, X, bias = matrix((m, 64)), operand(64, 24), operand(m, 1, seed=7)[:, 0].contiguous()
        state = TorchProduct.pack(A, query_for(A, X, epilogue="bias"))
        y = TorchProduct.run(state, X, None, 1, 0, bias=bias)
        assert same(y, expected(A, X) + bias.double()[:, None])
