"""Two things timed against each other in one process, turn by turn.

The clock is the time of day: kernels may use more threads than the caller's, whose CPU time would
leave their work out. On a busy machine rounds disagree, and the spread of the ratios says so.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

__all__ = ["Comparison", "commit", "compare", "growth_of", "today"]

Call = Callable[[], object]

ROUNDS = 7  # at least 5 by the rules
SPREAD = 0.10  # a comparison that varies more is run again
TRIES = 3
SHORTEST = 2e-3  # seconds that one round of one side lasts, by repetition


@dataclass(frozen=True)
class Comparison:
    """Medians of both sides in microseconds; ratio and spread are of the rounds' own ratios."""

    ours_us: float
    baseline_us: float
    ratio: float
    spread: float
    rounds: int


def compare(ours: Call, baseline: Call, rounds: int = ROUNDS, tries: int = TRIES) -> Comparison:
    """Time both sides in turn; the steadiest of a few tries counts.

    A round's two measurements are neighbours in time, so their ratio is steady where other
    processes come and go; the spread is half the interquartile range of the ratios over the median.
    """
    best = _compare(ours, baseline, rounds)
    for _ in range(tries - 1):
        if best.spread <= SPREAD:
            break
        best = min(best, _compare(ours, baseline, rounds), key=lambda c: c.spread)
    return best


def _compare(ours: Call, baseline: Call, rounds: int) -> Comparison:
    repeats = [_repeats(call) for call in (ours, baseline)]
    times: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            sides = [(ours, repeats[0], times[0]), (baseline, repeats[1], times[1])]
            for call, count, found in sides if number % 2 else reversed(sides):
                found.append(_seconds(call, count))
    finally:
        gc.enable()
    ratios = [mine / theirs for mine, theirs in zip(*times, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Comparison(
        ours_us=round(statistics.median(times[0]) * 1e6, 1),
        baseline_us=round(statistics.median(times[1]) * 1e6, 1),
        ratio=round(middle, 4),
        spread=round((high - low) / 2 / middle, 4),
        rounds=rounds,
    )


def _repeats(call: Call) -> int:
    call()  # lazy imports and kernel selection
    once = min(_seconds(call, 1) for _ in range(2))
    return max(1, round(SHORTEST / once))


def _seconds(call: Call, count: int) -> float:
    start = perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - start) / count


def growth_of(small: Comparison, large: Comparison, elements: tuple[int, int]) -> dict[str, float]:
    """How much dearer an element becomes from small to large, for both sides and their ratio."""
    ours = (large.ours_us / elements[1]) / (small.ours_us / elements[0])
    baseline = (large.baseline_us / elements[1]) / (small.baseline_us / elements[0])
    return {
        "ours_growth": round(ours, 3),
        "baseline_growth": round(baseline, 3),
        "ratio": round(ours / baseline, 3),
    }


def commit() -> str:
    """Commit of the tree that is measured, marked if files differ from it."""
    root = Path(__file__).parent
    run = ["git", "-C", str(root)]
    head = subprocess.run([*run, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    changes = [*run, "status", "--porcelain", "--", "../sparseformats", "../kernels"]
    dirty = subprocess.run(changes, capture_output=True, text=True, check=True).stdout.strip()
    return head.stdout.strip() + ("+changes" if dirty else "")


def today() -> str:
    """Date in UTC."""
    return datetime.now(UTC).date().isoformat()
