"""The facts that cost models, tables and GPU kernels need, read from shapes and addresses alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from sparseformats._arrays import TorchLibrary
from sparseformats.dispatch import KernelRecord, checks
from sparseformats.ops.facts import aligned


def query(A: Any, **options: Any) -> Any:
    x = A.lib.zeros((A.shape[1], 3), A.dtype_name, A.device)
    return sf.explain(A, x, **options).query


def test_blocks_and_density_of_every_format() -> None:
    D = np.zeros((16, 32))
    D[0, 0] = D[5, 6] = D[5, 30] = D[15, 0] = 1  # 4 of 512; in 4 x 8 blocks 4 of 16
    A = sf.from_dense(D)
    for format in ("csr", "csc", "coo"):
        q = query(A.to(format))
        assert (q.nnzb, q.nnz, q.density) == (None, 4, 7)
    q = query(A.to("bsr", blocksize=(4, 8)))
    assert (q.nnzb, q.nnz, q.density) == (4, None, 2)
    assert "blocks 4 x 8, 4 stored" in q.describe()
    q = query(A.to("blocked_ell", blocksize=4))  # 4 block rows of 2 slots, of 8 places each
    assert (q.nnzb, q.nnz, q.density) == (8, None, 2)
    assert query(sf.eye(4).to("2:4")).density is None
    assert all(query(A.to(f)).row_skew is None for f in ("csr", "coo"))


def test_ragged_and_empty_matrices() -> None:
    A = sf.from_dense(np.ones((5, 7)), "bsr", blocksize=(4, 4))
    assert (query(A).nnzb, query(A).density) == (4, 0)
    empty = sf.from_dense(np.zeros((8, 8)), "bsr", blocksize=4)
    assert (query(empty).nnzb, query(empty).density) == (0, 30)
    nothing = sf.from_dense(np.zeros((0, 8)), "bsr", blocksize=4)
    assert (query(nothing).nnzb, query(nothing).density) == (0, 0)


def test_blocks_are_counted_without_reading_values(monkeypatch: pytest.MonkeyPatch) -> None:
    A = sf.eye(8).to("bsr", blocksize=2).to_library("torch")

    def fail(*_: Any) -> Any:
        raise AssertionError("values are read")

    for name in ("count_nonzero", "item", "max_int", "any", "to_numpy", "nonzero_mask"):
        monkeypatch.setattr(TorchLibrary, name, fail)
    q = sf.explain(A, torch.ones(8, 2, dtype=torch.float64)).query
    assert (q.nnzb, q.density) == (4, 2)


def operands() -> list[tuple[torch.Tensor, bool]]:
    memory = torch.zeros(4096, dtype=torch.float16)
    assert memory.data_ptr() % 16 == 0
    wide = memory.view(64, 64)
    return [
        (wide, True),
        (wide.T, True),
        (wide[:, :5], True),  # padded rows
        (wide[:, 8:16], True),
        (wide[:, 4:16], False),  # another address
        (wide[1:, :], True),
        (memory[: 64 * 63].view(64, 63), False),
        (memory[: 64 * 63].view(64, 63).T, False),
        (memory[:63].view(1, 63), True),  # one row has no next one
        (wide[:, ::2], False),
        (memory[:7], True),
        (memory[1:7], False),
        (memory[: 4 * 64 * 16].view(4, 16, 64), True),
        (memory[:480].view(2, 24, 10).mT, False),  # each batch may be laid anew by rows of 24
        (memory[:384].view(2, 24, 8).mT, True),
        (memory[:384].view(2, 24, 8)[..., :4], False),  # the same, of 4
        (memory[:0].view(0, 8), True),
    ]


@pytest.mark.parametrize("case", range(len(operands())))
def test_alignment(case: int) -> None:
    x, expected = operands()[case]
    lib = TorchLibrary(torch)
    assert aligned(lib, x) is expected


def test_alignment_is_a_fact_of_a_call_and_of_its_plan() -> None:
    A = sf.from_dense(torch.ones(8, 8, dtype=torch.float16), "bsr", blocksize=4)
    wide = torch.ones(8, 16, dtype=torch.float16)
    good, bad = wide[:, :8], wide[:, 1:9]
    q = sf.explain(A, good, out=torch.empty(16, 8, dtype=torch.float16)[:8]).query
    assert (q.x_layout, q.x_aligned, q.out_aligned) == ("strided", True, True)
    q = sf.explain(A, bad, out=wide[:, 1:9]).query
    assert (q.x_aligned, q.out_aligned) == (False, False)
    assert sf.explain(A, bad).query.out_aligned is None
    host = sf.from_dense(np.ones((8, 8)), "bsr", blocksize=4)
    assert sf.explain(host, np.ones((8, 2))).query.x_aligned is None
    with dispatch.temporary(vectors(), only=True):
        sf.matmul(A, good)
        with pytest.raises(sf.NoKernelError, match="needs X in 16-byte rows"):
            sf.matmul(A, bad)  # never the plan of the aligned one
        plan = sf.plan(A, torch.ones(8, 8, dtype=torch.float16))
        with pytest.raises(ValueError, match="needs X in 16-byte rows"):
            plan(torch.ones(72, dtype=torch.float16)[1:65].view(8, 8))
    with pytest.raises(AttributeError):
        replace(q, x_aligned=True).x_aligned = False  # type: ignore[misc]


class Vectors:
    """Reads X by vectors."""

    @staticmethod
    def pack(A: Any, query: Any) -> Any:
        return A.to_dense()

    @staticmethod
    def run(state: Any, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        assert x.data_ptr() % 16 == 0
        y = alpha * (state @ x)
        return y if out is None else out.copy_(y + beta * out if beta else y)


def vectors() -> KernelRecord:
    target = f"{__name__}:Vectors"
    found = (checks.aligned(),)
    return KernelRecord("vectors", "matmul", ("bsr",), target, cost=lambda query: 0.0, checks=found)


@pytest.fixture
def tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's switch is on, and its CPU tensors count as those of a GPU."""
    monkeypatch.setattr(TorchLibrary, "allows_tf32", lambda self, x: True)


@pytest.mark.usefixtures("tf32")
def test_the_switch_decides_where_the_caller_says_nothing() -> None:
    A, x = sf.eye(4, dtype="float32", library="torch"), torch.ones(4, 2)
    assert sf.explain(A, x).query.precision == "tf32"
    assert sf.explain(A, x, precision="ieee").query.precision is None
    assert sf.plan(A, x).query.precision == "tf32"
    assert sf.plan(A, x, precision="ieee").query.precision is None
    assert sf.explain("linear", x.T, A, activation="relu").query.precision == "tf32"
    assert sf.explain("sddmm", A, x, x.T).query.precision == "tf32"
    assert sf.explain("sddmm", A, x, x.T, precision="ieee").query.precision is None
    wide = sf.eye(4, library="torch")
    assert sf.explain(wide, x).query.precision is None  # the product is of float64


def test_without_the_switch_float32_is_ieee() -> None:
    A, x = sf.eye(4, dtype="float32", library="torch"), torch.ones(4, 2)
    assert sf.explain(A, x).query.precision is None
    assert sf.explain(A, x, precision="tf32").query.precision == "tf32"
