"""The benchmark from end to end without a GPU: every kind of case, resumed, sliced, forced."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import sparseformats as sf
from benchmarks import run
from benchmarks.gpu import host
from benchmarks.gpu.goals import goal_cases
from benchmarks.gpu.results import FIELDS
from benchmarks.gpu.suite import suite

PLAIN = ["--device", "cpu", "--scale", "tiny", "--commit", "aaa"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.clock.ROUND", 50.0)
    monkeypatch.setattr("benchmarks.gpu.measure.TRIES", 1)


def rows(file: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in json.loads(file.read_text())}


def test_every_kind_of_case_gives_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    only = (
        "^B-128-0.1$|E-16-0.2|L-skew-10|X-llm-64-0.1-up-512|R-csr-uniform-0.01-float32-16|W-banded"
    )
    status = run.main([*PLAIN, "--out", str(file), "--only", only])
    found = rows(file)
    assert all(set(FIELDS) <= set(row) for row in found.values())
    for id in ("B-128-0.1", "L-skew-10", "X-llm-64-0.1-up-512", "W-banded-16", "X-llm", "O-regret"):
        assert "error" not in found[id], found[id]
        assert found[id]["ours_us"] > 0
        assert found[id]["baseline_us"] > 0
        assert found[id]["commit"] == "aaa"
    assert found["B-128-0.1"]["kernel"] in {kernel.name for kernel in sf.kernels("matmul")}
    assert found["B-128-0.1"]["peers_us"]["events"].keys() >= {"ours", "cublas/row-major"}
    # What needs a GPU says so instead of giving a time.
    assert status == 1
    assert "cusparse-bell is not eligible" in found["E-16-0.2"]["error"]
    assert found["E-16-0.2"]["met"] is False
    assert "cusparse-csr" in found["R-csr-uniform-0.01-float32-16"]["error"]
    out = capsys.readouterr().out
    assert re.search(r"^\[1/\d+, 0 s\] square-128-0.1$", out, re.MULTILINE)
    assert re.search(r"^W-banded-16 +[\d.]+ +[\d.]+ ", out, re.MULTILINE)


def test_a_second_run_does_only_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*PLAIN, "--out", str(tmp_path / "out.json"), "--only", "^W-banded"]
    assert run.main(arguments) == 0
    before = rows(tmp_path / "out.json")
    capsys.readouterr()
    assert run.main(arguments) == 0
    assert "wide-banded" not in capsys.readouterr().out
    assert rows(tmp_path / "out.json") == before
    assert run.main([*arguments, "--commit", "bbb"]) == 0
    assert "[1/2, 0 s] wide-banded-16" in capsys.readouterr().out
    assert {row["commit"] for row in rows(tmp_path / "out.json").values()} == {"bbb"}


def test_slices_cover_everything_once() -> None:
    every = run.tasks(suite())
    parts = [run.pick(every, "", f"{i}/3", [], {"commit": "", "device": ""}) for i in (1, 2, 3)]
    names = [task.name for part in parts for task in part]
    assert sorted(names) == sorted(task.name for task in every)


def test_goal_rows_come_first() -> None:
    every = run.tasks(suite())
    first = [task.ids[0] for task in every[: len(goal_cases()) + 1]]
    assert not any(id.startswith("W-") for id in first)
    assert every[len(goal_cases())].ids == host.IDS


def test_what_failed_before_comes_last() -> None:
    every = run.tasks(suite())
    shared = {"commit": "aaa", "device": "d"}
    failed = [{"id": id, "error": "no", **shared} for id in every[0].ids]
    left = run.pick(every, "", "1/1", failed, shared)
    assert len(left) == len(every)
    assert left[-1].name == every[0].name


def test_a_run_ends_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*PLAIN, "--out", str(tmp_path / "o.json"), "--only", "^W-", "--seconds", "-1"]
    assert run.main(arguments) == 0
    assert "tasks are left: call again" in capsys.readouterr().out


def test_a_forced_kernel_has_rows_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "o.json"
    options = ["--only", "^W-banded-16", "--kernel", "torch-csr"]
    assert run.main([*PLAIN, "--out", str(file), *options]) == 0
    found = rows(file)
    assert set(found) == {"W-banded-16@torch-csr"}
    assert found["W-banded-16@torch-csr"]["kernel"] == "torch-csr"


def test_a_wrong_kernel_ends_its_row_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(self: Any, name: str, *_: Any, **__: Any) -> None:
        if name == "ours":
            raise AssertionError("element (1, 2) is off")

    monkeypatch.setattr("benchmarks.gpu.check.Reference.check", spoiled)
    file = tmp_path / "o.json"
    assert run.main([*PLAIN, "--out", str(file), "--only", "^W-banded"]) == 1
    for row in rows(file).values():
        assert "element (1, 2) is off" in row["error"]
        assert row["ours_us"] is None


def test_host_rows_say_what_is_beyond_the_launch() -> None:
    found = {row["id"]: row for row in host.rows("cpu", "tiny")}
    assert set(found) == set(host.IDS)
    for row in found.values():
        assert "error" not in row
        assert row["beyond_us"] == pytest.approx(row["ours_us"] - row["baseline_us"], rel=0.5)
        assert row["met"] is (row["beyond_us"] <= (4 if row["id"] == "O-plan" else 6))


def test_host_rows_fail_aloud() -> None:
    found = host.rows("no-such-device", "tiny")
    assert [row["id"] for row in found] == list(host.IDS)
    assert all("no-such-device" in row["error"] for row in found)


def test_launches_are_recorded_and_repeated() -> None:
    done: list[tuple[int, ...]] = []
    launches: list[Any] = []
    launch = host.recorded(lambda *a: done.append(a), launches)
    launch(1, 2)
    host._all(launches)()
    assert done == [(1, 2), (1, 2)]
    launch(3)
    host._all(launches)()
    assert done[3:] == [(1, 2), (3,)]


def test_ceilings_are_rows(tmp_path: Path) -> None:
    file = tmp_path / "o.json"
    assert run.main([*PLAIN, "--out", str(file), "--ceilings", "--only", "nothing"]) == 0
    found = rows(file)
    assert {"C-bfloat16", "C-float32", "C-tf32", "C-memory"} <= set(found)
    assert all(set(FIELDS) <= set(row) and row["rate"] > 0 for row in found.values())


def test_a_slice_is_i_of_n(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main([*PLAIN, "--out", str(tmp_path / "o"), "--slice", "0/3"])
    assert "--slice must be I/N, got '0/3'" in capsys.readouterr().err


def test_tasks_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run.main([*PLAIN, "--out", str(tmp_path / "o"), "--list"]) == 0
    assert "square-64-0.1: B-64-0.1 T-64-0.1 T-64-0.1-tuned" in capsys.readouterr().out


def test_a_lost_device_ends_the_run_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(clock: Any) -> None:
        raise run.DeviceLost("the device fails at everything")

    monkeypatch.setattr(run, "_tidy", lost)
    file = tmp_path / "o.json"
    assert run.main([*PLAIN, "--out", str(file), "--only", "^W-banded"]) == 3
    (row,) = rows(file).values()
    assert row["error"] == "the device fails at everything"


def test_a_quick_run_has_rows_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "o.json"
    options = ["--only", "^(B-128-0.1|R-)", "--quick"]
    assert run.main([*PLAIN, "--out", str(file), *options]) == 1  # torch has no such BSR on the CPU
    found = rows(file)
    assert set(found) == {"B-128-0.1@quick", "T-128-0.1@quick"}
    row = found["B-128-0.1@quick"]
    peers = {name.partition("/")[0] for name in row["peers_us"]["events"]}
    assert peers == {"ours", "kernel", "cublas"}
    assert row["kernel"] is not None
