"""int8 sums that single precision does not hold: matrices are cut so that none arises."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats_kernels.cusparselt.slices import LARGEST, Slices, edges_of
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
from sparseformats_kernels.cusparselt.state import State
from tests.kernels.cusparselt.fake import Fake
from tests.kernels.cusparselt.support import expected, matrix, operand, packed, same
from tests.kernels.cusparselt.test_state import bound


def full(m: int, k: int, value: int) -> Any:
    """Two of the same number in each group of four."""
    D = torch.zeros(m, k, dtype=torch.int8)
    D[:, ::4] = D[:, 3::4] = value
    return sf.from_dense(D, "2:4")


@pytest.mark.parametrize(
    ("k", "value", "count"),
    [
        (2048, -128, 1),
        (2052, -128, 2),
        (4096, -128, 2),
        (4096, 64, 1),
        (4100, 64, 2),
        (9000, 127, 5),
        (64, 127, 1),
    ],
)
def test_as_few_slices_as_will_do(k: int, value: int, count: int) -> None:
    A = full(3, k, value)
    edges = edges_of(A, 32)
    assert len(edges) == count + 1
    assert (edges[0], edges[-1]) == (0, k)
    assert all(a < b and a % 32 == 0 for a, b in pairwise(edges))
    sizes = np.abs(A.to_dense().numpy().astype(np.int64))
    assert all(sizes[:, a:b].sum(axis=1).max() <= LARGEST for a, b in pairwise(edges))


@pytest.mark.parametrize("shape", [(0, 64), (8, 0), (0, 0)])
def test_nothing_is_one_slice(shape: tuple[int, int]) -> None:
    A = sf.from_dense(torch.zeros(shape, dtype=torch.int8), "2:4")
    assert edges_of(A, 32) == ((0, 0) if shape[1] == 0 else (0, 64))


def test_a_single_large_row_is_enough() -> None:
    D = torch.zeros(40, 8192, dtype=torch.int8)
    D[17, ::4] = D[17, 1::4] = 127
    assert len(edges_of(sf.from_dense(D, "2:4"), 32)) == 5


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("k", [2048, 2080, 4100])
def test_the_worst_sums_are_exact(k: int, layout: str, library: Fake) -> None:
    A = full(33, k, -127)
    x = np.full((k, 20), -128, np.int8)
    x[::7] = 1
    X = torch.from_numpy(x if layout == "C" else np.asfortranarray(x))
    state, _ = packed(A, X)
    assert isinstance(state, State if k == 2048 else Slices)
    y = bound(A, X)[1](X, None, 1, 0)
    assert y.dtype == torch.int32
    assert same(y, expected(A, X))
    assert same(CuSparseLtProduct.run(state, X, None, 1, 0), expected(A, X))


def test_scaling_is_done_in_integers(library: Fake) -> None:
    A, X = full(33, 4096, 127), operand(4096, 20, "int8")
    X[:] = 127
    before = torch.full((33, 20), 2**24 + 1, dtype=torch.int32)
    for alpha, beta in ((1, 0), (-3, 0), (1, 1), (2, -1)):
        out = before.clone()
        state, run = bound(A, X, alpha_one=alpha == 1, beta_zero=beta == 0)
        assert run(X, out, alpha, beta) is out
        assert same(out, expected(A, X, alpha, beta, before))
        assert same(run(X, None, alpha, 0), expected(A, X, alpha))
        assert isinstance(state, Slices)


def test_batches_of_a_cut_matrix_go_one_by_one(library: Fake) -> None:
    A, X = full(33, 4096, 127), operand(4096, 64, "int8")
    state, query = packed(A, X)
    assert CuSparseLtProduct.bind_batch(state, query) is None
    whole, query = packed(matrix((33, 64), "int8"), operand(64, 64, "int8"))
    assert CuSparseLtProduct.bind_batch(whole, query) is not None
