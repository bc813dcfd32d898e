"""V-*: conversions on the device, against the time in which each byte is moved once.

Wall time of whole calls between two events, waiting for the device included: a conversion has to
learn how much there is. Those that are planned with a capacity need not: they are measured as
replays of a CUDA graph.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import sparseformats as sf
from benchmarks.gpu.cases import Case
from benchmarks.gpu.clock import ROUNDS, Clock, interleave, spread_of
from benchmarks.gpu.matrices import Problem, build, dense_of
from benchmarks.gpu.results import Row, short
from benchmarks.gpu.roofline import CEILINGS, INDEX, ITEM

__all__ = ["IDS", "rows"]

BLOCKS, SIZE, DENSITY = (16, 64), 8192, 0.1
TIMES, BEYOND = 2.5, 40.0  # the goal: so many times the floor, and microseconds beyond
STEPS = (
    *("dense-bsr", "bsr-dense", "csr-bsr", "bsr-csr", "csr-csc", "dense-csr"),
    *("bsr-ell", "ell-bsr", "bsr-bsr"),
)
PLANNED = ("dense-bsr", "csr-bsr", "dense-csr")
IDS = tuple(
    id
    for b in BLOCKS
    for id in (
        *(f"V-{step}-{b}" for step in STEPS),
        *(f"V-plan-{step}-{b}" for step in PLANNED),
    )
)

Call = Callable[[], Any]


def rows(clock: Clock, scale: str = "full") -> list[Row]:
    """A row for each conversion and block size."""
    found: list[Row] = []
    for b in BLOCKS:
        case = Case(f"moves-{b}", SIZE, SIZE, 16, (b, b), DENSITY)
        case = case if scale == "full" else case.tiny()
        try:
            found += _of(build(case, clock.device), b, clock)
        except Exception as error:  # noqa: BLE001 - a fault must not end the other tasks
            why = f"{type(error).__name__}: {error}"
            found += [_row(f"V-{step}-{b}", case, step) | {"error": why} for step in STEPS]
            names = [(f"V-plan-{step}-{b}", step) for step in PLANNED]
            found += [_row(id, case, step) | {"error": why} for id, step in names]
    return found


def _of(problem: Problem, named: int, clock: Clock) -> list[Row]:
    A, D = problem.matrix, dense_of(problem)
    C, size, into = A.to("csr"), problem.case.block, _into(problem.case, named)
    _check(A, C, D)
    E, B = _blocked(A, into)
    sides: dict[str, Call] = {
        "dense-bsr": lambda: sf.from_dense(D, "bsr", blocksize=size),
        "bsr-dense": A.to_dense,
        "csr-bsr": lambda: C.to("bsr", blocksize=size),
        "bsr-csr": lambda: A.to("csr"),
        "csr-csc": lambda: C.to("csc"),
        "dense-csr": lambda: sf.from_dense(D, "csr"),
        "bsr-ell": lambda: A.to("blocked_ell"),
        "ell-bsr": lambda: E.to("bsr"),
        "bsr-bsr": lambda: A.to("bsr", blocksize=into),
    }
    peers = _peers(problem, D)
    times = interleave(clock, sides | peers)
    found = []
    for step, call in sides.items():
        theirs = {name: times[name] for name in peers if name.startswith(f"torch/{step}")}
        with sf.tracing() as trace:
            call()
        kernels = sorted({run.kernel for run in trace if run.op.startswith("convert:")})
        floor = _floor(problem, step, B)
        row = _row(f"V-{step}-{named}", problem.case, step, times[step], floor)
        if step == "bsr-bsr":
            row["workload"] += f", into blocks {into[0]}x{into[1]}"
        found.append(
            row
            | {"kernel": ", ".join(kernels), "rounds": ROUNDS, "clock": "events"}
            | {"peers_us": {k: short(statistics.median(v)) for k, v in theirs.items()}}
        )
    return found + _planned(problem, named, clock, {"dense": D, "csr": C})


def _planned(problem: Problem, named: int, clock: Clock, sources: dict[str, Any]) -> list[Row]:
    """Conversions into room for exactly what there is, recorded and replayed."""
    A, plans = problem.matrix, {}
    for step in PLANNED:
        source, target = step.split("-")
        blocked = target == "bsr"
        room = problem.stored if blocked else int(sources["csr"].nnz)
        options = {"blocksize": problem.case.block} if blocked else {}
        plans[step] = sf.plan_conversion(sources[source], target, capacity=room, **options)

    def run(step: str) -> Call:
        plan, source = plans[step], sources[step.partition("-")[0]]
        return lambda: plan(source)

    replays = {step: clock.graph(run(step), 1) for step in PLANNED}
    times = interleave(clock, replays)
    found = []
    for step in PLANNED:
        if not sf.same(plans[step].matrix(), A):
            raise RuntimeError(f"{step} by a plan is wrong: its time means nothing")
        floor = _floor(problem, step)
        row = _row(f"V-plan-{step}-{named}", problem.case, step, times[step], floor)
        row["workload"] += ", planned with a capacity"
        kernel = plans[step].kernel
        found.append(row | {"kernel": kernel, "rounds": ROUNDS, "clock": "graph"})
    return found


def _check(A: Any, C: Any, D: Any) -> None:
    """All of them are right before any is timed."""
    again = sf.from_dense(D, "bsr", blocksize=A.blocksize)
    if not (sf.same(A, again) and sf.same(A, C) and bool((A.to_dense() == D).all())):
        raise RuntimeError("a conversion is wrong: its time means nothing")
    if not sf.same(C.to("bsr", blocksize=A.blocksize), A):
        raise RuntimeError("csr to bsr is wrong: its time means nothing")
    if not (sf.same(C.to("csc"), A) and sf.same(sf.from_dense(D, "csr"), A)):
        raise RuntimeError("csr to csc, or dense to csr, is wrong: its time means nothing")


def _blocked(A: Any, into: tuple[int, int]) -> tuple[Any, Any]:
    """The matrix as Blocked-ELL, and in other blocks, both of them right."""
    E, B = A.to("blocked_ell"), A.to("bsr", blocksize=into)
    if not (sf.same(E, A) and sf.same(B, A) and sf.same(E.to("bsr"), A, level="buffers")):
        raise RuntimeError("a conversion of blocks is wrong: its time means nothing")
    return E, B


def _into(case: Case, named: int) -> tuple[int, int]:
    """Blocks are joined by fours, or cut into four: 16 and 64 both become 32."""
    r, c = case.block
    return (2 * r, 2 * c) if named < 32 else (r // 2, c // 2)


def _peers(problem: Problem, D: Any) -> dict[str, Call]:
    """torch's own, where it has them on a device."""
    size = problem.case.block
    sparse = D.to_sparse_bsr(size)
    return {
        "torch/dense-bsr": lambda: D.to_sparse_bsr(size),
        "torch/bsr-dense": sparse.to_dense,
        "torch/dense-csr": D.to_sparse_csr,
    }


