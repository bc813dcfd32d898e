"""Conversions on a device: what is timed, and against what."""

from typing import Any

import pytest

import sparseformats as sf
from benchmarks.gpu import moves
from benchmarks.gpu.cases import Case
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.matrices import build
from benchmarks.gpu.results import FIELDS


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.clock.ROUND", 1.0)


def test_every_row_is_given() -> None:
    found = moves.rows(Clock("cpu"), "tiny")
    assert [row["id"] for row in found] == list(moves.IDS)
    for row in found:
        assert set(FIELDS) - {"versions", "commit", "date", "device"} <= set(row)
        assert row["ours_us"] > 0
        assert row["kernel"]
        assert row["met"] == (row["ratio"] <= 1)
    assert set(found[0]["peers_us"]) == {"torch/dense-bsr"}


def test_the_floor_counts_each_byte_once() -> None:
    problem = build(Case("case", 64, 32, 4, (16, 16), 1.0), "cpu")
    dense = 64 * 32 * 2
    blocked = 8 * (256 * 2 + 4) + 5 * 4
    listed = 8 * 256 * 6 + 65 * 4
    for step, nbytes in (("dense-bsr", dense + blocked), ("bsr-csr", blocked + listed)):
        assert moves._floor(problem, step) == pytest.approx(nbytes / 4.3e6)
    slots, joined = 4 * 2 * (256 * 2 + 4), 2 * (1024 * 2 + 4) + 3 * 4
    assert moves._floor(problem, "ell-bsr") == pytest.approx((slots + blocked) / 4.3e6)
    other = problem.matrix.to("bsr", blocksize=32)
    floor = moves._floor(problem, "bsr-bsr", other)
    assert floor == pytest.approx((blocked + joined) / 4.3e6)


def test_slots_that_stay_empty_are_written_too() -> None:
    problem = build(Case("case", 64, 64, 4, (16, 16), 0.5, pattern="dense-row"), "cpu")
    assert problem.stored < 16
    blocked = problem.stored * (256 * 2 + 4) + 5 * 4
    slots = 4 * 4 * (256 * 2 + 4)
    assert moves._floor(problem, "bsr-ell") == pytest.approx((slots + blocked) / 4.3e6)


@pytest.mark.parametrize(("named", "into"), [(16, (32, 32)), (64, (8, 8))])
def test_blocks_are_joined_or_cut(named: int, into: tuple[int, int]) -> None:
    case = Case("case", 64, 64, 4, (16, 16), 0.5)
    assert moves._into(case, named) == into


def test_a_wrong_conversion_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sf.from_dense

    def wrong(D: Any, *args: Any, **options: Any) -> Any:
        return right(D * 2, *args, **options)

    monkeypatch.setattr(sf, "from_dense", wrong)
    found = moves.rows(Clock("cpu"), "tiny")
    assert [row["id"] for row in found] == list(moves.IDS)
    assert all("means nothing" in row["error"] and row["ours_us"] is None for row in found)
