"""Planted bugs: the ordeal, with memory checked, rejects each and passes the kernel without one."""

from __future__ import annotations

import pytest

from sparseformats import dispatch
from tests.kernels.triton import planted
from tests.kernels.triton.harness import registered
from tests.kernels.triton.interpret.test_products import kernels
from tests.kernels.triton.interpreter import checked
from tests.kernels.triton.kinds import EVERYWHERE
from tests.kernels.triton.ordeal import CHECKS, Check, Subject

EXPECTED = {
    "skips-last-step": "elements are wrong",
    "reads-beyond-n": "reads outside every array|reads what",
    "writes-beyond-n": "writes outside every array|write one element",
    "races": "a race",
    "narrow-offsets": "outside every array",
}


def stand(name: str) -> None:
    subject = Subject(name, "cpu")
    for check in CHECKS:
        check(subject)
    assert not subject.refused


def test_the_kernel_without_a_bug_passes() -> None:
    record = planted.record()
    with dispatch.temporary(record), checked() as checker:
        stand(record.name)
    assert checker.launches


@pytest.mark.parametrize("bug", [*planted.BUGS, "races"])
def test_a_planted_bug_is_rejected(bug: str) -> None:
    record = planted.record(bug)
    with (
        dispatch.temporary(record),
        checked(),
        pytest.raises(AssertionError, match=EXPECTED.get(bug)),
    ):
        stand(record.name)


@kernels
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_librarys_kernels_pass(record: dispatch.KernelRecord, check: Check) -> None:
    with registered(record) as (name, checker):
        subject = Subject(name, "cpu")
        check(subject)
    assert checker.launches or subject.refused
    assert record.name != EVERYWHERE or not subject.refused
