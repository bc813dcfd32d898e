"""The judge of the wheel's contents rejects each kind of wrong wheel."""

from pathlib import Path

import pytest

from tools import check_wheel

ROOT = Path(__file__).resolve().parents[1]
WANTED = check_wheel.expected(ROOT)
INFO = {"sparseformats-0.dist-info/METADATA", "sparseformats-0.dist-info/licenses/LICENSE"}
RIGHT = WANTED | INFO


def test_the_source_tree_names_both_packages_and_their_type_marks() -> None:
    assert {"sparseformats/__init__.py", "sparseformats_kernels/__init__.py"} <= WANTED
    assert {"sparseformats/py.typed", "sparseformats_kernels/py.typed"} <= WANTED
    assert not any("__pycache__" in name for name in WANTED)


def test_a_right_wheel_has_no_problem() -> None:
    assert check_wheel.problems(RIGHT, WANTED) == []


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (RIGHT | {"tests/test_wheel.py"}, "unexpected import name 'tests'"),
        (RIGHT | {"kernels/sparseformats_kernels/__init__.py"}, "unexpected import name 'kernels'"),
        (RIGHT - {"sparseformats/py.typed"}, "missing sparseformats/py.typed"),
        (RIGHT - {"sparseformats/errors.py"}, "missing sparseformats/errors.py"),
        (RIGHT | {"sparseformats/stale.py"}, "not in the source tree: sparseformats/stale.py"),
        (RIGHT - INFO, "missing LICENSE"),
        (
            {name for name in RIGHT if not name.startswith("sparseformats_kernels")},
            "import name 'sparseformats_kernels' is missing",
        ),
    ],
)
def test_a_wrong_wheel_is_rejected(names: set[str], says: str) -> None:
    assert says in check_wheel.problems(names, WANTED)