def _floor(problem: Problem, step: str, other: Any = None) -> float:
    """Microseconds in which each byte is read and written once, index bytes counted.

    `other` is what the step between blocks of two sizes gives.
    """
    case, (r, c) = problem.case, problem.case.block
    item, blocks = ITEM[case.dtype], problem.stored
    dense = case.m * case.k * item
    blocked = blocks * (r * c * item + INDEX) + (case.grid[0] + 1) * INDEX
    listed = blocks * r * c * (item + INDEX) + (case.m + 1) * INDEX
    turned = listed + (case.k - case.m) * INDEX  # a pointer for each column
    width = int(problem.parts.pointers.diff().max())
    sizes = {"dense": dense, "bsr": blocked, "csr": listed, "csc": turned}
    sizes["ell"] = case.grid[0] * width * (r * c * item + INDEX)
    source, target = step.split("-")
    made = other.nbytes if source == target else sizes[target]
    return float((sizes[source] + made) / CEILINGS["memory"] * 1e6)


def _row(
    id: str, case: Case, step: str, times: list[float] | None = None, floor: float = 0.0
) -> Row:
    source, target = step.split("-")
    row: Row = {
        "id": id,
        "workload": f"{source} to {target}, {case.m}x{case.k} {case.dtype}, blocks "
        f"{case.block[0]}x{case.block[1]}, {case.density:g} of them stored, full",
        "kernel": None,
        "baseline": "each byte moved once at the speed of a copy",
        **dict.fromkeys(("ours_us", "baseline_us", "ratio", "spread", "share_of_roofline")),
        "ratio_is": f"ours / ({TIMES:g} floors + {BEYOND:g} us)",
        "l2_model_us": None,
        "goal": "<= 1.00x",
        "met": False,
    }
    if times is None:
        return row
    ours, limit = statistics.median(times), TIMES * floor + BEYOND
    return row | {
        "ours_us": short(ours),
        "baseline_us": short(floor),
        "ratio": round(ours / limit, 3),
        "spread": short(spread_of(times)),
        "share_of_roofline": short(floor / ours),
        "met": ours <= limit,
    }
