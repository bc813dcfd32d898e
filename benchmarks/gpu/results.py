"""Files of rows: provenance, merging, and what is there already."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import timing

__all__ = ["FIELDS", "Row", "commit", "done", "merge", "provenance", "read", "short", "versions"]

Row = dict[str, Any]

FIELDS = (
    *("id", "workload", "kernel", "baseline", "ours_us", "baseline_us", "ratio", "ratio_is"),
    *("spread", "share_of_roofline", "l2_model_us", "goal", "met"),
    *("versions", "commit", "date", "device"),
)
"""What every row has; None where it does not apply. A failed row has ``error`` beside."""

PACKAGES = ("numpy", "scipy", "torch", "cupy", "triton")
ENVIRONMENT = "SPARSEFORMATS_COMMIT"


def short(number: float) -> float:
    """The number to five digits."""
    return float(f"{number:.5g}")


def commit(given: str | None = None) -> str:
    """The tree that is measured: as given, from the environment, or from its history."""
    named = given or os.environ.get(ENVIRONMENT, "").strip()
    if named:
        return named
    try:
        return timing.commit()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def versions() -> dict[str, str]:
    """Versions of what takes part."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = str(importlib.import_module(name).__version__)
        except ImportError:
            found[name] = "not installed"
    import torch

    found["cuda"] = str(torch.version.cuda)
    return found


def provenance(device: str, given_commit: str | None = None) -> Row:
    """What every row says about where it comes from."""
    import torch

    on_gpu = device.startswith("cuda")
    name = torch.cuda.get_device_name(device) if on_gpu else f"{os.cpu_count()}-core CPU"
    return {
        "versions": versions(),
        "commit": commit(given_commit),
        "date": timing.today(),
        "device": name,
    }


def read(path: Path) -> list[Row]:
    """Rows of a file; none where there is no file."""
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return rows


def done(rows: Iterable[Row], provenance: Row) -> set[str]:
    """Ids that were measured without an error on this device at this commit."""
    same = ("commit", "device")
    return {
        row["id"]
        for row in rows
        if "error" not in row and all(row[name] == provenance[name] for name in same)
    }


def merge(path: Path, rows: Iterable[Row], order: Iterable[str]) -> list[Row]:
    """Replace rows of the same id, keep the others, sort by `order`, and write the file.

    A row with an error does not replace one of the same commit that has none.

    Returns
    -------
    list
        All rows of the file.
    """
    kept = {row["id"]: row for row in read(path)}
    for row in rows:
        old = kept.get(row["id"])
        better = old is not None and "error" not in old and old["commit"] == row["commit"]
        if not ("error" in row and better):
            kept[row["id"]] = row
    rank = {id: place for place, id in enumerate(order)}
    found = sorted(kept.values(), key=lambda row: rank.get(row["id"], len(rank)))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return found
