"""Conversions by interpreted kernels against the generic edges, with memory checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.dispatch import KernelRecord
from sparseformats.testing import certify_kernel
from sparseformats_kernels.triton.convert import RECORDS
from tests.kernels.triton.interpreter import Checker, checked

NAME = "moves-interpreted"
OF_BLOCKS = ("convert:bsr->blocked_ell", "convert:blocked_ell->bsr", "convert:bsr->bsr")
# Others: see test_pack, and test_blocks for what begins and ends with blocks.
MOVES = [
    record for record in RECORDS if record.name == "triton-moves" and record.op not in OF_BLOCKS
]
records = pytest.mark.parametrize("record", MOVES, ids=lambda record: record.op)


@contextmanager
def registered(*chosen: KernelRecord) -> Iterator[Checker]:
    """The records without what they ask of the device; new memory holds what it must not."""
    here = [
        dataclasses.replace(
            record,
            name=NAME,
            checks=tuple(check for check in record.checks if check.code != "device"),
        )
        for record in chosen
    ]
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # which fills what torch.empty gives
    try:
        with dispatch.temporary(*here), checked() as checker:
            yield checker
    finally:
        torch.use_deterministic_algorithms(before)


@records
def test_against_the_oracle(record: KernelRecord) -> None:
    with registered(record) as checker:
        certificate = certify_kernel(NAME, op=record.op, library="torch", examples=60)
    assert checker.launches
    assert set(certificate.refusals) <= {"blocksize", "dtype", "size"}
    assert len({dtype for _, dtype in certificate.served}) >= 5


def drawn(shape: tuple[int, int], block: tuple[int, int], dtype: str, seed: int = 0) -> Any:
    """A dense array of blocks, some of them full, some sparse, with zeros of both signs."""
    rng = np.random.default_rng(seed)
    grid = -(-shape[0] // block[0]), -(-shape[1] // block[1])
    mask = np.repeat(np.repeat(rng.random(grid) < 0.3, block[0], 0), block[1], 1)
    values = rng.integers(-3, 4, mask.shape) * mask
    D = torch.from_numpy(values[: shape[0], : shape[1]].copy()).to(getattr(torch, dtype))
    if dtype.startswith(("float", "bfloat", "complex")):
        D = torch.where(D == 0, -D.abs(), D)  # zeros of the other sign
        D[0, 0] = float("nan")
    return D


def source_of(record: KernelRecord, D: Any, block: tuple[int, int]) -> Any:
    """A dense array as the format that a record takes."""
    format = record.op.removeprefix("convert:").partition("->")[0]
    if format == "dense":
        return D
    return sf.from_dense(D, format, **({"blocksize": block} if format == "bsr" else {}))


def check(record: KernelRecord, source: Any, **options: Any) -> None:
    """A step by the record and by the generic edge gives the same buffers."""
    target = record.op.partition("->")[2]

    def made() -> Any:
        if target == "dense":
            return source.to_dense()
        if isinstance(source, torch.Tensor):
            return sf.from_dense(source, target, **options)
        return source.to(target, **options)

    expected = made()
    with registered(record) as checker, dispatch.use_kernel(NAME, record.op), sf.tracing() as trace:
        found = made()
    assert {run.kernel for run in trace if run.op == record.op} == {NAME}
    assert checker.launches
    if target == "dense":
        bits = torch.int16 if expected.itemsize == 2 else torch.int32
        assert torch.equal(expected.view(bits), found.view(bits))
        return
    assert sf.same(expected, found, level="buffers")
    sf.validate(found)


BLOCKS = [(16, 16), (64, 64), (128, 32), (3, 8), (1, 1), (100, 16)]


# What lists are made of knows no blocks: a few shapes say it all.
SHAPES = [
    pytest.param(record, block, id=f"{record.op}-{block}")
    for record in MOVES
    for block in (BLOCKS if "bsr" in record.op else BLOCKS[:1] + BLOCKS[3:5])
]


@pytest.mark.parametrize(("record", "block"), SHAPES)
def test_shapes_that_are_no_multiples(record: KernelRecord, block: tuple[int, int]) -> None:
    for number, dtype in enumerate(("bfloat16", "float32")):
        shape = (2 * block[0] + 5, 5 * block[1] + 3)
        D = drawn(shape, block, dtype, seed=number)
        D = D.T.contiguous().T if number else D
        options = {"blocksize": block} if record.op.endswith("bsr") else {}
        check(record, source_of(record, D, block), **options)


LISTS = [record for record in MOVES if "bsr" not in record.op]


@pytest.mark.parametrize("record", LISTS, ids=lambda record: record.op)
@pytest.mark.parametrize("shape", [(19, 1100), (270, 30), (1, 1)], ids=str)
def test_more_than_one_program_looks_at(record: KernelRecord, shape: tuple[int, int]) -> None:
    """Several pieces of a row, several chunks of rows, rows longer than are placed at a time."""
    rng = np.random.default_rng(5)
    D = torch.from_numpy(rng.integers(-1, 2, shape)).to(torch.float16)
    D[:, shape[1] // 2 :] *= torch.from_numpy(rng.random((shape[0], 1)) < 0.3)
    D[0, 0] = 1
    check(record, source_of(record, D, (1, 1)))
    check(record, source_of(record, torch.where(D == 0, 1, D), (1, 1)))


@pytest.mark.parametrize("record", LISTS, ids=lambda record: record.op)
def test_the_order_of_elements_does_not_depend_on_the_chunk(
    record: KernelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparseformats_kernels.triton.convert import lists, numbering

    D = drawn((75, 61), (5, 4), "float32", seed=3)
    source = source_of(record, D, (1, 1))
    for placed, line, stack in ((1, 512, 2), (4, 1024, 16), (64, 4096, 64)):
        monkeypatch.setattr(lists, "PLACED", placed)
        monkeypatch.setattr(lists, "MARKED", 16 * placed)
        monkeypatch.setattr(lists, "BUSY", 1)
        monkeypatch.setattr(lists, "LINE", line)
        monkeypatch.setattr(lists, "STACK", stack)
        monkeypatch.setattr(numbering, "CHUNK", stack)
        monkeypatch.setattr(numbering, "SUMMING", {"E": stack})
        monkeypatch.setattr(numbering, "SPANS", stack)
        check(record, source)


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_lists_keep_stored_zeros(index: Any) -> None:
    there, back = (r for r in LISTS if not r.op.startswith("convert:dense"))
    check(there, stored_zeros(index))
    check(back, stored_zeros(index).to("csc"))


def test_few_elements_in_a_wide_shape_are_left_to_the_generic_edge() -> None:
    record = next(r for r in LISTS if r.op == "convert:csr->csc")
    A = sf.COO([1.0], [0], [4_999_999], (3, 5_000_000)).to_library("torch").to("csr")
    forced = dispatch.use_kernel(NAME, record.op)
    with registered(record), forced, pytest.raises(sf.NoKernelError, match="32 rows each"):
        A.to("csc")
    with registered(record) as checker:
        assert A.to("csc").nnz == 1
    assert not checker.launches


def test_every_row_of_a_chunk_has_its_bit() -> None:
    """Columns of 1 to 70 elements, in the first rows, in the last ones and in every third."""
    values = 1.0 + torch.arange(70)
    D = torch.zeros(70, 210)
    for count in range(1, 71):
        D[:count, 3 * count - 3] = values[:count]
        D[70 - count :, 3 * count - 2] = values[70 - count :]
        D[::3, 3 * count - 1] = values[::3]
    for record in (r for r in LISTS if not r.op.startswith("convert:dense")):
        check(record, source_of(record, D, (1, 1)))


def stored_zeros(index: Any = torch.int32) -> sf.CSR:
    """Stored zeros of both signs: in a block of their own, beside others, and in full blocks."""
    data = torch.tensor([0.0, -0.0, 1.0, 0.0, 2.0, 3.0, 4.0, 5.0])
    indices = torch.tensor([0, 5, 1, 6, 4, 5, 4, 5], dtype=index)
    return sf.CSR(data, indices, torch.tensor([0, 2, 3, 4, 4, 6, 8], dtype=index), (6, 7))


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_stored_zeros_and_marks(index: Any) -> None:
    to_bsr, to_csr, to_dense = (
        next(r for r in MOVES if r.op == f"convert:{op}")
        for op in ("csr->bsr", "bsr->csr", "bsr->dense")
    )
    C = stored_zeros(index)
    for block in ((2, 2), (3, 4), (1, 1)):
        check(to_bsr, C, blocksize=block)
        A = C.to("bsr", blocksize=block)
        check(to_csr, A)
        check(to_dense, A)
    full = sf.BSR(
        torch.tensor([[[0.0, -0.0], [1.0, 0.0]]]),
        torch.tensor([1]),
        [0, 0, 1],
        (4, 3),
        stored="all",
    )
    check(to_csr, full)
    check(to_dense, full)
    check(to_bsr, full.to("csr"), blocksize=(2, 2))


@records
def test_complex_zeros_of_every_sign(record: KernelRecord) -> None:
    signed = [0.0, -0.0, 1.0, -1.0]
    values = torch.tensor([complex(a, b) for a in signed for b in signed], dtype=torch.complex64)
    D = torch.zeros(24, 32, dtype=torch.complex64)
    D[:16:2, :16] = values.roll(3)
    D[16:20, 16:20] = values[:2].repeat(8).view(4, 4)  # a block of zeros alone
    options = {"blocksize": (4, 4)} if record.op.endswith("bsr") else {}
    if not record.op.endswith("dense"):
        for source in (D, D.T.contiguous().T):
            check(record, source_of(record, source, (4, 4)), **options)
        return
    A = source_of(record, D, (4, 4))
    expected = torch.view_as_real(A.to_dense()).view(torch.int32)
    with registered(record) as checker, dispatch.use_kernel(NAME, record.op):
        assert torch.equal(torch.view_as_real(A.to_dense()).view(torch.int32), expected)
    assert checker.launches


@records
def test_nothing_at_all(record: KernelRecord) -> None:
    for shape in ((0, 5), (5, 0), (0, 0), (40, 70)):
        D = torch.zeros(shape)
        source = source_of(record, D, (16, 16))
        format = record.op.partition("->")[2]
        options = {"blocksize": (16, 16)} if format == "bsr" else {}
        with registered(record), dispatch.use_kernel(NAME, record.op):
            if record.op.endswith("dense"):
                assert torch.equal(source.to_dense(), D)
            elif isinstance(source, torch.Tensor):
                found = sf.from_dense(source, format, **options)
                kind = sf.BSR if format == "bsr" else sf.CSR
                assert sf.same(found, kind(found.data, found.indices, found.indptr, shape))
            else:
                found = source.to(format, **options)
                assert found.nnz == 0
                sf.validate(found)


def test_few_elements_in_a_huge_shape_are_left_to_the_generic_edge() -> None:
    (record,) = (r for r in MOVES if r.op == "convert:csr->bsr")
    A = sf.COO([1.0], [0], [0], (10**6, 10**6)).to_library("torch").to("csr")
    forced = dispatch.use_kernel(NAME, record.op)
    with registered(record), forced, pytest.raises(sf.NoKernelError, match="places"):
        A.to("bsr", blocksize=(16, 16))
    with registered(record) as checker:
        assert A.to("bsr", blocksize=(16, 16)).nnz == 1
    assert not checker.launches
