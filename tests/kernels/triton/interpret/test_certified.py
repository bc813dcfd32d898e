"""Certification as other people's kernels get it: small drawn matrices of every kind."""

from __future__ import annotations

import itertools

import pytest
import torch

from sparseformats.dispatch import KernelRecord
from sparseformats.testing import certify_kernel
from sparseformats_kernels.triton import configs
from tests.kernels.triton.harness import check, registered
from tests.kernels.triton.interpret.test_products import KERNELS, kernels
from tests.kernels.triton.matrices import dense, matrix
from tests.kernels.triton.ordeal import FAULTS, Subject, exact_integers

DTYPES = ["float16", "bfloat16", "float32"]


@kernels
@pytest.mark.parametrize("values", ["any", "moderate"])
def test_against_the_oracle(record: KernelRecord, values: str) -> None:
    served: set[str] = set()
    for format in record.formats:  # each for itself: draws do not always meet all of them
        with registered(record) as (name, _):
            options = {"library": "torch", "dtypes": DTYPES, "values": values}
            certificate = certify_kernel(name, formats=format, examples=16, **options)
        assert not set(certificate.refusals) & FAULTS
        served |= {dtype for _, dtype in certificate.served}
    assert served == set(DTYPES)


@pytest.mark.parametrize(
    ("stages", "warps", "bn", "swap"),
    [(1, 1, 16, False), (2, 4, 64, True), (5, 8, 128, False), (3, 2, 32, True)],
)
def test_exact_for_any_launch_parameters(stages: int, warps: int, bn: int, swap: bool) -> None:
    (record,) = (r for r in KERNELS if r.name == "triton-tiles")
    for bm, bk in itertools.product((16, 64), (16, 32, 128)):
        config = configs.Config(BM=bm, BN=bn, BK=bk, stages=stages, warps=warps, swap=swap)
        with configs.with_config("triton-tiles", config), registered(record) as (name, checker):
            subject = Subject(name, "cpu")
            for k, format in ((16, "bsr"), (48, "blocked_ell"), (80, "bsr.T")):
                exact_integers(subject, sizes=(k,), columns=(33,), formats=(format,))
            assert checker.launches
            assert not subject.refused


def test_forced_parameters_reach_the_kernel() -> None:
    """Else the test above would compare one choice with itself."""
    (record,) = (r for r in KERNELS if r.name == "triton-tiles")
    A, X = matrix("bsr", (64, 64), (16, 16), "float16", density=1.0), dense((64, 64), "float16")
    accesses = []
    for bn in (16, 64):
        config = configs.Config(BM=16, BN=bn, BK=16)
        with configs.with_config("triton-tiles", config), registered(record) as (name, checker):
            assert torch.isfinite(Subject(name, "cpu").matmul(A, X)).all()
        accesses.append(sum(launch.accesses for launch in checker.launches))
    assert accesses[0] > accesses[1]  # narrow tiles read the values again and again
    check(record, A, X)
