"""The checker of memory finds each kind of wrong access, and finds nothing in a right kernel."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.triton.interpreter import MemoryFault, checked


@triton.jit
def copy(x, y, n, step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at * step, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def copy_without_mask(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at), mask=at < n)


@triton.jit
def sum_rows(x, indptr, y):
    """Loaded bounds of a loop, which Triton 3.6 cannot interpret unaided under NumPy 2.4."""
    row = tl.program_id(0)
    total = 0.0
    for i in range(tl.load(indptr + row), tl.load(indptr + row + 1)):
        total += tl.load(x + i)
    tl.store(y + row, total)


@triton.jit
def scan(y, n):
    i = tl.program_id(0)
    tl.store(y + i, tl.load(y + i - 1, mask=i > 0, other=0.0) + 1.0)


@triton.jit
def count(y):
    tl.atomic_add(y, 1)


@triton.jit
def wide(x, y, stride):
    row = tl.program_id(0).to(tl.int64) * stride
    tl.store(y + row, tl.load(x + row))


def test_a_right_kernel_passes() -> None:
    x, y = torch.arange(70.0), torch.full((70,), torch.nan)
    with checked() as checker:
        copy[(5,)](x, y, 70, 1, BLOCK=16)
    assert torch.equal(x, y)
    (launch,) = checker.launches
    assert (launch.name, launch.accesses) == ("copy", 140)


def test_loaded_bounds_of_a_loop() -> None:
    x, y = torch.arange(10.0), torch.empty(3)
    with checked():
        sum_rows[(3,)](x, torch.tensor([0, 4, 4, 10]), y)
    assert y.tolist() == [6, 0, 39]


def test_a_read_behind_an_array_is_found_though_it_is_not_used() -> None:
    memory = torch.arange(100.0)
    with checked(), pytest.raises(MemoryFault, match=r"reads outside.* 0 bytes behind argument 0"):
        copy_without_mask[(1,)](memory[:15], torch.empty(16), 15, BLOCK=16)


def test_a_write_behind_an_array_is_found() -> None:
    memory = torch.zeros(100)
    with checked(), pytest.raises(MemoryFault, match=r"program \(1, 0, 0\), writes outside"):
        copy[(2,)](torch.ones(20), memory[:18], 20, 1, BLOCK=16)
    assert memory[18:].sum() == 0


def test_two_programs_that_write_one_element_are_found() -> None:
    with checked(), pytest.raises(MemoryFault, match=r"programs \[0, 1\] write one element"):
        copy[(2,)](torch.ones(32), torch.ones(1), 32, 0, BLOCK=16)


def test_a_program_that_reads_what_another_writes_is_found() -> None:
    with checked(), pytest.raises(MemoryFault, match="program 1 reads what program 0 writes"):
        scan[(4,)](torch.zeros(4), 4)


def test_atomic_sums_may_meet() -> None:
    y = torch.zeros(1, dtype=torch.int32)
    with checked():
        count[(4,)](y)
    assert y.item() == 4


def test_what_lies_between_the_elements_of_a_view_is_inside_it() -> None:
    memory = torch.zeros(20)
    with checked():
        wide[(4,)](memory[::5], memory[1::5], 5)


def test_other_errors_of_a_kernel_stay_what_they_are() -> None:
    with checked(), pytest.raises(Exception, match="object has no attribute") as caught:
        copy[(1,)](torch.zeros(4), None, 4, 1, BLOCK=4)
    assert not isinstance(caught.value, MemoryFault)


def test_without_the_checker_nothing_is_changed() -> None:
    memory = torch.arange(100.0)
    copy_without_mask[(1,)](memory[:15], torch.empty(16), 15, BLOCK=16)
