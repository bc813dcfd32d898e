"""Every kernel that serves the device against the oracle, and proof that it is what ran."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats import _dtypes, dispatch, testing
from sparseformats.testing import certify_kernel
from tests.gpu.kernels import (
    ORACLES,
    Case,
    block_kernels,
    cases,
    drawn,
    dtypes_of,
    finite_only,
    flushes,
    hold,
    kind,
    serves_something,
)
from tests.gpu.memory import poisoned
from tests.kernels.triton.matrices import FORMATS, dense, matrix
from tests.kernels.triton.ordeal import CHECKS, FAULTS, Check, Subject

BLOCKS = [
    *((16, 16), (32, 32), (64, 64), (128, 128), (256, 256)),
    *((48, 48), (24, 24), (3, 5), (16, 64), (64, 16)),
]
COLUMNS = (1, 16, 33, 70, 257, 512)


@pytest.fixture(autouse=True)
def _memory(device: str) -> None:
    """Memory that nobody wrote to holds NaN and -1."""
    poisoned(device)


@pytest.mark.parametrize("values", ["any", "moderate"])
def test_against_the_oracle(kernel_case: Case, values: str, device: str) -> None:
    """Small drawn matrices, operands of every layout, scalars, from both sides, NaN included."""
    options: dict[str, Any] = {"library": kernel_case.library, "device": device, "values": values}
    options |= drawn(kernel_case) | {"dtypes": dtypes_of(kernel_case), "examples": 16}
    options |= {"flush": flushes(kernel_case)}
    if values == "any" and finite_only(kernel_case):
        options["dtypes"] = [d for d in options["dtypes"] if _dtypes.kind(d) in "fc"]
        with pytest.raises(AssertionError, match=r"served no example.*'needs-finite-operand': 16"):
            certify_kernel(kernel_case.kernel, kernel_case.op, **options)
        return
    certificate = certify_kernel(kernel_case.kernel, kernel_case.op, **options)
    assert not set(certificate.refusals) & FAULTS, certificate.refusals
    assert sum(certificate.runs.values()) >= 3, certificate


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: "{}x{}".format(*block))
def test_every_block_size(block_kernel: str, block: tuple[int, int], device: str) -> None:
    subject, (r, c), turn = Subject(block_kernel, device), block, BLOCKS.index(block)
    columns, halves = itertools.cycle(COLUMNS[turn % 4 :]), ("bfloat16", "float16")
    formats = (FORMATS[turn % 4], FORMATS[(turn + 2) % 4])
    for number, (format, dtype) in enumerate(
        itertools.product(formats, (halves[turn % 2], "float32"))
    ):
        size = (r, c) if format.startswith("bsr") else (r, r)
        shape = (4 * size[0] + size[0] // 3, 5 * size[1] + size[1] // 2 + 1)
        A = matrix(format, shape, size, dtype, device=device, seed=number)
        X = dense((A.shape[1], next(columns)), dtype, device=device)
        hold(subject, A, X)
        wide = dense((X.shape[1], A.shape[1] + 24), dtype, device=device)
        out = torch.full((X.shape[1], A.shape[0]), torch.nan, device=device, dtype=X.dtype)
        hold(subject, A, wide[:, : A.shape[1]].T, out=out.T)  # as a layer's tokens lie
    assert subject.served or subject.refused


def test_the_plainest_call_is_served(block_kernel: str, device: str) -> None:
    serves_something(block_kernel, device)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_ordeal(block_kernel: str, check: Check, device: str) -> None:
    """Layouts, exact integers at odd sizes, poison, float32 sums, far rows, the same bits."""
    subject = Subject(block_kernel, device)
    check(subject)
    assert subject.served or subject.refused


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_is_chosen_stands_the_ordeal(check: Check, device: str) -> None:
    """Without a name nothing is refused: some kernel serves every call, and serves it right."""

    class Chosen(Subject):
        def run(self, call: Any, *args: Any, **options: Any) -> Any:
            self.served += 1
            return call(*args, **options)

    subject = Chosen("", device)
    check(subject)
    assert subject.served


def test_inputs_stay_as_they_are(block_kernel: str, device: str) -> None:
    A = matrix("bsr", (200, 300), (32, 32), "float16", device=device)
    X, subject = dense((300, 40), "float16", device=device), Subject(block_kernel, device)
    with testing.unchanged(A, X):
        for _ in range(3):
            subject.matmul(A, X, assume_finite=True)
            subject.matmul(A.T, X[:200], assume_finite=True)
    version = X._version
    subject.matmul(A, X, assume_finite=True)
    assert X._version == version


def test_no_kernel_is_left_out(device: str) -> None:
    """Every record that names the device is certified above, and the backends are all here."""
    named = {
        (record.op, record.name)
        for record in dispatch.records()
        if any(
            kind(device) in rule.allowed
            for rule in record.checks
            if isinstance(rule, dispatch.checks.Check) and rule.fact == "device"
        )
    }
    assert {pair for pair in named if pair[1] not in ORACLES} == {c[:2] for c in cases(device)}
    if kind(device) == "cuda":
        assert {"triton-blocks", "triton-tiles"} <= set(block_kernels(device))
        missing = {record.name: record.package_reasons() for record in dispatch.records()}
        assert not {name for name, reasons in missing.items() if reasons}, missing


def test_wrong_places_are_refused_before_any_launch(device: str) -> None:
    """The matrix on the device and an operand, `out` or a bias elsewhere, and the other way."""
    A, X = matrix("bsr", (64, 64), (16, 16), device=device), dense((64, 8), device=device)
    elsewhere = "cpu" if kind(device) == "cuda" else "meta"
    calls = [
        lambda: A @ X.to(elsewhere),
        lambda: sf.matmul(A, X, out=torch.empty(64, 8, device=elsewhere)),
        lambda: sf.linear(X.T, A, torch.ones(64, device=elsewhere)),
        lambda: (
            A.to_device("cpu", library="torch") @ X.to("cuda" if elsewhere == "cpu" else "meta")
        ),
    ]
    for call in calls:
        with sf.tracing() as trace, pytest.raises(sf.DeviceMismatchError):
            call()
        assert not list(trace)
    with pytest.raises(TypeError):
        A @ dense((64, 8), library="numpy")
