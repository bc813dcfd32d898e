"""The rows of a GPU's results file beside their goals, as Markdown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gpu_columns
from markdown_tables import table

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"

GROUPS = {
    "B": "Blocks against dense",
    "T": "Blocks against torch BSR",
    "E": "Blocked-ELL against cuSPARSE",
    "L": "Uneven rows against even ones",
    "X": "Layers of Llama-3",
    "R": "CSR against cuSPARSE and CuPy",
    "K": "Clusters of alike rows, grouped by the plan",
    "D": "A few columns, out of a cold cache, against dense",
    "Q": "Blocks of 8-bit values against dense products of the same",
    "G": "Products at stored elements alone",
    "V": "Conversions on the device",
    "S": "2:4 on sparse tensor cores",
    "O": "Overheads and choice of kernel",
    "W": "The wider suite, without goals",
    "C": "Ceilings",
}
COLUMNS = {
    "id": "row",
    "kernel": "kernel",
    "ours": "ours (us)",
    "baseline_us": "baseline (us)",
    "ratio": "ratio",
    "goal": "goal",
    "verdict": "met",
    "spread": "spread",
    "roof": "share of roofline",
}


def read(name: str) -> list[dict[str, Any]]:
    """Rows of a results file; none where it is not there yet."""
    path = RESULTS / name
    rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else []
    return rows


def grouped(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by the letter that their id begins with; every group of `GROUPS`, empty or not."""
    found: dict[str, list[dict[str, Any]]] = {letter: [] for letter in GROUPS}
    for row in rows:
        if "@" not in row["id"] and not gpu_columns.is_by_columns(row):
            found.setdefault(row["id"].partition("-")[0], []).append(row)
    return found


def verdict(row: dict[str, Any]) -> str:
    """Whether a goal is met, and by how much it is not."""
    if "error" in row:
        return "not measured"
    if row["goal"] is None:
        return ""
    if row["met"] is None:
        return f"no room ({row['room']:.2f}x)" if "room" in row else "incomplete"
    if row["met"]:
        return "yes"
    gap = _gap(row)
    return "no" if gap is None else f"no, {gap:.0%} short"


def _gap(row: dict[str, Any]) -> float | None:
    """How far a ratio is from its goal, as a share of the goal."""
    text = str(row["goal"]).partition(",")[0].removeprefix("geomean ")
    slower = text.startswith("<=")
    try:
        goal = float(text.removeprefix("<=").strip().rstrip("x"))
    except ValueError:
        return None
    return row["ratio"] / goal - 1 if slower else 1 - row["ratio"] / goal


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the table has it."""
    if "error" in row:
        why = f"not measured: {row['error']}"
        return {"id": row["id"], "goal": row["goal"] or "", "verdict": why}
    share, spread = row["share_of_roofline"], row["spread"]
    return {
        "id": row["id"],
        "kernel": row["kernel"] or "",
        "ours": row["ours_us"],
        "baseline_us": row["baseline_us"],
        "ratio": row["ratio"],
        "goal": row["goal"] or "",
        "verdict": verdict(row),
        "spread": "" if spread is None else f"{spread:.1%}",
        "roof": "" if share is None else f"{share:.0%}",
    }


def provenance(rows: list[dict[str, Any]]) -> str:
    """Where the rows come from, in one paragraph."""
    sources = sorted({(row["device"], row["commit"], row["date"]) for row in rows})
    text = "; ".join(f"{device}, commit {commit[:12]}, {date}" for device, commit, date in sources)
    versions = rows[-1]["versions"]
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    judged = [row for row in rows if row.get("met") is not None and "@" not in row["id"]]
    met = sum(bool(row["met"]) for row in judged)
    return f"{text}; {names}. {met} of {len(judged)} goals are met."


def page(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of the whole part of the page."""
    lines = [provenance(rows), ""] if rows else ["Nothing has been measured yet.", ""]
    for letter, found in grouped(rows).items():
        lines += [f"**{GROUPS.get(letter, f'Rows {letter}')}**", ""]
        if not found:
            lines += ["No row was measured.", ""]
            continue
        ratios = sorted({str(row["ratio_is"]) for row in found})
        baselines = sorted({str(row["baseline"]).partition(" (")[0] for row in found})
        lines += [f"Against: {'; '.join(baselines)}. Ratio: {'; '.join(ratios)}.", ""]
        lines += [*table(COLUMNS, [shown(row) for row in found]), ""]
        lines += gpu_columns.part(rows) if letter == "S" else []
    return lines
