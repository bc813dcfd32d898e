"""Dense to 2:4 by the interpreted kernel: bit for bit what the array-API edge makes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import _arrays, dispatch
from sparseformats.convert.run import GENERIC
from sparseformats.testing import certify_kernel
from tests.kernels.triton.harness import registered
from tests.kernels.triton.kinds import PACK

OP = "convert:dense->n:m"
(RECORD,) = (r for r in dispatch.records(OP) if r.name == PACK)
DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]
DTYPES += ["bool", "float8_e4m3fn", "float8_e5m2"]
LIB = _arrays.library("torch")


def both(D: Any) -> tuple[Any, Any]:
    """What the kernel makes, and what the edge itself does."""
    with registered(RECORD) as (name, checker), dispatch.use_kernel(name, OP):
        with sf.tracing() as trace:
            made = sf.from_dense(D, "2:4")
        assert [(run.op, run.kernel) for run in trace] == [(OP, name)]
        assert checker.launches or not made.data.numel()
    with sf.tracing() as trace:
        plain = sf.from_dense(D, "2:4")
    assert {run.kernel for run in trace} == {GENERIC}
    return made, plain


def hold(D: Any) -> None:
    made, plain = both(D)
    assert made.problems() == []
    assert made.zeros is None
    assert made.side is None
    assert LIB.equal_bits(made.indices, plain.indices)
    assert LIB.equal_bits(made.data, plain.data)


def values(shape: tuple[int, int], dtype: str, seed: int = 0) -> Any:
    """At most two non-zeros a group: any bits, among zeros of both signs."""
    rng, (m, k) = np.random.default_rng(seed), shape
    size = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    rank = rng.random((m, -(-k // 4), 4)).argsort(axis=2).reshape(m, -(-k // 4) * 4)[:, :k]
    kept = (rank < 2) & (rng.random((m, k)) < 0.8)
    bits = rng.integers(0, 2 if dtype == "bool" else 256, (m, k, size), np.uint8)
    signs = np.zeros((m, k, size), np.uint8)
    if "float" in dtype:
        signs[..., -1] = 128 * (rng.random((m, k)) < 0.5)
    found = torch.from_numpy(np.where(kept[..., None], bits, signs).reshape(-1))
    return found.view(getattr(torch, dtype)).reshape(m, k)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_bit_for_bit(dtype: str) -> None:
    for shape in ((5, 64), (7, 33), (3, 5), (1, 1), (0, 8), (8, 0), (3, 1024), (700, 12)):
        hold(values(shape, dtype))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_every_layout(dtype: str) -> None:
    for k in (40, 41):
        wide = values((40, 96), dtype)
        hold(wide[::3, :k])
        hold(values((k, 12), dtype).contiguous()[:, :8])
        turned = values((9, k), dtype)
        hold(turned.T.contiguous().T)
        hold(torch.as_strided(wide, (9, k), (192, 1), 96 * 3 + 1) * 0)


def test_zeros_negative_zeros_and_nan_payloads() -> None:
    bits = torch.tensor([0x0000, -0x8000, 0x7E01, -0x0001], dtype=torch.int16)
    every = torch.tensor(list(itertools.product(range(4), repeat=4)))
    D = bits[every].reshape(-1, 4)
    D = D[(every >= 2).sum(dim=1) <= 2].view(torch.float16)
    hold(D)
    made, _ = both(D)
    assert int((LIB.bits(made.data) == -0x8000).sum()) == 0


def test_crowded_groups_are_placed_and_counted() -> None:
    for places, k in ((((2, 5), (2, 7), (6, 1)), 32), (((0, 0),), 30), (((6, 7),), 30)):
        D = torch.zeros(7, k)
        for i, j in places:
            D[i, 4 * j : 4 * j + 4] = 1
        if k % 4 and places[0][1] == 7:
            D[6, 28:], D[6, 24:28] = 1, torch.tensor([1.0, 2, 3, 0])
        with pytest.raises(sf.PatternError) as plain:
            sf.from_dense(D, "2:4")
        with (
            registered(RECORD) as (name, _),
            dispatch.use_kernel(name, OP),
            pytest.raises(sf.PatternError) as refused,
        ):
            sf.from_dense(D, "2:4")
        assert str(refused.value) == str(plain.value)


def test_certified() -> None:
    with registered(RECORD) as (name, _):
        certificate = certify_kernel(name, OP, library="torch", examples=80)
    assert certificate.served


def test_other_patterns_and_masks_go_another_way() -> None:
    D = torch.tensor([[1.0, 0, 0, 2]])
    with registered(RECORD) as (name, checker), sf.tracing() as trace:
        with dispatch.use_kernel(name, OP), pytest.raises(sf.NoKernelError, match="pattern"):
            sf.from_dense(D, "1:2")
        sf.from_dense(D, "2:4", mask=D != 3)
    assert not checker.launches
    assert name not in {run.kernel for run in trace}
