"""A directive that renders `reference/contract.toml`, the table from which the laws are tested."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FILE = Path(__file__).resolve().parents[1] / "reference" / "contract.toml"


def load() -> dict[str, Any]:
    """Read the contract as plain data."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def cell(value: object) -> str:
    """Text of one table cell, in Markdown."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(cell(each) for each in value) or "nothing"
    if isinstance(value, dict):
        return f"{value['when']}: `{value['error']}`"
    return str(value)


def table(columns: dict[str, str], rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table; `columns` maps keys of a row to headings."""
    lines = [list(columns.values()), ["---"] * len(columns)]
    lines += [[cell(row.get(key, "")) for key in columns] for row in rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


class Contract(SphinxDirective):
    """Render the array of tables that the argument names, under the headings it declares."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Render the table and rebuild the page when the file changes."""
        self.env.note_dependency(str(FILE))
        contract = load()
        name = self.arguments[0]
        lines = table(contract["columns"][name], contract[name])
        node = nodes.section()
        self.state.nested_parse(StringList(lines, str(FILE)), self.content_offset, node)
        return node.children


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("contract", Contract)
    return {"version": "1", "parallel_read_safe": True}
