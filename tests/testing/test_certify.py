"""Certification of formats and conversions; kernels are certified among the planted bugs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings

from sparseformats import dispatch, testing
from sparseformats.convert.csr_csc import csr_to_csc
from sparseformats.dispatch import EXACT, KernelRecord
from sparseformats.formats import CSC, CSR
from sparseformats.testing import certify


@pytest.fixture
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not spend time on making the failing example small."""
    found = functools.partial(settings, phases=[Phase.generate], database=None, derandomize=True)
    monkeypatch.setattr(certify, "settings", found)


@pytest.mark.parametrize("format", testing.FORMATS)
def test_a_format_is_certified(format: str) -> None:
    certificate = testing.certify_format(format, examples=20)
    assert sum(certificate.runs.values()) == 20


@pytest.mark.usefixtures("unshrunk")
def test_a_format_that_forgets_its_zeros_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_parts(cls: Any, buffers: Any, static: Any) -> Any:
        kept = buffers["data"] != 0
        indptr = np.concatenate([[0], np.cumsum(kept)])[buffers["indptr"]]
        parts = {"data": buffers["data"][kept], "indices": buffers["indices"][kept]}
        return CSR.trusted(**parts, indptr=indptr.astype(buffers["indptr"].dtype), **static)

    monkeypatch.setattr(CSR, "from_parts", classmethod(from_parts))
    with pytest.raises(AssertionError):
        testing.certify_format("csr", examples=100)


def honest(A: Any, options: Any) -> Any:
    return csr_to_csc(A, options)


def drops_zeros(A: Any, options: Any) -> Any:
    B = csr_to_csc(A, options)
    kept = B.data != 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[B.indptr].astype(B.indptr.dtype)
    return CSC.trusted(data=B.data[kept], indices=B.indices[kept], indptr=indptr, shape=B.shape)


def record(name: str, **options: Any) -> KernelRecord:
    return KernelRecord(
        name,
        "convert:csr->csc",
        ("csr",),
        f"{__name__}:{name}",
        cost=lambda query: 1.0,
        tolerance=EXACT,
        **options,
    )


def test_a_conversion_is_certified() -> None:
    certificate = testing.certify_kernel(record("honest"), examples=20)
    assert sum(certificate.runs.values()) == 20
    assert not certificate.refusals


@pytest.mark.usefixtures("unshrunk")
def test_a_lossy_conversion_is_not() -> None:
    with pytest.raises(AssertionError, match="content preserved"):
        testing.certify_kernel(record("drops_zeros"), values="small", examples=100)


def test_refusals_of_a_conversion_are_counted() -> None:
    def some(query: Any) -> Any:
        small = query.m < 4
        return dispatch.Reason("shape", f"needs m >= 4, has m = {query.m}") if small else None

    certificate = testing.certify_kernel(record("honest", checks=(some,)), examples=60)
    assert certificate.refusals["shape"] > 0
    assert certificate.runs
