"""Convert real matrices through every format and back, multiply them, and check all of it.

``python -m demo`` ends non-zero if any round trip is not bit-equal or any product is out of bounds.
"""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

import sparseformats as sf
from demo import checks, matrices

COLUMNS = 32  # of the dense operand
HEAD = (
    f"  {'format':<18}{'bytes':>12}{'of dense':>9}{'blocks':>9}{'fill':>7}"
    f"{'convert':>10}  {'and back':<10}{'A @ X':>10}{'error':>7}  kernels of A @ X, A @ v, X @ A"
)
INTRODUCTION = """\
Real matrices through every format. `fill` is the number of slots held for each stored element;
`error` is that of the worst element of three products against SciPy in double precision, as a
share of its error bound.\
"""


@dataclass
class Tally:
    """What was checked, and what was wrong."""

    round_trips: int = 0
    products: int = 0
    wrong: list[str] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)
    conversions: set[str] = field(default_factory=set)

    def report(self, place: str, found: list[str]) -> str:
        """Note what was found wrong at a place, and say whether it is equal."""
        self.wrong += [f"{place}: {each}" for each in found]
        return "bit-equal" if not found else "NOT EQUAL"


def blocks_and_fill(matrix: Any) -> tuple[str, str]:
    """Stored blocks or groups, and slots held for each stored element."""
    shape = matrix.data.shape
    count = (
        str(int(np.prod(shape[: 1 if matrix.format == "bsr" else 2]))) if len(shape) > 1 else "-"
    )
    return count, f"{matrix.data.size / max(matrix.nnz, 1):.2f}x"


def cheapest_edge(matrix: Any, edges: tuple[int, ...]) -> int:
    """The edge of the square blocks in which BSR takes the fewest bytes."""
    return min(edges, key=lambda b: int(matrix.to("bsr", blocksize=(b, b)).nbytes))


