"""Planted bugs on the device: the ordeal that kernels stand rejects each of them."""

from __future__ import annotations

import pytest

from sparseformats import dispatch
from tests.gpu.kernels import kind
from tests.kernels.triton import planted
from tests.kernels.triton.ordeal import CHECKS, Subject, same_bits

# A read whose value is thrown away shows in no value: the fence and the sanitizer find it.
SILENT = {"reads-beyond-n"}


def stand(bug: str, device: str) -> None:
    record = planted.record(bug, device=kind(device))
    with dispatch.temporary(record):
        subject = Subject(record.name, device)
        for check in CHECKS:
            check(subject)
        assert not subject.refused


def test_the_kernel_without_a_bug_passes(device: str) -> None:
    stand("", device)


@pytest.mark.parametrize("bug", [*(b for b in planted.BUGS if b not in SILENT), "races"])
def test_a_planted_bug_is_rejected(bug: str, device: str) -> None:
    with pytest.raises(AssertionError):
        stand(bug, device)


def test_sums_in_no_fixed_order_are_rejected(device: str) -> None:
    """Atomic additions are right within the bound; only their bits tell."""
    record = planted.record("adds-atomically", device=kind(device))
    with dispatch.temporary(record):
        subject = Subject(record.name, device)
        with pytest.raises(AssertionError, match="differs"):
            same_bits(subject)
