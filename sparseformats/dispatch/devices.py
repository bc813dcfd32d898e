"""Whether this machine shows a CUDA device, told without importing an array library.

For lists of kernels only: a call brings arrays on a device, which proves it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sparseformats.dispatch.reason import Reason

__all__ = ["missing_device"]

_SIGNS = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")
"""What the driver leaves on Linux and on Windows' Linux."""


def missing_device(kind: str) -> Reason | None:
    """Tell why no call on this machine can bring arrays on a kind of device, if none can."""
    if kind != "cuda":
        return None
    what = _hidden() or _absent()
    if what is None:
        return None
    return Reason("no-device", f"needs a CUDA device, {what}", "run it where a driver shows one")


def _hidden() -> str | None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or visible.strip() not in ("", "-1"):
        return None
    return f"CUDA_VISIBLE_DEVICES={visible!r} hides all"


def _absent() -> str | None:
    # Only where a driver would show itself by files; elsewhere nobody knows before it is asked.
    if not sys.platform.startswith("linux") or any(Path(sign).exists() for sign in _SIGNS):
        return None
    return "this machine shows none"
