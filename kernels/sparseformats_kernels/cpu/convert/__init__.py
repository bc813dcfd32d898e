"""Conversions of NumPy arrays that are faster than the array-API edges.

This file is what dispatch reads; it imports neither NumPy nor SciPy. The functions that take
formats are in `edges`, those on raw arrays in the modules whose names begin with an underscore.
"""

from __future__ import annotations

from collections.abc import Callable

from sparseformats.dispatch.record import EXACT, KernelRecord, Query, Requirement, checks

__all__ = ["RECORDS"]

_EDGES = "sparseformats_kernels.cpu.convert.edges"
_SCIPY = Requirement("scipy", "1.14")
_NUMPY_ON_CPU = (checks.library_is("numpy"), checks.device_is("cpu"))
# Between COO and CSC the way leads through CSR, whose pointers nobody asked for.
_FEW_ROWS = checks.Check(
    "size",
    "at most 65536 rows or 8 rows a stored element",
    lambda query: query.m <= max(65536, 8 * (query.nnz or 0)),
    lambda query: f"{query.m} rows, {query.nnz} stored elements",
)
_THROUGH_CSR = {("coo", "csc"), ("csc", "coo")}

_CALL = 20.0  # microseconds of Python around the work
# Nanoseconds a dense element, or a stored element of a sparse source: from the 8192 x 8192
# float32 cases of benchmarks/results/cpu.json, to the nearest half.
_NANOSECONDS = {
    ("coo", "csr"): 0.5,
    ("csr", "coo"): 0.5,
    ("csr", "csc"): 8.0,
    ("csc", "csr"): 8.0,
    ("coo", "csc"): 8.0,
    ("csc", "coo"): 8.0,
    ("csr", "bsr"): 12.0,
    ("bsr", "csr"): 3.0,
    ("bsr.T", "bsr"): 2.0,
    ("dense", "csr"): 1.5,
    ("dense", "bsr"): 1.5,
    ("coo", "dense"): 5.0,
    ("csr", "dense"): 5.0,
    ("csc", "dense"): 5.0,
    ("bsr", "dense"): 1.5,
}


def _cost(nanoseconds: float) -> Callable[[Query], float]:
    def cost(query: Query) -> float:
        elements = query.nnz
        if elements is None:  # a block format's bytes are nearly all values
            elements = query.m * query.k if query.nbytes is None else query.nbytes // 4
        return _CALL + elements * nanoseconds / 1000

    return cost


RECORDS = tuple(
    KernelRecord(
        "numpy-scipy",
        f"convert:{source}->{target}",
        (source,),
        f"{_EDGES}:{source.replace('.T', '_transposed')}_to_{target}",
        requires=(_SCIPY,),
        checks=(*_NUMPY_ON_CPU, _FEW_ROWS) if (source, target) in _THROUGH_CSR else _NUMPY_ON_CPU,
        cost=_cost(nanoseconds),
        tolerance=EXACT,
        doc=f"{source} to {target} by SciPy's C++ on integer views, and NumPy in cache-sized runs",
    )
    for (source, target), nanoseconds in _NANOSECONDS.items()
)
