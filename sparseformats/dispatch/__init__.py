"""Choosing a kernel: plain facts of a call in, a kernel and its reasons out.

The parts, in the order in which a call meets them: `query` (facts), `registry` (which kernels
there are) fed by `sources`, `record` with `checks` and `requirement` (may this kernel serve these
facts?), `forcing` and `tuning` (what the user and the tables say), `selection` (the decision),
`loading` (the kernel's code), `explanation` and `listing` (why), `trace` (what ran). Nothing here
knows a format class or an array library.
"""

from __future__ import annotations

from sparseformats.dispatch.explanation import Explanation, Row
from sparseformats.dispatch.forcing import forced_by, use_kernel
from sparseformats.dispatch.listing import KernelInfo, KernelList, kernels
from sparseformats.dispatch.query import Query, density_bucket, size_bucket, skew_bucket
from sparseformats.dispatch.record import (
    ANY,
    CODES,
    EXACT,
    KernelRecord,
    Reason,
    Requirement,
    Tolerance,
    checks,
)
from sparseformats.dispatch.registry import REGISTRY, Registry
from sparseformats.dispatch.selection import Selection, explain, find, select
from sparseformats.dispatch.trace import Run, Trace, is_tracing, record_run, tracing

__all__ = [
    "ANY",
    "CODES",
    "EXACT",
    "REGISTRY",
    "Explanation",
    "KernelInfo",
    "KernelList",
    "KernelRecord",
    "Query",
    "Reason",
    "Registry",
    "Requirement",
    "Row",
    "Run",
    "Selection",
    "Tolerance",
    "Trace",
    "checks",
    "density_bucket",
    "explain",
    "find",
    "forced_by",
    "generation",
    "is_tracing",
    "kernels",
    "record_run",
    "records",
    "register",
    "select",
    "size_bucket",
    "skew_bucket",
    "temporary",
    "tracing",
    "unregister",
    "use_kernel",
]

register = REGISTRY.register
unregister = REGISTRY.unregister
records = REGISTRY.records
temporary = REGISTRY.temporary


def generation() -> int:
    """Return a number that changes whenever a decision might: a part of every cache key."""
    return REGISTRY.generation
