"""Where cuSPARSELt ends on this device: ``python -m tests.gpu.cusparselt_limits --seconds 60``.

What is tried here may end a process (an illegal instruction does) or never return, so each trial
runs in a process of its own that writes down what it is about to do; the next one goes on behind
it. Four questions:

- ``results``: which types of results the library writes right itself, with what follows the sums
  (``--only results --seconds 15``); a type of results may be searched for (`searching.MEASURED`)
  once ``ids`` has told that its algorithms execute (``--only float8_e4m3fn:``);
- ``ids``: which algorithms execute at all, by type and number of columns (`searching.TRUSTED`);
- ``columns``: up to how many columns products are right (`MOST_COLUMNS`);
- ``infinities``: which algorithms give NaN for a sum of -inf (`Tolerance.nan_for_infinity`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[2]
TYPES = ("float16", "bfloat16", "int8", "float8_e4m3fn")
COLUMNS = (1, 8, 16, 100, 504, 4096)
WIDE = tuple(1 << i for i in range(15, 23))
RESULTS = (
    *((dtype, dtype) for dtype in TYPES[:2]),
    *(("float8_e4m3fn", gives) for gives in ("float32", *TYPES[:2], "float8_e4m3fn")),
)
OTHERS = tuple(f"float8_e4m3fn:{gives}" for gives in TYPES[:2])  # operands' and results' type
TRIALS = (
    *(("results", dtype, gives, 32) for dtype, gives in RESULTS),
    *(("ids", dtype, layout, n) for dtype in TYPES for layout in "CF" for n in COLUMNS),
    *(("ids", dtypes, "F", n) for dtypes in OTHERS for n in COLUMNS),
    *(("columns", dtype, "F", n) for dtype in (*TYPES, *OTHERS) for n in WIDE),
    *(("infinities", dtype, "C", n) for dtype in TYPES[:2] for n in (1, 16)),
)


# ---- in a process of its own


def attempt(question: str, dtype: str, layout: str, n: int, start: int, journal: TextIO) -> None:
    """Run candidates from number `start` on, each announced before it runs."""
    if question == "results":
        _attempt_results(dtype, layout, start, journal)
        return
    from sparseformats_kernels.cusparselt.plans import DEFAULT
    from sparseformats_kernels.cusparselt.searching import splits

    shape = {"ids": (2048, 4096), "columns": (32, 64), "infinities": (64, 64)}[question]
    state, problem, x, exact = _prepared(question, shape, dtype, layout, n)
    most = state.make_plan(problem, DEFAULT).most
    whole = [DEFAULT, *(DEFAULT._replace(id=i) for i in range(most))]
    cut = [each for algorithm in whole[1:] for each in splits(algorithm)]
    every = {"ids": [*whole, *cut], "columns": [DEFAULT], "infinities": whole}[question]
    for number, algorithm in enumerate(every[start:], start):
        journal.write(f"{number} {tuple(algorithm)} ")
        journal.flush()
        journal.write(f"{_outcome(state, problem, algorithm, x, exact)}\n")
        journal.flush()
    journal.write("done\n")


def _attempt_results(dtype: str, gives: str, start: int, journal: TextIO) -> None:
    """The same for results of a type: alone, and with each of what may follow the sums."""
    from sparseformats_kernels.cusparselt.results import Features, outcome

    state, *_ = _prepared("results", (64, 128), dtype, "F", 32)
    biases = dict.fromkeys([None, "float32", gives])
    every = [
        Features(dtype, gives, bias, relu, vector)
        for bias in biases
        for relu in (False, True)
        for vector in (False, True)
    ]
    for number, features in enumerate(every[start:], start):
        journal.write(f"{number} {tuple(features)} ")
        journal.flush()
        journal.write(f"{outcome(state, features)}\n")
        journal.flush()
    journal.write("done\n")


def _prepared(question: str, shape: tuple[int, int], dtype: str, layout: str, n: int) -> Any:
    import torch

    import sparseformats as sf
    from sparseformats_kernels.cusparselt.serving import serve, usual
    from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
    from tests.kernels.cusparselt.support import dense, query_for

    dtype, _, gives = dtype.partition(":")
    D = dense(shape, dtype).cuda()
    if question == "infinities":
        D.zero_()
        D[:, 0] = -torch.inf
    x = torch.ones(n, shape[1], device="cuda").to(D.dtype)
    x = x.T if layout == "F" else x.T.contiguous()
    A = sf.from_dense(D, "2:4")
    query = query_for(A, x, device="cuda", capability=(9, 0), x_layout=layout)
    state = CuSparseLtProduct.pack(A, query)
    state = state.giving(gives) if gives else state
    problem = serve(state.blob, shape, usual(query, n), True).problem
    return state, problem, _laid(state, problem, x), A.to_dense().double().sum(dim=1)


def _laid(state: Any, problem: Any, x: Any) -> Any:
    """The operand as the library gets it, with columns of ones where some were added."""
    import torch

    from sparseformats_kernels.cusparselt.api import ORDER_COL

    size = (problem.n, state.blob.k) if problem.x_order == ORDER_COL else (state.blob.k, problem.n)
    made = torch.zeros(size, device="cuda", dtype=x.dtype)
    wide = made.mT if problem.x_order == ORDER_COL else made
    wide[: x.shape[0], :] = torch.ones(1, device="cuda").to(x.dtype)
    return made


def _outcome(state: Any, problem: Any, algorithm: Any, x: Any, exact: Any) -> str:
    """``right``, ``refused``, or what the first column of the result is."""
    import torch

    from sparseformats_kernels.cusparselt.api import ORDER_COL
    from sparseformats_kernels.cusparselt.launching import Launch

    turned = problem.y_order == ORDER_COL
    size = (problem.n, state.blob.m) if turned else (state.blob.m, problem.n)
    y = torch.full(size, -7, device="cuda", dtype=getattr(torch, state.blob.gives))
    try:
        plan = state.make_plan(problem, algorithm)
        room = state.device.empty((max(1, plan.workspace),), "uint8")
        room.fill_(255)
        launch = Launch(state, plan, state.device.stream(), room, None)
        launch(x.data_ptr(), y.data_ptr(), 1, 0)
        torch.cuda.synchronize()
    except RuntimeError as error:
        if "CUDA error" in str(error):
            os._exit(3)
        return "refused"
    columns = (y.mT if turned else y).double()
    wanted = exact.to(y.dtype).double()[:, None].expand_as(columns[: exact.numel()])
    found = columns[: exact.numel()]
    wrong = ~((found == wanted) | (found.isnan() & wanted.isnan()))
    if not bool(wrong.any()):
        return "right"
    return f"wrong: {int(wrong.sum())} elements, such as {float(found[wrong][0])}"


# ---- the process that watches


def watch(trial: tuple[Any, ...], folder: Path, end: float) -> dict[str, Any]:
    """Outcomes of one trial's candidates, in as many processes as it takes."""
    journal, start = folder / "-".join(map(str, trial)), 0
    while time.monotonic() < end:
        command = [sys.executable, "-m", "tests.gpu.cusparselt_limits", "--child", str(journal)]
        command += [*map(str, trial), str(start)]
        left = max(0.1, min(30.0, end - time.monotonic()))
        with suppress(subprocess.TimeoutExpired):  # it hangs where its journal says
            subprocess.run(command, cwd=ROOT, timeout=left, capture_output=True, check=False)
        lines = journal.read_text().splitlines() if journal.exists() else []
        if not lines or lines[-1] == "done":
            break
        if lines[-1].endswith(") "):
            with journal.open("a") as file:
                file.write("ends the process\n")
            lines[-1] += "ends the process"
        start = int(lines[-1].split()[0]) + 1
    if trial[0] == "results":
        return {"trial": list(trial), **dict(_lines(journal))}
    return {"trial": list(trial), **_summary(_lines(journal))}


