"""Running a path: for each step the fastest registered implementation, else the edge's own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparseformats import _arrays, dispatch
from sparseformats._arrays import Array
from sparseformats._dtypes import INT32_MAX, itemsize
from sparseformats.convert.edges import Edge
from sparseformats.convert.graph import Step
from sparseformats.convert.options import Options
from sparseformats.formats import NM, SparseMatrix, Sum

__all__ = ["GENERIC", "Implementation", "facts", "follow", "implementation", "slots_of"]
__all__ += ["transposed"]

GENERIC = "array-api"
"""Name of the edges' own implementations in traces and explanations."""

MANY_LINES = 1 << 26  # pointers from which on free memory is looked at first
MANY_SLOTS = 1 << 26  # and slots of one block, or of a dense array filled up to whole blocks

Implementation = Callable[[Any, Options], Any]


def follow(
    x: Any, steps: tuple[Step, ...], index_dtype: str | None = None, mask: Array | None = None
) -> Any:
    """Take a matrix (or dense array) along a path."""
    for step in steps:
        options = step.options
        if index_dtype is not None or mask is not None:
            turned = transposed(mask) if mask is not None and step.mirrored else mask
            options = replace(options, index_dtype=index_dtype, mask=turned)
            mask = None  # only the first step leaves dense
        x = _run(step.edge, transposed(x) if step.mirrored else x, options)
        x = transposed(x) if step.mirrored else x
    return x


def transposed(x: Any) -> Any:
    """Transpose of a matrix or dense array without moving data."""
    if isinstance(x, SparseMatrix):
        return x.T
    return _arrays.of(x).xp.permute_dims(x, (1, 0))


def _run(edge: Edge, x: Any, options: Options) -> Any:
    _ensure_pointers_fit(edge, x, options)
    _ensure_block_fits(x, options)
    name, run, query = implementation(edge, x, options)
    if not dispatch.is_tracing():
        return run(x, options)
    start = time.perf_counter()
    made = run(x, options)
    dispatch.record_run(edge.op, name, query, time.perf_counter() - start)
    return made


def _ensure_pointers_fit(edge: Edge, x: Any, options: Options) -> None:
    """Refuse a pointer array that memory cannot hold: its length is the shape's, not nnz's."""
    m, n = (int(extent) for extent in x.shape)
    height = options.blocksize[0] if edge.target == "bsr" and options.blocksize else 1
    lines = n if edge.target == "csc" else -(-m // height)
    if lines < MANY_LINES or edge.target not in ("csr", "csc", "bsr"):
        return
    lib = x.lib if isinstance(x, SparseMatrix) else _arrays.of(x)
    device = x.device if isinstance(x, SparseMatrix) else lib.device(x)
    # Counts, their running sums, and the array itself.
    lib.ensure_fits(24 * lines, device, f"{edge.target} with {lines:,} pointers")


def _ensure_block_fits(x: Any, options: Options) -> None:
    """Refuse blocks of which memory cannot hold one, or a dense array filled up to them."""
    if options.blocksize is None:
        return
    r, c = options.blocksize
    buffer = x.data if isinstance(x, SparseMatrix) else x
    m, n = (1, 1) if isinstance(x, SparseMatrix) else (int(extent) for extent in x.shape)
    size = -(-m // r) * r * -(-n // c) * c
    if size < MANY_SLOTS or not math.prod(buffer.shape):
        return
    lib = _arrays.of(buffer)
    nbytes = size * itemsize(lib.dtype_name(buffer))
    lib.ensure_fits(nbytes, lib.device(buffer), f"form with blocks of {r} x {c}")


def implementation(
    edge: Edge, x: Any, options: Options
) -> tuple[str, Implementation, dispatch.Query | None]:
    """Name and function that run an edge for `x`, and the facts by which they were chosen."""
    # Records know nothing of masks.
    if options.mask is not None or not dispatch.records(edge.op):
        return GENERIC, edge.run, None
    query = facts(edge, x, options)
    chosen = dispatch.find(query)
    if chosen is None:
        return GENERIC, edge.run, query
    run: Any = chosen.target
    return chosen.name, run, query


def facts(edge: Edge, x: Any, options: Options) -> dispatch.Query:
    """What a registered implementation may know before it runs."""
    if not isinstance(x, SparseMatrix):
        return _dense_facts(edge, x, options)
    base = x.T if edge.source.endswith(".T") else x
    lib, (m, k), family = base.lib, base.shape, base.family
    blocked = family in ("bsr", "blocked_ell")
    nnz = None if blocked or isinstance(base, NM | Sum) else base.nnz
    return dispatch.Query(
        edge.op,
        family,
        pattern=(base.n, base.m) if isinstance(base, NM) else _pattern(options),
        transposed=base is not x,
        m=m,
        k=k,
        blocksize=base.blocksize if blocked else options.blocksize,
        into=options.blocksize,
        nnz=nnz,
        nbytes=base.nbytes if nnz is None else None,  # counted only where it says more
        a_dtype=base.dtype_name,
        index_dtype=lib.dtype_name(base.index_dtype),
        fits_int32=max(m, k, slots_of(base)) <= INT32_MAX,
        library=lib.name,
        device=base.device.partition(":")[0],
    )


def slots_of(A: SparseMatrix) -> int:
    """Elements of the arrays of values."""
    return sum(math.prod(int(size) for size in x.shape) for x in A.value_buffers())


def _dense_facts(edge: Edge, x: Array, options: Options) -> dispatch.Query:
    lib, (m, k) = _arrays.of(x), (int(s) for s in x.shape)
    if lib.is_contiguous(x):
        layout = "C"
    else:
        layout = "F" if lib.is_contiguous(transposed(x)) else "strided"
    return dispatch.Query(
        edge.op,
        "dense",
        pattern=_pattern(options),
        m=m,
        k=k,
        blocksize=options.blocksize,
        into=options.blocksize,
        a_dtype=lib.dtype_name(x),
        x_layout=layout,
        fits_int32=m * k <= INT32_MAX,
        library=lib.name,
        device=lib.device(x).partition(":")[0],
    )


def _pattern(options: Options) -> tuple[int, int] | None:
    return None if options.n is None or options.m is None else (options.n, options.m)
