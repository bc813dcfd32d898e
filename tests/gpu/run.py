"""The GPU suite in several processes at once: most of its time is compiling, on one core each.

``python -m tests.gpu.run --device cuda:0 --report FILE`` is ``pytest tests/gpu`` with the tests
dealt to processes; the report is that of one run. A test that kills the device's context, or the
process, is one failure: what is left of its process's share goes on in a new one. At ``--limit``
seconds processes are ended; the test that each was at counts as one that died. Further arguments go
to pytest.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SHARE, JOURNAL = "SPARSEFORMATS_GPU_SHARE", "SPARSEFORMATS_GPU_JOURNAL"
# Tests that take most of a device's memory stay together, in the first process.
TOGETHER = "test_large.py"
NO_TESTS, FINISHED = 5, (0, 1, 5)
BROKEN_OFF = 124  # exit status, as of coreutils' timeout


def keep_share(items: list[Any]) -> None:
    """Leave the tests of this process that were not run before it was started again."""
    named = os.environ.get(SHARE)
    if not named:
        return
    number, processes = (int(part) for part in named.split("/"))
    before, kept, seen = Rows.read(Path(os.environ[JOURNAL])).tests, [], 0
    for item in items:
        owner = 0 if item.path.name == TOGETHER else seen % processes
        seen += item.path.name != TOGETHER
        kept += [item] if owner == number and item.nodeid not in before else []
    items[:] = kept


class Journal:
    """A pytest plugin that writes down every test as it begins and ends, in case it is the last."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _note(self, **row: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._note(id=nodeid, outcome="died", seconds=0.0)

    def pytest_runtest_logreport(self, report: Any) -> None:
        row = {"id": report.nodeid, "seconds": report.duration}
        if report.outcome != "passed" or report.when == "teardown":  # which comes last
            row["outcome"] = report.outcome
        self._note(**row)

    def pytest_sessionfinish(self) -> None:
        from hypothesis import settings

        self._note(examples=settings().max_examples)


class Rows:
    """What journals say: a row a test, and the number of Hypothesis examples."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.examples = 0

    @classmethod
    def read(cls, *paths: Path) -> Rows:
        """Read journals, those that exist."""
        made = cls()
        for path in paths:
            if path.exists():
                for line in path.read_text(encoding="utf-8").splitlines():
                    made._add(json.loads(line))
        return made

    def _add(self, row: dict[str, Any]) -> None:
        self.examples = max(self.examples, row.get("examples", 0))
        if "id" not in row:
            return
        test = self.tests.setdefault(row["id"], {"outcome": "died", "seconds": 0.0})
        test["seconds"] = round(test["seconds"] + row["seconds"], 3)
        if row.get("outcome") == "failed" or test["outcome"] == "died":
            test["outcome"] = row.get("outcome", "died")


def worst(statuses: Iterable[int]) -> int:
    """Exit status of all: a process without a test (5) is no failure where others had some."""
    return max((abs(status) for status in statuses if status != NO_TESTS), default=NO_TESTS)


def run_share(
    name: str, folder: Path, device: str, rest: list[str], end: float = math.inf
) -> tuple[int, str]:
    """Run a share to its end, in as many processes as it takes; exit status and output.

    At the time `end` of the monotonic clock it is broken off.
    """
    journal, texts = folder / f"{name.replace('/', '-')}.jsonl", []
    command = [sys.executable, "-m", "pytest", "tests/gpu", "--device", device, "-q", *rest]
    environment = {**os.environ, SHARE: name, JOURNAL: str(journal)}
    environment.setdefault("OMP_NUM_THREADS", "1")  # processes side by side have a core each
    statuses: list[int] = []
    while True:
        before = len(Rows.read(journal).tests)
        status, text = _run(command, environment, end)
        texts.append(text)
        statuses.append(status)
        if status in (*FINISHED, BROKEN_OFF) or len(Rows.read(journal).tests) == before:
            return worst(statuses), "".join(texts)


def _run(command: list[str], environment: dict[str, str], end: float) -> tuple[int, str]:
    """Exit status and output of a process that has until `end`."""
    left = None if end == math.inf else max(0.1, end - time.monotonic())
    pipe, merged = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=pipe, stderr=merged, text=True
    ) as process:
        try:
            text, _ = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
            return BROKEN_OFF, text
        return process.returncode, text


def main(arguments: list[str] | None = None) -> int:
    """Run the suite; the exit status is the worst of all processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--report", default=None)
    parser.add_argument("--processes", type=int, default=min(6, os.cpu_count() or 1))
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds")
    options, rest = parser.parse_known_args(arguments)
    end = time.monotonic() + options.limit
    count, device = options.processes, options.device
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(count) as pool:
        folder = Path(name)
        shares = [f"{number}/{count}" for number in range(count)]
        running = [pool.submit(run_share, share, folder, device, rest, end) for share in shares]
        done = [each.result() for each in running]
        rows = Rows.read(*folder.glob("*.jsonl"))
    status = worst(status for status, _ in done)
    for _, text in done:
        print(text, flush=True)
    from tests.gpu.report import document, totals, write

    if options.report is not None:
        found = document(rows.tests, device, exit_status=status, examples=rows.examples)
        write(Path(options.report), {**found, "processes": count})
    bad = [name for name, row in sorted(rows.tests.items()) if row["outcome"] != "passed"]
    for name in bad:
        print(f"{rows.tests[name]['outcome']}: {name}")
    print(f"{totals(rows.tests)} in {count} processes, exit status {status}")
    return status or int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
