"""torch's BSR product as shipped, and after the tuner that torch brings.

The tuner is run once a case and its answer kept in a file, since it takes a minute. Its search is
torch's own; only the clock in it is shortened (25 ms of warm-up instead of 500) and stopped at a
limit, so that more candidates are tried in less time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks.gpu.matrices import Problem

__all__ = ["FILE", "SECONDS", "keep_in", "tensor", "tuned_call"]

FILE = Path(__file__).parents[1] / "results" / "torch_bsr_tuned.json"
SECONDS = 60.0
WARMUP, REPEAT = 25, 100  # milliseconds

_files = [FILE]  # read all, write the last


def keep_in(path: Path) -> None:
    """Write what is tuned from now on to this file; known results are still read from `FILE`."""
    _files[1:] = [path] if path != FILE else []


def tensor(problem: Problem) -> Any:
    """The matrix as torch makes it itself, with int64 indices."""
    parts = problem.parts
    index = (parts.pointers.long(), parts.columns.long())
    shape = tuple(problem.matrix.shape)
    return torch.sparse_bsr_tensor(*index, parts.data, shape, check_invariants=False)


def tuned_call(problem: Problem) -> Callable[[], Any]:
    """torch's kernel called with the parameters that its tuner found."""
    from torch.sparse._triton_ops import bsr_dense_addmm

    A = tensor(problem)
    out = torch.empty_like(problem.Y)
    meta = _known(problem) or _tune(problem, A, out)
    options = {"alpha": 1, "beta": 0, "out": out, "meta": meta}
    return partial(bsr_dense_addmm, out, A, problem.X, **options)


def _key(problem: Problem) -> str:
    device = problem.X.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return f"{problem.case.name}, torch {torch.__version__}, {name}"


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _known(problem: Problem) -> dict[str, int] | None:
    for path in reversed(_files):
        found = _read(path).get(_key(problem))
        if found is not None:
            meta: dict[str, int] = found["meta"]
            return meta
    return None


def _tune(problem: Problem, A: Any, out: Any) -> dict[str, int]:
    from torch.sparse._triton_ops_meta import tune_bsr_dense_addmm

    start = perf_counter()
    with _limited(start + SECONDS) as tried:
        meta = tune_bsr_dense_addmm(out, A, problem.X, alpha=1, beta=0, out=out)
    if not meta:
        raise RuntimeError("torch's tuner found no parameters with which its kernel runs")
    kept = _read(_files[-1])
    kept[_key(problem)] = {
        "meta": meta,
        "seconds": round(perf_counter() - start, 1),
        "candidates": len(tried),
        "complete": perf_counter() < start + SECONDS,
    }
    _files[-1].parent.mkdir(parents=True, exist_ok=True)
    temporary = _files[-1].with_suffix(".new")
    temporary.write_text(json.dumps(kept, indent=1) + "\n")
    os.replace(temporary, _files[-1])
    found: dict[str, int] = meta
    return found


@contextmanager
def _limited(end: float) -> Iterator[list[float]]:
    """Shorten the tuner's clock; past the end every candidate fails, which ends the search."""
    import triton.testing

    measure, tried = triton.testing.do_bench, list[float]()

    def do_bench(call: Callable[[], Any], **_: Any) -> float:
        if perf_counter() > end:
            raise TimeoutError("the tuner's time is over")
        tried.append(float(measure(call, warmup=WARMUP, rep=REPEAT)))
        return tried[-1]

    triton.testing.do_bench = do_bench
    try:
        yield tried
    finally:
        triton.testing.do_bench = measure
