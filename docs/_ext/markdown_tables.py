"""Tables from data, written as Markdown lines."""

from __future__ import annotations

from typing import Any


def cell(value: object) -> str:
    """Text of one table cell, in Markdown."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(cell(each) for each in value) or "nothing"
    if isinstance(value, dict):
        return f"{value['when']}: `{value['error']}`"
    return str(value).replace("|", "\\|").replace("*", "\\*")


def table(columns: dict[str, str], rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table; `columns` maps keys of a row to headings."""
    lines = [list(columns.values()), ["---"] * len(columns)]
    lines += [[cell(row.get(key, "")) for key in columns] for row in rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]
