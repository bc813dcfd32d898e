"""Another package's kernel, registered by its entry point and run through ``sf.matmul``.

The package is the one of docs/how-to/add-a-kernel.md, installed into a folder on the path.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/add-a-kernel.md").read_text(encoding="utf-8")


def block(title: str) -> str:
    """The code block of the page that begins with this line."""
    found = re.search(rf"```\w+\n({re.escape(title)}.*?)```", PAGE, re.DOTALL)
    assert found is not None, title
    return found[1]


def install(folder: Path, *, version: str = "2.1", kernel: str | None = None) -> None:
    """Install acme: its list of records, its kernel, its entry point."""
    package, info = folder / "acme", folder / f"acme-{version}.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (package / "records.py").write_text(block("# acme/records.py"))
    (package / "doubled.py").write_text(kernel or block("# acme/doubled.py"))
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme\nVersion: {version}\n")
    points = block("# acme/pyproject.toml").split('"sparseformats.kernels"]')[1]
    name, target = re.findall(r'(\w+) = "(.*)"', points)[0]
    (info / "entry_points.txt").write_text(f"[sparseformats.kernels]\n{name} = {target}\n")


def run(folder: Path, code: str) -> str:
    """What code prints in a process that has the package."""
    paths = os.pathsep.join(map(str, (folder, ROOT, ROOT / "kernels")))
    head = "import numpy as np\nimport sparseformats as sf\n"
    head += "A = sf.from_dense(np.eye(8, dtype='f4'), 'csr')\nX = np.ones((8, 3), 'f4')\n"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", head + code],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return " ".join((done.stdout + done.stderr).split())


MULTIPLY = """
with sf.tracing() as trace:
    y = sf.matmul(A, X)
print(trace.kernels, np.array_equal(y, X))
"""


def test_chosen_and_right(tmp_path: Path) -> None:
    install(tmp_path)
    assert run(tmp_path, MULTIPLY) == "['acme-doubled'] True"


def test_chosen_by_name_and_certified(tmp_path: Path) -> None:
    install(tmp_path)
    certify = block("from sparseformats.testing import certify_kernel")
    assert "acme-doubled" in run(tmp_path, f"{certify}\nprint(sf.kernels('matmul'))")


def test_refused_with_a_reason(tmp_path: Path) -> None:
    install(tmp_path)
    out = run(tmp_path, f"A = A.to('coo'){MULTIPLY}print(sf.explain(A, X[:, :2]))")
    assert "acme-doubled" not in out.split("True")[0]
    assert "True" in out
    assert "acme-doubled refused" in out
    assert "needs csr, has coo [format]" in out


def test_broken_on_import(tmp_path: Path) -> None:
    install(tmp_path, kernel="raise OSError('libacme.so: no such file')\n")
    out = run(tmp_path, f"{MULTIPLY}{MULTIPLY}print(sf.explain(A, X))")
    assert out.count("KernelLoadWarning: kernel 'acme-doubled' of 'matmul' is refused") == 1
    assert "OSError: libacme.so: no such file [failed-to-load]" in out
    assert out.count("] True") == 2
    assert "chosen: " in out


def test_too_old(tmp_path: Path) -> None:
    install(tmp_path, version="1.9")
    out = run(tmp_path, f"{MULTIPLY}print(sf.explain(A, X))")
    assert "needs acme >= 2.0, has acme 1.9 [package-too-old]" in out
    assert "True" in out


def test_asked_for_and_refused(tmp_path: Path) -> None:
    install(tmp_path, version="1.9")
    code = """
try:
    sf.matmul(A, X, kernel="acme-doubled")
except sf.NoKernelError as error:
    print(error)
"""
    out = run(tmp_path, code)
    assert "no kernel: acme-doubled (forced by kernel=) must refuse this call" in out
    assert "upgrade acme to 2.0 or later" in out


def test_a_wrong_kernel_is_not_certified(tmp_path: Path) -> None:
    install(tmp_path, kernel=block("# acme/doubled.py").replace("alpha * y", "y"))
    certify = block("from sparseformats.testing import certify_kernel")
    # The fault shows where alpha is not 1, which few examples have.
    certify = certify.replace("examples=100", "examples=500")
    assert "examples=500" in certify
    code = "try:\n    exec(CODE)\nexcept AssertionError as error:\n    print('REJECTED', error)\n"
    assert "REJECTED" in run(tmp_path, f"CODE = {certify!r}\n{code}")


def test_the_page_names_what_exists() -> None:
    with pytest.raises(AssertionError):
        block("# acme/nowhere.py")
