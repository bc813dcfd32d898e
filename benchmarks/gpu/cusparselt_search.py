"""Every algorithm of cuSPARSELt for a product: an exhaustive search beneath our own kernel.

Our kernel searches too, but not everywhere; here nothing is left out. Each algorithm is forced in
turn through the same code, so that nothing but the algorithm differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import sparseformats as sf
from benchmarks.gpu.matrices import Problem
from sparseformats.dispatch import Query

__all__ = ["FINALISTS", "KERNELS", "best_of_all"]

KERNELS = {
    "float16": "cusparselt",
    "bfloat16": "cusparselt",
    "int8": "cusparselt-int8",
    "float8_e4m3fn": "cusparselt-fp8",
}
FINALISTS = 3
"""The best so many of the search are sides that are timed with all others."""


def best_of_all(problem: Problem) -> dict[str, Callable[[], Any]]:
    """Calls of the best algorithms, by their numbers, after trying all that there are."""
    from sparseformats_kernels.cusparselt.plans import DEFAULT
    from sparseformats_kernels.cusparselt.searching import everything, trusted
    from sparseformats_kernels.cusparselt.serving import serve, usual
    from sparseformats_kernels.cusparselt.slices import Slices

    query = _query(problem)
    state = _state(problem, query)
    if isinstance(state, Slices):
        return {}  # not one product
    served = serve(state.blob, (state.m, state.k), usual(query, query.n), True)
    most = state.make_plan(served.problem, DEFAULT).most
    most = min(most, trusted(state.blob.dtype, state.blob.gives))
    times = state.measure(served.problem, everything(most), False)
    calls: dict[str, Callable[[], Any]] = {}
    for algorithm in sorted(times, key=times.__getitem__)[:FINALISTS]:
        forced = _state(problem, query)
        forced.forced = algorithm
        calls["-".join(map(str, algorithm))] = _call(problem, forced, query)
    return calls


def _query(problem: Problem) -> Query:
    """Of the product alone: a scale that is a number costs no algorithm anything."""
    if problem.case.gives:
        query = sf.explain("linear", problem.X.T, problem.matrix, **problem.layer).query
        return replace(query, out_dtype=problem.case.gives, epilogue=None, wide=False)
    return sf.explain(problem.matrix, problem.X, out=problem.Y, assume_finite=True).query


def _state(problem: Problem, query: Query) -> Any:
    from sparseformats_kernels.cusparselt.slices import Slices
    from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct

    state = CuSparseLtProduct.pack(problem.matrix, query)
    gives = problem.case.gives
    return state.giving(gives) if gives and not isinstance(state, Slices) else state


def _call(problem: Problem, state: Any, query: Query) -> Callable[[], Any]:
    from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct

    run = CuSparseLtProduct.bind(state, query)
    return partial(run, problem.X, problem.Y, 1, 0)
