"""A table of measured times in a file decides which kernel a product runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import sparseformats as sf
from sparseformats.dispatch import tuning
from sparseformats.dispatch.measurements import PROVENANCE


def test_a_measured_time_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    A, x = sf.eye(64).to("bsr", blocksize=16), np.ones((64, 4))
    facts = {"op": "matmul", "format": "bsr", "m": 64}
    rows = [{"facts": facts, "times_us": {"reference": 1.0, "scipy-bsr": 2.0}}]
    provenance = {**dict.fromkeys(PROVENANCE, "x"), "device": "Testbed"}
    document = {"version": 1, "provenance": provenance, "rows": rows}
    monkeypatch.setenv("SPARSEFORMATS_CACHE", str(tmp_path))
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "mine.json").write_text(json.dumps(document), encoding="utf-8")
    A @ x  # a plan by the cost model, which the new table must not leave in place
    with tuning.temporary(tuning.FILES):
        explanation = sf.explain(A, x)
        assert explanation.chosen == "reference"
        assert explanation.source == "measured table (mine.json, Testbed)"
        assert "chosen: reference (measured table (mine.json, Testbed))" in str(explanation)
        with sf.tracing() as trace:
            A @ x
        assert [run.kernel for run in trace] == ["reference"]
    with tuning.temporary(None):
        assert sf.explain(A, x).source == "cost model"
