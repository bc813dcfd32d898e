"""CPU conversions against SciPy: ``python -m benchmarks.run_cpu [section ...] [--only TEXT]``.

Sections are ``time``, ``memory`` and ``growth``. Rows are merged into ``results/cpu.json`` by their
id, so the whole can be run in slices. One thread; both sides in turn; see `benchmarks.timing`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from benchmarks import timing
from benchmarks.cases import CONVERSIONS, GROWTH, GROWTH_NNZ, MEMORY, SIZE, Case
from benchmarks.conversions import peak_memory, sides

RESULTS = Path(__file__).parent / "results" / "cpu.json"
KERNEL = "numpy-scipy"
SECTIONS = ("time", "memory", "growth")


def provenance() -> dict[str, Any]:
    """What every row says about where it comes from."""
    return {
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        "commit": timing.commit(),
        "date": timing.today(),
        "clock": "time of day",
        "device": f"{os.cpu_count()}-core {platform.machine().replace('_', '-')} CPU, 1 thread",
    }


def is_met(goal: str, found: timing.Comparison) -> bool:
    """Tell whether a comparison reaches its goal; limits hold for the median ratio."""
    if goal == "8x faster":
        return found.ratio <= 1 / 8
    if goal == "never slower":
        return found.ratio <= 1
    return found.ratio <= 1.15 + 50 / found.baseline_us


def time_rows(only: str) -> Iterator[dict[str, Any]]:
    """One row a case."""
    # Cases of one matrix follow each other: it is made once.
    ordered = sorted(CONVERSIONS, key=lambda case: (case.density, case.pattern, case.blocksize))
    for case in ordered:
        if only not in case.id:
            continue
        ours, baseline, text = sides(case)
        found = timing.compare(ours, baseline)
        yield {
            "id": case.id,
            "workload": case.workload,
            "kernel": KERNEL,
            "baseline": f"SciPy {text}",
            **vars(found),
            "goal": case.goal,
            "met": is_met(case.goal, found),
        }


def memory_rows(only: str) -> Iterator[dict[str, Any]]:
    """One row a case."""
    for case in MEMORY:
        if only in case.id:
            yield peak_memory(case)


def growth_rows(only: str) -> Iterator[dict[str, Any]]:
    """Nanoseconds an element at both sizes, and how they grow."""
    for case in GROWTH:
        if only not in case.id:
            continue
        found, counts, text = [], [], ""
        for elements in GROWTH_NNZ:
            size = _size_for(case, elements)
            ours, baseline, text = sides(case, size)
            found.append(timing.compare(ours, baseline, rounds=5))
            counts.append(elements)
        growth = timing.growth_of(found[0], found[1], (counts[0], counts[1]))
        yield {
            "id": case.id.replace("V-cpu", "growth"),
            "workload": f"{case.source} -> {case.target}, full 16x16 blocks, nnz 1e5 and 5e7",
            "kernel": KERNEL,
            "baseline": f"SciPy {text}",
            "ours_ns": [round(f.ours_us * 1e3 / n, 3) for f, n in zip(found, counts, strict=True)],
            "baseline_ns": [
                round(f.baseline_us * 1e3 / n, 3) for f, n in zip(found, counts, strict=True)
            ],
            **growth,
            "spread": max(f.spread for f in found),
            "goal": "growth <= 1.25x of SciPy's",
            "met": growth["ratio"] <= 1.25,
        }


def _size_for(case: Case, elements: int) -> int:
    """Edge of a square matrix of whole blocks with about so many stored elements."""
    edge: float = (elements / case.density) ** 0.5
    return round(edge / case.blocksize) * case.blocksize


def merge(rows: list[dict[str, Any]]) -> None:
    """Replace rows of the same id in the results, keep the others."""
    old = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    kept = {row["id"]: row for row in [*old, *rows]}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(list(kept.values()), indent=1) + "\n")


def main(arguments: list[str]) -> int:
    """Run sections; the exit status is the number of missed goals, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--only", default="", help="only rows whose id contains this")
    options = parser.parse_args(arguments)
    makers = {"time": time_rows, "memory": memory_rows, "growth": growth_rows}
    shared, missed = provenance(), 0
    for section in options.sections or SECTIONS:
        for row in makers[section](options.only):
            row |= shared
            merge([row])
            missed += not row["met"]
            print(
                f"{'ok  ' if row['met'] else 'MISS'} {row['ratio']:8.3f}  {row['id']}", flush=True
            )
    print(f"{missed} goals missed, size {SIZE}")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
