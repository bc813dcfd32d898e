"""Parts of long rows add up to the rows, under any epilogue, and nothing else is written."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sparseformats_kernels.triton.combining import combine
from tests.kernels.triton.interpreter import checked

BM, BN = 16, 32


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("columns_contiguous", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_parts_add_up(
    activation: str | None, scaled: bool, columns_contiguous: bool, dtype: Any
) -> None:
    torch.manual_seed(0)
    m, n, columns = 4 * BM - 5, 2 * BN - 7, 2
    split = torch.tensor([[1, 0, 3], [3, 3, 2]], dtype=torch.int32)
    partial = torch.randn(5 * columns, BM, BN)
    shape = (n, m) if columns_contiguous else (m, n)
    out = torch.randn(shape).to(dtype)
    out = out.T if columns_contiguous else out
    before, bias = out.clone(), torch.randn(m).to(dtype)
    with checked():
        combine[(2 * columns * BM // 4,)](
            *(partial, split, out, *out.stride(), bias, 3.0, 0.5, m, n, columns),
            BM=BM, BN=BN, ROWS=4, ALPHA=scaled, BETA=scaled, BIAS=scaled, ACTIVATION=activation,
        )  # fmt: skip
    expected = before.clone()
    for row, first, count in split.tolist():
        tiles = partial.view(5, columns, BM, BN)[first : first + count].sum(0)
        sums = torch.cat(list(tiles), dim=1)
        rows = slice(row * BM, min((row + 1) * BM, m))
        found = sums[: rows.stop - rows.start, :n]
        if scaled:
            found = 3.0 * found + 0.5 * before[rows].float() + bias[rows].float()[:, None]
        if activation:
            found = getattr(torch.nn.functional, activation)(found)
        expected[rows] = found.to(dtype)
    tolerance = 2e-3 if dtype is torch.float16 else 1e-5
    assert torch.allclose(out.float(), expected.float(), rtol=tolerance, atol=tolerance)
    untouched = [i for i in range(m) if i // BM not in (1, 3)]
    assert torch.equal(out[untouched], before[untouched])
