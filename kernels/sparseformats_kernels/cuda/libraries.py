"""Where NVIDIA's shared libraries are: in this process already, in packages, or with the linker."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator

__all__ = ["PATIENCE", "first", "folders", "in_process", "known_to_linker"]

PATIENCE = 1.0  # seconds for which a search in vain is believed

_CACHE = "/etc/ld.so.cache"


def in_process(pattern: re.Pattern[str], maps: str | None = None) -> str | None:
    """Path of a library that this process has loaded already.

    Parameters
    ----------
    pattern : Pattern
        Its first group is the path at the end of a line of ``/proc/self/maps``.
    maps : str, optional
        These lines, if not this process's.
    """
    if maps is None:
        try:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
                maps = file.read()
        except OSError:
            return None
    found = pattern.search(maps)
    return found[1] if found else None


def folders(*packages: str) -> Iterator[str]:
    """Folders in which packages and toolkits keep libraries, most likely first.

    Parameters
    ----------
    *packages : str
        Patterns of folders below those of Python's packages.
    """
    for path in dict.fromkeys(sys.path):
        for package in packages:
            if glob.has_magic(package):
                yield from glob.glob(os.path.join(glob.escape(path or "."), package))
            else:
                yield os.path.join(path or ".", package)
    yield from os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    for name in ("CUDA_PATH", "CUDA_HOME"):
        if name in os.environ:
            yield os.path.join(os.environ[name], "lib64")
    yield "/usr/local/cuda/lib64"


def first(places: Iterable[str], patterns: Iterable[str]) -> str | None:
    """The first file of one of these names in one of these folders."""
    patterns = tuple(patterns)
    for folder in filter(None, places):
        for pattern in patterns:
            found = sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
            if found and os.path.isfile(found[0]):
                return found[0]
    return None


def known_to_linker(names: Iterable[str]) -> str | None:
    """The first of these names that the linker could load."""
    try:
        with open(_CACHE, "rb") as file:
            known = file.read()
    except OSError:
        return None
    return next((name for name in names if name.encode() + b"\0" in known), None)
