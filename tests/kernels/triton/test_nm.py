"""The 2:4 kernel's own source, run on NumPy with instructions as the PTX ISA documents them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats_kernels.triton import nm_instructions, nm_packing
from sparseformats_kernels.triton.configs import Config
from tests.kernels.triton import emulated, ptx
from tests.kernels.triton.groups import emulate, groups

BOTH = pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "expanded"])


def laid(shape: tuple[int, int], layout: str, dtype: Any, fill: float = float("nan")) -> Any:
    """A view of that layout into memory that holds `fill`."""
    rows, columns = shape
    if layout == "C":
        return torch.full((rows + 2, columns), fill, dtype=dtype)[:rows]
    if layout == "F":
        return torch.full((columns + 1, rows), fill, dtype=dtype)[:columns].T
    if layout == "vectors":  # columns begin at multiples of 16 elements
        return torch.full((columns, -(-rows // 16) * 16), fill, dtype=dtype)[:, :rows].T
    return torch.full((2 * rows, 3 * columns + 1), fill, dtype=dtype)[::2, 1::3]


def operand(shape: tuple[int, int], layout: str, dtype: Any = torch.float16) -> Any:
    X = laid(shape, layout, dtype)
    X.copy_(torch.from_numpy(np.random.default_rng(3).integers(-4, 5, shape)))
    return X


def hold(A: Any, X: Any, layout: str, config: Config, **call: Any) -> None:
    """Sums of small integers are exact."""
    out = laid((A.shape[0], int(X.shape[1])), layout, X.dtype)
    out.zero_() if call.get("beta") else None
    emulate(A, X, out, config, **call)
    expected = A.to_dense().double() @ X.double()
    assert torch.equal(out.double(), expected.to(X.dtype).double())


@BOTH
@pytest.mark.parametrize("layout", ["C", "F", "vectors", "strided"])
def test_every_layout(sparse: bool, layout: str) -> None:
    for (m, k), n, config in (
        ((16, 64), 8, Config(16, 8, 64, stages=2, warps=1)),
        ((37, 200), 13, Config(32, 16, 64, stages=3, warps=2)),
        ((65, 136), 1, Config(16, 8, 64, stages=2, warps=2)),
    ):
        hold(groups((m, k)), operand((k, n), layout), layout, config, sparse=sparse)


@BOTH
@pytest.mark.parametrize(("bm", "bn", "bk"), [(16, 32, 128), (64, 8, 64), (32, 64, 256)])
def test_every_shape_of_tile(sparse: bool, bm: int, bn: int, bk: int) -> None:
    A = groups((36, 331), seed=1)
    for warps, parts in ((4, 1), (2, 2)):
        config = Config(bm, bn, bk, parts, stages=2, warps=warps)
        hold(A, operand((331, 36), "C"), "C", config, sparse=sparse)


def test_bfloat16_and_epilogues() -> None:
    A, X = groups((20, 72), "bfloat16"), operand((72, 5), "vectors", torch.bfloat16)
    config = Config(32, 8, 64, stages=2, warps=2)
    hold(A, X, "F", config)
    bias, before = torch.arange(20).to(torch.bfloat16), torch.ones(20, 5, dtype=torch.bfloat16)
    for parts in (1, 2):
        out = before.clone()
        config = Config(32, 8, 64, parts, stages=2, warps=1)
        emulate(A, X, out, config, alpha=0.5, beta=2.0, bias=bias, activation="relu")
        expected = (0.5 * (A.to_dense().double() @ X.double()) + 2 + bias.double()[:, None]).relu()
        assert torch.equal(out, expected.to(torch.bfloat16))


@BOTH
def test_every_pair_of_positions_and_every_bit(sparse: bool) -> None:
    """One group a row: values of any bits land where the group's positions say."""
    pairs = list(itertools.combinations(range(4), 2))
    for group in range(16):
        data = torch.zeros(len(pairs), 16, 2, dtype=torch.float16)
        indices = torch.tensor([0, 1]).expand(len(pairs), 16, 2).clone()
        data[:, group] = torch.tensor([1.5, -3.25])
        indices[:, group] = torch.tensor(pairs)
        A = sf.NM(data, indices, (len(pairs), 64))
        out = torch.empty(len(pairs), 64, dtype=torch.float16)
        X = torch.eye(64, dtype=torch.float16)
        emulate(A, X, out, Config(16, 64, 64, stages=2, warps=1), sparse=sparse)
        assert torch.equal(out, A.to_dense())


