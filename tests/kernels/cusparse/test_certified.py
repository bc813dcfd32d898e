"""The kernels behind the library's own front door, over the stand-in: batches, sides, plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from sparseformats.dispatch.record import KernelRecord, checks
from sparseformats.testing import certify_kernel
from sparseformats_kernels import cuda, cusparse
from sparseformats_kernels.cuda import spmm_dense
from tests.kernels.cusparse.fake import Fake, FakeDevice

RECORDS = {record.name: record for record in (*cuda.RECORDS, *cusparse.RECORDS)}


def here(name: str) -> KernelRecord:
    """A record for the CPU's memory, in which the stand-in works."""
    record = RECORDS[name]
    elsewhere = {"device", "capability"}
    kept = (x for x in record.checks if getattr(x, "code", None) not in elsewhere)
    kept = (x for x in kept if getattr(x, "fact", None) != "library")
    mine = (*kept, checks.library_is("torch"))
    return replace(record, name=f"{name}-here", checks=mine, requires=())


@pytest.fixture(autouse=True)
def _stand_in(library: Fake, device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spmm_dense, "device_of", lambda x, lib: device)


@pytest.mark.parametrize("name", ["cusparse-csr", "cublas-dense", "cublas-nm"])
def test_products(name: str) -> None:
    certificate = certify_kernel(here(name), library="torch", values="moderate", examples=60)
    assert not {"check-failed", "cost-failed", "failed-to-load"} & set(certificate.refusals)
    assert sum(certificate.runs.values()) >= 10


@pytest.mark.parametrize("name", ["cusparse-csr", "cublas-nm"])
def test_products_of_anything(name: str) -> None:
    """NaN and infinities reach what they belong to and nothing else."""
    certificate = certify_kernel(here(name), library="torch", values="any", examples=100)
    assert not {"check-failed", "cost-failed", "failed-to-load"} & set(certificate.refusals)
    assert "needs-finite-operand" not in certificate.refusals
    assert sum(certificate.runs.values()) >= 10


@pytest.mark.parametrize("name", ["cusparse-bell", "cusparse-bsr"])
@pytest.mark.parametrize("b", [2, 5])
def test_products_of_whole_blocks(b: int, name: str) -> None:
    sizes = st.tuples(st.integers(0, 3), st.integers(0, 3))
    options: dict[str, Any] = {
        "dtypes": ["float16", "bfloat16", "float64"],
        "shapes": sizes.map(lambda size: (b * size[0], b * size[1])),
        "blocksizes": (b, b),
    }
    certificate = certify_kernel(
        here(name), library="torch", values="moderate", examples=80, **options
    )
    assert sum(certificate.runs.values()) >= 10


def test_products_that_are_rounded_to_tf32() -> None:
    """The record's bound is wider; the stand-in rounds nothing."""
    record = here("cusparse-bell-tf32")
    kept = (x for x in record.checks if getattr(x, "fact", None) != "precision")
    certificate = certify_kernel(
        replace(record, checks=tuple(kept)),
        library="torch",
        values="moderate",
        dtypes="float32",
        shapes=(6, 9),
        blocksizes=(3, 3),
        examples=30,
    )
    assert set(certificate.runs) == {("blocked_ell", "float32")}


def test_without_a_promise_blocked_ell_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"served no example; .*needs-finite-operand"):
        certify_kernel(here("cusparse-bell"), library="torch", values="any", examples=30)


def test_sparse_products() -> None:
    record = here("cusparse-spgemm")
    certificate = certify_kernel(record, library="torch", values="moderate", examples=40)
    assert sum(certificate.runs.values()) >= 10
