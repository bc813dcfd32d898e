"""The tuner: ``python -m benchmarks.tune [launch] [select] --device cuda:0``.

``launch`` finds launch parameters of the Triton kernels by bucket of product, ``select`` measures
every eligible kernel over the same grid of products, for dispatch to choose by. Both write JSON
with provenance, skip what their file has of this device and commit, and end in time: call again
to go on. Run ``launch`` first and in a process of its own: ``select`` measures the kernels with the
launch parameters that lie beside them when it starts.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import torch

from benchmarks.gpu.cases import Case
from benchmarks.gpu.clock import Clock, clock_for
from benchmarks.gpu.grid import grid
from benchmarks.gpu.results import provenance
from benchmarks.gpu.tuning import (
    Search,
    Table,
    Tunable,
    problems,
    selection_row,
    triton_backend,
)
from sparseformats.dispatch.places import shipped_tables

ROOT = Path(__file__).resolve().parents[1]
LAUNCH = ROOT / "kernels" / "sparseformats_kernels" / "triton" / "tables" / "h200.json"
SELECT = shipped_tables() / "h200.json"
SECTIONS = ("launch", "select")


def tune_launch(
    cases: Sequence[Case], clock: Clock, table: Table, end: float, backend: Tunable
) -> int:
    """Fill the launch table; returns how many cases are left."""
    search, kernels = Search(backend, clock), list(backend.RULES)
    todo = [c for c in cases if not all(table.has(c.name, kernel) for kernel in kernels)]
    for number, (problem, reference) in enumerate(problems(todo, clock)):
        if perf_counter() > end:
            return len(todo) - number
        name = problem.case.name
        for kernel in kernels:
            if table.has(name, kernel):
                continue
            try:
                row = search.row(problem, reference, kernel)
            except RuntimeError as error:
                clock.sync()  # ends everything where the device is lost
                print(f"{name} {kernel}: FAILED {error}", flush=True)
                row = None
            if row is None:
                table.refuse(name, kernel)
            else:
                table.add(name, row)
                gain = "" if row["rule_us"] is None else f", rule {row['rule_us']:.4g}"
                print(f"{name} {kernel}: {row['time_us']:.4g} us{gain} {row['config']}", flush=True)
        _free(clock)
    return 0


def tune_select(cases: Sequence[Case], clock: Clock, table: Table, end: float) -> int:
    """Fill the selection table; returns how many cases are left."""
    todo = [case for case in cases if not table.has(case.name)]
    for number, (problem, reference) in enumerate(problems(todo, clock)):
        if perf_counter() > end:
            return len(todo) - number
        row = selection_row(problem, reference, clock)
        if row is not None:
            table.add(problem.case.name, row)
            best = sorted(row["times_us"].items(), key=lambda item: item[1])[:3]
            print(f"select {problem.case.name}: {best}", flush=True)
        _free(clock)
    return 0


def _free(clock: Clock) -> None:
    if clock.on_gpu:
        torch.cuda.empty_cache()


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: both")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--launch", type=Path, default=LAUNCH, help="file of launch parameters")
    parser.add_argument("--select", type=Path, default=SELECT, help="file of measured times")
    parser.add_argument("--only", default="", metavar="REGEX", help="names of cases")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--commit")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None, backend: Tunable | None = None) -> int:
    """Tune; the exit status is 0, whether or not all is done, and the last line says which."""
    options = arguments(sys.argv[1:] if given is None else given)
    clock = clock_for(options.device)
    shared = provenance(options.device, options.commit)
    cases = [case for case in grid() if re.search(options.only, case.name)]
    if options.scale == "tiny":
        cases = [case.tiny() for case in cases]
    end, left = perf_counter() + options.seconds, {}
    clock.warm_up()
    sections = options.sections or SECTIONS
    if "launch" in sections:
        blocks = [case for case in cases if case.format == "bsr"]
        table = Table(options.launch, shared)
        left["launch"] = tune_launch(blocks, clock, table, end, backend or triton_backend())
    if "select" in sections:
        left["select"] = tune_select(cases, clock, Table(options.select, shared), end)
    print("; ".join(f"{name}: {count} cases left" for name, count in left.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
