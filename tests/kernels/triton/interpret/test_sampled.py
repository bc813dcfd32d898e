"""Sampled products by interpreted kernels, with memory checked."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.dispatch import KernelRecord
from sparseformats.testing import certify_kernel
from sparseformats_kernels.triton import RECORDS, sddmm
from tests.kernels.triton.harness import DEVICE_RULES
from tests.kernels.triton.interpreter import Checker, checked
from tests.kernels.triton.matrices import dense, matrix

SAMPLED = [record for record in RECORDS if record.op == "sddmm"]
records = pytest.mark.parametrize("record", SAMPLED, ids=lambda record: record.name)


@contextmanager
def registered(record: KernelRecord) -> Iterator[tuple[str, Checker]]:
    """The record without what it asks of the device; new memory holds NaN."""
    kept = tuple(check for check in record.checks if getattr(check, "code", "") not in DEVICE_RULES)
    here = dataclasses.replace(record, name=f"{record.name}-interpreted", checks=kept)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # which fills what torch.empty gives
    try:
        with dispatch.temporary(here), checked() as checker:
            yield here.name, checker
    finally:
        torch.use_deterministic_algorithms(before)


@records
@pytest.mark.parametrize("values", ["any", "moderate"])
def test_against_the_oracle(record: KernelRecord, values: str) -> None:
    dtypes = ["float16", "bfloat16", "float32"]
    with registered(record) as (name, checker):
        options: dict[str, Any] = {"library": "torch", "dtypes": dtypes, "values": values}
        certificate = certify_kernel(name, op="sddmm", examples=60, **options)
    assert checker.launches
    assert {dtype for _, dtype in certificate.served} == set(dtypes)


def close(record: KernelRecord, P: Any, X: Any, Y: Any, **options: Any) -> None:
    """The stored elements of the product, within rounding; the pattern stays."""
    with registered(record) as (name, checker), sf.tracing() as trace:
        S = sf.sddmm(P, X, Y, kernel=name, **options)
    assert checker.launches
    assert [run.kernel for run in trace if run.op == "sddmm"] == [name]
    wide = X.to(torch.float64) @ Y.to(torch.float64) * options.get("alpha", 1)
    stored = P.to("coo")
    expected = torch.zeros(P.shape, dtype=torch.float64)
    at = stored.row.long(), stored.col.long()
    expected[at] = wide[at]
    found = S.to_dense().to(torch.float64)
    assert torch.allclose(found, expected, rtol=2e-2, atol=1e-1)


@pytest.mark.parametrize("format", ["bsr", "blocked_ell", "bsr.T"])
@pytest.mark.parametrize("block", [(64, 64), (16, 16), (24, 24), (256, 256), (3, 3)], ids=str)
def test_blocks_of_any_size_and_operands_of_any_layout(format: str, block: tuple[int, int]) -> None:
    (record,) = (r for r in SAMPLED if r.name == "triton-blocks")
    shape = (block[0] * 2 - 1, block[1] * 3 - 2)
    P = matrix(format, shape if "T" not in format else shape[::-1], block, "float16", density=0.6)
    m, k = P.shape
    for n, turned in ((70, False), (33, True)):
        X, Y = dense((m, n), "float16"), dense((n, k), "float16")
        if turned:
            X, Y = X.T.contiguous().T, Y.T.contiguous().T
        close(record, P, X, Y, alpha=0.5)


@pytest.mark.parametrize("block", [(1, 300), (3, 129), (16, 256), (32, 260), (33, 129), (300, 2)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_blocks_wider_than_a_tile(dtype: str, block: tuple[int, int]) -> None:
    (record,) = (r for r in SAMPLED if r.name == "triton-blocks")
    shape = (block[0] * 2 - block[0] // 2, block[1] * 3 - 1)
    P = matrix("bsr", shape, block, dtype, density=0.6)
    close(record, P, dense((shape[0], 19), dtype), dense((19, shape[1]), dtype))


def test_tiles_hold_whole_blocks_or_a_part_of_one() -> None:
    edges = [*range(1, 70), 100, 127, 128, 129, 200, 255, 256, 257, 300, 1000]
    for block in itertools.product(edges, edges):
        for dtype in ("float16", "float32"):
            tile, _ = sddmm.tiling(block, dtype, None)
            assert tile["BN"] % tile["G"] == 0
            assert tile["G"] == 1 or tile["BN"] // tile["G"] >= block[1]


def test_elements_of_any_layout() -> None:
    (record,) = (r for r in SAMPLED if r.name == "triton-elements")
    P = sf.random(70, 90, 0.1, format="csr", seed=3).to_library("torch")
    for n, turned in ((100, False), (1, True), (64, True)):
        X, Y = dense((70, n)), dense((n, 90))
        if turned:
            X, Y = X.T.contiguous().T, Y.T.contiguous().T
        close(record, P, X, Y, alpha=-2)


@pytest.mark.parametrize("count", [64, 65, 81, 97, 130])
def test_rows_that_several_programs_share(count: int) -> None:
    (record,) = (r for r in SAMPLED if r.name == "triton-elements")
    P = sf.from_dense(torch.ones(3, count), "csr")
    close(record, P, dense((3, 20)), dense((20, count)))


def test_one_pattern_and_operands_of_several_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of a pattern serves only calls of its kind."""
    (record,) = (r for r in SAMPLED if r.name == "triton-blocks")
    P = matrix("bsr", (70, 90), (16, 16))
    for dtype in ("float16", "float32", "bfloat16", "float32", "float16"):
        close(record, P, dense((70, 40), dtype), dense((40, 90), dtype))
    used: list[str] = []

    def launching(*_: Any) -> Any:
        return lambda kernel, programs, given, constants, warps: used.append(constants["PRECISION"])

    monkeypatch.setattr(sddmm, "Launcher", launching)
    P, X, Y = matrix("bsr", (70, 90), (16, 16)), dense((70, 40)), dense((40, 90))
    for precision in ("tf32", None, "ieee", "tf32"):
        with registered(record) as (name, _):
            sf.sddmm(P, X, Y, kernel=name, precision=precision)
        assert used[-1] == ("tf32" if precision == "tf32" else "ieee")


@records
def test_nothing_to_sample(record: KernelRecord) -> None:
    format = "bsr" if record.name == "triton-blocks" else "csr"
    options = {"blocksize": (16, 16)} if format == "bsr" else {}
    for shape in ((40, 30), (0, 30), (40, 0)):
        P = sf.from_dense(torch.zeros(shape), format, **options)
        with registered(record) as (name, _):
            S = sf.sddmm(P, dense((shape[0], 5)), dense((5, shape[1])), kernel=name)
        assert S.nnz == 0
    P = sf.from_dense(torch.ones(20, 20), format, **options)
    with registered(record) as (name, _):
        S = sf.sddmm(P, dense((20, 0)), dense((0, 20)), kernel=name)
    assert S.nnz == 400
    assert not S.to_dense().any()
