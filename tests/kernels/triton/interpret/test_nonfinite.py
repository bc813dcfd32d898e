"""NaN and infinity meet what dense arithmetic meets inside a stored block, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats.dispatch import KernelRecord
from tests.kernels.triton.interpret.test_products import hold, kernels
from tests.kernels.triton.matrices import FORMATS, dense, matrix


def poisoned(A: Any, X: Any, value: float) -> Any:
    """The operand with a value in every row that no block of a matrix of ones meets."""
    met = A.to_dense().abs().sum(dim=0) > 0
    assert not met.all()
    return torch.where(met[:, None], X, torch.full_like(X, value))


@kernels
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("block", [(64, 64), (16, 16), (24, 24)])
def test_rows_that_no_block_meets_do_not_count(
    record: KernelRecord, block: tuple[int, int], value: float
) -> None:
    r, c = block
    blocks = torch.zeros(4, 6, dtype=torch.bool)
    blocks[0, 1] = blocks[0, 4] = blocks[2, 4] = True
    D = blocks.repeat_interleave(r, 0).repeat_interleave(c, 1).half()
    for format in ("bsr", "blocked_ell", "bsr.T"):
        whole = D.T.contiguous() if format == "bsr.T" else D
        options = {"blocksize": r if format == "blocked_ell" else block}
        A = sf.from_dense(whole, format.removesuffix(".T"), **options)
        A = A.T if format == "bsr.T" else A
        X = poisoned(A, dense((A.shape[1], 21), "float16"), value)
        if hold(record, A, X, out="C"):
            assert torch.isfinite(X).any()


@kernels
@pytest.mark.parametrize("format", FORMATS)
def test_inside_a_block_arithmetic_is_dense(record: KernelRecord, format: str) -> None:
    A = matrix(format, (80, 112), (16, 16), "float16")
    X = dense((A.shape[1], 9), "float16")
    X[3, 0], X[40, 1], X[41, 1], X[A.shape[1] - 1, 2] = torch.nan, torch.inf, -torch.inf, torch.inf
    hold(record, A, X)


@kernels
def test_padding_of_a_ragged_shape_never_meets_the_operand(record: KernelRecord) -> None:
    """Behind the operand's last row lies NaN, and the last block reaches beyond it."""
    for block, dtype in (((64, 64), "float16"), ((32, 32), "float32"), ((3, 5), "float16")):
        r, c = block
        A = matrix("bsr", (2 * r + 1, 2 * c + 1), block, dtype, density=1.0)
        memory = torch.full((2 * c + 1 + 4 * c, 19), torch.nan).to(A.data.dtype)
        memory[: 2 * c + 1] = dense((2 * c + 1, 19), dtype)
        hold(record, A, memory[: 2 * c + 1], out="rows")
        wide = torch.full((19, 6 * c + 1), torch.nan).to(A.data.dtype)
        wide[:, : 2 * c + 1] = dense((19, 2 * c + 1), dtype)
        hold(record, A, wide[:, : 2 * c + 1].T, out="F")


@kernels
def test_non_finite_values_of_the_matrix_propagate(record: KernelRecord) -> None:
    A = matrix("bsr", (64, 64), (16, 16), "float32")
    data = A.data.clone()
    data[0, 3, 4], data[1, 0, 0] = torch.nan, torch.inf
    A = sf.BSR(data, A.indices, A.indptr, A.shape)
    X = dense((64, 5))
    X[:, 2] = 0
    hold(record, A, X)
