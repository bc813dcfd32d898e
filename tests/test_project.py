"""Facts that stand in more than one file of the project agree with each other."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[ <>=;~!]", each)[0] for each in requirements}


def test_pre_commit_pins_what_the_dev_extra_pins() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    pins = dict(each.split("==") for each in EXTRAS["dev"] if "==" in each)
    assert f"ruff-pre-commit\n    rev: v{pins['ruff']}\n" in hooks
    assert f"mirrors-mypy\n    rev: v{pins['mypy']}\n" in hooks


def test_the_core_needs_three_packages() -> None:
    assert names(PROJECT["dependencies"]) == {"numpy", "scipy", "array-api-compat"}


def test_the_two_cuda_extras_stay_out_of_all() -> None:
    assert {"cuda12", "cuda13"} <= set(EXTRAS)
    assert "cuda" not in " ".join(EXTRAS["all"])
    assert "cupy" not in " ".join(EXTRAS["all"])


def test_triton_is_never_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins == ["torch==2.13.0"]


def test_every_pip_call_uses_the_constraints() -> None:
    files = [ROOT / name for name in ("Makefile", ".ci/run", "README.md", "CONTRIBUTING.md")]
    for file in files:
        for line in file.read_text().splitlines():
            if re.search(r"pip.*\binstall\b", line):
                assert "-c constraints.txt" in line, f"{file.name}: {line}"
                assert "--upgrade" not in line, f"{file.name}: {line}"


def test_contributing_fits_on_a_page() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) < 80


def test_no_entry_point_of_our_own() -> None:
    assert "entry-points" not in PROJECT
