"""No text of this package has lost its ``f``."""

import ast
import re
from pathlib import Path

import pytest

import sparseformats.dispatch

FILES = sorted(Path(sparseformats.dispatch.__file__).parent.glob("*.py"))
FIELD = re.compile(r"\{[A-Za-z_]")


def lost(source):
    """String constants that look like f-strings and are not (docstrings aside)."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
              for part in ast.walk(node)}  # fmt: skip
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in inside | documents
        and FIELD.search(node.value)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_text_has_lost_its_f(path):
    assert lost(path.read_text()) == []


def test_a_lost_f_is_found():
    assert lost("raise ValueError('needs {x}')") == ["needs {x}"]
    assert lost("raise ValueError(f'needs {x}')") == []
