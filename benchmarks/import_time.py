"""Time of `import sparseformats` against `import numpy`, each in a fresh process, alternating.

``python benchmarks/import_time.py [--runs 20] [--limit 1.2]`` prints both minima and their ratio
and ends non-zero above the limit. The minimum of alternating processes is what a quiet machine
would show; interpreter start-up is not counted, which makes the ratio stricter.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

PROGRAM = "from time import perf_counter as t; a = t(); import {}; print(t() - a)"


def seconds(module: str) -> float:
    """Time one import in one new process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def measure(runs: int, ours: str = "sparseformats", theirs: str = "numpy") -> tuple[float, float]:
    """Minimum import time of both modules over `runs` alternating processes of each."""
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(runs)]
    return min(a for a, _ in pairs), min(b for _, b in pairs)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and judge against the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--limit", type=float, default=1.2)
    parser.add_argument("--module", default="sparseformats")
    options = parser.parse_args(arguments)
    measure(1, options.module)  # writes the byte code, so that no timed process compiles
    ours, numpy = measure(options.runs, options.module)
    ratio = ours / numpy
    print(
        f"import {options.module} {ours * 1e3:.1f} ms, import numpy {numpy * 1e3:.1f} ms: "
        f"{ratio:.3f}x (limit {options.limit}x, minimum of {options.runs} alternating processes)"
    )
    return int(ratio > options.limit)


if __name__ == "__main__":
    sys.exit(main())
