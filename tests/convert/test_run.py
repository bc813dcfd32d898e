"""Registered implementations take an edge over, where they are eligible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.convert import EDGES, Options
from sparseformats.convert.run import GENERIC, facts, implementation
from sparseformats.dispatch import checks
from tests.convert import samples

EDGE = {edge.op: edge for edge in EDGES}
OP = "convert:csr->bsr"
seen: list[Options] = []


def fast(A: Any, options: Options) -> Any:
    """Stand in for a faster implementation."""
    seen.append(options)
    return EDGE[OP].run(A, options)


def record(**changes: Any) -> dispatch.KernelRecord:
    options = {"cost": lambda _: 1.0, "checks": (checks.library_is("numpy"),), **changes}
    return dispatch.KernelRecord("fast", OP, ("csr",), f"{__name__}:fast", **options)


def test_a_record_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _module())
    seen.clear()
    A = samples.csr("numpy")
    with dispatch.temporary(record(), only=True), dispatch.tracing() as trace:
        B = A.to("blocked_ell", blocksize=2)
        assert sf.explain_conversion(A, "bsr", blocksize=2).steps[0].implementation == "fast"
    assert trace.kernels == ["fast", GENERIC]
    assert [run.op for run in trace] == [OP, "convert:bsr->blocked_ell"]
    assert all(run.seconds is not None for run in trace)
    assert [options.blocksize for options in seen] == [(2, 2)]
    assert sf.same(A, B)


def _module() -> Any:
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(globals())
    return module


def test_the_generic_edge_runs_where_none_is_eligible(library: str) -> None:
    A = samples.csr(library)
    refusing = record(checks=(checks.library_is("cupy"),))
    with dispatch.temporary(refusing, only=True), dispatch.tracing() as trace:
        B = A.to("bsr", blocksize=2)
        assert sf.explain_conversion(A, "bsr", blocksize=2).steps[0].implementation == GENERIC
    assert trace.kernels == [GENERIC]
    assert sf.same(A, B)


def test_masks_are_the_generic_edges_business() -> None:
    edge = EDGE["convert:dense->bsr"]
    D = samples.dense("numpy")
    masked = Options(blocksize=(2, 2), mask=np.ones((5, 7), bool))
    assert implementation(edge, D, masked)[0] == GENERIC


def test_facts(library: str) -> None:
    A = samples.csr(library)
    query = facts(EDGE[OP], A, Options(blocksize=(2, 3)))
    assert (query.op, query.format, query.m, query.k, query.nnz) == (OP, "csr", 7, 9, 13)
    assert (query.blocksize, query.a_dtype, query.index_dtype) == ((2, 3), "float32", "int32")
    assert (query.library, query.device, query.nbytes) == (library, "cpu", None)
    B = samples.bsr(library)
    query = facts(EDGE["convert:bsr.T->bsr"], B.T, Options(blocksize=(3, 2)))
    assert (query.format, query.transposed, query.m, query.k) == ("bsr", True, 7, 10)
    assert (query.blocksize, query.nnz, query.nbytes) == ((2, 3), None, B.nbytes)
    assert query.into == (3, 2)
    query = facts(EDGE["convert:n:m->csr"], samples.nm(library), Options())
    assert (query.format, query.pattern, query.into) == ("n:m", (2, 4), None)
    query = facts(EDGE["convert:csr->n:m"], A, Options(n=1, m=3))
    assert query.pattern == (1, 3)


def test_facts_of_dense_arrays() -> None:
    edge, D = EDGE["convert:dense->csr"], samples.dense("numpy")
    layouts = [facts(edge, x, Options()).x_layout for x in (D, D.T, D[:, ::2])]
    assert layouts == ["C", "F", "strided"]
    query = facts(edge, D, Options())
    assert (query.format, query.m, query.k, query.a_dtype) == ("dense", 5, 7, "float32")


def test_a_forced_kernel_that_must_refuse_says_why() -> None:
    refusing = record(checks=(checks.library_is("cupy"),))
    with (
        dispatch.temporary(refusing, only=True),
        dispatch.use_kernel("fast"),
        pytest.raises(sf.NoKernelError, match="needs arrays of cupy, has numpy"),
    ):
        samples.csr("numpy").to("bsr", blocksize=2)
