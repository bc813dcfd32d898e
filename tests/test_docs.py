"""The documents agree with the code and with each other; what they show runs."""

import re
import tomllib
from pathlib import Path

import pytest

import sparseformats as sf
from sparseformats import formats

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CONTRACT = tomllib.loads((ROOT / "docs/reference/contract.toml").read_text())
FORMATS = [
    cls
    for cls in vars(formats).values()
    if isinstance(cls, type) and issubclass(cls, sf.SparseMatrix) and cls is not sf.SparseMatrix
]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def broken_links(page: Path, text: str) -> list[str]:
    return [link for link in LINK.findall(text) if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text()) == []


def test_a_broken_link_is_found() -> None:
    text = "[a](README.md) [b](https://example.org) [c](gone.md#x)"
    assert broken_links(ROOT / "README.md", text) == ["gone.md"]


def test_every_format_has_one_row_in_the_contract() -> None:
    rows = [row["class"] for row in CONTRACT["formats"]]
    assert sorted(rows) == sorted(cls.__name__ for cls in FORMATS)


def test_the_contract_has_a_cell_for_every_column() -> None:
    for name, columns in CONTRACT["columns"].items():
        for row in CONTRACT[name]:
            assert set(columns) <= set(row), f"{name}: {row}"


@pytest.mark.parametrize("cls", FORMATS, ids=lambda cls: cls.__name__)
def test_every_format_has_a_page_listed_in_the_index(cls: type) -> None:
    name = cls.__module__.rsplit(".", 1)[1]
    folder = ROOT / "docs/reference/formats"
    assert f"automodule:: {cls.__module__}\n" in (folder / f"{name}.md").read_text()
    assert f"\n{name}\n" in (folder / "index.md").read_text()


def test_the_readme_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
