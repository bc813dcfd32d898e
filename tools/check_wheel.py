"""Build the wheel and check that it holds what it must and nothing else.

It must hold exactly two import names, every source file of both, their `py.typed`, and the licence;
and both names must import from the unpacked wheel alone. Run as ``python tools/check_wheel.py``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {
    "sparseformats": "sparseformats",
    "sparseformats_kernels": "kernels/sparseformats_kernels",
}
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import sparseformats, sparseformats_kernels
for module in (sparseformats, sparseformats_kernels):
    assert module.__file__.startswith(sys.argv[1]), module.__file__
"""


def expected(root: Path) -> set[str]:
    """Names in the wheel that the source tree calls for."""
    return {
        f"{name}/{path.relative_to(root / folder).as_posix()}"
        for name, folder in SOURCES.items()
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def problems(names: set[str], wanted: set[str]) -> list[str]:
    """Everything wrong with a wheel that holds `names`, where `wanted` are the sources."""
    found = []
    metadata = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    tops = {name.split("/")[0] for name in names - metadata}
    found += [f"unexpected import name {top!r}" for top in sorted(tops - set(SOURCES))]
    found += [f"import name {top!r} is missing" for top in sorted(set(SOURCES) - tops)]
    marks = {f"{name}/py.typed" for name in SOURCES}
    found += [f"missing {name}" for name in sorted((wanted | marks) - names)]
    extra = {name for name in names - metadata - wanted - marks if name.split("/")[0] in SOURCES}
    found += [f"not in the source tree: {name}" for name in sorted(extra)]
    if not any("LICENSE" in name for name in metadata):
        found.append("missing LICENSE")
    return found


def build(root: Path, folder: Path) -> Path:
    """Build the wheel of `root` into `folder`."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps"]
    constraints = ["-c", str(root / "constraints.txt")]
    subprocess.run([*pip, *constraints, "-w", str(folder), str(root)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> int:
    """Build, check the names, import both packages from the unpacked wheel."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(ROOT, Path(folder))
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            found = problems(names, expected(ROOT))
            archive.extractall(Path(folder) / "unpacked")
        if not found:
            unpacked = str(Path(folder) / "unpacked")
            subprocess.run([sys.executable, "-c", PROGRAM, unpacked], cwd=folder, check=True)
        print(
            "\n".join(found)
            or f"wheel: {wheel.name} holds {len(names)} files, all as they should be"
        )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
