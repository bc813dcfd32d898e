"""Operands flush with the end of mapped memory: no kernel reads or writes beyond them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fence(device: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.gpu.fence", "--device", device, *options]
    paths = [".", "kernels", *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )


def test_no_kernel_leaves_its_buffers(device: str) -> None:
    done = fence(device)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "triton-tiles: 20 served" in done.stdout


def test_a_read_whose_value_is_thrown_away_is_noticed(device: str) -> None:
    """Else the test above would prove nothing: the planted kernel reads one column too far."""
    done = fence(device, "--planted", "reads-beyond-n")
    assert done.returncode != 0, done.stdout
    assert "illegal memory access" in done.stderr, done.stderr[-3000:]
