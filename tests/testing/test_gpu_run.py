"""The GPU suite's tools that need no GPU: its runner, and what a sanitizer's report amounts to."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gpu import run, sanitize


def items(*names: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(path=Path(name.split("::")[0]), nodeid=name) for name in names]


NAMES = [f"tests/gpu/test_a.py::test_{i}" for i in range(7)] + ["tests/gpu/test_large.py::test_big"]


def kept(share: str, journal: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv(run.SHARE, share)
    monkeypatch.setenv(run.JOURNAL, str(journal))
    found = items(*NAMES)
    run.keep_share(found)
    return [item.nodeid for item in found]


def test_every_test_is_in_one_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = [kept(f"{i}/3", tmp_path / "none", monkeypatch) for i in range(3)]
    assert sorted(name for share in shares for name in share) == sorted(NAMES)
    assert all(shares)
    assert "tests/gpu/test_large.py::test_big" in shares[0]


def test_without_shares_all_tests_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(run.SHARE, raising=False)
    found = items(*NAMES)
    run.keep_share(found)
    assert [item.nodeid for item in found] == NAMES


def test_what_a_process_died_of_is_a_failure_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = run.Journal(tmp_path / "journal.jsonl")
    for name, phases in ((NAMES[0], ["setup", "call", "teardown"]), (NAMES[3], ["setup"])):
        journal.pytest_runtest_logstart(name)
        for when in phases:
            report = SimpleNamespace(nodeid=name, when=when, outcome="passed", duration=0.5)
            journal.pytest_runtest_logreport(report)
    rows = run.Rows.read(journal.path).tests
    assert rows[NAMES[0]] == {"outcome": "passed", "seconds": 1.5}
    assert rows[NAMES[3]]["outcome"] == "died"
    left = kept("0/1", journal.path, monkeypatch)
    assert left == [name for name in NAMES if name not in (NAMES[0], NAMES[3])]


def test_a_failure_stays_one_whatever_follows(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    rows = [{"id": "a", "outcome": x, "seconds": 0} for x in ("died", "failed", "passed")]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"examples": 50}]))
    found = run.Rows.read(path)
    assert found.tests["a"]["outcome"] == "failed"
    assert found.examples == 50


def test_exit_statuses() -> None:
    assert run.worst([0, 5, 0]) == 0
    assert run.worst([5, 5]) == 5
    assert run.worst([0, 1, 5]) == 1
    assert run.worst([0, -11]) == 11


CLEAN = {"tool": "memcheck", "planted": None, "status": "clean", "calls": 9}
FOUND = {"tool": "memcheck", "planted": "reads-beyond-n", "status": "found", "calls": 0}


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([CLEAN, FOUND], 0),
        ([CLEAN | {"status": "found"}, FOUND], 1),
        ([CLEAN | {"status": "failed"}, FOUND], 1),
        ([CLEAN | {"calls": 0}, FOUND], 1),
        ([CLEAN, FOUND | {"status": "clean"}], 1),
        ([CLEAN | {"status": "unsupported"}, FOUND], 3),
    ],
)
def test_a_sanitizers_verdict(rows: list[dict[str, object]], status: int) -> None:
    assert sanitize.judge(rows) == status


def test_a_missing_sanitizer_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    row = sanitize.under("memcheck", "cuda:0", tmp_path, "")
    assert row["status"] == "unsupported"
    assert "compute-sanitizer" in row["said"]
