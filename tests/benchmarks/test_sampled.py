"""The rows of sampled products, on a CPU."""

from __future__ import annotations

from typing import Any

import pytest

import sparseformats as sf
from benchmarks.gpu import sampled
from benchmarks.gpu.clock import Clock


def test_each_row_says_what_was_measured() -> None:
    rows = sampled.rows(Clock("cpu"), "tiny")
    assert [row["id"] for row in rows] == list(sampled.IDS)
    for row in rows:
        if "error" in row:  # torch samples no half types
            assert row["id"].startswith("G-torch"), row
            assert row["id"].endswith("float16"), row
            assert "addmm" in row["error"], row
            continue
        theirs = row["peers_us"][row["baseline"]]
        assert theirs == row["baseline_us"]
        assert row["ours_us"] == row["peers_us"]["ours"]
        assert row["ratio"] > 0
        assert row["kernel"]


def test_a_wrong_product_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    original = sf.sddmm

    def wrong(A: Any, X: Any, Y: Any) -> Any:
        found = original(A, X, Y)
        return found.with_data(found.data * 2)

    monkeypatch.setattr(sf, "sddmm", wrong)
    for row in sampled.rows(Clock("cpu"), "tiny"):
        assert row["ours_us"] is None
        assert "the sampled product is wrong" in row["error"]
