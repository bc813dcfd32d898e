"""From a case to what it takes: prepare every side, check it, time all in turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import NamedTuple

from benchmarks.gpu import peers
from benchmarks.gpu.cases import Case
from benchmarks.gpu.check import Reference
from benchmarks.gpu.clock import COPIES, ROUND, SPREAD, TRIES, Clock, Times, compared, interleave
from benchmarks.gpu.matrices import Problem, build
from benchmarks.gpu.peers import Side
from benchmarks.gpu.roofline import Work, work_of

__all__ = ["Measured", "best_under", "measure"]

Calls = dict[str, Callable[[], object]]
Make = Callable[[Problem], list[Side]]

SLOW, SLOW_US = 25, 1e4  # a side that takes longer than so many times ours, and this
COLD_BYTES = 200e6  # of matrices, between two calls with the same one; the cache holds 60 MB
LONGEST = 300  # characters of a failure's text


class Measured(NamedTuple):
    """All that was found out about a case.

    Attributes
    ----------
    kernel : str or None
        What dispatch chose; None where it has no (right) kernel.
    finite : str or None
        What it chooses where the operand is promised to be finite.
    times : dict of Times
        Rounds by side, by clock: ``"events"``, ``"graph"``, ``"cold"``; under ``"once"`` a single
        call each of sides that are too slow to be worth more and that no goal asks for.
    failures : dict of str to str
        Why a side has no time.
    work : Work
        For the roofline.
    prepare_ms : float
        The first plan: choice, packing, compilation.
    blocks : int
        Stored blocks.
    """

    kernel: str | None
    finite: str | None
    times: dict[str, Times]
    failures: dict[str, str]
    work: Work
    prepare_ms: float
    blocks: int


class _Sides:
    """Sides that give right results, and why the others do not take part."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.found: dict[str, Side] = {}
        self.makers: dict[str, Make] = {}
        self.failures: dict[str, str] = {}
        self.reference = Reference(problem)

    def add(self, name: str, make: Make) -> None:
        self.makers[name] = make
        try:
            made = make(self.problem)
        except Exception as error:  # noqa: BLE001 - a peer that fails is a fact to report
            self.failures[name] = _text(error)
            return
        for side in made:
            reference = self.reference if side.of is None else Reference(side.of)
            try:
                reference.check(side.name, side.call, side.view, foreign=side.kernel is None)
            except Exception as error:  # noqa: BLE001 - as above; a wrong side has no time
                self.failures[side.name] = _text(error)
            else:
                self.found[side.name] = side


