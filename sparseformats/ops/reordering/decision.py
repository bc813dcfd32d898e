"""Whether a plan groups the rows of its matrix, and the kernel that it then gets.

The blocks that a grouping makes are counted, and their product is judged by the kernels' own
records like any other. It is taken where it is predicted to be quicker, with the way of the rows
back, than that of the matrix as it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sparseformats import dispatch
from sparseformats._dtypes import itemsize
from sparseformats.dispatch import Explanation, KernelRecord, Query, Selection, checks
from sparseformats.formats import SparseMatrix
from sparseformats.ops.light import refuse_capture
from sparseformats.ops.operands import Operands
from sparseformats.ops.preparing import Options
from sparseformats.ops.reordering.blocks import SHARING, Blocks, Groupings, of_block_rows, of_rows
from sparseformats.ops.reordering.kernel import Grouped, record_of

__all__ = ["as_reorder", "choose", "explain"]

_FINITE = checks.finite_operand()
_BYTES = 64 << 20  # of blocks that may be held whatever the matrix takes; else four times that
# Bytes a microsecond that a gather of whole rows reads or writes, and its call in microseconds.
_MOVING = {"cuda": (3.5e6, 8.0), "cpu": (6e3, 3.0)}


def as_reorder(reorder: Any) -> bool | str:
    """Check ``reorder=``.

    Raises
    ------
    ValueError
    """
    if reorder is True or reorder is False or (isinstance(reorder, str) and reorder == "always"):
        return reorder
    raise ValueError(f"reorder must be False, True or 'always', got {reorder!r}")


class _Found(NamedTuple):
    """Blocks that a plan may use, with what their kernel would take."""

    blocks: Blocks
    explanation: Explanation
    microseconds: float


class _Decision(NamedTuple):
    """Blocks to use and where they come from, or None and why not; and the matrix as given."""

    plain: Explanation
    remark: str
    found: _Found | None = None
    known: Groupings | None = None


class _Way(NamedTuple):
    """One way to group."""

    known: Groupings
    find: Callable[[], list[Blocks]]


def choose(o: Operands, owner: SparseMatrix, query: Query, options: Options) -> Selection:
    """The kernel of a plan.

    Raises
    ------
    NoKernelError
        As `dispatch.select`.
    ValueError
        ``reorder="always"``, where nothing can be grouped.
    """
    if options.reorder is False:
        return dispatch.select(query, options.kernel)
    decision = _decide(o, owner, query, options)
    found, known = decision.found, decision.known
    if found is not None and known is not None:
        inner = dispatch.find(found.explanation.query, options.kernel)
        if inner is not None:  # it loads
            target = known.once(
                (id(inner.target), found.blocks.size),
                lambda: Grouped(inner.target, found.blocks, addressed=o.lib.addressed),
            )
            told = replace(inner.explanation, remark=decision.remark)
            return Selection(record_of(inner.record, target), target, told)
    plain = dispatch.select(decision.plain.query, options.kernel)
    told = replace(plain.explanation, remark=decision.remark)
    return Selection(plain.record, plain.target, told)


def explain(o: Operands, owner: SparseMatrix, query: Query, options: Options) -> Explanation:
    """Tell what `choose` would choose; loads no kernel."""
    if options.reorder is False:
        return dispatch.explain(query, options.kernel)
    decision = _decide(o, owner, query, options)
    told = decision.plain if decision.found is None else decision.found.explanation
    return replace(told, remark=decision.remark)


def _decide(o: Operands, owner: SparseMatrix, query: Query, options: Options) -> _Decision:
    forced = options.reorder == "always"
    with o.lib.on(o.matrix.device):
        refuse_capture(o.lib, o.matrix.device)
        ways, refusals = _ways(o, owner, query)
        if forced and not ways:
            raise ValueError(f"reorder='always': {'; '.join(refusals)}")
        plain = dispatch.explain(query, options.kernel)
        found = []
        for way in ways:
            if way.known.given is not None:  # what the given order already shares counts as well
                told = replace(query, union=way.known.given.union)
                plain = dispatch.explain(told, options.kernel)
            best, why = _weighed(way, o, query, options, _time(plain))
            if best is None:
                refusals.append(why)
            else:
                found.append((best, way.known))
    given = _time(plain)
    if not found:
        time = "" if plain.chosen is None else f"; as given about {given:,.0f} us by {plain.chosen}"
        return _Decision(plain, f"rows as given: {'; '.join(refusals)}{time}")
    best, known = min(found, key=lambda each: each[0].microseconds)
    return _Decision(plain, _taken(known, best, plain, given), best, known)


def _ways(o: Operands, owner: SparseMatrix, query: Query) -> tuple[list[_Way], list[str]]:
    """The ways to group that change no result, and why not the others."""
    ways, refusals = [], []
    if o.matrix.family == "bsr" and not o.transposed and o.matrix.blocksize[0] in SHARING:
        ways.append(_Way(*of_block_rows(o, owner)))
    refusal = _FINITE(query)
    if refusal is None:
        ways.append(_Way(*of_rows(o, owner)))
    else:
        why = "blocks hold zeros where nothing is stored, and 0 x inf is NaN"
        refusals.append(f"{why}: {refusal}; {refusal.hint}")
    return ways, refusals


def _weighed(
    way: _Way, o: Operands, query: Query, options: Options, given: float
) -> tuple[_Found | None, str]:
    """The best blocks of a way, if they are to be used; else why not."""
    known, forced = way.known, options.reorder == "always"
    if not (known.stored and query.n):
        return None, "there is nothing to group"
    hoped = _quickest(known.hoped, o, query, options)
    if not forced and (hoped is None or hoped.microseconds >= given):
        return None, _declined(known, hoped, "at best ")
    best = _quickest(known.best(way.find), o, query, options)
    if best is None or not (forced or best.microseconds < given):
        return None, _declined(known, best)
    if not (forced or _by_blocks(best.explanation)):
        return None, f"{_declined(known, best)}, which gains nothing by blocks"
    nbytes, limit = best.explanation.query.nbytes or 0, max(4 * (query.nbytes or 0), _BYTES)
    if nbytes > limit and not forced:
        text = _grouped(known, best.blocks)
        return None, f"{text} take {nbytes:,} bytes, more than {limit:,}"
    return best, ""


def _quickest(
    tried: Sequence[Blocks], o: Operands, query: Query, options: Options
) -> _Found | None:
    found = []
    for blocks in tried:
        inner = blocks.query(query, addressed=o.lib.addressed)
        told = dispatch.explain(inner, options.kernel)
        if told.chosen is not None:
            time = _time(told) + (0.0 if blocks.order.places is None else _way_back(query))
            found.append(_Found(blocks, told, time))
    # Of equals the one with the larger blocks.
    return min(found, key=lambda each: (each.microseconds, each.blocks.stored), default=None)


def _by_blocks(told: Explanation) -> bool:
    """Whether the chosen kernel is one for blocks, and not for elements as well."""
    formats = _record(told).formats
    return formats != dispatch.ANY and not {"csr", "coo"} & set(formats)


def _record(told: Explanation) -> KernelRecord:
    return next(r for r in dispatch.records(told.query.op) if r.name == told.chosen)


def _time(told: Explanation) -> float:
    """Microseconds of the chosen kernel; a measurement of other sizes is none of this call."""
    if told.chosen is None:
        return float("inf")
    row = told.row(told.chosen)
    if row.rough:
        estimate = _record(told).estimate(told.query)
        if isinstance(estimate, float):
            return estimate
    return float("inf") if row.microseconds is None else row.microseconds


def _way_back(query: Query) -> float:
    """Time to bring the rows of a result to their places."""
    speed, call = _MOVING.get(query.device, _MOVING["cpu"])
    nbytes = float(query.m) * query.n * query.batch * itemsize(query.out_dtype or "float32")
    times = 2 if query.beta_zero else 4  # what is scaled goes to the kernel's order first
    if query.out_layout not in (None, "C"):
        times += 2  # rows are gathered aside, and copied
    return call + times * nbytes / speed


# In words.


def _declined(known: Groupings, found: _Found | None, most: str = "") -> str:
    if found is None:
        return "no kernel serves the blocks that rows can be grouped into"
    text, time = _grouped(known, found.blocks), found.microseconds
    return f"{most}{text} would take about {time:,.0f} us by {found.explanation.chosen}"


def _taken(known: Groupings, found: _Found, plain: Explanation, given: float) -> str:
    how = "block rows" if found.blocks.whole else "rows"
    how += " as given: " if found.blocks.order.places is None else " grouped: "
    text = f"{how}{_grouped(known, found.blocks)}; predicted: about {found.microseconds:,.0f} us"
    if plain.chosen is None:
        return f"{text}, as given there is no kernel"
    return f"{text}, as given {given:,.0f} us by {plain.chosen}"


def _grouped(known: Groupings, blocks: Blocks) -> str:
    (r, c), stored = blocks.size, blocks.stored
    text = f"{stored:,} blocks of {r} x {c}"
    if blocks.whole:
        return f"{text} ({blocks.union:.2f} reads of the operand each)"
    return f"{text} ({stored * r * c / known.stored:,.1f} times the stored elements)"
