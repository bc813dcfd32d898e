"""Sampled products on CUDA devices: code that array libraries share, shown on the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparseformats import dispatch
from sparseformats.dispatch import KernelRecord, Query
from sparseformats.dispatch.record import checks
from sparseformats.testing import certify_kernel
from sparseformats_kernels import cuda

RECORDS = {record.name: record for record in cuda.RECORDS if record.op == "sddmm"}
FACTS: dict[str, Any] = {"m": 512, "k": 512, "n": 64, "out_dtype": "float32", "x_dtype": "float32"}
FACTS |= {"library": "torch", "device": "cuda", "capability": (9, 0), "a_dtype": "float32"}


def here(name: str) -> KernelRecord:
    """The record for arrays in the CPU's memory."""
    record = RECORDS[name]
    kept = (x for x in record.checks if getattr(x, "fact", None) not in ("device", "library"))
    return replace(record, name=f"{name}-here", checks=(*kept, checks.library_is("torch")))


@pytest.mark.parametrize("values", ["any", "moderate"])
@pytest.mark.parametrize("name", RECORDS)
def test_sampled_products(name: str, values: str) -> None:
    certificate = certify_kernel(here(name), "sddmm", library="torch", values=values, examples=60)
    assert not {"check-failed", "cost-failed", "failed-to-load"} & set(certificate.refusals)
    assert sum(certificate.runs.values()) >= 10


def test_the_code_is_that_of_the_cpu() -> None:
    known = {record.target for record in dispatch.records("sddmm") if "cuda" not in record.name}
    assert RECORDS["cuda-gather"].target in known
    assert RECORDS["cuda-blocks"].target == "sparseformats_kernels.cuda.sampled:block_gemm"


@pytest.mark.parametrize(
    ("name", "facts", "code"),
    [
        ("cuda-gather", {"format": "csr", "nnz": 900}, None),
        ("cuda-gather", {"format": "csr", "nnz": 900, "library": "cupy"}, None),
        ("cuda-gather", {"format": "csr", "nnz": 900, "device": "cpu"}, "device"),
        ("cuda-gather", {"format": "csr", "nnz": 900, "library": "numpy"}, "library"),
        ("cuda-gather", {"format": "bsr", "blocksize": (8, 8)}, "format"),
        ("cuda-gather", {"format": "csr", "nnz": 900, "grad": True}, "gradient"),
        ("cuda-blocks", {"format": "bsr", "blocksize": (8, 8)}, None),
        ("cuda-blocks", {"format": "blocked_ell", "blocksize": (8, 8)}, None),
        ("cuda-blocks", {"format": "bsr", "blocksize": (8, 8), "library": "cupy"}, "library"),
        ("cuda-blocks", {"format": "bsr", "blocksize": (8, 8), "out_dtype": "int32"}, "dtype"),
    ],
)
def test_limits(name: str, facts: dict[str, Any], code: str | None) -> None:
    known = FACTS | facts
    query = Query("sddmm", known.pop("format"), **known)
    assert [reason.code for reason in RECORDS[name].reasons(query)] == ([code] if code else [])


def test_costs_grow_with_what_is_gathered() -> None:
    for name, format in (("cuda-gather", "csr"), ("cuda-blocks", "bsr")):
        facts = FACTS | {"blocksize": (8, 8) if format == "bsr" else None}
        found = [
            RECORDS[name].estimate(Query("sddmm", format, **(facts | {"nnz": nnz, "n": n})))
            for nnz, n in ((100, 8), (1_000_000, 8), (1_000_000, 256))
        ]
        assert found == sorted(found)
        assert found[0] < found[1] < found[2]
