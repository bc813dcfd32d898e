"""Rows of a measured case, beside their goals; and the averages that are goals themselves."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks.gpu.cases import BASELINES, Case, Goal
from benchmarks.gpu.clock import ROUNDS, Times, compared
from benchmarks.gpu.measure import Measured, best_under
from benchmarks.gpu.results import Row, short
from benchmarks.gpu.roofline import l2_model_us, roofline_us

__all__ = ["averages", "failed", "regret_of", "rows_of"]

L2_BYTES = 60e6
COLD = "cold: replays of one graph over matrices of 200 MB together, each with its own operand"


def rows_of(case: Case, measured: Measured) -> list[Row]:
    """One row a goal; the first one also has what the averages need."""
    rows = [_row(case, goal, measured) for goal in case.goals]
    rows[0]["regret"] = regret_of(case, measured)
    return rows


def failed(case: Case, goal: Goal, why: str) -> Row:
    """A row without a time."""
    return {**_empty(case, goal), "error": why}


def _empty(case: Case, goal: Goal) -> Row:
    numbers = ("kernel", "ours_us", "baseline_us", "ratio", "spread", "share_of_roofline")
    return {
        "id": goal.id,
        "workload": case.workload,
        "baseline": BASELINES[goal.baseline],
        **dict.fromkeys(numbers),
        "ratio_is": goal.ratio_is,
        "l2_model_us": None,
        "goal": goal.text,
        "met": None if goal.value is None else False,
        "case": case.facts,
    }


def _row(case: Case, goal: Goal, measured: Measured) -> Row:
    times = measured.times.get(goal.clock, {})
    if "ours" not in times:
        names = ("ours", "ours (graph)", "ours (cold)")
        why = next(filter(None, map(measured.failures.get, names)), None)
        return failed(case, goal, f"ours: {why}")
    side = best_under(times, goal.baseline)
    if side is None:
        return failed(case, goal, _why(goal.baseline, measured.failures))
    found = compared(times, "ours", side)
    roof = roofline_us(measured.work, case.dtype)
    ratio = 1 / found.speedup if goal.slower else found.speedup
    row = _empty(case, goal) | {
        "kernel": measured.kernel,
        "baseline": f"{BASELINES[goal.baseline]} ({side})",
        "ours_us": short(found.ours_us),
        "baseline_us": short(found.baseline_us),
        "ratio": round(ratio, 3),
        "spread": short(found.spread),
        "share_of_roofline": short(roof / found.ours_us),
        "roofline_us": short(roof),
        "l2_model_us": short(l2_model_us(measured.work)),
        "effective_tflops": short(measured.work.operations / found.ours_us * 1e-6),
        "stored_blocks": measured.blocks,
        "clock": goal.clock,
        "rounds": ROUNDS,
        "cache": COLD if goal.clock == "cold" else _cache(measured),
        "prepare_ms": short(measured.prepare_ms),
        "peers_us": {clock: _medians(found) for clock, found in measured.times.items()},
        "peers_failed": measured.failures,
    }
    return row | _judged(goal, ratio, times, found.baseline_us, measured, case)


def _judged(
    goal: Goal, ratio: float, times: Times, baseline_us: float, measured: Measured, case: Case
) -> Row:
    """Whether the goal is met; with the room that the dense rate leaves, where that counts."""
    if goal.value is None:
        return {"met": None}
    met = ratio <= goal.value if goal.slower else ratio >= goal.value
    dense = best_under(times, "cublas") if goal.room else None
    if dense is None:
        return {"met": met}
    share = measured.work.operations / (2.0 * case.m * case.k * case.n)
    room = baseline_us / (statistics.median(times[dense]) * share)
    applies = room >= goal.value
    return {"met": met if met or applies else None, "room": round(room, 3)}


def _why(baseline: str, failures: dict[str, str]) -> str:
    found = [f"{k}: {v}" for k, v in failures.items() if k.split(" ")[0].startswith(baseline)]
    return "baseline: " + ("; ".join(found) or f"{baseline} is not eligible for this product")


def _cache(measured: Measured) -> str:
    fits = measured.work.moved <= L2_BYTES
    held = "all buffers fit the second-level cache" if fits else "more bytes than the cache holds"
    return f"warm, repeated calls over the same buffers; {held}"


def _medians(times: Times) -> dict[str, float]:
    return {name: short(statistics.median(rounds)) for name, rounds in times.items()}


def regret_of(case: Case, measured: Measured) -> dict[str, Any] | None:
    """How much slower the choice for a finite operand is than the best of our kernels."""
    name = f"kernel/{measured.finite}"
    clocks = (measured.times.get(kind, {}) for kind in ("cold", "graph", "events"))
    times = next((found for found in clocks if name in found), None)
    if times is None:
        return None
    ours = {k.removeprefix("kernel/"): v for k, v in _medians(times).items() if "kernel/" in k}
    best = min(ours, key=ours.__getitem__)
    chosen = measured.finite or ""
    regret = short(ours[chosen] / ours[best] - 1)
    return {"case": case.name, "chosen": chosen, "best": best, "regret": regret, "times_us": ours}


# Averages.


def averages(rows: Iterable[Row], cases: Iterable[Case], provenance: Row) -> list[Row]:
    """X-llm, X-llm-torch, S-large and O-regret over the rows of this commit and device."""
    same = [
        row
        for row in rows
        if "error" not in row
        and "@" not in row["id"]
        and all(row[name] == provenance[name] for name in ("commit", "device"))
    ]
    cases = list(cases)
    parts = [goal.id for case in cases for goal in case.goals if goal.id.startswith("X-llm-")]
    torch = [id for id in parts if id.startswith("X-llm-torch-")]
    dense = [id for id in parts if id not in torch]
    every = [goal.id for case in cases for goal in case.goals]
    semi = [id for id in every if id.startswith("S-large-dense-")]
    found = [
        _geomean("X-llm", dense, same, 3.5),
        _geomean("X-llm-torch", torch, same, 3.0),
        _geomean("S-large", semi, same, 1.6, "large 2:4 products, bfloat16, linear-layer layout"),
        _regret(same, len(cases)),
    ]
    return [row | provenance for row in found if row is not None]


LLAMA = "feed-forward products, Llama-3 8B, bfloat16, linear-layer layout"


def _geomean(
    id: str, parts: list[str], rows: list[Row], goal: float, what: str = LLAMA
) -> Row | None:
    found = [row for row in rows if row["id"] in parts]
    if not found:
        return None

    def mean(name: str) -> float:
        return statistics.geometric_mean([row[name] for row in found])

    ratio = mean("ratio")
    complete = len(found) == len(parts)
    return {
        "id": id,
        "workload": f"geometric mean of {len(found)} of {len(parts)} {what}",
        "kernel": ", ".join(sorted({row["kernel"] for row in found})),
        "baseline": found[0]["baseline"].partition(" (")[0],
        "ours_us": short(mean("ours_us")),
        "baseline_us": short(mean("baseline_us")),
        "ratio": round(ratio, 3),
        "ratio_is": "geometric mean of the speed-ups baseline / ours",
        "spread": max(row["spread"] for row in found),
        "share_of_roofline": short(mean("share_of_roofline")),
        "l2_model_us": short(mean("l2_model_us")),
        "goal": f"geomean {goal:g}x",
        "met": ratio >= goal if complete else None,
    }


def _regret(rows: list[Row], count: int) -> Row | None:
    found = [row["regret"] for row in rows if row.get("regret")]
    if not found:
        return None
    worst = max(found, key=lambda each: float(each["regret"]))
    mean = statistics.geometric_mean([1 + each["regret"] for each in found]) - 1
    met = mean <= 0.02 and worst["regret"] <= 0.10
    times = [(each["times_us"][each["chosen"]], each["times_us"][each["best"]]) for each in found]
    return {
        "id": "O-regret",
        "workload": f"{len(found)} of {count} products of the suite, assume_finite",
        "kernel": "chosen",
        "baseline": "the best registered kernel",
        "ours_us": short(statistics.geometric_mean([chosen for chosen, _ in times])),
        "baseline_us": short(statistics.geometric_mean([best for _, best in times])),
        "ratio": short(1 + mean),
        "ratio_is": "geometric mean of chosen / best",
        "spread": max(row["spread"] for row in rows if row.get("regret")),
        "share_of_roofline": None,
        "l2_model_us": None,
        "goal": "geomean 2 %, worst 10 %",
        "met": met if len(found) == count else None,
        "worst": worst["regret"],
        "worst_case": worst["case"],
        "within_10_percent": sum(each["regret"] <= 0.10 for each in found),
        "misses": [each for each in found if each["regret"] > 0.10],
    }
