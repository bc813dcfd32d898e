"""Kernels of NVIDIA's cuSPARSELt: 2:4 matrices on sparse tensor cores, called by address.

The library is the one that torch brings. What it cannot do is refused by the checks here, so that
it is never asked to; what it could do only with other sizes, orders or addresses is copied for it.
The hardware skips half of the *sum*: a matrix must be 2:4 along the axis that is summed over, so
the transpose of an n:m matrix is not served. Nor is float32: on compute capability 9.0 the planner
of 0.8.0 (`cusparseLtMatmulPlanInit`) never came back from its first product of 1:2.
"""

from __future__ import annotations

import sys
from typing import Any

from sparseformats._dtypes import INT32_MAX
from sparseformats.dispatch.record import (
    KernelRecord,
    Query,
    Reason,
    Requirement,
    Tolerance,
    checks,
)
from sparseformats_kernels.cusparselt import costs
from sparseformats_kernels.cusparselt.finding import CuSparseLt, trouble

__all__ = ["MOST_COLUMNS", "RECORDS"]

_HERE = "sparseformats_kernels.cusparselt"
_KERNEL = f"{_HERE}.spmm:CuSparseLtProduct"
_LIBRARY = CuSparseLt()
_FUSED = (None, "bias", "relu", "bias+relu")
_SCALED = tuple(f"scale+{name}" if name else "scale" for name in _FUSED)
_ROUNDED = ("float16", "bfloat16", "float32")


MOST_COLUMNS = 1 << 16
"""Columns of an operand up to which the library was tried; far beyond, on an H200, it failed."""


def _half_of_four(query: Query) -> bool:
    """At most two of any four neighbours from a multiple of four on are non-zero."""
    n, m = query.pattern or (0, 1)
    return (n == 1 and m >= 2) or (n == 2 and m % 4 == 0)


def _pattern(query: Query) -> str:
    return "none" if query.pattern is None else "{}:{}".format(*query.pattern)


def _largest(query: Query) -> int:
    n = query.n * query.batch
    return max(query.m * query.k, query.k * n, query.m * n)


# With version 0.8.0 on an H200 a sum of -inf alone came out as NaN; +inf and NaN as they are.
_AS_MEASURED = Tolerance(nan_for_infinity=True)
_TWO_OF_FOUR = checks.Check(
    "pattern",
    "2:4, or a pattern that is 2:4 as well (1:2, 1:4, 2:8 ...)",
    _half_of_four,
    _pattern,
    "sparseformats.prune(W, '2:4') chooses what to keep",
)
_SIZES = checks.Check(
    "size",
    f"at most {INT32_MAX:,} places of the matrix, the operand and the result each",
    lambda query: _largest(query) <= INT32_MAX,
    lambda query: f"{_largest(query):,}",
    "multiply slices of the columns",
)
_FEW_ENOUGH = checks.Check(
    "size",
    f"at most {MOST_COLUMNS:,} columns of the operand: more were not tried",
    lambda query: query.n * query.batch <= MOST_COLUMNS,
    lambda query: f"{query.n * query.batch:,}",
    "multiply slices of the columns",
)
_NO_SCALES_OF_COLUMNS = checks.Check(
    "epilogue",
    "scales that are one for all, or one for each row of the matrix",
    lambda query: "columns" not in (query.scales or ""),
    lambda query: f"scales of {query.scales}",
)
_FITTING_RESULT = checks.Check(
    "dtype",
    "results of float8_e4m3fn or float32, or of a layer with scales or out_dtype",
    lambda query: query.epilogue is None or query.out_dtype in _ROUNDED,
    lambda query: f"{query.out_dtype} with {query.epilogue}",
)
_COMMON = (
    checks.library_is("torch", "cupy"),
    checks.device_is("cuda"),
    checks.capability_at_least(8, 0),
    checks.dtypes_equal(),
    checks.not_implemented_grad(),
    _SIZES,
    _FEW_ENOUGH,
)


