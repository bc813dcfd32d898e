"""Time of importing this library against `import numpy`, each in a fresh process, alternating.

``python benchmarks/import_time.py [--runs 20] [--limit 1.2]`` prints minima and their ratios and
ends non-zero above the limit. Names are imported when first used, so two statements are judged:
the bare import and, by a limit a quarter wider, one that loads every format, which is what a user
pays. The minimum of alternating processes is what a quiet machine would show; interpreter start-up
is not counted, which makes the ratio stricter.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

PROGRAM = "from time import perf_counter as t; a = t(); {}; print(t() - a)"
THEIRS = "import numpy"
OURS = (
    "import sparseformats",
    "from sparseformats import BSR, COO, CSC, CSR, NM, BlockedELL, Transposed",
)
SLACK = (1.0, 1.25)  # of the limit, for each of ours


def seconds(statement: str, cache: str) -> float:
    """Time one statement in one new process that keeps byte code in the folder `cache`."""
    program = [sys.executable, "-c", PROGRAM.format(statement)]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure(runs: int, statements: Sequence[str]) -> list[float]:
    """Minimum time of each statement over `runs` alternating processes of each, none compiling."""
    with tempfile.TemporaryDirectory() as cache:
        rounds = [[seconds(each, cache) for each in statements] for _ in range(runs + 1)]
    return [min(times) for times in zip(*rounds[1:], strict=True)]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and judge against the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--limit", type=float, default=1.2)
    options = parser.parse_args(arguments)
    numpy, *ours = measure(options.runs, [THEIRS, *OURS])
    print(f"{THEIRS}: {numpy * 1e3:.1f} ms (minimum of {options.runs} alternating processes)")
    over = False
    for statement, time, slack in zip(OURS, ours, SLACK, strict=True):
        limit = round(slack * options.limit, 3)
        print(f"{statement}: {time * 1e3:.1f} ms, {time / numpy:.3f}x (limit {limit}x)")
        over |= time > limit * numpy
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
