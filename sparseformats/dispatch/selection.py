"""From a query to a kernel.

An explicit ``kernel=`` wins over `use_kernel`, that over ``SPARSEFORMATS_KERNEL``, that over a
measured table, that over the cost model; ties go by name. `explain` decides and loads nothing;
`find` and `select` decide in the same way and load the kernel, and where that fails they go on to
the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from sparseformats.dispatch import forcing, loading, tuning
from sparseformats.dispatch.explanation import CHOSEN, ELIGIBLE, REFUSED, Explanation, Row
from sparseformats.dispatch.query import Query
from sparseformats.dispatch.reason import Reason
from sparseformats.dispatch.record import KernelRecord
from sparseformats.dispatch.registry import REGISTRY
from sparseformats.errors import NoKernelError

__all__ = ["Selection", "explain", "find", "select"]

CACHED = 1024  # decisions kept

_Key = tuple[Query, str | None, tuple[tuple[str, str | None], ...], int]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A chosen kernel, ready to run.

    Attributes
    ----------
    record : KernelRecord
        What it says about itself.
    target : object
        Its code: what `KernelRecord.target` names.
    explanation : Explanation
        Why it was chosen.
    """

    record: KernelRecord
    target: object
    explanation: Explanation

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.record.name


_cache: dict[_Key, Selection | Explanation] = {}  # an Explanation where no kernel is eligible


def select(query: Query, kernel: str | None = None) -> Selection:
    """Choose the kernel for a query.

    Parameters
    ----------
    query : Query
        Facts of the call.
    kernel : str or None
        Use this one.

    Raises
    ------
    NoKernelError
        No kernel is eligible, or the one asked for must refuse; the error contains all reasons.
    ValueError
        There is no kernel of that name.
    """
    found = _decide(query, kernel)
    if isinstance(found, Selection):
        return found
    raise NoKernelError(str(found), found)


def find(query: Query, kernel: str | None = None) -> Selection | None:
    """Do as `select`, but give None where no kernel is eligible and none was asked for by name."""
    found = _decide(query, kernel)
    if isinstance(found, Selection):
        return found
    if found.forced is None:
        return None
    raise NoKernelError(str(found), found)


def explain(query: Query, kernel: str | None = None) -> Explanation:
    """Tell which kernel would run, and why, and why not any other one. Loads no kernel.

    Parameters
    ----------
    query : Query
        Facts of the call.
    kernel : str or None
        As in `select`.

    Raises
    ------
    ValueError
        There is no kernel of that name.
    """
    return _explain(query, kernel)[0]


def clear() -> None:
    """Forget all decisions."""
    _cache.clear()


def _decide(query: Query, kernel: str | None) -> Selection | Explanation:
    key = (query, kernel, forcing.state(), REGISTRY.generation)
    found = _cache.get(key)
    if found is not None:
        return found
    REGISTRY.populate()
    generation, found = _decide_anew(query, kernel)
    with suppress(RuntimeError, StopIteration):  # another thread is making room as well
        while len(_cache) >= CACHED:
            _cache.pop(next(iter(_cache)), None)
    _cache[query, kernel, forcing.state(), generation] = found
    return found


def _decide_anew(query: Query, kernel: str | None) -> tuple[int, Selection | Explanation]:
    while True:
        # Read first: what changes meanwhile makes the decision stale, not wrong under a new number.
        generation = REGISTRY.generation
        explanation, record = _explain(query, kernel)
        if record is None:
            return generation, explanation
        target = loading.load(record)
        if not isinstance(target, Reason):
            return generation, Selection(record, target, explanation)
        # The failure is remembered, so the kernel refuses the next time round.


def _explain(query: Query, kernel: str | None) -> tuple[Explanation, KernelRecord | None]:
    forced = forcing.forced_by(query.op, kernel)
    records = {record.name: record for record in REGISTRY.records(query.op)}
    found = tuning.find(query)
    times = found.times
    asked = None if forced is None else forced.name
    rows = [
        _judge(record, query, times.get(name), found.rough, forced=name == asked)
        for name, record in records.items()
    ]
    best, source = _best([row for row in rows if row.status == ELIGIBLE], found.source)
    if best is not None:
        rows = [_with_gain(row, records[row.kernel], query, times, best) for row in rows]
    if forced is not None:
        source = forced.source
        best = next((r for r in rows if r.kernel == forced.name and r.status == ELIGIBLE), None)
    rows += [Row(r.name, REFUSED, reasons=(r.reason,)) for r in REGISTRY.refusals(query.op)]
    if best is not None:
        rows[rows.index(best)] = best._replace(status=CHOSEN)
    rows.sort(key=_order)
    explanation = Explanation(query, tuple(rows), source, asked)
    return explanation, None if best is None else records[best.kernel]


def _judge(
    record: KernelRecord,
    query: Query,
    measured: float | None,
    rough: bool = False,
    *,
    forced: bool = False,
) -> Row:
    reasons = record.reasons(query, forced=forced)
    failure = loading.load_failure(record)
    if failure is not None and failure not in reasons:
        reasons.append(failure)
    cost: float | Reason | None = measured
    if not reasons and measured is None:
        cost = record.estimate(query)
        if isinstance(cost, Reason):
            reasons.append(cost)
    if reasons or isinstance(cost, Reason):
        return Row(record.name, REFUSED, reasons=tuple(reasons), doc=record.doc)
    known = measured is not None
    row = Row(record.name, ELIGIBLE, cost, known, doc=record.doc, rough=known and rough)
    return row._replace(note=record.noted(query))


def _with_gain(
    row: Row, record: KernelRecord, query: Query, times: Mapping[str, float], best: Row
) -> Row:
    """Add what a promise would gain to the hint of a kernel that lacks nothing but the promise."""
    if [reason.code for reason in row.reasons] != ["needs-finite-operand"]:
        return row
    measured = times.get(row.kernel)
    cost = record.estimate(query) if measured is None else measured
    if isinstance(cost, Reason) or best.microseconds is None:
        return row
    (reason,) = row.reasons
    gain = f"predicted: about {cost:,.0f} us a call, {best.microseconds:,.0f} us by {best.kernel}"
    hint = gain if reason.hint is None else f"{reason.hint}; {gain}"
    return row._replace(reasons=(reason._replace(hint=hint),))


def _best(eligible: list[Row], table: str) -> tuple[Row | None, str]:
    if not eligible:
        return None, "no kernel is eligible"
    measured = [row for row in eligible if row.measured]
    source = table if measured else "cost model"
    return min(measured or eligible, key=lambda row: (row.microseconds or 0.0, row.kernel)), source


def _order(row: Row) -> tuple[int, float, int, str]:
    rank = (CHOSEN, ELIGIBLE, REFUSED).index(row.status)
    return rank, row.microseconds or 0.0, len(row.reasons), row.kernel