def operand(rng: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Any:
    """Normal numbers of a real or complex dtype."""
    real = rng.standard_normal(shape)
    both = real + 1j * rng.standard_normal(shape) if dtype.kind == "c" else real
    return both.astype(dtype)


def multiply(tally: Tally, place: str, matrix: Any, scipy_matrix: Any) -> tuple[float, float, str]:
    """Check three products; return seconds of the first, the worst error, and what ran."""
    rng = np.random.default_rng(0)
    m, k = matrix.shape
    right = operand(rng, (k, COLUMNS), matrix.dtype)
    left = operand(rng, (COLUMNS, m), matrix.dtype)
    with sf.tracing() as trace:
        results = [matrix @ right, matrix @ right[:, 0], left @ matrix]
    start = time.perf_counter()
    matrix @ right
    seconds = time.perf_counter() - start
    worst = [
        checks.worst_error(results[0], scipy_matrix, right),
        checks.worst_error(results[1], scipy_matrix, right[:, 0]),
        checks.worst_error(results[2], scipy_matrix, left, dense_first=True),
    ]
    names = zip(("A @ X", "A @ v", "X @ A"), worst, strict=True)
    found = [f"{name} is {share:.3g} times its error bound" for name, share in names if share > 1]
    tally.products += len(worst)
    tally.report(place, found)
    kernels = list(dict.fromkeys(run.kernel for run in trace if run.op == "matmul"))
    if not kernels:
        tally.report(place, ["no kernel was recorded"])
    tally.kernels.update(kernels)
    return seconds, max(worst), ", ".join(kernels)


def show_format(tally: Tally, place: str, case: Any, source: Any, target: tuple[str, Any]) -> Any:
    """Convert to one format, check the way back and the products, and print one row."""
    name, blocksize = target
    start = time.perf_counter()
    with sf.tracing() as trace:
        matrix = source.to(name, blocksize=blocksize)
    converting = time.perf_counter() - start
    tally.conversions.update(run.kernel for run in trace)
    label = f"{name} {blocksize[0]}x{blocksize[1]}" if blocksize else name
    tally.round_trips += 1
    equal = tally.report(f"{place} as {label}", checks.round_trip(source, matrix))
    seconds, worst, kernels = multiply(tally, f"{place} as {label}", matrix, case)
    dense = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    blocks, fill = blocks_and_fill(matrix)
    print(
        f"  {label:<18}{matrix.nbytes:>12,}{matrix.nbytes / dense:>9.1%}{blocks:>9}{fill:>7}"
        f"{converting * 1e3:>7.1f} ms  {equal:<10}{seconds * 1e3:>7.2f} ms{worst:>7.1%}  {kernels}",
        flush=True,
    )
    return matrix


def show_refusal(tally: Tally, place: str, source: Any) -> None:
    """A matrix that is not 2:4 must be refused, naming the place; nothing is pruned to fit."""
    try:
        source.to("2:4")
    except sf.PatternError as error:
        print(f"  {'2:4':<18}refused: {str(error).splitlines()[0]}")
    else:
        tally.report(place, ["2:4 accepted a group of more than two non-zeros"])


def show_case(tally: Tally, case: matrices.Case) -> None:
    """One matrix through every format, each way back, and one chain through all of them."""
    given = case.matrix
    source = sf.from_scipy(given) if hasattr(given, "nnz") else sf.from_dense(given, "csr")
    plain = scipy.sparse.csr_array(given)
    density = plain.nnz / (plain.shape[0] * plain.shape[1])
    print(
        f"\n{case.name}: {plain.shape[0]} x {plain.shape[1]} {plain.dtype}, {plain.nnz:,} stored ",
        end="",
    )
    print(
        f"({density:.1%}), given as {source.format if hasattr(given, 'nnz') else 'a dense array'}"
    )
    print(HEAD)
    tally.report(case.name, checks.differing_from_scipy(source.to("csr"), plain))
    edge = cheapest_edge(source, case.edges)
    block = (edge, edge)
    targets = [("coo", None), ("csr", None), ("csc", None), ("bsr", block), ("blocked_ell", block)]
    chain = source
    for target in [*targets, (case.pattern, None)]:
        matrix = show_format(tally, case.name, plain, source, target)
        chain = chain.to(target[0], blocksize=target[1])
        tally.report(case.name, [] if sf.same(chain, matrix) else [f"chain differs at {target[0]}"])
    tally.round_trips += 1
    verdict = tally.report(case.name, checks.differing(source, chain.to(source.format)))
    print(f"  chain through all of them and back to {source.format}: {verdict}")
    if case.pattern != "2:4":
        show_refusal(tally, case.name, source)


def why(case: matrices.Case) -> str:
    """What the library says about its choice for one product."""
    given = case.matrix
    source = sf.from_scipy(given) if hasattr(given, "nnz") else sf.from_dense(given, "csr")
    return str(sf.explain(source, np.ones((source.shape[1], COLUMNS), source.dtype)))


def planned(case: matrices.Case) -> str:
    """Time of one product called as it comes, and of the same one planned."""
    given = case.matrix
    source = sf.from_scipy(given) if hasattr(given, "nnz") else sf.from_dense(given, "csr")
    matrix = source.to("bsr", blocksize=(16, 16))
    right = np.ones((matrix.shape[1], COLUMNS), matrix.dtype)
    out = np.empty((matrix.shape[0], COLUMNS), matrix.dtype)
    start = time.perf_counter()
    plan = sf.plan(matrix, right)
    preparing = time.perf_counter() - start
    times = []
    for _ in range(20):
        start = time.perf_counter()
        plan(right, out=out)
        times.append(time.perf_counter() - start)
    median = sorted(times)[len(times) // 2]
    return (
        f"{plan.kernel}: prepared in {preparing * 1e3:.2f} ms, then {median * 1e6:.0f} us a call "
        f"(median of {len(times)}), {sf.cache_info().packed_bytes:,} bytes kept for all matrices"
    )


def main() -> int:
    """Run every case; say what was checked, and end non-zero if anything was unequal."""
    start = time.perf_counter()
    tally = Tally()
    print(INTRODUCTION)
    cases = itertools.chain(matrices.finite_elements(), matrices.weights())
    for number, case in enumerate(cases, start=1):
        show_case(tally, case)
        print(f"  [matrix {number}, {time.perf_counter() - start:.0f} s]", flush=True)
    print(f"\nWhy that kernel? sf.explain tells, here for the last matrix in CSR:\n{why(case)}")
    print(f"\nA plan for the last matrix in 16 x 16 blocks: {planned(case)}")
    print(f"\nkernels that multiplied: {', '.join(sorted(tally.kernels))}")
    print(f"kernels that converted: {', '.join(sorted(tally.conversions)) or 'none'}")
    print(f"{tally.round_trips} round trips and {tally.products} products checked, ", end="")
    print(f"{len(tally.wrong)} wrong, in {time.perf_counter() - start:.0f} s")
    for each in tally.wrong:
        print(f"WRONG  {each}")
    return int(bool(tally.wrong) or not tally.products)


if __name__ == "__main__":
    sys.exit(main())
