"""Merging rows into a file, and knowing what is done."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import results

HERE = {"commit": "aaa", "device": "NVIDIA H200"}


def row(id: str, **options: Any) -> results.Row:
    return {"id": id, **HERE, **options}


def ids(rows: list[results.Row]) -> list[str]:
    return [each["id"] for each in rows]


def test_rows_of_the_same_id_are_replaced_and_others_kept(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "rows.json"
    results.merge(file, [row("a", ours_us=1.0), row("b")], ["a", "b"])
    found = results.merge(file, [row("a", ours_us=2.0)], ["a", "b"])
    assert ids(found) == ["a", "b"]
    assert found[0]["ours_us"] == 2.0
    assert json.loads(file.read_text()) == found
    assert list(file.parent.iterdir()) == [file]


def test_rows_are_in_the_order_of_the_suite_unknown_ones_last(tmp_path: Path) -> None:
    found = results.merge(tmp_path / "f", [row("old"), row("b"), row("a")], ["a", "b"])
    assert ids(found) == ["a", "b", "old"]


def test_a_failure_does_not_replace_a_time_of_the_same_commit(tmp_path: Path) -> None:
    file = tmp_path / "f"
    results.merge(file, [row("a", ours_us=1.0)], [])
    (kept,) = results.merge(file, [row("a", error="no")], [])
    assert kept["ours_us"] == 1.0
    (other,) = results.merge(file, [row("a", error="no") | {"commit": "bbb"}], [])
    assert other["error"] == "no"


def test_done_are_rows_of_this_commit_and_device_without_an_error() -> None:
    rows = [row("a"), row("b", error="no"), row("c") | {"commit": "b"}, row("d") | {"device": "x"}]
    assert results.done(rows, HERE) == {"a"}


def test_numbers_that_are_none_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        results.merge(tmp_path / "f", [row("a", ours_us=float("nan"))], [])
    assert not (tmp_path / "f").exists()


def test_the_commit_is_given_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(results.ENVIRONMENT, "from-environment")
    assert results.commit() == "from-environment"
    assert results.commit("given") == "given"


def test_a_tree_without_history_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_git() -> str:
        raise OSError("no git")

    monkeypatch.delenv(results.ENVIRONMENT, raising=False)
    monkeypatch.setattr(results.timing, "commit", no_git)
    assert results.commit() == "unknown"


def test_provenance_has_what_rows_need() -> None:
    found = results.provenance("cpu", "ccc")
    assert set(found) == {"versions", "commit", "date", "device"}
    assert found["versions"]["torch"] != "not installed"
    assert found["commit"] == "ccc"


def test_five_digits() -> None:
    assert results.short(1234.5678) == 1234.6
    assert results.short(0.00123456) == 0.0012346