def _text(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def measure(
    case: Case, clock: Clock, kernel: str | None = None, *, others: bool = True
) -> Measured:
    """Measure a case with all its peers and all our eligible kernels.

    Parameters
    ----------
    kernel : str or None
        What to measure as ours; default is what dispatch chooses.
    others : bool
        Measure our other eligible kernels as well.
    """
    problem = build(case, clock.device)
    sides = _Sides(problem)
    start = perf_counter()
    sides.add("ours", lambda of: [peers.ours(of, kernel)])
    clock.sync()
    prepare = (perf_counter() - start) * 1e3
    chosen, finite, times = None, None, dict[str, Times]()
    if "ours" in sides.found:
        chosen = sides.found["ours"].kernel
        # A kernel of a plan that groups rows is another one with the rows as they are given.
        finite, names = peers.other_kernels(problem, None if case.reorder else chosen)
        for name in names if others else ():
            sides.add(f"kernel/{name}", partial(peers.kernel_sides, name=name))
        for name in case.peers:
            sides.add(name, partial(peers.peer, name))
        times = _timed(case, clock, sides)
        if case.cold:
            times["cold"] = _steady(case, clock, "cold", *_cold(case, clock, sides))
        for kind in ("events", "graph", "cold"):
            clocked = times.get(kind, {})
            if "ours" in clocked and not case.reorder:
                clocked.setdefault(f"kernel/{chosen}", clocked["ours"])
    failures = sides.failures
    return Measured(chosen, finite, times, failures, _work(problem), prepare, problem.stored)


def _work(problem: Problem) -> Work:
    case = problem.case
    return work_of(
        shape=(case.m, case.k, case.n),
        block=case.block,
        blocks=problem.stored,
        used_columns=len(problem.parts.columns.unique()),
        dtype=case.dtype,
        gives=case.gives,
        index=0.25 if case.format == "2:4" else None,  # two bits of each kept element
    )


def best_under(times: Times, name: str) -> str | None:
    """The fastest side of a name, or under it (``name/…``)."""
    found = [side for side in times if side == name or side.startswith(f"{name}/")]
    return min(found, key=lambda side: sorted(times[side])[len(times[side]) // 2], default=None)


def _timed(case: Case, clock: Clock, sides: _Sides) -> dict[str, Times]:
    calls: Calls = {name: side.call for name, side in sides.found.items()}
    slow = _slow(case, clock, calls)
    calls = {name: call for name, call in calls.items() if name not in slow}
    times = {"events": _steady(case, clock, "events", calls, {})}
    times |= {"once": slow} if slow else {}
    graphs, copies = _graphs(case, clock, sides, times["events"])
    if "ours" in graphs:
        times["graph"] = _steady(case, clock, "graph", graphs, copies)
    return times


def _slow(case: Case, clock: Clock, calls: Calls) -> Times:
    """Sides that are hopeless, with the time of one call; never those of a goal."""
    goals = tuple(goal.baseline for goal in case.goals)
    once = {name: clock.time(call, 1) for name, call in calls.items()}
    limit = max(SLOW * once["ours"], SLOW_US)
    return {
        name: [time]
        for name, time in once.items()
        if time > limit and name != "ours" and not name.startswith(goals)
    }


def _graphs(case: Case, clock: Clock, sides: _Sides, times: Times) -> tuple[Calls, dict[str, int]]:
    """Replays of calls in a row: all sides of a small case, ours and torch's where a goal is."""
    graphs: Calls = {}
    copies: dict[str, int] = {}
    for name, side in sides.found.items():
        if not (case.graph or (case.torch_goal and name.startswith(("ours", "torch-bsr")))):
            continue
        if not side.capturable or name not in times:
            continue
        copies[name] = max(1, min(COPIES, round(ROUND / min(times[name]))))
        try:
            graphs[name] = clock.graph(side.call, copies[name])
        except Exception as error:  # noqa: BLE001 - it then has no time by graph
            sides.failures[f"{name} (graph)"] = _text(error)
    return graphs, copies


def _cold(case: Case, clock: Clock, sides: _Sides) -> tuple[Calls, dict[str, int]]:
    """Replays of calls that each have matrix, operand and result of their own.

    Together these are several times as large as the second-level cache, so none is in it when its
    turn comes again. Only sides that are right, can be recorded, and are ours or a goal's.
    """
    once = sum(x.nbytes for x in sides.problem.parts)
    count = max(2, int(-(-COLD_BYTES // once))) if clock.on_gpu else 2
    wanted = ("ours", "kernel/", *(goal.baseline for goal in case.goals))
    problems = [sides.problem, *(build(case, clock.device) for _ in range(count - 1))]
    calls: Calls = {}
    for name, make in sides.makers.items():
        if not name.startswith(wanted):
            continue
        try:
            made = [make(problem) for problem in problems]
            for alike in zip(*made, strict=True):
                known = sides.found.get(alike[0].name)
                if known is not None and known.capturable:
                    calls[known.name] = clock.graph(_all([side.call for side in alike]), 1)
        except Exception as error:  # noqa: BLE001 - it then has no cold time
            sides.failures[f"{name} (cold)"] = _text(error)
    return calls, dict.fromkeys(calls, count)


def _all(calls: list[Callable[[], object]]) -> Callable[[], object]:
    return lambda: [call() for call in calls]


def _steady(case: Case, clock: Clock, kind: str, calls: Calls, copies: dict[str, int]) -> Times:
    """Time all; those of the goals again while they vary too much, keeping the steadiest."""
    times = interleave(clock, calls, copies)
    names = [goal.baseline for goal in case.goals if goal.clock == kind]
    wanted = {
        side: call
        for side, call in calls.items()
        if side == "ours" or any(side == n or side.startswith(f"{n}/") for n in names)
    }
    worst = _spread(times, names)
    for _ in range(TRIES - 1):
        if worst <= SPREAD:
            break
        again = interleave(clock, wanted, copies)
        if _spread(again, names) < worst:
            worst = _spread(again, names)
            times |= again
    return times


def _spread(times: Times, baselines: list[str]) -> float:
    sides = [best_under(times, name) for name in baselines]
    return max((compared(times, "ours", side).spread for side in sides if side), default=0.0)
