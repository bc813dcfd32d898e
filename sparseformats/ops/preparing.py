"""From the facts of a call to a packed matrix: the query, and the state that serves it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from sparseformats import dispatch
from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator
from sparseformats.dispatch import Query, Selection
from sparseformats.dispatch.plan_cache import Entry, Packed
from sparseformats.formats import SparseMatrix
from sparseformats.ops.cache import CACHE
from sparseformats.ops.facts import as_precision, matmul_query
from sparseformats.ops.light import is_apart, pack, refuse_capture, whereabouts
from sparseformats.ops.operands import Operands, check_out
from sparseformats.ops.scalars import Scalar, as_scalar

__all__ = ["DEFAULTS", "Options", "judged", "packed_for", "query_of", "scalars_of"]


class Options(NamedTuple):
    """What a call says beside its operands; part of the keys under which plans are kept.

    Attributes
    ----------
    precision, assume_finite, kernel
        As in `sparseformats.matmul`.
    reorder : bool or str
        As in `sparseformats.plan`.
    unrounded : bool
        The result is to be left in the dtype of its sums, if the best kernel can do that.
    """

    precision: str | None = None
    assume_finite: bool = False
    kernel: str | None = None
    reorder: bool | str = False
    unrounded: bool = False


DEFAULTS = Options()


def scalars_of(o: Operands, alpha: Any, beta: Any, out: Any) -> tuple[Scalar, Scalar]:
    """`alpha` and `beta` for the result's dtype, with `out` checked."""
    factor, summand = as_scalar(alpha, "alpha", o.dtype), as_scalar(beta, "beta", o.dtype)
    if out is not None:
        check_out(o, out)
    elif summand != 0:
        raise ValueError(f"beta={beta!r} needs out=, the array that it scales")
    return factor, summand


def query_of(
    o: Operands,
    out: Array | None,
    alpha: Scalar,
    beta: Scalar,
    options: Options,
    *,
    wide: bool = False,
) -> Query:
    """The facts of a call from which a kernel is chosen."""
    return matmul_query(
        o,
        out,
        alpha_one=alpha == 1,
        beta_zero=beta == 0,
        precision=as_precision(options.precision, o.lib, o.x, o.dtype),
        assume_finite=bool(options.assume_finite),
        wide=wide,
    )


def judged(
    o: Operands, out: Array | None, alpha: Scalar, beta: Scalar, options: Options
) -> tuple[Operands, Query]:
    """The call as its kernel will see it, and its facts.

    The kernel that is best for the ordinary result also decides whether there is an unrounded one:
    no slower kernel is taken for its sake.
    """
    query = query_of(o, out, alpha, beta, options)
    if not options.unrounded or accumulator(o.dtype) == o.dtype:
        return o, query
    sums = replace(o, dtype=accumulator(o.dtype))
    wide = query_of(sums, None, alpha, 0, options, wide=True)
    explained = dispatch.explain(query, options.kernel)
    best = [r for r in dispatch.records("matmul") if r.name == explained.chosen]
    able = best and not best[0].reasons(wide, forced=explained.forced is not None)
    return (sums, wide) if able else (o, query)


def packed_for(
    o: Operands, owner: SparseMatrix, query: Query, selection: Selection
) -> tuple[Entry, Packed]:
    """What is kept for `owner`, and the state that serves this call, packed if there is none."""
    lib, device = o.lib, o.matrix.device
    refuse_capture(lib, device, apart=is_apart(selection))
    entry = CACHE.entry(owner, device, lib.watch(owner.buffers().values()))
    target = selection.target
    layout = getattr(target, "layout", None)
    key: tuple[Any, ...] = (
        *(id(target), query.format, query.transposed, query.x_dtype, query.out_dtype),
        None if layout is None else layout(query),
    )
    if is_apart(selection):
        entry.apart = True
        key = (*key, *whereabouts(lib, device))
    packed = entry.packed.get(key)
    if packed is None:
        packed = CACHE.keep(entry, key, pack(o, query, selection))
    return entry, packed
