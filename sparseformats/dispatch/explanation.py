"""The answer to "why this kernel, and why not that one?"; the object itself is the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparseformats.dispatch.query import Query
from sparseformats.dispatch.reason import Reason

__all__ = ["CHOSEN", "ELIGIBLE", "REFUSED", "Explanation", "Row", "reason_lines", "table"]

CHOSEN, ELIGIBLE, REFUSED = "chosen", "eligible", "refused"
WIDTH = 110  # of a rendered table
_LEAST = 30  # width of the last column, however long the others are


class Row(NamedTuple):
    """One kernel in an explanation.

    Attributes
    ----------
    kernel : str
        Its name; for a backend that could not be read, the backend's.
    status : str
        ``"chosen"``, ``"eligible"`` or ``"refused"``.
    microseconds : float or None
        Estimated or measured time of a call; None for a refused kernel.
    measured : bool
        The time comes from a measured table, not from the cost model.
    reasons : tuple of Reason
        All reasons of a refused kernel.
    doc : str
        What the kernel says about itself.
    rough : bool
        The measured time is that of other sizes nearby.
    note : str
        What a kernel that can serve would do for this call, such as where its launch parameters
        come from.
    """

    kernel: str
    status: str
    microseconds: float | None = None
    measured: bool = False
    reasons: tuple[Reason, ...] = ()
    doc: str = ""
    rough: bool = False
    note: str = ""

    @property
    def time(self) -> str:
        """The time for people; one that was not measured for such a call is marked by ``~``."""
        if self.microseconds is None:
            return ""
        digits = 0 if self.microseconds >= 100 else 1
        return f"{'' if self.measured and not self.rough else '~'}{self.microseconds:,.{digits}f}"

    def to_dict(self) -> dict[str, object]:
        """Return the row as a JSON-able dict."""
        return {
            "kernel": self.kernel,
            "status": self.status,
            "microseconds": self.microseconds,
            "measured": self.measured,
            "rough": self.rough,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "doc": self.doc,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """Every kernel of an operation: chosen, eligible at some cost, or refused for all its reasons.

    Print it.

    Attributes
    ----------
    query : Query
        The facts that were judged.
    rows : tuple of Row
        The chosen kernel, then eligible ones by time, then refused ones by number of reasons.
    source : str
        What decided: ``"kernel="``, ``"use_kernel"``, ``"SPARSEFORMATS_KERNEL"``, ``"cost model"``,
        ``"no kernel is eligible"``, or ``"measured table"``, in brackets with its file, the device
        and, where no row has such sizes, those of the nearest one: ``"measured table (h200.json,
        NVIDIA H200, nearest bucket: n 512 for 1500)"``.
    forced : str or None
        The kernel that was asked for by name.
    remark : str
        What was done to the matrix before, or why not; empty where nobody asked for anything.
    """

    query: Query
    rows: tuple[Row, ...]
    source: str
    forced: str | None = None
    remark: str = ""

    @property
    def chosen(self) -> str | None:
        """Name of the chosen kernel; None if there is none."""
        return next((row.kernel for row in self.rows if row.status == CHOSEN), None)

    def row(self, kernel: str) -> Row:
        """Return the row of one kernel.

        Raises
        ------
        KeyError
            The operation has no kernel of that name.
        """
        for row in self.rows:
            if row.kernel == kernel:
                return row
        raise KeyError(f"no kernel {kernel!r} of {self.query.op!r}")

    @property
    def verdict(self) -> str:
        """The decision in one line."""
        if self.chosen is not None:
            how = f"forced by {self.source}" if self.forced is not None else self.source
            return f"chosen: {self.chosen} ({how})"
        if self.forced is not None:
            return f"no kernel: {self.forced} (forced by {self.source}) must refuse this call"
        if not self.rows:
            return f"no kernel is registered for {self.query.op}"
        return "no kernel is eligible"

    def to_dict(self) -> dict[str, object]:
        """Return the explanation as a JSON-able dict."""
        return {
            "query": self.query.to_dict(),
            "chosen": self.chosen,
            "source": self.source,
            "forced": self.forced,
            "remark": self.remark,
            "kernels": [row.to_dict() for row in self.rows],
        }

    def __str__(self) -> str:
        head = f"{self.query.describe()}\n{self.verdict}"
        head += f"\n{self.remark}" if self.remark else ""
        if not self.rows:
            return head
        columns = ("kernel", "status", "time (us)", "reasons")
        rows = [(row.kernel, row.status, row.time, _remarks(row)) for row in self.rows]
        return f"{head}\n\n{table(columns, rows)}"


def _remarks(row: Row) -> list[str]:
    """All reasons, or what the kernel would do."""
    return reason_lines(row.reasons) or ([row.note] if row.note else [])


def table(columns: Sequence[str], rows: Iterable[tuple[str, str, str, list[str]]]) -> str:
    """Aligned text of at most `WIDTH` columns; the last column is paragraphs that are wrapped."""
    import textwrap  # only where something is printed

    rows = list(rows)
    first = [[row[i] for row in rows] for i in range(3)]
    widths = [max(map(len, [name, *cells])) for name, cells in zip(columns, first, strict=False)]
    rest = max(_LEAST, WIDTH - sum(widths) - 2 * len(widths))
    lines = [_line([*columns[:3]], widths, columns[3])]
    lines.append("  ".join("-" * width for width in [*widths, min(rest, 60)]))
    for *cells, paragraphs in rows:
        wrapped = [
            line
            for paragraph in paragraphs
            for line in textwrap.wrap(
                paragraph, rest, subsequent_indent="  ", break_on_hyphens=False
            )
        ]
        lines.append(_line(cells, widths, wrapped[0] if wrapped else ""))
        lines += [_line(["", "", ""], widths, line) for line in wrapped[1:]]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], last: str) -> str:
    left = [cells[0].ljust(widths[0]), cells[1].ljust(widths[1]), cells[2].rjust(widths[2])]
    return "  ".join([*left, last]).rstrip()


def reason_lines(reasons: Iterable[Reason]) -> list[str]:
    """Write reasons and their hints as paragraphs for `table`."""
    lines = []
    for reason in reasons:
        lines.append(str(reason))
        if reason.hint:
            lines.append(f"  hint: {reason.hint}")
    return lines
