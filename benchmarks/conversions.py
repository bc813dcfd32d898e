"""The two sides of each conversion case: ours through the public calls, SciPy's own route."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparseformats as sf
from benchmarks.cases import SEED, SIZE, Case

__all__ = ["Sides", "matrix", "peak_memory", "sides"]

Sides = tuple[Callable[[], Any], Callable[[], Any], str]


@lru_cache(maxsize=1)
def matrix(pattern: str, density: float, blocksize: int, size: int = SIZE) -> Any:
    """Canonical SciPy CSR, float32; the same for every edge."""
    rng = np.random.default_rng(SEED)
    block = blocksize if pattern == "blocks" else 1
    count = size // block
    flags = rng.random((count, count), dtype=np.float32) < density
    row, col = np.nonzero(flags)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=count))])
    values = rng.standard_normal((len(row), block, block), dtype=np.float32)
    values[values == 0] = 1
    shape, index = (count * block, count * block), (col.astype(np.int32), indptr.astype(np.int32))
    if block == 1:
        made = sp.csr_array((values.reshape(-1), *index), shape=shape)
    else:
        made = sp.bsr_array((values, *index), shape=shape).tocsr()
    assert made.has_canonical_format  # SciPy then skips its own checks, as it does for users
    return made


def _scipy_source(case: Case, size: int) -> Any:
    S = matrix(case.pattern, case.density, case.blocksize, size)
    if case.source == "dense":
        return S.toarray()
    if case.source in ("bsr", "bsr.T"):
        return _canonical_bsr(S, case.blocksize)
    made = S.asformat(case.source)
    if case.source == "coo":
        made.has_canonical_format = True
    else:
        assert made.has_canonical_format
    return made


def _canonical_bsr(S: Any, blocksize: int) -> Any:
    made = S.tobsr((blocksize, blocksize))
    made.sort_indices()
    return made


def _baseline(case: Case, S: Any) -> tuple[Callable[[], Any], str]:
    """SciPy's route to the same canonical result, and its text."""
    b = case.blocksize
    if case.source == "dense":
        if case.target == "bsr":
            return lambda: sp.bsr_array(S, blocksize=(b, b)), "bsr_array(D)"
        make = getattr(sp, f"{case.target}_array")
        return lambda: make(S), f"{case.target}_array(D)"
    if case.target == "dense":
        return S.toarray, "toarray"
    if case.source == "bsr.T":
        return S.transpose, "transpose"
    if case.target == "bsr":
        return lambda: _canonical_bsr(S, b), "tobsr, sort_indices"
    if case.source == "bsr":
        return lambda: _without_fill(S), "tocsr, eliminate_zeros"
    if (case.source, case.target) == ("csc", "coo"):
        return lambda: S.tocsr().tocoo(), "tocsr, tocoo"  # tocoo alone is not sorted by row
    return lambda: S.asformat(case.target), f"to{case.target}"


def _without_fill(S: Any) -> Any:
    made = S.tocsr()
    made.eliminate_zeros()
    return made


def sides(case: Case, size: int = SIZE) -> Sides:
    """Both calls of a case, whose results were compared, and the baseline's text."""
    S = _scipy_source(case, size)
    A = S if case.source == "dense" else sf.from_scipy(S)
    A = A.T if case.source == "bsr.T" else A
    baseline, text = _baseline(case, S)
    options = {"blocksize": (case.blocksize,) * 2} if case.target == "bsr" else {}

    def ours() -> Any:
        if case.target == "dense":
            return A.to_dense()
        if case.source == "dense":
            return sf.from_dense(A, case.target, **options)
        return A.to(case.target, **options)

    _ensure_equal(ours(), baseline())
    return ours, baseline, text


def _ensure_equal(ours: Any, theirs: Any) -> None:
    if isinstance(ours, np.ndarray):
        same = np.array_equal(ours.view(np.int32), theirs.view(np.int32))
    else:
        if theirs.format == "bsr":
            theirs.sort_indices()  # bsr_array(D) leaves them unsorted
        names = ("data", "row", "col") if theirs.format == "coo" else ("data", "indices", "indptr")
        same = all(np.array_equal(getattr(ours, n), getattr(theirs, n)) for n in names)
    if not same:
        raise AssertionError("the two sides give different results")


def peak_memory(case: Case) -> dict[str, Any]:
    """Peak of array memory during a conversion, against that of input and output."""
    ours, baseline, _ = sides(case)
    S = _scipy_source(case, SIZE)
    given = S.nbytes if case.source == "dense" else sf.from_scipy(S).nbytes
    del S
    peaks = []
    for call in (ours, baseline):
        tracemalloc.start()
        made = call()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        if call is ours:
            output = made.nbytes
        del made
    # COO and CSR share buffers: what the output shares with the input is counted in both.
    share = (given + peaks[0]) / (given + output)
    return {
        "id": case.id.replace("V-cpu", "memory"),
        "workload": case.workload,
        "input_bytes": given,
        "output_bytes": output,
        "peak_bytes": peaks[0],
        "baseline_peak_bytes": peaks[1],
        "ratio": round(share, 3),
        "goal": "(input + peak) <= 3x (input + output)",
        "met": share <= 3,
    }
