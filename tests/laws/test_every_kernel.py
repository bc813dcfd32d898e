"""Every registered kernel of every operation is held to the oracle, and is the one that ran."""

from __future__ import annotations

import pytest
from hypothesis import settings

from sparseformats import dispatch, testing
from sparseformats.dispatch import KernelRecord

RECORDS = dispatch.records()


def certify(record: KernelRecord, library: str) -> set[tuple[str, str]]:
    """Formats and value types served; empty where the kernel is for other arrays."""
    served = set()
    examples = max(10, settings().max_examples // 5)
    for values in ("any", "moderate"):
        try:
            certificate = testing.certify_kernel(
                record.name, record.op, library=library, values=values, examples=examples
            )
        except AssertionError as error:
            if "served no example" not in str(error):
                raise
        else:
            served |= certificate.served
    return served


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.op}-{record.name}")
def test_a_kernel_agrees_with_the_oracle(record: KernelRecord) -> None:
    served = {library: certify(record, library) for library in ("numpy", "torch")}
    if not any(served.values()):
        assert {reason.code for reason in record.package_reasons()} or _is_for_a_gpu(record)


def _is_for_a_gpu(record: KernelRecord) -> bool:
    query = dispatch.Query(record.op, record.formats[0], device="cuda", library="torch")
    here = dispatch.Query(record.op, record.formats[0], device="cpu", library="torch")
    codes = [{reason.code for reason in record.reasons(q)} for q in (here, query)]
    return "device" in codes[0] - codes[1]
