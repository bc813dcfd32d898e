"""Products by interpreted kernels against the oracle, element by element, with memory checked."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.dispatch import KernelRecord
from sparseformats_kernels.triton import configs
from tests.kernels.triton.harness import (
    check,
    interpretable,
    on_the_cpu,
    registered,
    supports,
)
from tests.kernels.triton.kinds import EVERYWHERE, GLUON, GROUPS, NARROW, ROWS
from tests.kernels.triton.matrices import FORMATS, dense, matrix
from tests.kernels.triton.ordeal import codes_of

KERNELS = interpretable()
BLOCKS = [
    *((16, 16), (32, 32), (64, 64), (128, 128), (256, 256)),
    *((48, 48), (24, 24), (3, 5), (16, 64), (64, 16), (1, 1)),
]
COLUMNS = (1, 33, 70, 257)  # multiples of nothing
HALVES = ("float16", "bfloat16")
MAY_REFUSE = {"blocksize", "dtype", "layout", "divisibility", "size", "precision", "epilogue"}

kernels = pytest.mark.parametrize("record", KERNELS, ids=lambda record: record.name)


def hold(record: KernelRecord, A: Any, X: Any, **call: Any) -> bool:
    """Check a product; a kernel that does not take every call may refuse with its reasons."""
    try:
        check(record, A, X, **call)
    except sf.NoKernelError as error:
        refusal = error
    else:
        return True
    assert set(codes_of(refusal, on_the_cpu(record).name)) <= MAY_REFUSE, refusal
    assert record.name != EVERYWHERE, refusal
    return False


def ragged(size: int, blocks: int) -> int:
    """An extent of so many blocks of which the last is not whole, if a block can be less."""
    return size * (blocks - 1) + -(-size // 3)


@kernels
@pytest.mark.parametrize("number", range(len(BLOCKS)), ids=lambda i: "{}x{}".format(*BLOCKS[i]))
def test_every_block_size(record: KernelRecord, number: int) -> None:
    (r, c), served = BLOCKS[number], 0
    for turn, format in enumerate(FORMATS):
        size = (r, c) if format.startswith("bsr") else (r, r)
        few = max(size) > 128  # blocks so large that the reference takes its time
        shape = (ragged(size[0], 2 if few else 3), ragged(size[1], 2 if few else 4))
        dtype = ("float16", "float32", "bfloat16")[(number + turn) % 3]
        A = matrix(format, shape if "T" not in format else shape[::-1], size, dtype, seed=number)
        X = dense((A.shape[1], COLUMNS[(number + turn) % 4]), dtype)
        served += hold(record, A, X, out=("C", None, "guarded", "F")[turn])
    assert served == len(FORMATS) or record.name != EVERYWHERE


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("size", [32, 64, 128])
def test_high_blocks_times_a_few_columns(
    size: int, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many rows that tiles are 32 or 64 of them high, the last one not full."""
    record = next(record for record in KERNELS if record.name == "triton-few")
    shape = (ragged(size, 9 * 64 // size), ragged(size, 3))
    A = matrix(format, shape, (size, size), "float16", seed=7)
    chosen, rule = [], configs.few

    def remembered(*facts: Any) -> configs.Config:
        chosen.append(rule(*facts))
        return chosen[-1]

    monkeypatch.setitem(configs.RULES, "triton-few", remembered)
    for n in (12, 40):
        assert hold(record, A, dense((A.shape[1], n), "float16", seed=n))
    assert {config.BM for config in chosen} == ({16, 32} if size == 32 else {64})


@kernels
def test_some_block_size_is_served(record: KernelRecord) -> None:
    A = matrix("bsr", (256, 256), (64, 64), "float16")
    assert hold(record, A, dense((256, 64), "float16"))


@kernels
@pytest.mark.parametrize("format", FORMATS)
def test_sixteen_and_odd_multiples_of_it(record: KernelRecord, format: str) -> None:
    """Blocks of 16 with K of 16, 48 and 80: sums of small integers are exact."""
    served = 0
    for k, n, dtype in itertools.product((16, 48, 80), (33, 16), ("float32", "float16")):
        A = matrix(format, (32, k), (16, 16), dtype, density=0.7, values="integers", seed=k)
        X = dense((k, n), dtype, values="integers")
        if hold(record, A, X):
            with registered(record) as (name, _):
                Y = sf.matmul(A, X, kernel=name)
            expected = A.to_dense().to(torch.float64) @ X.to(torch.float64)
            assert torch.equal(Y.to(torch.float64), expected)
            served += 1
    assert served == 12 or record.name != EVERYWHERE


@kernels
@pytest.mark.parametrize("layout", ["C", "F", "rows", "columns", "offset", "guarded", "broadcast"])
def test_every_layout_of_operand_and_out(record: KernelRecord, layout: str) -> None:
    from sparseformats.testing import laid_out

    for block, dtype in (((64, 64), "float16"), ((16, 16), "float32")):
        A = matrix("bsr", (100, 150), block, dtype)
        host = dense((150, 37), dtype, library="numpy")
        X = laid_out(host, layout, A.lib)
        out = "C" if layout == "broadcast" else layout
        hold(record, A, X, out=out)
        hold(record, A, X, out=out, alpha=-2, beta=3)
        left = laid_out(dense((37, 100), dtype, library="numpy"), layout, A.lib)
        hold(record, A, left, left=True, out=out)
        hold(record, A, left, left=True, out=out, alpha=0.5, beta=-1)


@kernels
def test_vectors_batches_and_nothing(record: KernelRecord) -> None:
    A = matrix("bsr", (70, 90), (32, 32), "float16")
    for shape in ((90,), (90, 0), (2, 90, 5), (0, 90, 3)):
        hold(record, A, dense(shape, "float16"))
    for m, k in ((0, 40), (40, 0), (0, 0)):
        hold(record, matrix("bsr", (m, k), (32, 32), "float16"), dense((k, 5), "float16"))


@kernels
@pytest.mark.parametrize("format", ["bsr", "blocked_ell"])
def test_a_matrix_without_blocks(record: KernelRecord, format: str) -> None:
    A = sf.from_dense(torch.zeros(96, 64), format, blocksize=32 if "ell" in format else (32, 32))
    for out, beta in ((None, 0), ("rows", 0), ("F", 2)):
        hold(record, A, dense((64, 33)), out=out, beta=beta)


@kernels
@pytest.mark.parametrize("format", ["bsr", "bsr.T"])
def test_uneven_rows(record: KernelRecord, format: str) -> None:
    """One row with every block among rows of one and of none: work lists and split rows."""
    mask = np.zeros((24, 40), np.bool_)
    mask[5], mask[::3, 7] = True, True
    dense_values = np.random.default_rng(2).standard_normal((24, 16, 40, 16))
    D = (dense_values * mask[:, None, :, None]).reshape(384, 640).astype(np.float16)
    A = sf.from_dense(torch.from_numpy(D), "bsr", blocksize=(16, 16))
    A = A.T if format == "bsr.T" else A
    hold(record, A, dense((A.shape[1], 20), "float16"), out="C")


@kernels
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_both_index_widths(record: KernelRecord, index: str) -> None:
    for format in FORMATS:
        A = matrix(format, (100, 130), (32, 32), "float16", index=index)
        hold(record, A, dense((A.shape[1], 16), "float16"))


@kernels
def test_empty_slots_between_used_ones_hold_nothing(record: KernelRecord) -> None:
    """What lies in a slot marked -1 never counts, wherever the slot is."""
    slots = torch.tensor([[1, -1, 0], [-1, -1, -1], [-1, 2, -1]])
    values = torch.full((3, 3, 16, 16), 2.0)
    values[0, 1], values[1], values[2, 0], values[2, 2] = torch.nan, torch.inf, 50, torch.nan
    A = sf.BlockedELL(values, slots, (48, 48))
    X = torch.ones(48, 5)
    check(record, A, X) if record.name == EVERYWHERE else hold(record, A, X)


@kernels
def test_tf32_on_request(record: KernelRecord) -> None:
    if not supports(record, "precision", "tf32"):
        assert record.name != EVERYWHERE
        return
    A, X = matrix("bsr", (96, 128), (32, 32)), dense((128, 20))
    hold(record, A, X, precision="tf32", bound={"extra": 2.0**-10})
    hold(record, A, X)  # float32 is IEEE's unless asked otherwise


@kernels
def test_what_cannot_be_served_is_refused(record: KernelRecord) -> None:
    for dtype in ("float64", "complex64", "int8"):
        with registered(record) as (name, checker), pytest.raises(sf.NoKernelError, match="dtype"):
            sf.matmul(matrix("bsr", (32, 32), dtype=dtype), dense((32, 4), dtype), kernel=name)
        assert not checker.launches


def test_every_kernel_of_the_backend_that_can_be_interpreted_is_here() -> None:
    here = {r.name for r in dispatch.records("matmul") if r.name.startswith("triton")}
    apart = {GROUPS, ROWS, *NARROW}  # which have tests of their own
    assert {record.name for record in KERNELS} == here - GLUON - apart
    assert EVERYWHERE in here
    assert GLUON & here
