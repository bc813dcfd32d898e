"""Imports point downward only; the checker that says so rejects each kind of planted violation."""

from pathlib import Path

import pytest

from tools import layers

ROOT = Path(__file__).resolve().parents[1]


def test_every_import_points_downward() -> None:
    assert layers.violations(ROOT) == []


def test_the_checker_sees_the_whole_tree() -> None:
    found = layers.modules(ROOT)
    assert "sparseformats" in found
    assert "sparseformats_kernels" in found
    assert any(
        one.target == "numpy"
        for name, path in found.items()
        for one in layers.imports(name, path, set())
    )


def plant(root: Path, file: str, text: str) -> list[str]:
    """Write a small legal tree with one file more, and return what the checker finds in it."""
    legal = {
        "sparseformats/__init__.py": "from .ops import matmul\n",
        "sparseformats/errors.py": "",
        "sparseformats/_dtypes.py": "from . import errors\n",
        "sparseformats/_arrays.py": "def f():\n    import torch\n",
        "sparseformats/ops.py": (
            "from .convert import edges\nfrom sparseformats.formats.base import X\n"
        ),
        "sparseformats/convert/__init__.py": "",
        "sparseformats/convert/edges.py": "from ..dispatch import registry\n",
        "sparseformats/dispatch/__init__.py": "from .. import errors\n",
        "sparseformats/dispatch/record.py": "",
        "sparseformats/dispatch/registry.py": "from . import record\n",
        "sparseformats/formats/__init__.py": "from . import base\n",
        "sparseformats/formats/base.py": "X = 1\ndef to():\n    from ..convert import edges\n",
        "kernels/sparseformats_kernels/__init__.py": "",
        "kernels/sparseformats_kernels/cpu/__init__.py": (
            "from sparseformats.dispatch.record import KernelRecord\n"
            "from sparseformats.dispatch import record\n"
            "from sparseformats_kernels.cpu import spmm\n"
            "from . import spmm\n"
        ),
        "kernels/sparseformats_kernels/cpu/spmm.py": "import scipy\nimport torch\n",
    }
    for name, body in {**legal, file: text}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)
    return layers.violations(root)


def test_a_legal_tree_has_no_violation(tmp_path: Path) -> None:
    assert plant(tmp_path, "sparseformats/reference.py", "from .formats import base\n") == []


@pytest.mark.parametrize(
    ("file", "text", "target"),
    [
        (
            "sparseformats/formats/coo.py",
            "from ..convert import edges\n",
            "sparseformats.convert.edges",
        ),
        ("sparseformats/formats/coo.py", "def f():\n    from .. import ops\n", "sparseformats.ops"),
        ("sparseformats/formats/base.py", "from ..ops import matmul\n", "sparseformats.ops"),
        (
            "sparseformats/formats/base.py",
            "def f():\n    from ..io import save\n",
            "sparseformats.io",
        ),
        ("sparseformats/errors.py", "from sparseformats import _dtypes\n", "sparseformats._dtypes"),
        (
            "sparseformats/dispatch/select.py",
            "from ..formats.base import X\n",
            "sparseformats.formats.base",
        ),
        ("sparseformats/dispatch/select.py", "import numpy as np\n", "numpy"),
        ("sparseformats/dispatch/select.py", "def f():\n    import torch\n", "torch"),
        ("sparseformats/convert/graph.py", "from sparseformats import ops\n", "sparseformats.ops"),
        ("sparseformats/convert/graph.py", "from sparseformats import matmul\n", "sparseformats"),
        ("sparseformats/convert/csr_bsr.py", "def f():\n    import torch\n", "torch"),
        ("sparseformats/reference.py", "from . import dispatch\n", "sparseformats.dispatch"),
        ("sparseformats/ops.py", "import sparseformats_kernels.cpu\n", "sparseformats_kernels.cpu"),
        ("sparseformats/ops.py", "from tests import helpers\n", "tests"),
        ("sparseformats/novel.py", "from . import errors\n", "sparseformats.errors"),
        (
            "sparseformats/formats/coo.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..ops import f\n",
            "sparseformats.ops",
        ),
        (
            "kernels/sparseformats_kernels/cpu/more.py",
            "from sparseformats.dispatch.registry import f\n",
            "sparseformats.dispatch.registry",
        ),
        ("kernels/sparseformats_kernels/cpu/more.py", "import sparseformats\n", "sparseformats"),
        ("kernels/sparseformats_kernels/cpu/more.py", "import benchmarks\n", "benchmarks"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, text: str, target: str) -> None:
    found = plant(tmp_path, file, text)
    assert len(found) == 1
    assert found[0].startswith(f"{file}:")
    assert f" imports {target}: " in found[0]


def test_kernels_must_not_become_a_package(tmp_path: Path) -> None:
    found = plant(tmp_path, "kernels/__init__.py", "")
    assert found == ["kernels/__init__.py: kernels/ is a source root, not a package"]
