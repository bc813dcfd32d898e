"""The row of dense arrays to 2:4, on a CPU."""

from __future__ import annotations

from typing import Any

import pytest

import sparseformats as sf
from benchmarks.gpu import packing
from benchmarks.gpu.clock import Clock


def test_the_row_says_what_was_measured() -> None:
    (row,) = packing.rows(Clock("cpu"), "tiny")
    assert row["id"] == packing.IDS[0]
    assert "error" not in row
    assert row["ratio"] == pytest.approx(row["baseline_us"] / row["ours_us"], rel=1e-3)
    assert row["met"] == (row["ratio"] >= 0.6)


def test_a_wrong_conversion_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    original = sf.from_dense

    def wrong(D: Any, format: str) -> Any:
        A = original(D, format)
        return A.with_data(A.data * 2)

    monkeypatch.setattr(sf, "from_dense", wrong)
    (row,) = packing.rows(Clock("cpu"), "tiny")
    assert row["ours_us"] is None
    assert row["met"] is False
    assert "the conversion is wrong" in row["error"]
