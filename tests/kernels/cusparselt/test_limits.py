"""The tool that looks for the library's limits goes on behind what ends a process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import cusparselt_limits as limits
from tests.kernels.cusparselt.fake import Fake
from tests.kernels.cusparselt.support import matrix, operand, packed


def test_it_goes_on_behind_what_ends_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []

    def run(command: list[str], **options: Any) -> None:
        journal, start = Path(command[command.index("--child") + 1]), int(command[-1])
        starts.append(start)
        with journal.open("a") as file:
            for number in range(start, 6):
                file.write(f"{number} ({number - 1}, 1, 0) ")
                if number in (2, 4):
                    return  # as a process that dies
                file.write({3: "refused", 5: "wrong: 1 elements, such as nan"}.get(number, "right"))
                file.write("\n")
            file.write("done\n")

    monkeypatch.setattr(limits.subprocess, "run", run)
    found = limits.watch(("ids", "float16", "C", 1), tmp_path, time.monotonic() + 60)
    assert starts == [0, 3, 5]
    assert found == {
        "trial": ["ids", "float16", "C", 1],
        "right": 2,
        "refused": 1,
        "other": {
            "1, 1, 0": "ends the process",
            "3, 1, 0": "ends the process",
            "4, 1, 0": "wrong: 1 elements, such as nan",
        },
    }


def test_a_process_that_says_nothing_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(limits.subprocess, "run", lambda *given, **options: calls.append(given))
    found = limits.watch(limits.TRIALS[-1], tmp_path, time.monotonic() + 60)
    assert len(calls) == 1
    assert found["right"] == 0


def test_trials_have_names_of_their_own() -> None:
    assert len(set(limits.TRIALS)) == len(limits.TRIALS)
    known = {"results", "ids", "columns", "infinities"}
    assert {trial[0] for trial in limits.TRIALS} == known


def test_results_are_told_one_by_one(
    tmp_path: Path,
    library: Fake,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fp8 = "float8_e4m3fn"
    state, _ = packed(matrix((64, 128), fp8), operand(128, 32, fp8))
    monkeypatch.setattr(limits, "_prepared", lambda *given: (state,))

    def run(command: list[str], **options: Any) -> None:
        journal, *trial, start = command[command.index("--child") + 1 :]
        with open(journal, "a") as file:
            limits.attempt(trial[0], trial[1], trial[2], int(trial[3]), int(start), file)

    monkeypatch.setattr(limits.subprocess, "run", run)
    library.vectors = False
    trial = ("results", "float8_e4m3fn", "bfloat16", 32)
    limits._tell(limits.watch(trial, tmp_path, time.monotonic() + 60))
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 12
    start = "results: 'float8_e4m3fn', 'bfloat16',"
    assert f"{start} None, False, False -> right" in told
    assert f"{start} 'float32', True, False -> right" in told
    assert any(line.startswith(f"{start} None, False, True -> ") for line in told)
    assert sum(line.endswith("-> right") for line in told) == 4
