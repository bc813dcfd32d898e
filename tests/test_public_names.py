"""Every public name exists, is documented, and is what the type checkers see."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import sparseformats as sf


@pytest.mark.parametrize("name", sf.__all__)
def test_a_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(sf, name)
    assert name in dir(sf)
    assert inspect.getdoc(value), f"{name} has no docstring"


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(sf.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in ast.walk(node)
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
    }
    assert typed == set(sf.__all__)


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="'sparseformats' has no attribute 'nonsense'"):
        sf.nonsense
