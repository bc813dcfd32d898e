"""Report of a run of the GPU suite, with what one needs to trust it.

``pytest tests/gpu --device cuda:0 --report benchmarks/results/gpu_suite.json`` writes it. The
commit is taken from ``SPARSEFORMATS_COMMIT`` where the tree travelled without its history.
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
import os
import platform
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("numpy", "scipy", "torch", "cupy", "triton", "hypothesis", "array_api_compat")


def commit() -> str:
    """Commit that is being tested; ``-dirty`` where the tree differs from it."""
    named = os.environ.get("SPARSEFORMATS_COMMIT")
    if named:
        return named
    root = Path(__file__).resolve().parents[2]
    try:
        run = ["git", "-C", str(root)]
        head = subprocess.run([*run, "rev-parse", "HEAD"], capture_output=True, check=True)
        state = subprocess.run([*run, "status", "--porcelain"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.decode().strip() + ("-dirty" if state.stdout.strip() else "")


def versions() -> dict[str, str]:
    """Versions of what took part."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = str(importlib.import_module(name).__version__)
        except ImportError:
            found[name] = "not installed"
    return found


def gpu(device: str) -> dict[str, str]:
    """Name, capability and driver side of the device."""
    import torch

    if not device.startswith("cuda"):  # the tests themselves are being tried
        return {"name": device}
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": str(properties.name),
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": str(torch.version.cuda),
    }


def totals(tests: dict[str, dict[str, Any]]) -> dict[str, int]:
    """How many tests there are of each outcome."""
    return dict(Counter(row["outcome"] for row in tests.values()))


def document(
    tests: dict[str, dict[str, Any]], device: str, *, exit_status: int, examples: int
) -> dict[str, Any]:
    """Everything that a report says."""
    return {
        "commit": commit(),
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "device": gpu(device),
        "versions": versions(),
        "hypothesis_examples": examples,
        "exit_status": exit_status,
        "totals": totals(tests),
        "tests": dict(sorted(tests.items())),
    }


def write(path: Path, found: dict[str, Any]) -> None:
    """Write a report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


class Report:
    """Collects outcomes and writes them at the end of the session."""

    def __init__(self, path: Path, device: str) -> None:
        self.path, self.device = path, device
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self.tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        row["seconds"] = round(row["seconds"] + report.duration, 3)
        if report.outcome != "passed":
            row["outcome"] = report.outcome

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        from hypothesis import settings

        facts = {"exit_status": int(exitstatus), "examples": settings().max_examples}
        write(self.path, document(self.tests, self.device, **facts))