def _lines(journal: Path) -> Iterator[tuple[str, str]]:
    for line in journal.read_text().splitlines() if journal.exists() else ():
        if line != "done":
            name, _, outcome = line.partition(") ")
            yield name.partition("(")[2], outcome


def _summary(lines: Iterator[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {"right": 0, "refused": 0, "other": {}}
    for algorithm, outcome in lines:
        if outcome in found:
            found[outcome] += 1
        else:
            found["other"][algorithm] = outcome
    return found


def _tell(row: dict[str, Any]) -> None:
    found = {k: v for k, v in row.items() if k != "trial"}
    if row["trial"][0] != "results":
        print(*row["trial"], found, flush=True)
        return
    for features, outcome in found.items():  # dtype, result, bias, relu, scales of rows
        print("results:", features, "->", outcome, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Try everything that fits into the time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--processes", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--only", default="", help="trials with this in their name")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--child", nargs=6, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        journal, question, dtype, layout, n, start = options.child
        with open(journal, "a", encoding="utf-8") as file:
            attempt(question, dtype, layout, int(n), int(start), file)
        return 0
    end = time.monotonic() + options.seconds
    trials = [trial for trial in TRIALS if options.only in "-".join(map(str, trial))]
    rows = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.processes) as pool:
        for row in pool.map(lambda trial: watch(trial, Path(name), end), trials):
            rows.append(row)
            _tell(row)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
