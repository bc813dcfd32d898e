"""`import sparseformats` loads NumPy and nothing heavier, in a process of its own."""

import json
import subprocess
import sys

import pytest

from benchmarks import import_time

PROGRAM = """
import json, sys
import numpy
before = set(sys.modules)
{}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
# Standard library, yet slow enough to double the time of the import.
SLOW_STANDARD = {"importlib.metadata", "email", "asyncio", "unittest", "multiprocessing", "sqlite3"}


def loaded_by(statement: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(statement)],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def too_heavy(modules: set[str]) -> set[str]:
    foreign = {
        name
        for name in modules
        if name.split(".")[0] not in {"sparseformats", "numpy", *sys.stdlib_module_names}
    }
    ours = {
        name for name in modules if name.startswith(("sparseformats.testing", "sparseformats.cli"))
    }
    return foreign | ours | (modules & SLOW_STANDARD)


@pytest.mark.parametrize("statement", import_time.OURS, ids=["bare", "formats"])
def test_import_loads_nothing_heavier_than_numpy(statement: str) -> None:
    loaded = loaded_by(statement)
    assert "sparseformats" in loaded
    assert too_heavy(loaded) == set()


@pytest.mark.parametrize("heavy", ["scipy", "array_api_compat", "hypothesis", "importlib.metadata"])
def test_the_check_sees_a_heavy_import(heavy: str) -> None:
    assert heavy in too_heavy(loaded_by(f"import {heavy}"))


def test_the_benchmark_judges_by_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert import_time.main(["--runs", "1", "--limit", "1000"]) == 0
    assert import_time.main(["--runs", "1", "--limit", "0"]) == 1
    assert "import numpy" in capsys.readouterr().out
