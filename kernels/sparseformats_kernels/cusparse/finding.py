"""Where libcusparse is, and why it cannot be used: missing, too old and broken are three reasons.

The library that torch or CuPy has loaded is taken before any other: it fits the driver, and a
second copy would only cost memory. Nothing is loaded to list kernels, unless it is loaded already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from sparseformats.dispatch.record import Reason, Requirement
from sparseformats_kernels.cuda import libraries

if TYPE_CHECKING:
    from sparseformats_kernels.cusparse.api import Api

__all__ = ["CuSparse", "find", "installed", "mapped", "the_api"]

_MAPPED = re.compile(r"(/\S*/libcusparse\.so(?:\.\d+)*)\s*$", re.MULTILINE)
_NAMES = ("libcusparse.so.12", "libcusparse.so.13", "libcusparse.so")
_HINT = "install nvidia-cusparse, or torch or CuPy for CUDA 12.4 or later, which bring it"

_lock = Lock()
# "api": an Api, or the text of what loading it raised; "absent until": a time.
_state: dict[str, Any] = {}


def mapped(maps: str | None = None) -> str | None:
    """Path of the library that this process has loaded already."""
    return libraries.in_process(_MAPPED, maps)


def _folders() -> Iterator[str]:
    """Folders in which packages and toolkits keep it."""
    return libraries.folders("nvidia/cu[0-9]*/lib", "nvidia/cusparse/lib")


def installed(folders: Iterable[str] | None = None) -> str | None:
    """Path of a library that could be loaded, by name where only the linker knows it."""
    found = libraries.first(_folders() if folders is None else folders, _NAMES)
    if found is not None or folders is not None:
        return found
    return libraries.known_to_linker(_NAMES[:2])


def find() -> str | None:
    """The library to use, or None."""
    return mapped() or installed()


def _load() -> Api | str | None:
    """The loaded library, or what loading it raised; None where there is none to load."""
    with _lock:
        if "api" not in _state:
            path = find()
            if path is None:
                return None
            from sparseformats_kernels.cusparse.api import Api

            try:
                _state["api"] = Api(path)
            except (OSError, AttributeError, RuntimeError) as error:
                _state["api"] = f"loading {path} raised {type(error).__name__}: {error}"
        found: Api | str = _state["api"]
        return found


def the_api() -> Api:
    """The loaded library.

    Raises
    ------
    RuntimeError
        There is none; a kernel is not selected then.
    """
    found = _load()
    if found is None or isinstance(found, str):
        raise RuntimeError(f"cuSPARSE cannot be used: {found or 'it is not installed'}; {_HINT}")
    return found


@dataclass(frozen=True, slots=True)
class CuSparse(Requirement):
    """The requirement of a kernel on the library, which is no Python package.

    Its versions are those of cuSPARSE, not of CUDA: CUDA 12.4 has 12.3, 13.0 has 12.6.
    """

    package: str = "cuSPARSE"

    def reason(self) -> Reason | None:
        """Tell why the requirement is not met, as far as shows without loading anything."""
        if "api" in _state:
            return self.load()
        # A search reads files, and every choice of a kernel asks.
        if monotonic() < _state.get("absent until", 0.0):
            return self._missing()
        if mapped():
            return self.load()
        if installed() is not None:
            return None
        _state["absent until"] = monotonic() + libraries.PATIENCE
        return self._missing()

    def load(self) -> Reason | None:
        """Load the library; tell why that is impossible, if it is."""
        found = _load()
        if found is None:
            return self._missing()
        if isinstance(found, str):
            hint = "reinstall the package that brings it, or check LD_LIBRARY_PATH"
            return Reason("package-broken", f"needs {self}, which is installed, but {found}", hint)
        if found.version >= tuple(map(int, (self.minimum or "0").split("."))):
            return None
        version = ".".join(map(str, found.version))
        message = f"needs {self}, has cuSPARSE {version} from {found.path}"
        return Reason("package-too-old", message, _HINT)

    def _missing(self) -> Reason:
        return Reason("missing-package", f"needs {self}, which is not installed", _HINT)
