"""Runs the Triton backend's kernels under the interpreter, through the ordinary calls.

A record is registered again for the time of a test, without its rules about devices; all others
stay. So plans, operands, epilogues and refusals are those of a user's call, and arrays of torch on
the CPU stand for those on a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch

import sparseformats as sf
from sparseformats import dispatch, testing
from sparseformats.dispatch import KernelRecord
from sparseformats.testing import certify
from tests.kernels.triton.interpreter import Checker, checked
from tests.kernels.triton.kinds import GLUON, GROUPS, NARROW, ROWS

__all__ = ["check", "interpretable", "on_the_cpu", "registered", "supports"]

DEVICE_RULES = ("device", "capability")


def interpretable() -> list[KernelRecord]:
    """Records of the backend's products of blocks that the interpreter can run."""
    from sparseformats_kernels.triton import RECORDS

    apart = {*GLUON, GROUPS, ROWS, *NARROW}
    return [r for r in RECORDS if r.op == "matmul" and r.name not in apart]


def on_the_cpu(record: KernelRecord) -> KernelRecord:
    """The record with a name of its own, without what it asks of the device."""
    kept = tuple(
        check
        for check in record.checks
        if not (isinstance(check, dispatch.checks.Check) and check.code in DEVICE_RULES)
    )
    return dataclasses.replace(record, name=f"{record.name}-interpreted", checks=kept)


def supports(record: KernelRecord, fact: str, value: Any) -> bool:
    """Whether the record's declared rules leave a fact open or allow the value."""
    rules = (check for check in record.checks if isinstance(check, dispatch.checks.Check))
    return all(value in rule.allowed for rule in rules if rule.fact == fact)


@contextmanager
def registered(record: KernelRecord) -> Iterator[tuple[str, Checker]]:
    """Register a record for the interpreter; new memory holds NaN.

    Yields
    ------
    name, checker
        What to pass as ``kernel=``, and the launches so far.
    """
    here = on_the_cpu(record)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # which fills what torch.empty gives
    try:
        with dispatch.temporary(here), checked() as checker:
            yield here.name, checker
    finally:
        torch.use_deterministic_algorithms(before)


def check(
    record: KernelRecord,
    A: Any,
    X: Any,
    *,
    bound: Mapping[str, Any] = MappingProxyType({}),
    **call: Any,
) -> None:
    """Hold one product to the law of products; the kernel must run, and launch something."""
    with registered(record) as (name, checker), sf.tracing() as trace:
        testing.check_product(
            A, X, kernel=name, bound={**certify._bound(record, flush=False), **bound}, **call
        )
    assert {run.kernel for run in trace if run.op == "matmul"} == {name}
    assert checker.launches or not (A.shape[0] and A.shape[1] and 0 not in X.shape)
