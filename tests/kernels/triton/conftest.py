"""Tests of the Triton kernels without a GPU run on request: ``--triton interpret|compile``.

Triton decides when it is imported whether kernels are interpreted, so each kind has a process of
its own, and the ordinary run collects neither: `make triton-test` runs both, under two versions of
Triton. A requested run never skips: a package that is missing fails it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

KINDS = ("interpret", "compile")
HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--triton",
        choices=KINDS,
        help="tests of the Triton kernels to run: by the interpreter, or by compiling only",
    )


def pytest_configure(config: pytest.Config) -> None:
    asked = config.getoption("--triton", None)
    if asked is None:
        return
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if "triton" in sys.modules and interpreted != (asked == "interpret"):
        raise pytest.UsageError(f"Triton was imported before --triton {asked} could take effect")
    if asked == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"
    elif interpreted:
        raise pytest.UsageError("--triton compile needs an environment without TRITON_INTERPRET=1")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    for kind in KINDS:
        if HERE / kind in (collection_path, *collection_path.parents):
            return None if config.getoption("--triton", None) == kind else True
    return None


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.getoption("--triton", None) is None:
        return None
    import numpy as np
    import torch
    import triton

    return f"triton {triton.__version__}, torch {torch.__version__}, numpy {np.__version__}"
