"""G-*: products at stored elements alone, the gradient of a layer's values.

Against the dense product of which those elements are taken, and for CSR against
``torch.sparse.sampled_addmm`` too. Whole calls between two events: nothing is planned ahead.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

import sparseformats as sf
from benchmarks.gpu.cases import Case
from benchmarks.gpu.clock import ROUNDS, Clock, Times, compared, interleave
from benchmarks.gpu.matrices import Problem, build
from benchmarks.gpu.results import Row, short
from benchmarks.gpu.roofline import CEILINGS, ITEM

__all__ = ["CASES", "IDS", "rows"]

OURS, MASKED, SAMPLED = "ours", "dense, then its stored elements", "torch.sparse.sampled_addmm"


def _case(form: str, b: int, density: float, size: int, inner: int, dtype: str) -> Case:
    name = f"{form}-{b}-{density:g}" if b > 1 else f"{form}-{density:g}-{dtype}"
    pattern = "even" if form == "blocked_ell" else "uniform"
    return Case(name, size, size, inner, (b, b), density, format=form, pattern=pattern, dtype=dtype)


CASES = (
    *(_case("bsr", b, d, 4096, 4096, "bfloat16") for b in (32, 64, 128) for d in (0.1, 0.2)),
    _case("blocked_ell", 64, 0.1, 4096, 4096, "bfloat16"),
    *(_case("csr", 1, d, 8192, 128, t) for d in (0.001, 0.01) for t in ("float32", "float16")),
)


def _ids(case: Case) -> tuple[str, ...]:
    """A row against the dense product, and for CSR one against torch."""
    listed = case.format == "csr"
    return (f"G-{case.name}", *([f"G-torch-{case.name}"] if listed else []))


IDS = tuple(id for case in CASES for id in _ids(case))


def rows(clock: Clock, scale: str = "full") -> list[Row]:
    """The rows of all cases; what failed says why."""
    found: list[Row] = []
    for full in CASES:
        case = full if scale == "full" else full.tiny()
        try:
            found += _measured(case, clock)
        except Exception as error:  # noqa: BLE001 - a fault must not end the other tasks
            why = f"{type(error).__name__}: {error}"
            found += [_row(case, id) | {"error": why} for id in _ids(case)]
        if clock.on_gpu:
            torch.cuda.empty_cache()
    return found


def _measured(case: Case, clock: Clock) -> list[Row]:
    problem = build(case, clock.device)
    A = _everywhere(problem.matrix)
    X, Y = _operands(case, clock.device)
    sides: dict[str, Callable[[], Any]] = {OURS: lambda: sf.sddmm(A, X, Y)}
    take = _taker(problem)
    sides[MASKED] = lambda: take(X @ Y)
    failures = {}
    if case.format == "csr":
        T = A.to_torch()
        sides[SAMPLED] = lambda: torch.sparse.sampled_addmm(T, X, Y, beta=0.0)
    _check(sides)
    for name in (MASKED, SAMPLED):
        if name in sides:
            try:
                sides[name]()
                clock.sync()
            except (RuntimeError, NotImplementedError) as error:
                failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
                del sides[name]
    times = interleave(clock, sides)
    chosen = sf.explain("sddmm", A, X, Y).chosen
    found = []
    for id, name in zip(_ids(case), (MASKED, SAMPLED), strict=False):
        row = _row(case, id)
        if name in failures:
            found.append(row | {"error": f"{name}: {failures[name]}"})
            continue
        found.append(row | _numbers(problem, times, name) | {"kernel": chosen})
    return found


def _everywhere(A: Any) -> Any:
    """Blocks of which every slot is stored, as for a gradient: zeros may become something."""
    if A.format == "csr":
        return A
    return type(A).from_parts(A.buffers(), {**A.static(), "zeros": "all"})


def _operands(case: Case, device: str) -> tuple[Any, Any]:
    """Gradients of the result, transposed, and inputs: tokens are rows of both."""
    generator = torch.Generator(device).manual_seed(1)
    made = [
        torch.randn(case.n, size, generator=generator, device=device) for size in (case.m, case.k)
    ]
    dtype = getattr(torch, case.dtype)
    return made[0].to(dtype).T, made[1].to(dtype)


def _taker(problem: Problem) -> Callable[[Any], Any]:
    """What leaves of a dense product the stored elements, with places looked up before."""
    case, parts, matrix = problem.case, problem.parts, problem.matrix
    (rows, columns), (r, c) = case.grid, case.block
    if case.format == "csr":
        places = parts.rows.long() * case.k + parts.columns.long()
        return lambda D: D.view(-1)[places]
    at, named = parts.rows.long(), parts.columns.long()
    shape = matrix.data.shape
    return lambda D: D.view(rows, r, columns, c).permute(0, 2, 1, 3)[at, named].view(shape)


def _check(sides: dict[str, Callable[[], Any]]) -> None:
    """Ours is right before any is timed."""
    ours, dense = sides[OURS]().data, sides[MASKED]()
    if not torch.allclose(ours.float(), dense.float(), rtol=2e-2, atol=0.5):
        raise RuntimeError("the sampled product is wrong: its time means nothing")


def _numbers(problem: Problem, times: Times, name: str) -> Row:
    case, found = problem.case, compared(times, OURS, name)
    r, c = case.block
    flops = 2.0 * problem.stored * r * c * case.n
    moved = ITEM[case.dtype] * ((case.m + case.k) * case.n + problem.stored * r * c)
    roof = max(flops / CEILINGS[case.dtype], moved / CEILINGS["memory"]) * 1e6
    return {
        "baseline": name,
        "ours_us": short(found.ours_us),
        "baseline_us": short(found.baseline_us),
        "ratio": round(found.speedup, 3),
        "spread": short(found.spread),
        "share_of_roofline": short(roof / found.ours_us),
        "roofline_us": short(roof),
        "rounds": ROUNDS,
        "clock": "events",
        "peers_us": {side: short(statistics.median(v)) for side, v in times.items()},
    }


def _row(case: Case, id: str) -> Row:
    edges = "" if case.block == (1, 1) else f", blocks {case.block[0]}x{case.block[1]}"
    every = "" if case.format == "csr" else " and every slot of a block stored"
    return {
        "id": id,
        "workload": f"(dense @ dense) at {case.format}, {case.m}x{case.n}x{case.k} {case.dtype}"
        f"{edges}, density {case.density:g}{every}, X column-major",
        "kernel": None,
        "baseline": MASKED if id == _ids(case)[0] else SAMPLED,
        **dict.fromkeys(("ours_us", "baseline_us", "ratio", "spread", "share_of_roofline")),
        "ratio_is": "speed-up: baseline / ours",
        "l2_model_us": None,
        "goal": None,
        "met": None,
    }
