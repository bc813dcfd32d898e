"""Rows as a short table for people."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.gpu.results import Row

__all__ = ["lines"]

HEADS = ("id", "ours us", "base us", "ratio", "goal", "met", "spread", "roof")
WIDTHS = (34, 10, 10, 8, 12, 5, 7, 6)


def lines(rows: Iterable[Row]) -> list[str]:
    """One line a row, goals last; a failed row has its reason instead of numbers."""
    ordered = sorted(rows, key=lambda row: not row["id"].startswith("W-"))
    shown = [_line(_cells(row)) if "error" not in row else _fault(row) for row in ordered]
    return [_line(HEADS), *shown]


def _cells(row: Row) -> tuple[str, ...]:
    met = {True: "yes", False: "NO", None: "-"}[row["met"]]
    goal = (row["goal"] or "-").partition(",")[0]
    return (
        row["id"],
        _number(row["ours_us"], 1),
        _number(row["baseline_us"], 1),
        _number(row["ratio"], 3),
        goal,
        met,
        _number(row["spread"], 3),
        _number(row["share_of_roofline"], 2),
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _line(cells: Iterable[str]) -> str:
    first, *rest = (cell[:34] for cell in cells)
    padded = [cell.rjust(width) for cell, width in zip(rest, WIDTHS[1:], strict=True)]
    return " ".join([first.ljust(WIDTHS[0]), *padded])


def _fault(row: Row) -> str:
    return f"{row['id'].ljust(WIDTHS[0])} FAILED {row['error'][:70]}"
