"""A toy format, added by the recipe in a copy of the tree, touches what CONTRIBUTING lists."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOY = Path(__file__).parent / "toy_format"
COPIED = ("sparseformats", "kernels", "docs", "tests", "tools")
NEW = {
    "sparseformats/formats/pairs.py": "pairs.py",
    "sparseformats/convert/coo_pairs.py": "coo_pairs.py",
    "sparseformats/testing/_raw_pairs.py": "raw_pairs.py",
    "tests/formats/test_pairs.py": "test_pairs.py",
    "docs/reference/formats/pairs.md": "pairs.md",
}
# File -> pairs of a text that stands there once, and what the recipe adds after it.
EDITS = {
    "sparseformats/formats/__init__.py": [
        ("import NM\n", "from sparseformats.formats.pairs import Pairs\n"),
        ('"NM", ', '"Pairs", '),
    ],
    "sparseformats/__init__.py": [
        ("        NM as NM,\n", "        Pairs as Pairs,\n"),
        ('        "NM",\n', '        "Pairs",\n'),
    ],
    "sparseformats/convert/edges.py": [
        (
            "import coo_to_csr, csr_to_coo\n",
            "from sparseformats.convert.coo_pairs import coo_to_pairs, pairs_to_coo\n",
        ),
        (
            'Edge("csr", "coo", csr_to_coo, 1, _ALL),\n',
            """\
    Edge("coo", "pairs", coo_to_pairs, 1, _ALL),
    Edge("pairs", "coo", pairs_to_coo, 1, _ALL),
""",
        ),
    ],
    "sparseformats/reference/decoding.py": [
        (
            "return _collect(A, [(host(A, A.row), host(A, A.col), host(A, A.data), True)])\n",
            """

def _pairs(A: Any) -> Slots:
    places = host(A, A.places)
    return _collect(A, [(places[:, 0], places[:, 1], host(A, A.data), True)])
""",
        ),
        ('    "coo": _coo,\n', '    "pairs": _pairs,\n'),
    ],
    "sparseformats/testing/strategies.py": [
        (
            "import draw_coo, draw_csc, draw_csr\n",
            "from sparseformats.testing._raw_pairs import draw_pairs\n",
        ),
        ('FORMATS = ("coo", ', '"pairs", '),
        ('    "coo": draw_coo,\n', '    "pairs": draw_pairs,\n'),
    ],
    "docs/reference/formats/index.md": [("\ntransposed\n", "pairs\n")],
    "docs/reference/contract.toml": [("", "contract.toml")],
}


def tree(root: Path) -> dict[str, bytes]:
    files = [file for name in COPIED for file in (root / name).rglob("*") if file.is_file()]
    kept = [file for file in files if "__pycache__" not in file.parts]
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in kept}


def follow_the_recipe(root: Path) -> None:
    for name, template in NEW.items():
        shutil.copy(TOY / f"{template}.txt", root / name)
    for name, edits in EDITS.items():
        text = (root / name).read_text()
        for anchor, added in edits:
            if anchor:
                assert text.count(anchor) == 1, f"{name} has {text.count(anchor)} times {anchor!r}"
                text = text.replace(anchor, anchor + added)
            else:
                text += (TOY / f"{added}.txt").read_text()
        (root / name).write_text(text)


def listed(page: str) -> set[str]:
    """Paths that a page lists as those of a new format."""
    text = (ROOT / page).read_text()
    return {
        path.replace("<name>", "pairs") for path in re.findall(r"^(?:-|\d+\.) `(\S+)`", text, re.M)
    }


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("toy")
    unwanted = shutil.ignore_patterns("__pycache__", "_build", ".*")
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=unwanted)
    for file in [*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "LICENSE"]:
        shutil.copy(file, root)
    return root


@pytest.mark.slow
def test_a_toy_format_touches_exactly_the_listed_files_and_keeps_the_laws(copy: Path) -> None:
    before = tree(copy)
    follow_the_recipe(copy)
    after = tree(copy)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == listed("CONTRIBUTING.md") == listed("docs/how-to/add-a-format.md")

    chosen = [
        "tests/formats/test_pairs.py",
        "tests/test_docs.py",
        "tests/test_layers.py",
        "tests/laws",
    ]
    names = "pairs or test_docs or test_layers or test_the_table_covers"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, "-k"]
        + [f"({names}) and not torch and not strict"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{copy}:{copy / 'kernels'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 60
