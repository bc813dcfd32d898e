"""O-plan and O-matmul: host time of a warm call beyond the launch itself.

The launch itself is the driver's ``cuLaunchKernelEx`` with the very arguments that a warm call
gives it, called again. Both are called in turn without waiting for the device, which is quicker
than the host here. A process of its own puts a recorder into the driver before anything has been
launched.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any

from benchmarks.gpu.cases import Case
from benchmarks.gpu.results import Row

__all__ = ["IDS", "recorded", "rows"]

GOALS = {"O-plan": ("plan(X, out=Y)", 4.0), "O-matmul": ("A @ X", 6.0)}
IDS = tuple(GOALS)
CALLS, ROUNDS = 200, 25
CASE = Case("host", 1024, 1024, 64, (64, 64), 0.1)
TIMEOUT = 300

Call = Callable[[], Any]


def rows(device: str, scale: str = "full") -> list[Row]:
    """Both rows, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.gpu.host", device, scale]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if ended.returncode:
        why = ended.stderr.strip().splitlines()[-1:] or ["no message"]
        return [_row(id, None) | {"error": why[0]} for id in IDS]
    found: list[Row] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _row(id: str, kernel: str | None) -> Row:
    text, goal = GOALS[id]
    return {
        "id": id,
        "workload": f"{text}, {CASE.workload}",
        "kernel": kernel,
        "baseline": "the kernel's launch alone, with the same arguments",
        "ours_us": None,
        "baseline_us": None,
        "ratio": None,
        "ratio_is": "microseconds beyond the launch / goal",
        "spread": None,
        "share_of_roofline": None,
        "l2_model_us": None,
        "goal": f"<= {goal:g} us",
        "met": False,
    }


def measured(device: str, scale: str) -> list[Row]:
    """Both rows, measured here and now."""
    with recording(device) as launches:
        import sparseformats as sf
        from benchmarks.gpu.clock import clock_for
        from benchmarks.gpu.matrices import build

        clock = clock_for(device)
        problem = build(CASE if scale == "full" else CASE.tiny(), device)
        A, X, Y = problem.matrix, problem.X, problem.Y
        plan = sf.plan(A, X, out=Y)
        calls: dict[str, Call] = {"O-plan": partial(plan, X, out=Y), "O-matmul": lambda: A @ X}
        bare = _bare(device, plan, X, Y, launches)
        found = []
        for id, call in calls.items():
            times = _beyond(call, bare, clock.sync, CALLS if scale == "full" else 3)
            found.append(_row(id, plan.kernel) | _judged(id, *times))
        return found


def _bare(device: str, plan: Any, X: Any, Y: Any, launches: list[Call]) -> Call:
    """The launches of a warm call, by themselves."""
    plan(X, out=Y)
    launches.clear()
    plan(X, out=Y)
    if not launches and device.startswith("cuda"):
        raise RuntimeError(f"{plan.kernel} launched nothing through our driver module")
    return _all(list(launches))


def _all(launches: list[Call]) -> Call:
    if len(launches) == 1:
        return launches[0]
    return lambda: [launch() for launch in launches]


@contextmanager
def recording(device: str) -> Iterator[list[Call]]:
    """Note every launch of kernels that are prepared from now on."""
    launches: list[Call] = []
    if not device.startswith("cuda"):
        yield launches
        return
    from sparseformats_kernels.triton import driver

    library = driver.library()
    before = library.cuLaunchKernelEx
    library.cuLaunchKernelEx = recorded(before, launches)
    try:
        yield launches
    finally:
        library.cuLaunchKernelEx = before


def recorded(launch: Callable[..., Any], launches: list[Call]) -> Callable[..., Any]:
    """Launch, and note what was launched; kept short, for it is timed as a part of ours."""

    def call(*arguments: Any) -> Any:
        if len(launches) < 8:
            launches.append(partial(launch, *arguments))
        return launch(*arguments)

    return call


def _beyond(call: Call, bare: Call, sync: Call, count: int) -> tuple[list[float], list[float]]:
    """Rounds of both in microseconds a call, in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for each in (call, bare):
        _time(each, sync, count)
    for number in range(ROUNDS):
        sides = [(call, times[0]), (bare, times[1])]
        for each, found in sides if number % 2 else reversed(sides):
            found.append(_time(each, sync, count))
    return times


def _time(call: Call, sync: Call, count: int) -> float:
    sync()
    start = perf_counter()
    for _ in range(count):
        call()
    passed = (perf_counter() - start) / count * 1e6
    sync()
    return passed


def _judged(id: str, mine: list[float], bare: list[float]) -> Row:
    goal = GOALS[id][1]
    differences = [a - b for a, b in zip(mine, bare, strict=True)]
    low, beyond, high = statistics.quantiles(differences, n=4)
    return {
        "ours_us": round(statistics.median(mine), 2),
        "baseline_us": round(statistics.median(bare), 2),
        "beyond_us": round(beyond, 2),
        "spread": round((high - low) / 2 / max(abs(beyond), 1e-9), 4),
        "spread_us": round((high - low) / 2, 2),
        "ratio": round(beyond / goal, 3),
        "met": beyond <= goal,
        "rounds": ROUNDS,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("device")
    parser.add_argument("scale")
    given = parser.parse_args()
    print(json.dumps(measured(given.device, given.scale)))