def _note(query: Query) -> str:
    """Which orders and copies a call takes, and where its algorithm comes from."""
    item = 1 if query.a_dtype in ("int8", "float8_e4m3fn") else 2
    ragged = [
        f"{name} to a multiple of {multiple}"
        for name, size, multiple in (
            ("M", query.m, 32 // item),
            ("K", query.k, 32 // item),
            ("N", query.n, 16 // item),
        )
        if size % multiple
    ]
    padding = f"pads {', '.join(ragged)} in copies; " if ragged else ""
    return f"{padding}algorithm: searched once for each bucket of N, kept in the user's file"


def _without_torch(query: Query) -> Reason | None:
    """Refuse where torch was built without the library; nothing is imported to ask."""
    torch: Any = sys.modules.get("torch")
    backend = getattr(getattr(torch, "backends", None), "cusparselt", None)
    if torch is None or backend is None or backend.is_available():
        return None
    return Reason(
        "package-broken",
        "needs a torch that brings cuSPARSELt, which this one says it does not",
        "install a torch for CUDA",
    )


def _why_by_torch(query: Query) -> str:
    reason = trouble()
    why = "the library itself can be called: see cusparselt" if reason is None else str(reason)
    return f"torch makes a plan on each call, 0.6-0.95 ms on the host; {why}"


def _note_of_bytes(query: Query) -> str:
    """The same for fp8, with who rounds the results."""
    if query.epilogue is None and query.out_dtype == "float32":
        return f"sums left in float32, for a second pass where something follows; {_note(query)}"
    if query.epilogue is None and not (query.alpha_one and query.beta_zero):
        return f"sums in float32, rounded in a second pass; {_note(query)}"
    from sparseformats_kernels.cusparselt import results

    return f"{results.told(query)}; {_note(query)}"


RECORDS = (
    KernelRecord(
        "cusparselt",
        "matmul",
        ("n:m",),
        _KERNEL,
        requires=(_LIBRARY,),
        checks=(
            *_COMMON,
            _TWO_OF_FOUR,
            checks.dtype_in("float16", "bfloat16"),
            checks.epilogue_in(*_FUSED),
        ),
        cost=costs.product,
        tolerance=_AS_MEASURED,
        doc="2:4 on sparse tensor cores by cuSPARSELt, plan kept, algorithm searched, bias fused",
        note=_note,
    ),
    KernelRecord(
        "cusparselt-int8",
        "matmul",
        ("n:m",),
        _KERNEL,
        requires=(_LIBRARY,),
        checks=(
            *_COMMON,
            _TWO_OF_FOUR,
            checks.dtype_in("int8"),
            checks.epilogue_in(None),
        ),
        cost=costs.product,
        doc="2:4 of int8 on sparse tensor cores, int32 results; in slices where sums might round",
        note=_note,
    ),
    KernelRecord(
        "cusparselt-fp8",
        "matmul",
        ("n:m",),
        _KERNEL,
        requires=(_LIBRARY,),
        checks=(
            *_COMMON,
            checks.library_is("torch"),
            checks.capability_at_least(8, 9),
            _TWO_OF_FOUR,
            checks.dtype_in("float8_e4m3fn"),
            checks.dtype_in("float8_e4m3fn", *_ROUNDED, operand="out"),
            checks.epilogue_in(None, *_SCALED),
            _NO_SCALES_OF_COLUMNS,
            _FITTING_RESULT,
        ),
        wide=True,
        cost=costs.product,
        tolerance=_AS_MEASURED,
        doc="2:4 of float8_e4m3fn on sparse tensor cores, sums rounded once; scales, bias fused",
        note=_note_of_bytes,
    ),
    KernelRecord(
        "cusparselt-torch",
        "matmul",
        ("n:m",),
        f"{_HERE}.by_torch:TorchProduct",
        requires=(Requirement("torch", "2.5"),),
        checks=(
            checks.library_is("torch"),
            checks.device_is("cuda"),
            checks.capability_at_least(8, 0),
            checks.dtypes_equal(),
            checks.not_implemented_grad(),
            checks.alpha_is_one(),
            checks.beta_is_zero(),
            _SIZES,
            _TWO_OF_FOUR,
            checks.dtype_in("float16", "bfloat16"),
            checks.epilogue_in(None, "bias"),
            _without_torch,
        ),
        cost=costs.by_torch,
        tolerance=_AS_MEASURED,
        doc="2:4 by torch's own operators, for where the library cannot be called by address",
        note=_why_by_torch,
    ),
)
"""One kernel by value types, and torch's operators as a way out."""
