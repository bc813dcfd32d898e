"""Batches in one launch where they lie at even distances, else piece by piece."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sparseformats_kernels.cusparselt import batches
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
from tests.kernels.cusparse.fake import FakeDevice
from tests.kernels.cusparselt.fake import Fake
from tests.kernels.cusparselt.support import matrix, operand, packed, same


def stack(count: int, rows: int, n: int, dtype: str = "float16", seed: int = 0) -> Any:
    return torch.stack([operand(rows, n, dtype, seed=seed + i) for i in range(count)])


def bound(A: Any, X: Any, **facts: Any) -> Any:
    state, query = packed(A, X[0], batch=int(X.shape[0]), **facts)
    return CuSparseLtProduct.bind_batch(state, query)


def exact(A: Any, X: Any, alpha: float = 1, beta: float = 0, out: Any = None) -> Any:
    found = alpha * (A.to_dense().double() @ X.double())
    return found if beta == 0 else found + beta * out.double()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("n", [32, 40])
def test_one_launch_for_all(n: int, dtype: str, library: Fake) -> None:
    A, X = matrix((48, 64), dtype), stack(3, 64, n, dtype)
    run = bound(A, X)
    for given in (X, X.mT.contiguous().mT):
        for out in (None, torch.empty(3, 48, n, dtype=X.dtype)):
            before = len(library.named("Matmul"))
            y = run(given, out, 1, 0)
            assert same(y, exact(A, X))
            assert out is None or y is out
            assert len(library.named("Matmul")) == before + 1


def test_scalars_and_new_operands(library: Fake) -> None:
    A, X, Y = matrix((48, 64)), stack(3, 64, 32), stack(3, 48, 32, seed=7)
    run = bound(A, X)
    for alpha, beta, seed in ((1, 0, 0), (2, 0.5, 1), (2, 0.25, 2), (1, 1, 3), (1, 0, 4)):
        X, out = stack(3, 64, 32, seed=seed), Y.clone()
        assert same(run(X, out, alpha, beta), exact(A, X, alpha, beta, Y))


@pytest.mark.parametrize(
    ("shape", "n", "case"),
    [
        ((48, 64), 33, "columns"),
        ((33, 64), 32, "rows"),
        ((48, 50), 32, "sum"),
        ((48, 64), 32, "gap"),
        ((48, 64), 32, "alignment"),
        ((48, 64), 32, "broadcast"),
        ((48, 64), 32, "single"),
        ((48, 64), 32, "empty"),
        ((0, 64), 32, "nothing"),
    ],
)
def test_pieces_one_by_one(shape: tuple[int, int], n: int, case: str, library: Fake) -> None:
    A, count = matrix(shape), {"single": 1, "empty": 0}.get(case, 3)
    X = stack(max(1, count), shape[1], n)[:count]
    if case == "gap":
        room = torch.zeros(3, shape[1] * n + 4, dtype=X.dtype)
        X = room[:, : shape[1] * n].view(3, shape[1], n).copy_(X)
    if case == "alignment":
        room = torch.zeros(X.numel() + 1, dtype=X.dtype)
        X = room[1:].view(X.shape).copy_(X)
    if case == "broadcast":
        X = X[:1].expand(3, -1, -1)
    state, query = packed(A, operand(shape[1], n), batch=max(1, count))
    run = CuSparseLtProduct.bind_batch(state, query)
    for out in (None, torch.empty(count, shape[0], n, dtype=X.dtype)):
        before = len(library.named("Matmul"))
        assert same(run(X, out, 1, 0), exact(A, X))
        pieces = 0 if case in ("empty", "nothing") else count
        assert len(library.named("Matmul")) == before + pieces


def test_int8_is_scaled_piece_by_piece(library: Fake) -> None:
    A = matrix((32, 64), "int8")
    X = stack(3, 64, 32, "int8").mT.contiguous().mT
    big = torch.full((3, 32, 32), 20_000_001, dtype=torch.int32)
    run = bound(A, X, x_layout="F")
    for alpha, beta, launches in ((1, 0, 1), (3, 0, 3), (1, 1, 3), (1, 0, 1)):
        out, before = big.clone(), len(library.named("Matmul"))
        assert same(run(X, out, alpha, beta), exact(A, X, alpha, beta, big))
        assert len(library.named("Matmul")) == before + launches


def test_few_columns_are_left_to_one_wide_product(library: Fake) -> None:
    A = matrix((48, 64))
    assert bound(A, stack(3, 64, batches.FEW - 1)) is None
    assert bound(A, stack(3, 64, batches.FEW)) is not None


def test_streams_graphs_and_devices(
    library: Fake, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    A, X = matrix((48, 64)), stack(3, 64, 32)
    run = bound(A, X)
    for device.current, device.graph in ((5, 0), (8, 0), (8, 3), (8, 4), (5, 0)):
        out = torch.empty(3, 48, 32, dtype=X.dtype)
        assert same(run(X, out, 1, 0), exact(A, X))
        assert library.streams[-1] == device.current
    assert len({call[8] for call in library.named("Matmul")}) == 4
    visits = device.visits
    monkeypatch.setattr(FakeDevice, "is_current", lambda self: self.visits > visits)
    assert same(run(X, None, 1, 0), exact(A, X))


def test_what_is_kept_is_limited(library: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_KEPT", 3)
    A, X = matrix((48, 64)), stack(3, 64, 32)
    run = bound(A, X)
    for n in range(32, 104, 8):
        X = stack(2, 64, n)
        assert same(run(X, None, 1, 0), exact(A, X))
        assert 1 <= len(run._ready) <= 3
