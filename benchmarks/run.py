"""The GPU benchmark: ``python -m benchmarks.run --device cuda:0 --out FILE``.

Cases with goals come first. Rows of FILE that were measured at this commit on this device are
skipped, others are replaced one case at a time, so a run may be cut anywhere and called again;
``--slice i/n`` runs a part, ``--seconds`` ends a run in time. Where the tree has no history
``SPARSEFORMATS_COMMIT`` or ``--commit`` names it.

While a kernel is being written, ``--quick`` leaves slow peers out and ``--kernel`` measures another
one than the chosen; such rows are named ``id@quick`` and ``id@kernel`` and count for nothing else.
``--device cpu --scale tiny`` tries everything without a GPU: its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import torch

import sparseformats as sf
from benchmarks.gpu import ceilings, host, moves, packing, sampled, torch_bsr
from benchmarks.gpu.cases import Case
from benchmarks.gpu.clock import Clock, clock_for
from benchmarks.gpu.measure import measure
from benchmarks.gpu.results import Row, done, merge, provenance, read
from benchmarks.gpu.rows import averages, failed, rows_of
from benchmarks.gpu.suite import suite
from benchmarks.gpu.table import lines

AVERAGES = ("X-llm", "X-llm-torch", "S-large", "O-regret")


class DeviceLost(RuntimeError):
    """The device answers nothing any more; only a new process can go on."""


class Task:
    """Something that gives rows: a case, or a program of its own."""

    def __init__(
        self,
        name: str,
        ids: Sequence[str],
        case: Case | None = None,
        rows: Callable[[Clock, str], list[Row]] | None = None,
    ) -> None:
        self.name, self.ids, self.case, self.rows = name, tuple(ids), case, rows


def tasks(cases: Sequence[Case], tag: str | None = None) -> list[Task]:
    """All of them, those with goals first; a tag marks rows that count for nothing else."""
    if tag is not None:
        cases = [case.tagged(tag) for case in cases]
    found = [Task(case.name, [goal.id for goal in case.goals], case) for case in cases]
    goals = [task for task in found if not task.ids[0].startswith("W-")]
    apart = [Task("host", host.IDS, rows=_host), Task("moves", moves.IDS, rows=moves.rows)]
    apart.append(Task("packing", packing.IDS, rows=packing.rows))
    apart.append(Task("sampled", sampled.IDS, rows=sampled.rows))
    apart = [] if tag else apart
    return [*goals, *apart, *found[len(goals) :]]


def pick(found: list[Task], only: str, part: str, rows: Sequence[Row], shared: Row) -> list[Task]:
    """Tasks that are asked for and not done; those that failed before come last."""
    number, _, count = part.partition("/")
    wanted = re.compile(only)
    asked = [t for t in found if wanted.search(t.name) or any(map(wanted.search, t.ids))]
    asked = asked[int(number) - 1 :: int(count)]
    ready = done(rows, shared)
    left = [task for task in asked if not ready.issuperset(task.ids)]
    known = {row["id"] for row in rows if row["commit"] == shared["commit"]}
    return sorted(left, key=lambda task: known.issuperset(task.ids))


def run_task(task: Task, clock: Clock, options: argparse.Namespace) -> list[Row]:
    """Rows of a task; a fault becomes rows that say so."""
    case = task.case
    if case is None:
        return [] if task.rows is None else task.rows(clock, options.scale)
    try:
        others = not options.quick
        return rows_of(case, measure(case, clock, options.kernel, others=others))
    except Exception as error:  # noqa: BLE001 - one case must not end the others
        why = f"{type(error).__name__}: {error}"
        return [failed(case, goal, why) for goal in case.goals]
    finally:
        _tidy(clock)


def _host(clock: Clock, scale: str) -> list[Row]:
    return host.rows(clock.device, scale)


def _tidy(clock: Clock) -> None:
    sf.clear_cache()
    gc.collect()
    if not clock.on_gpu:
        return
    try:
        clock.sync()
        torch.cuda.empty_cache()
    except RuntimeError as error:
        raise DeviceLost(f"the device fails at everything since the last case: {error}") from error


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path, required=True, help="file of rows, merged into")
    parser.add_argument("--only", default="", metavar="REGEX", help="ids or names of cases")
    parser.add_argument("--slice", default="1/1", metavar="I/N")
    parser.add_argument("--seconds", type=float, default=480.0, help="start no case after this")
    parser.add_argument("--commit")
    parser.add_argument("--kernel", help="measure this kernel instead of the chosen one")
    parser.add_argument("--quick", action="store_true", help="ours, dense and torch only")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full")
    parser.add_argument("--tuner-seconds", type=float, default=torch_bsr.SECONDS)
    parser.add_argument("--ceilings", action="store_true", help="measure the ceilings again")
    parser.add_argument("--list", action="store_true", help="show the tasks and end")
    options = parser.parse_args(given)
    if not re.fullmatch(r"[1-9]\d*/[1-9]\d*", options.slice):
        parser.error(f"--slice must be I/N, got {options.slice!r}")
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Run what is left; the exit status is 1 if a row failed, 3 if the device was lost."""
    options = arguments(sys.argv[1:] if given is None else given)
    cases = suite()
    order = [*(id for task in tasks(suite()) for id in task.ids), *AVERAGES]
    if options.scale == "tiny":
        cases = tuple(case.tiny() for case in cases)
    if options.quick:
        cases = tuple(quick for case in cases if (quick := case.quick()).goals)
    tag = "@".join(filter(None, [options.kernel, "quick" * options.quick])) or None
    if options.list:
        print("\n".join(f"{t.name}: {' '.join(t.ids)}" for t in tasks(cases, tag)))
        return 0
    clock = clock_for(options.device)
    shared = provenance(options.device, options.commit)
    torch_bsr.SECONDS = options.tuner_seconds
    torch_bsr.keep_in(options.out.parent / torch_bsr.FILE.name)
    if options.ceilings:
        merge(options.out, [r | shared for r in ceilings.rows(clock, options.scale)], order)
    todo = pick(tasks(cases, tag), options.only, options.slice, read(options.out), shared)
    start, rows, status = perf_counter(), list[Row](), 0
    clock.warm_up()
    for number, task in enumerate(todo, 1):
        passed = perf_counter() - start
        if passed > options.seconds:
            print(f"time is over; {len(todo) - number + 1} tasks are left: call again", flush=True)
            break
        print(f"[{number}/{len(todo)}, {passed:.0f} s] {task.name}", flush=True)
        try:
            found = run_task(task, clock, options)
        except DeviceLost as error:
            case = task.case
            goals = () if case is None else case.goals
            found = [failed(case, goal, str(error)) for goal in goals if case is not None]
            status = 3
        rows += [row | shared for row in found]
        merge(options.out, [row | shared for row in found], order)
        if status:
            break
    every = merge(options.out, averages(read(options.out), cases, shared), order)
    shown = {row["id"] for row in rows} | set(AVERAGES)
    print("\n".join(lines([row for row in every if row["id"] in shown])), flush=True)
    return status or int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
