"""The tool that looks for the library's limits goes on behind what ends a process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import cusparselt_limits as limits


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
    found = limits.watch(limits.TRIALS[0], tmp_path, time.monotonic() + 60)
    assert len(calls) == 1
    assert found["right"] == 0


def test_trials_have_names_of_their_own() -> None:
    assert len(set(limits.TRIALS)) == len(limits.TRIALS)
    assert {trial[0] for trial in limits.TRIALS} == {"ids", "columns", "infinities"}
