"""Certification of formats and conversions; kernels are certified among the planted bugs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings

from sparseformats import dispatch, reference, testing
from sparseformats.convert.csr_csc import csr_to_csc
from sparseformats.dispatch import EXACT, KernelRecord
from sparseformats.formats import CSC, CSR
from sparseformats.testing import certify, certify_kernel


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


class ClaimsToBeWide:
    """A sound kernel that always rounds, whatever it was asked for."""

    def pack(self, A: Any, query: Any) -> Any:
        slots = reference.slots(A)
        slots = slots.transposed() if query.transposed else slots
        return A.lib, slots, A.lib.result_dtype(query.a_dtype, query.x_dtype)

    def run(self, state: Any, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        _, slots, dtype = state
        y = reference.multiply(slots, x, dtype, alpha, beta, out).rounded()
        if out is None:
            return y
        out[...] = y
        return out


claims_to_be_wide = ClaimsToBeWide()


@pytest.mark.parametrize("wide", [False, True])
def test_a_kernel_that_rounds_what_it_should_leave(wide: bool) -> None:
    record = KernelRecord(
        "claims",
        "matmul",
        ("csr",),
        f"{__name__}:claims_to_be_wide",
        cost=lambda query: 1e9,
        wide=wide,
    )
    drawn: Any = {"dtypes": "float16", "values": "moderate", "examples": 30}
    if not wide:
        assert certify_kernel(record, **drawn).runs
        return
    with pytest.raises(AssertionError, match="claims gave float16, was to leave float32"):
        certify_kernel(record, **drawn)
