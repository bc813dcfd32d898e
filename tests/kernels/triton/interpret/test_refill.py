"""Conversions into room and products of it, interpreted, with every access checked."""

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
from sparseformats.testing import assert_close, certify, certify_kernel
from sparseformats_kernels.triton.convert import refill
from sparseformats_kernels.triton.plans import RECORDS
from tests.kernels.triton.harness import DEVICE_RULES
from tests.kernels.triton.interpreter import Checker, checked
from tests.kernels.triton.matrices import dense

NAME = "refill-interpreted"
PRODUCT = next(record for record in RECORDS if record.op.endswith("matmul"))
records = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.op)
FORMATS = {"csr": {}, "bsr": {"blocksize": (16, 8)}, "blocked_ell": {"blocksize": 16}}
ROOM = {"csr": 2000, "bsr": 20, "blocked_ell": 3}  # enough for whatever these tests convert
formats = pytest.mark.parametrize("format", FORMATS)


@contextmanager
def registered(*chosen: KernelRecord) -> Iterator[Checker]:
    """The records without what they ask of the device; new memory holds what it must not."""
    here = [
        dataclasses.replace(
            record,
            name=NAME,
            checks=tuple(check for check in record.checks if check.code not in DEVICE_RULES),
        )
        for record in chosen or RECORDS
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
    dtypes = ["float16", "bfloat16", "float32"] if record is PRODUCT else None
    with registered(record) as checker:
        certificate = certify_kernel(
            NAME, op=record.op, library="torch", examples=30, dtypes=dtypes
        )
    assert checker.launches
    assert set(certificate.refusals) <= {"dtype"}
    assert len({dtype for _, dtype in certificate.served}) >= 2


def blocky(shape: tuple[int, int], dtype: str = "float32", seed: int = 0) -> Any:
    """A dense array of blocks with zeros of both signs and a NaN."""
    rng = np.random.default_rng(seed)
    grid = rng.random((shape[0] // 8 + 1, shape[1] // 8 + 1)) < 0.3
    mask = np.repeat(np.repeat(grid, 8, 0), 8, 1)
    values = rng.integers(-3, 4, mask.shape) * mask
    D = torch.from_numpy(values[: shape[0], : shape[1]].copy()).to(getattr(torch, dtype))
    D = torch.where(D == 0, -D.abs(), D)
    D[0, 0] = float("nan")
    return D


@formats
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_new_values_and_new_masks(format: str, masked: bool, dtype: str) -> None:
    shape, options = (37, 45), FORMATS[format]
    with registered() as checker:
        mask = torch.ones(shape, dtype=torch.bool) if masked else None
        plan = sf.plan_conversion(
            torch.ones(shape).to(getattr(torch, dtype)),
            format,
            capacity=ROOM[format],
            mask=mask,
            **options,
        )
        assert plan.kernel == NAME
        for seed in range(3):
            D = blocky(shape, dtype, seed)
            D = D.T.contiguous().T if seed == 1 else D
            if masked:
                mask = blocky(shape, seed=seed + 10) != 0
            assert plan(D, mask=mask) is plan
            expected = sf.from_dense(D, format, mask=mask, **options)
            found = plan.matrix()
            assert sf.same(found, expected, level="buffers")
            sf.validate(found)
            X = dense((45, 20), dtype, seed=seed)
            bound = certify._bound(PRODUCT, flush=False)
            assert_close(plan.product(X), found, X, **bound)
            assert_close(plan.product(X[:, 3]), found, X[:, 3], **bound)
    assert checker.launches


@formats
def test_what_was_handed_out_stays(format: str) -> None:
    with registered():
        plan = sf.plan_conversion(
            blocky((40, 40)), format, capacity=ROOM[format], **FORMATS[format]
        )
        before = plan.matrix()
        copy = sf.from_dense(blocky((40, 40)), format, **FORMATS[format])
        plan(torch.ones(40, 40))
        assert sf.same(before, copy, level="buffers")


@formats
@pytest.mark.parametrize("masked", [False, True])
def test_too_little_room(format: str, masked: bool) -> None:
    D = torch.ones(50, 40)
    mask = torch.ones(50, 40, dtype=torch.bool) if masked else None
    with registered():  # every access beyond the room is a fault
        plan = sf.plan_conversion(D, format, capacity=1, mask=mask, **FORMATS[format])
        assert bool(plan.overflowed)
        needed = {"csr": 2000, "bsr": 20, "blocked_ell": 3}[format]
        assert int(plan.count) == needed
        with pytest.raises(sf.CapacityError) as caught:
            plan.matrix()
        assert (caught.value.needed, caught.value.capacity) == (needed, 1)
        for columns in (1, 17, 140):
            out = torch.zeros(50, columns)
            assert plan.product(torch.ones(40, columns), out=out) is out
            assert out.isnan().all()
        plan(torch.zeros(50, 40), mask=None if mask is None else ~mask)
        assert not plan.overflowed
        assert plan.matrix().nnz == 0
        assert (plan.product(torch.ones(40, 3)) == 0).all()


@formats
def test_exactly_enough_room_and_one_less(format: str) -> None:
    D, X, options = blocky((37, 45)).nan_to_num(2.0), torch.ones(45, 2), FORMATS[format]
    expected = sf.from_dense(D, format, **options)
    needed = expected.width if format == "blocked_ell" else int(expected.data.shape[0])
    with registered():
        plan = sf.plan_conversion(D, format, capacity=needed, **options)
        assert int(plan.count) == needed
        assert not plan.overflowed
        assert sf.same(plan.matrix(), expected, level="buffers")
        assert torch.equal(plan.product(X), D @ X)
        plan = sf.plan_conversion(D, format, capacity=needed - 1, **options)
        assert int(plan.count) == needed
        assert plan.overflowed
        assert plan.product(X).isnan().all()
        assert sf.same(
            plan(D * 0).matrix(), sf.from_dense(D * 0, format, **options), level="buffers"
        )


@formats
@pytest.mark.parametrize("origin", ["dense", "csr"])
def test_what_fits_is_a_part_of_the_whole(format: str, origin: str) -> None:
    if origin == "csr" and format != "bsr":
        return
    D, options = blocky((37, 45)), FORMATS[format]
    source = D if origin == "dense" else sf.from_dense(D)
    whole = sf.from_dense(D, format, **options)
    needed = whole.width if format == "blocked_ell" else int(whole.data.shape[0])
    with registered():
        for kept in (1, needed // 2, needed - 1):
            buffers = sf.plan_conversion(source, format, capacity=kept, **options).buffers()
            if format == "blocked_ell":
                assert torch.equal(buffers["indices"], whole.col_indices[:, :kept])
                found, expected = buffers["data"], whole.data[:, :kept]
            else:
                assert torch.equal(buffers["indices"], whole.indices[:kept])
                assert torch.equal(buffers["indptr"], whole.indptr.clamp(max=kept))
                found, expected = buffers["data"], whole.data[:kept]
            assert torch.equal(found.nan_to_num(9.0), expected.nan_to_num(9.0))


def test_more_rows_and_columns_than_one_program_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refill, "LINES", 8)
    monkeypatch.setattr(refill, "TILE", (4, 16))
    monkeypatch.setattr(refill, "LINE", 128)
    monkeypatch.setattr(refill, "LOOK", 2)
    tall, wide = torch.zeros(70, 2), torch.zeros(2, 70)
    tall[::7, 1], wide[1, ::3] = 2, 3
    with registered():
        for D, block in ((tall, (1, 1)), (wide, (1, 1)), (tall, (1, 2)), (wide, (2, 1))):
            plan = sf.plan_conversion(D, "bsr", capacity=40, blocksize=block)
            expected = sf.from_dense(D, "bsr", blocksize=block)
            assert sf.same(plan.matrix(), expected, level="buffers")
            plan = sf.plan_conversion(D, "csr", capacity=40)
            assert sf.same(plan.matrix(), sf.from_dense(D), level="buffers")
        for D in (tall, wide):
            plan = sf.plan_conversion(D, "blocked_ell", capacity=35, blocksize=1)
            expected = sf.from_dense(D, "blocked_ell", blocksize=1)
            assert sf.same(plan.matrix(), expected, level="buffers")


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_stored_zeros_of_csr(index: Any) -> None:
    data = torch.tensor([0.0, -0.0, 1.0, 0.0, 2.0, 3.0, 4.0, 5.0])
    indices = torch.tensor([0, 5, 1, 6, 4, 5, 4, 5], dtype=index)
    A = sf.CSR(data, indices, torch.tensor([0, 2, 3, 4, 4, 6, 8], dtype=index), (6, 7))
    full = sf.from_dense(torch.zeros(4, 4), "csr", mask=torch.ones(4, 4, dtype=torch.bool))
    with registered():
        for B in (A, full):
            for block in ((2, 2), (3, 4), (1, 1)):
                plan = sf.plan_conversion(B, "bsr", capacity=16, blocksize=block)
                other = B.with_data(B.data + 9)  # no zeros, so that no mark may be left
                for source in (other, B, other):
                    expected = source.to("bsr", blocksize=block)
                    assert sf.same(plan(source).matrix(), expected, level="buffers")


def test_wide_indices() -> None:
    D = blocky((20, 30))
    X = torch.ones(30, 4)
    D[0, 0] = 1
    with registered():
        for format, options in FORMATS.items():
            plan = sf.plan_conversion(
                D, format, capacity=ROOM[format], index_dtype="int64", **options
            )
            expected = sf.from_dense(D, format, index_dtype="int64", **options)
            assert sf.same(plan.matrix(), expected, level="buffers")
            assert torch.equal(plan.product(X), D @ X)


@records
def test_nothing_at_all(record: KernelRecord) -> None:
    if record is PRODUCT:
        return
    source, _, target = record.op.removeprefix("plan_conversion:").partition("->")
    options = FORMATS[target]
    for shape in ((0, 5), (5, 0), (0, 0), (40, 70)):
        D = torch.zeros(shape)
        A = D if source == "dense" else sf.from_dense(D)
        with registered():
            plan = sf.plan_conversion(A, target, capacity=3, **options)
            found = plan(A).matrix()
            assert sf.same(found, sf.from_dense(D, target, **options), level="buffers")
            Y = plan.product(torch.ones(shape[1], 2))
            assert torch.equal(Y, torch.zeros(shape[0], 2))


@formats
def test_strides_of_operands(format: str) -> None:
    D = blocky((33, 41)).nan_to_num(2.0)
    wide = torch.full((41, 60), float("nan"))
    with registered():
        plan = sf.plan_conversion(D, format, capacity=ROOM[format], **FORMATS[format])
        for X in (wide[:, 3:20], wide[:, ::3], wide.T.contiguous().T[:, 5:22]):
            X.copy_(dense(tuple(X.shape), "float32", values="integers"))
            out = torch.full((X.shape[1], 33 + 5), float("nan")).T[2:35]
            assert torch.equal(plan.product(X, out=out), D @ X)
            whole = out._base if out._base is not None else out
            assert int(whole.isnan().sum()) == 5 * X.shape[1]


@formats
def test_values_that_torch_negates_when_they_are_read(format: str) -> None:
    """Such views lie like others, and their memory holds other numbers."""
    D, X = blocky((20, 30)).nan_to_num(2.0), torch.ones(30, 3)
    with registered():
        plan = sf.plan_conversion(D, format, capacity=ROOM[format], **FORMATS[format])
        for _ in range(2):
            expected = sf.from_dense(-D, format, **FORMATS[format])
            assert sf.same(plan(torch._neg_view(D)).matrix(), expected, level="buffers")
            assert torch.equal(plan.product(torch._neg_view(X)), D @ X)
            plan(D)
            assert torch.equal(plan.product(X), D @ X)


@formats
def test_another_out_is_looked_at_again(format: str) -> None:
    D, X = blocky((20, 30)), torch.ones(30, 3)
    with registered():
        plan = sf.plan_conversion(D, format, capacity=ROOM[format], **FORMATS[format])
        plan.product(X, out=torch.empty(20, 3))
        for out, text in (
            (torch.empty(21, 3), "out must have shape"),
            (torch.empty(20, 3).half(), "out must have dtype"),
            (torch.empty(20, 1).expand(20, 3), "share memory"),
        ):
            with pytest.raises(ValueError, match=text):
                plan.product(X, out=out)
        for own, text in (
            (plan.buffers()["data"], "the plan's buffers"),
            (X, "shares memory with X"),
        ):
            with pytest.raises(ValueError, match=text):
                plan.product(X, out=own.reshape(-1)[:60].view(20, 3))
