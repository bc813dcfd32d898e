"""Directives that render tables from data: the contract's file, and the records of the kernels."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from gpu_results import GpuPlots, GpuResults
from markdown_tables import table
from sphinx.application import Sphinx
from table_directive import TableDirective

import sparseformats as sf

CONTRACT = Path(__file__).resolve().parents[1] / "reference" / "contract.toml"
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "cpu.json"
KERNELS = {
    "op": "operation",
    "name": "kernel",
    "formats": "formats",
    "doc": "what it is",
    "needs": "what it needs of a call",
}


class ContractTable(TableDirective):
    """Render the array of tables that the argument names, under the headings it declares."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Render the table and rebuild the page when the file changes."""
        self.env.note_dependency(str(CONTRACT))
        contract = tomllib.loads(CONTRACT.read_text(encoding="utf-8"))
        name = self.arguments[0]
        return self.show(table(contract["columns"][name], contract[name]), str(CONTRACT))


class KernelTable(TableDirective):
    """Render every registered kernel; a record is all that a row needs."""

    def run(self) -> list[nodes.Node]:
        """Render the table; no kernel is loaded for it."""
        kernels = sf.kernels()
        if unread := [info for info in kernels if not info.op]:
            raise self.error(f"{unread[0].name}: {unread[0].reasons[0]}")
        return self.show(table(KERNELS, [info.to_dict() for info in kernels]), "kernels")


MEASURED = {
    "what": "what",
    "goal": "goal",
    "rows": "rows",
    "met": "met",
    "best": "best ratio",
    "middle": "median ratio",
    "worst": "worst ratio",
}


def _measured_rows() -> list[dict[str, Any]]:
    """One row for each workload and goal: how many rows there are, and how they came out."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in json.loads(RESULTS.read_text(encoding="utf-8")):
        what = str(row["workload"]).partition(",")[0]
        against = row.get("baseline", "")
        groups.setdefault(
            (f"{what} against {against}" if against else what, row["goal"]), []
        ).append(row)
    found = []
    for (what, goal), rows in groups.items():
        ratios = sorted(row["ratio"] for row in rows)
        found.append(
            {
                "what": what,
                "goal": goal,
                "rows": len(rows),
                "met": sum(bool(row["met"]) for row in rows),
                "best": ratios[0],
                "middle": ratios[len(ratios) // 2],
                "worst": ratios[-1],
            }
        )
    return found


class MeasuredTable(TableDirective):
    """Summarise the committed benchmark rows of the CPU."""

    def run(self) -> list[nodes.Node]:
        """Render the table and rebuild the page when the file changes."""
        self.env.note_dependency(str(RESULTS))
        return self.show(table(MEASURED, _measured_rows()), str(RESULTS))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("contract", ContractTable)
    app.add_directive("kernels", KernelTable)
    app.add_directive("measured", MeasuredTable)
    app.add_directive("gpu-results", GpuResults)
    app.add_directive("gpu-plots", GpuPlots)
    return {"version": "1", "parallel_read_safe": True}