@BOTH
@pytest.mark.parametrize("layout", ["C", "F", "vectors"])
def test_padding_never_meets_the_operand(sparse: bool, layout: str) -> None:
    """Around the operand lies NaN, and columns beyond its last row are padded."""
    X = operand((70 if layout != "vectors" else 72, 3), layout)
    hold(groups((5, int(X.shape[0]))), X, "C", Config(16, 8, 64, stages=2, warps=4), sparse=sparse)


def test_parts_of_other_programs_never_meet_the_operand() -> None:
    A = groups((4, 256))
    X = operand((256, 2), "vectors")
    X[200:] = torch.inf  # columns of the second part alone, where the matrix is zero
    D = A.to_dense()
    D[:, 200:] = 0
    A = sf.from_dense(D, "2:4")
    out = torch.empty(4, 2, dtype=torch.float16)
    emulate(A, X, out, Config(16, 8, 64, 2, stages=2, warps=1))
    assert torch.isnan(out).all()  # inside a group it is unspecified; here the kernel multiplies
    X[200:] = 0
    emulate(A, X, out, Config(16, 8, 64, 2, stages=2, warps=1))
    assert torch.isfinite(out).all()


@BOTH
def test_non_finite_values_stay_in_their_rows(sparse: bool) -> None:
    A = groups((33, 64))
    data = A.data.clone()
    data[7, 3, 0], data[20, 0, 1] = torch.nan, torch.inf
    A = sf.NM(data, A.indices, A.shape)
    X = operand((64, 4), "C").abs() + 1
    out = torch.empty(33, 4, dtype=torch.float16)
    emulate(A, X, out, Config(32, 8, 64, stages=2, warps=1), sparse=sparse)
    expected = A.to_dense().double() @ X.double()
    assert torch.equal(out.isnan(), expected.isnan())
    rest = torch.isfinite(expected)
    assert torch.equal(out[rest].double(), expected[rest])


def test_packed_size_is_nine_sixteenths() -> None:
    A = groups((128, 256))
    tiles = nm_packing.packed(A, True)
    assert tuple(tiles.shape) == (8, 4, 288)
    assert tiles.numel() * 4 * 16 == 9 * 128 * 256 * 2


@pytest.mark.parametrize("swapped", [(4, 6), (7, 5), (1, 5)])
def test_a_planted_order_is_rejected(
    swapped: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions in another order than the instruction expects."""
    turned = dict(zip(swapped, swapped[::-1], strict=True))
    order = tuple(turned.get(axis, axis) for axis in nm_packing._SPARSE_POSITIONS)
    A, X = groups((16, 128)), operand((128, 8), "C")
    config = Config(16, 8, 64, stages=2, warps=1)
    hold(A, X, "C", config)
    monkeypatch.setattr(nm_packing, "_SPARSE_POSITIONS", order)
    with pytest.raises(AssertionError):
        hold(A, X, "C", config)


def test_the_stand_in_notices_faults() -> None:
    buffer = np.zeros(4, np.float32)
    at = emulated.Pointer(buffer) + emulated.Tensor(np.arange(5))
    with pytest.raises(emulated.OutOfBounds, match="element 4 of a buffer of 4"):
        emulated.Language(0).load(at)
    text = nm_instructions.product("f16", 0, sparse=True)
    words = [np.zeros(32, np.uint32)] * 17
    with pytest.raises(AssertionError, match="do not ascend"):
        ptx.execute(text, 4, words)


def test_permuted_bytes_as_the_manual_says() -> None:
    a, b = np.full(32, 0x83020100, np.uint32), np.full(32, 0x07060504, np.uint32)
    made = ptx.execute("prmt.b32 $0, $1, $2, $3;", 1, [a, b, np.full(32, 0xB740, np.uint32)])
    assert (made[0] == 0xFF070400).all()  # bit 3 of a selector copies the sign of its byte
