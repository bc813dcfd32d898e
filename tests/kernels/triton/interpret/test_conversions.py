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
records = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.op)


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


@records
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_shapes_that_are_no_multiples(record: KernelRecord, block: tuple[int, int]) -> None:
    for number, dtype in enumerate(("bfloat16", "float32")):
        shape = (2 * block[0] + 5, 5 * block[1] + 3)
        D = drawn(shape, block, dtype, seed=number)
        source: Any = D.T.contiguous().T if number else D
        options = {"blocksize": block} if record.op.endswith("bsr") else {}
        if not record.op.startswith("convert:dense"):
            A = sf.from_dense(D, "bsr", blocksize=block)
            source = A.to("csr") if record.op.startswith("convert:csr") else A
        check(record, source, **options)


def stored_zeros(index: Any = torch.int32) -> sf.CSR:
    """Stored zeros of both signs: in a block of their own, beside others, and in full blocks."""
    data = torch.tensor([0.0, -0.0, 1.0, 0.0, 2.0, 3.0, 4.0, 5.0])
    indices = torch.tensor([0, 5, 1, 6, 4, 5, 4, 5], dtype=index)
    return sf.CSR(data, indices, torch.tensor([0, 2, 3, 4, 4, 6, 8], dtype=index), (6, 7))


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_stored_zeros_and_marks(index: Any) -> None:
    to_bsr, to_csr, to_dense = (
        next(r for r in RECORDS if r.op == f"convert:{op}")
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
def test_nothing_at_all(record: KernelRecord) -> None:
    for shape in ((0, 5), (5, 0), (0, 0), (40, 70)):
        D = torch.zeros(shape)
        source: Any = D
        if not record.op.startswith("convert:dense"):
            source = sf.from_dense(D, "bsr", blocksize=(16, 16))
            source = source.to("csr") if record.op.startswith("convert:csr") else source
        options = {"blocksize": (16, 16)} if record.op.endswith("bsr") else {}
        with registered(record), dispatch.use_kernel(NAME, record.op):
            if record.op.endswith("dense"):
                assert torch.equal(source.to_dense(), D)
            elif isinstance(source, torch.Tensor):
                found = sf.from_dense(source, "bsr", **options)
                assert sf.same(found, sf.BSR(found.data, found.indices, found.indptr, shape))
            else:
                found = source.to(record.op.partition("->")[2], **options)
                assert found.nnz == 0
                sf.validate(found)


def test_few_elements_in_a_huge_shape_are_left_to_the_generic_edge() -> None:
    (record,) = (r for r in RECORDS if r.op == "convert:csr->bsr")
    A = sf.COO([1.0], [0], [0], (10**6, 10**6)).to_library("torch").to("csr")
    forced = dispatch.use_kernel(NAME, record.op)
    with registered(record), forced, pytest.raises(sf.NoKernelError, match="places"):
        A.to("bsr", blocksize=(16, 16))
    with registered(record) as checker:
        assert A.to("bsr", blocksize=(16, 16)).nnz == 1
    assert not checker.launches
