"""``info``: what is installed here, and which kernels that makes available.

Packages are imported, for only that shows whether they work; one that fails becomes a line of the
report.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import warnings
from contextlib import suppress
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.dispatch import forcing, places
from sparseformats.ops import cache

__all__ = ["add_to", "report"]

PACKAGES = ("numpy", "scipy", "array_api_compat", "ml_dtypes", "torch", "triton", "cupy")


class Package(NamedTuple):
    """A package: its version where it works, else what is wrong with it."""

    name: str
    version: str | None
    problem: str | None = None

    def __str__(self) -> str:
        return self.problem or str(self.version)


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    parser = commands.add_parser(
        "info", help="packages, devices, every kernel", description=__doc__
    )
    parser.add_argument("--json", action="store_true", help="write JSON, for programs")
    parser.add_argument("--op", help="only kernels of this operation, such as matmul")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the report."""
    found = report(options.op)
    text = json.dumps(_jsonable(found), indent=2) if options.json else _text(found)
    sys.stdout.write(f"{text}\n")
    return 0


def report(op: str | None = None) -> dict[str, Any]:
    """Collect everything; never raises for what is installed here.

    Parameters
    ----------
    op : str or None
        Only kernels of this operation.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report itself tells what is wrong
        packages = [_package(name) for name in PACKAGES]
        devices = [*_devices(packages)]
        _try_requirements(op)
        kernels = sf.kernels(op)
    return {
        "sparseformats": sf.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "devices": devices,
        "environment": {
            name: os.environ.get(name)
            for name in (forcing.ENVIRONMENT, places.ENVIRONMENT, cache.ENVIRONMENT)
        },
        "files": {
            "shipped tables": places.shipped_tables(),
            "cache": places.user_directory(),
        },
        "kernels": kernels,
    }


def _package(name: str) -> Package:
    try:
        if util.find_spec(name) is None:
            return Package(name, None, "not installed")
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it may fail in any way
        return Package(name, _installed(name), f"installed, but importing it raised {_line(error)}")
    version = getattr(module, "__version__", None) or _installed(name) or "unknown version"
    return Package(name, str(version))


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except Exception:  # noqa: BLE001 - metadata may be missing or unreadable
        return None


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _devices(packages: list[Package]) -> list[str]:
    found = [f"cpu: {platform.processor() or platform.machine()}, {os.cpu_count()} logical cores"]
    works = {package.name for package in packages if package.problem is None}
    for name, ask in (("torch", _torch_devices), ("cupy", _cupy_devices)):
        if name not in works:
            continue
        try:
            found += ask(sys.modules[name])
        except Exception as error:  # noqa: BLE001 - a driver may fail in any way
            found.append(f"{name}: asking for devices raised {_line(error)}")
    return found


def _torch_devices(torch: Any) -> list[str]:
    if not torch.cuda.is_available():
        return ["torch: no CUDA device"]
    return [
        f"torch cuda:{i}: {torch.cuda.get_device_name(i)}, compute capability "
        + "{}.{}".format(*torch.cuda.get_device_capability(i))
        for i in range(torch.cuda.device_count())
    ]


def _cupy_devices(cupy: Any) -> list[str]:
    count = cupy.cuda.runtime.getDeviceCount()
    names = [cupy.cuda.runtime.getDeviceProperties(i)["name"].decode() for i in range(count)]
    return [f"cupy cuda:{i}: {name}" for i, name in enumerate(names)] or ["cupy: no device"]


def _try_requirements(op: str | None) -> None:
    """Import what kernels require, so that a broken package is a reason now, not at first use."""
    for requirement in {r for record in dispatch.records(op) for r in record.requires}:
        with suppress(SystemExit):
            requirement.load()


def _jsonable(found: dict[str, Any]) -> dict[str, Any]:
    return {
        **found,
        "packages": {
            p.name: {"version": p.version, "problem": p.problem} for p in found["packages"]
        },
        "files": {name: _file(path) for name, path in found["files"].items()},
        "kernels": [kernel.to_dict() for kernel in found["kernels"]],
    }


def _file(path: Path) -> dict[str, Any]:
    return {"path": str(path), "exists": path.exists()}


def _text(found: dict[str, Any]) -> str:
    usable = sum(kernel.available for kernel in found["kernels"])
    environment = {name: value or "not set" for name, value in found["environment"].items()}
    missing = {True: "", False: " (not there yet)"}
    files = {name: f"{path}{missing[path.exists()]}" for name, path in found["files"].items()}
    sections = [
        _aligned({name: found[name] for name in ("sparseformats", "python", "platform")}),
        "packages\n" + _aligned({p.name: str(p) for p in found["packages"]}, "  "),
        "devices\n" + "\n".join(f"  {device}" for device in found["devices"]),
        "environment\n" + _aligned(environment, "  "),
        "files\n" + _aligned(files, "  "),
        f"kernels: {usable} of {len(found['kernels'])} available here\n\n{found['kernels']}",
        "Which of them a call takes, and why not another: print(sparseformats.explain(A, X))",
    ]
    return "\n\n".join(sections)


def _aligned(rows: dict[str, Any], indent: str = "") -> str:
    width = max(map(len, rows))
    return "\n".join(f"{indent}{name:<{width}}  {value}" for name, value in rows.items())
