"""Measured times in files: read with provenance, matched by facts, refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparseformats.dispatch import Query, tuning
from sparseformats.dispatch.measurements import PROVENANCE, installed_tables, read_table
from sparseformats.errors import KernelLoadWarning

GIVEN = dict.fromkeys(PROVENANCE, "x")
BSR = {"op": "matmul", "format": "bsr", "blocksize": [16, 16]}
ROWS = [
    {"facts": {"op": "matmul"}, "times_us": {"a": 9.0}},
    {"facts": {**BSR, "n": 64}, "times_us": {"a": 3, "b": 2.5}},
    {"facts": BSR, "times_us": {"a": 4.0}},
]


def write(path: Path, **changes: Any) -> Path:
    document = {"version": 1, "provenance": GIVEN, "rows": ROWS, **changes}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def query(n: int, **facts: Any) -> Query:
    return Query("matmul", "bsr", blocksize=(16, 16), n=n, **facts)


def test_the_row_with_most_facts_counts_and_sizes_agree_by_powers_of_two(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "t.json"))
    assert len(table) == 3
    assert table.lookup(query(64)) == table.lookup(query(33)) == {"a": 3.0, "b": 2.5}
    assert table.lookup(query(65)) == table.lookup(query(32)) == {"a": 4.0}
    assert table.lookup(Query("matmul", "csr")) == {"a": 9.0}
    assert table.lookup(Query("sddmm", "csr")) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": 2}, "expected a table of version 1, got version 2"),
        ({"provenance": {"device": "x"}}, "lacks versions, commit, date, repetitions, spread"),
        ({"provenance": None}, "lacks device"),
        ({"rows": {}}, "rows must be a list, got dict"),
        ({"rows": [{"facts": {}, "times_us": {}}]}, r"rows\[0\]: expected an object of facts"),
        ({"rows": [7]}, r"rows\[0\]: expected an object of facts"),
        (
            {"rows": [{"facts": {"op": "matmul", "colour": 1}, "times_us": {}}]},
            "unknown facts colour",
        ),
        *(
            (
                {"rows": [{"facts": {"op": "matmul"}, "times_us": {"a": time}}]},
                "a needs positive microseconds",
            )
            for time in (0, -1, True, "1", None, float("nan"), float("inf"))
        ),
    ],
)
def test_what_is_no_table(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    path = write(tmp_path / "t.json", **changes)
    with pytest.raises(ValueError, match=text) as error:
        read_table(path)
    assert str(path) in str(error.value)
    assert "{" not in str(error.value)


def test_no_json(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[1,", encoding="utf-8")
    with pytest.raises(ValueError, match="not JSON"):
        read_table(path)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="got version None"):
        read_table(path)


def test_the_users_files_are_read_once_and_bad_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARSEFORMATS_CACHE", str(tmp_path))
    assert installed_tables() is None or len(installed_tables()) >= 0
    write(tmp_path / "tables" / "mine.json")
    write(tmp_path / "tables" / "old.json", version=0)
    with pytest.warns(KernelLoadWarning, match=r"old\.json.*got version 0"):
        table = installed_tables()
    assert table is not None
    assert table.lookup(query(64)) == {"a": 3.0, "b": 2.5}
    (tmp_path / "tables" / "old.json").unlink()
    with tuning.temporary(tuning.FILES):
        assert tuning.measured(query(64)) == {"a": 3.0, "b": 2.5}
        (tmp_path / "tables" / "mine.json").unlink()
        assert tuning.measured(query(64)) == {"a": 3.0, "b": 2.5}
    with tuning.temporary(None):
        assert tuning.measured(query(64)) == {}
