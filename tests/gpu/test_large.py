"""More than 2**31 elements: in the result, and in the values of the matrix. Exact, or refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sparseformats as sf
from tests.gpu.kernels import block_kernels
from tests.kernels.triton.ordeal import Subject

BEYOND = 2**31
M, N, BLOCK = 2**16 + 64, 2**15 + 64, 64
EVERYWHERE = "triton-tiles"


def block_diagonal(device: str) -> Any:
    """(M, 64): one block a block row, all of ``block_row % 7``."""
    rows = M // BLOCK
    factor = (torch.arange(rows, device=device) % 7).to(torch.bfloat16)
    data = factor[:, None, None].expand(rows, BLOCK, BLOCK).contiguous()
    indices = torch.zeros(rows, dtype=torch.int32, device=device)
    starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
    return sf.BSR(data, indices, starts, (M, BLOCK))


def target(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory for a result with as much NaN before it, where an offset that wrapped would go."""
    memory = torch.full((BEYOND + M * N,), torch.nan, dtype=torch.bfloat16, device=device)
    return memory[:BEYOND], memory[BEYOND:]


def check(Y: torch.Tensor) -> None:
    """Y is (M, N) in any strides; element 2**31 of its memory lies within."""
    expected = 64.0 * (torch.arange(M // BLOCK, device=Y.device) % 7)
    crossing = BEYOND // N // BLOCK
    for number in (0, crossing, M // BLOCK - 1):
        rows = Y[number * BLOCK : (number + 1) * BLOCK]
        assert (rows == expected[number]).all(), f"block row {number}"
    low = torch.stack([Y[i : i + BLOCK].amin() for i in range(0, M, BLOCK)])
    high = torch.stack([Y[i : i + BLOCK].amax() for i in range(0, M, BLOCK)])
    assert torch.equal(low.float(), expected)
    assert torch.equal(high.float(), expected)


@pytest.fixture
def _room(device: str) -> Any:
    """Give memory back before and after: these tests take most of it."""
    if not device.startswith("cuda"):
        pytest.fail("these tests need the memory of a GPU")
    torch.cuda.empty_cache()
    yield
    torch.cuda.empty_cache()


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_results(block_kernel: str, columns: bool, device: str) -> None:
    """Row-major, and column-major as `X @ A` has it."""
    assert M * N > BEYOND
    A, subject = block_diagonal(device), Subject(block_kernel, device)
    X = torch.ones(BLOCK, N, dtype=torch.bfloat16, device=device)
    before, memory = target(device)
    out = memory.view(N, M).T if columns else memory.view(M, N)
    Y = subject.matmul(A, X.T.contiguous().T if columns else X, out=out, assume_finite=True)
    if Y is None:
        assert block_kernel != EVERYWHERE
        assert before[-1].isnan()
        assert memory[0].isnan()  # refused before any launch
        return
    check(out)
    assert all(part.isnan().all() for part in before.split(2**28))


@pytest.mark.usefixtures("_room")
def test_values(block_kernel: str, device: str) -> None:
    """A row of blocks of more than 2**31 values, of which the first and the last block count."""
    size, subject = 512, Subject(block_kernel, device)
    count = BEYOND // size**2 + 8
    data = torch.zeros(count, size, size, dtype=torch.bfloat16, device=device)
    data[0], data[-1], data[BEYOND // size**2] = 1, 2, 4
    indices = torch.arange(count, dtype=torch.int32, device=device)
    starts = torch.tensor([0, count], dtype=torch.int32, device=device)
    A = sf.BSR(data, indices, starts, (size, size * count), copy=False, check=False)
    X = torch.ones(size * count, 8, dtype=torch.bfloat16, device=device)
    Y = subject.matmul(A, X)
    if Y is None:
        assert block_kernel != EVERYWHERE
        return
    assert torch.equal(Y, torch.full_like(Y, 7 * size))


@pytest.mark.usefixtures("_room")
def test_a_kernel_is_chosen_that_can(device: str) -> None:
    """Without a name: no error, no garbage."""
    A = block_diagonal(device)
    X = torch.ones(BLOCK, N, dtype=torch.bfloat16, device=device)
    with sf.tracing() as trace:
        Y = A @ X
    check(Y)
    assert set(trace.kernels) <= {*block_kernels(device)}
