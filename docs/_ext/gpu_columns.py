"""2:4 by the number of columns: what is chosen, against dense, and where it starts to pay."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from markdown_tables import table

HEAD = "W-semi-"
COLUMNS = {
    "shape": "matrix",
    "n": "N",
    "kernel": "kernel",
    "ours": "ours (us)",
    "dense": "dense (us)",
    "ratio": "ratio",
}


def is_by_columns(row: dict[str, Any]) -> bool:
    """Whether a row is a point of these tables."""
    return bool(row["id"].startswith(HEAD)) and "error" not in row


def part(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of the table and of what it says; none without rows."""
    found = sorted((row for row in rows if is_by_columns(row)), key=_place)
    if not found:
        return []
    lines = ["**2:4 by the number of columns, against dense**", ""]
    lines += [*table(COLUMNS, [_shown(row) for row in found]), ""]
    return [*lines, *_pays(found), ""]


def _place(row: dict[str, Any]) -> tuple[int, int, int]:
    case = row["case"]
    return case["m"], case["k"], case["n"]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    m, k, n = _place(row)
    numbers = {"ours": row["ours_us"], "dense": row["baseline_us"], "ratio": row["ratio"]}
    return {"shape": f"{m} x {k}", "n": n, "kernel": row["kernel"], **numbers}


def _pays(found: list[dict[str, Any]]) -> list[str]:
    """For each matrix the numbers of columns at which 2:4 is quicker than dense."""
    texts = []
    for (m, k), rows in groupby(found, key=lambda row: _place(row)[:2]):
        spans = [
            [row["case"]["n"] for row in span] for pays, span in groupby(rows, key=_wins) if pays
        ]
        names = [f"{n[0]} to {n[-1]}" if len(n) > 1 else f"{n[0]}" for n in spans]
        where = f"pays at N = {' and '.join(names)}" if names else "never pays"
        texts.append(f"{m} x {k}: 2:4 {where}.")
    return texts


def _wins(row: dict[str, Any]) -> bool:
    return row["ratio"] > 1 and "dense" not in (row["kernel"] or "")
