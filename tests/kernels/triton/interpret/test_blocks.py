"""Conversions of blocks by interpreted kernels against the generic edges, with memory checked."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.convert import EDGES, Options
from sparseformats.dispatch import KernelRecord
from sparseformats.testing import certify_kernel
from sparseformats_kernels.triton.convert import RECORDS, blocks, numbering, slots
from tests.kernels.triton.interpret.test_conversions import NAME, OF_BLOCKS, check, registered
from tests.kernels.triton.matrices import matrix

RECORD = {record.op: record for record in RECORDS}
INTO_ELL, INTO_BSR, REBLOCK = (RECORD[op] for op in OF_BLOCKS)
SIZES = [
    *(((8, 8), (4, 4)), ((4, 4), (8, 8)), ((16, 16), (4, 8)), ((4, 8), (16, 16))),
    *(((6, 4), (3, 2)), ((3, 2), (6, 8)), ((1, 1), (4, 4)), ((4, 4), (1, 1))),
    *(((16, 64), (16, 32)), ((5, 8), (5, 2)), ((5, 2), (20, 2))),
]
DTYPES = ["bool", "int8", "float8_e4m3fn", "bfloat16", "float16", "float32", "int32"]
DTYPES += ["float64", "int64", "complex64"]


def blocked(
    shape: tuple[int, int], size: tuple[int, int], dtype: str = "float32", **options: Any
) -> sf.BSR:
    """Blocks, one row of them empty, one full; zeros of both signs and a NaN with a payload."""
    if dtype == "complex64":
        A = blocked(shape, size, "float32", **options)
        return sf.BSR(A.data.to(torch.complex64), A.indices, A.indptr, shape)
    wide = {"bool": "int32", "float8_e4m3fn": "float32"}.get(dtype, dtype)
    A = matrix("bsr", shape, size, wide, values="integers", **options)
    data = A.data.to(getattr(torch, dtype)).clone()
    small = data.view(-1)[:: max(1, data.numel() // 50)]
    small.copy_(torch.zeros_like(small))
    if dtype.startswith(("float", "bfloat")) and data.numel():
        width = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[data.itemsize]
        bits = data.view(width).view(-1)
        bits[bits == 0] = torch.iinfo(width).min  # -0.0
        bits[0] = 0x7F if data.itemsize == 1 else torch.iinfo(width).max - 5
        data.view(width).view(-1).mul_(_inside(A).view(-1).to(width))
    return sf.BSR(data, A.indices, A.indptr, shape, check=False)


def _inside(A: sf.BSR) -> Any:
    """Slots inside the shape."""
    return sf.BSR(A.data, A.indices, A.indptr, A.shape, stored="all").stored_mask()


def marked(A: sf.BSR, every: int = 3) -> sf.BSR:
    """The same with every third zero inside the shape stored."""
    stored, inside = A.stored_mask().clone(), _inside(A)
    extra = torch.arange(stored.numel()).view(stored.shape) % every == 0
    return sf.BSR(A.data, A.indices, A.indptr, A.shape, stored=stored | (extra & inside))


def everything(A: sf.BSR) -> sf.BSR:
    return sf.BSR(A.data, A.indices, A.indptr, A.shape, stored="all")


@pytest.mark.parametrize("record", [INTO_ELL, INTO_BSR, REBLOCK], ids=lambda record: record.op)
def test_against_the_oracle(record: KernelRecord) -> None:
    with registered(record) as checker:
        certificate = certify_kernel(NAME, op=record.op, library="torch", examples=50)
    assert checker.launches
    assert set(certificate.refusals) <= {"blocksize", "dtype", "size"}
    assert len({dtype for _, dtype in certificate.served}) >= 5


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_blocks_of_another_size(sizes: Any, index: str) -> None:
    size, into = sizes
    for number, dtype in enumerate(("bfloat16", "float32")):
        shape = (5 * max(size[0], into[0]) + number, 3 * max(size[1], into[1]) + 3 * number)
        A = blocked(shape, size, dtype, index=index, seed=number)
        some = (A, marked(A)) if number else (marked(A), everything(A), everything(full(A)))
        for source in some:
            check(REBLOCK, source, blocksize=into)


def full(A: sf.BSR) -> sf.BSR:
    """Every block that the shape has room for."""
    shape, (r, c) = A.shape, A.blocksize
    D = torch.ones(shape, dtype=A.data.dtype)
    D[::2, ::3] = 0
    return sf.from_dense(D, "bsr", blocksize=(r, c))


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("size", [1, 3, 16])
def test_slots(size: int, index: str) -> None:
    for number, dtype in enumerate(("bfloat16", "float32")):
        shape = (5 * size + number, 4 * size + 3 * number)
        A = blocked(shape, (size, size), dtype, index=index, seed=number)
        for source in (A, marked(A), everything(A), full(A), everything(full(A))):
            check(INTO_ELL, source)
            check(INTO_BSR, source.to("blocked_ell"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_of_values(dtype: str) -> None:
    A = blocked((37, 43), (8, 8), dtype)
    check(INTO_ELL, A)
    check(INTO_BSR, A.to("blocked_ell"))
    for into in ((4, 4), (16, 16)):
        check(REBLOCK, A, blocksize=into)


def test_wider_indices_that_are_asked_for() -> None:
    A = blocked((37, 43), (8, 8))
    check(INTO_ELL, A, index_dtype="int64")
    check(INTO_BSR, A.to("blocked_ell"), index_dtype="int64")
    for into in ((4, 4), (16, 16)):
        check(REBLOCK, A, blocksize=into, index_dtype="int64")
        check(REBLOCK, A.T.T, blocksize=into, index_dtype="int64")


def test_blocks_of_zeros() -> None:
    """Cutting leaves them out; joining, and moving to slots, keep them as they are."""
    data = torch.zeros(3, 4, 4)
    data[1, 3, 0], data[2, 0, 0] = -0.0, 2
    for stored in ("nonzero", "all"):
        A = sf.BSR(data, [0, 2, 1], [0, 2, 3], (8, 12), stored=stored)
        for into in ((2, 2), (8, 8), (4, 8)):
            check(REBLOCK, A, blocksize=into)
        check(INTO_ELL, A)
    A = sf.BSR(data, [0, 2, 1], [0, 2, 3], (8, 12))
    with registered(REBLOCK):
        assert (A.to("bsr", blocksize=2).nnzb, A.to("bsr", blocksize=8).nnzb) == (1, 2)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (40, 70)], ids=str)
def test_nothing_at_all(shape: tuple[int, int]) -> None:
    for stored in ("nonzero", "all"):
        rows = -(-shape[0] // 8)
        A = sf.BSR(torch.zeros(0, 8, 8), torch.zeros(0, dtype=torch.int32), [0] * (rows + 1),
                   shape, stored=stored)  # fmt: skip
        E = A.to("blocked_ell")
        for op, source, into in (
            (OF_BLOCKS[0], A, (8, 8)),
            (OF_BLOCKS[1], E, (8, 8)),
            (OF_BLOCKS[2], A, (4, 4)),
            (OF_BLOCKS[2], A, (16, 16)),
        ):
            same(op, source, into)
    empty = sf.BlockedELL(torch.zeros(rows, 3, 8, 8), torch.full((rows, 3), -1), shape)
    same(OF_BLOCKS[1], empty, (8, 8))


def same(op: str, source: Any, into: tuple[int, int]) -> None:
    """As `check`, where nothing need be launched."""
    options = Options(blocksize=into)
    expected = {edge.op: edge for edge in EDGES}[op].run(source, options)
    with registered(RECORD[op]), dispatch.use_kernel(NAME, op), sf.tracing() as trace:
        found = source.to(expected.format, blocksize=into)
    assert trace.kernels == [NAME]
    assert sf.same(expected, found, level="buffers")
    sf.validate(found)


def test_more_than_one_program_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    A = blocked((77, 51), (4, 4), "float16")
    for few, line in ((1, 16), (8, 64), (32, 2048)):
        monkeypatch.setattr(slots, "CHUNK", few)
        monkeypatch.setattr(slots, "COUNTED", few)
        monkeypatch.setattr(slots, "SLOTS", few)
        monkeypatch.setattr(slots, "LOOKING", few)
        monkeypatch.setattr(blocks, "LINE", line)
        monkeypatch.setattr(blocks, "ROWS", max(1, few // 8))
        monkeypatch.setattr(blocks, "FLAGGED", few)
        monkeypatch.setattr(blocks, "POINTED", few)
        monkeypatch.setattr(numbering, "SPANS", 3)
        check(INTO_ELL, A)
        check(INTO_BSR, A.to("blocked_ell"))
        for into in ((2, 1), (8, 16)):
            check(REBLOCK, marked(A), blocksize=into)


def test_sizes_that_divide_in_no_direction_are_left_to_the_generic_edge() -> None:
    A = blocked((96, 96), (48, 48))
    for source, into in ((A, 32), (A, 64), (A.to("bsr", blocksize=(32, 16)), (16, 32))):
        options = {"blocksize": into}
        forced = dispatch.use_kernel(NAME, REBLOCK.op)
        with registered(REBLOCK), forced, pytest.raises(sf.NoKernelError, match="a multiple of"):
            source.to("bsr", **options)
        with registered(REBLOCK) as checker:
            assert sf.same(source, source.to("bsr", **options))
        assert not checker.launches


def test_few_blocks_in_a_huge_shape_are_left_to_the_generic_edge() -> None:
    n = 10**6
    A = sf.COO([1.0], [0], [0], (n, n)).to_library("torch").to("bsr", blocksize=8)
    with registered(REBLOCK), dispatch.use_kernel(NAME, REBLOCK.op):
        with pytest.raises(sf.NoKernelError, match="places"):
            A.to("bsr", blocksize=16)
        assert A.to("bsr", blocksize=4).nnzb == 1


def test_full_rows_share_their_memory() -> None:
    A = full(blocked((32, 32), (8, 8)))
    with registered(INTO_ELL, INTO_BSR):
        E = A.to("blocked_ell")
        B = E.to("bsr")
    assert E.data.data_ptr() == A.data.data_ptr() == B.data.data_ptr()


WAITING = ("to_numpy", "item", "any", "max_int", "flatnonzero", "count_nonzero", "lexsort")


@pytest.mark.parametrize("kind", ["plain", "marked", "all"])
def test_one_wait_for_the_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the array library's primitives that wait, each conversion calls one, once."""
    A = blocked((37, 43), (8, 8))
    A = {"plain": A, "marked": marked(A), "all": everything(A)}[kind]
    E, lib, waits = A.to("blocked_ell"), type(A.lib), Counter[str]()
    for name in WAITING:
        whole = getattr(lib, name)

        def counted(self: Any, *args: Any, whole: Any = whole, name: str = name) -> Any:
            waits[name] += 1
            return whole(self, *args)

        monkeypatch.setattr(lib, name, counted)
    steps: list[tuple[str, Any, int]] = [("blocked_ell", A, 8), ("bsr", E, 8), ("bsr", A, 4)]
    steps += [("bsr", A, 16)] if kind != "all" else []
    for target, source, into in steps:
        with registered(INTO_ELL, INTO_BSR, REBLOCK), sf.tracing() as trace:
            waits.clear()
            source.to(target, blocksize=into)
            assert sum(waits.values()) == 1, (target, into, waits)
        assert trace.kernels == [NAME]
