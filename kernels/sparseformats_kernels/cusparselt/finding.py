"""Where libcusparseLt is, and why it cannot be used: missing, unknown and broken are told apart.

The library that torch has loaded is taken before any other: it fits the driver, and a second copy
would only cost memory. Nothing is loaded to list kernels, unless it is loaded already.
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
from sparseformats_kernels.cusparselt.versions import KNOWN, Version, known_versions, written

if TYPE_CHECKING:
    from sparseformats_kernels.cusparselt.api import Api

__all__ = ["CuSparseLt", "find", "installed", "known_api", "mapped", "the_api", "trouble"]

# Wheels of torch that bring the library along have a hash in its name.
_MAPPED = re.compile(r"(/\S*/libcusparseLt[-\w]*\.so(?:\.\d+)*)\s*$", re.MULTILINE)
_PATTERNS = ("libcusparseLt.so.0", "libcusparseLt-*.so.0", "libcusparseLt.so")
_LINKED = "libcusparseLt.so.0"
_HINT = "install nvidia-cusparselt-cu12 or -cu13 0.8, or a torch for CUDA that brings it"

_lock = Lock()
# "api": an Api, or a Reason why there is none; "absent until": a time.
_state: dict[str, Any] = {}


def mapped(maps: str | None = None) -> str | None:
    """Path of the library that this process has loaded already."""
    return libraries.in_process(_MAPPED, maps)


def _folders() -> Iterator[str]:
    """Folders in which packages and toolkits keep it."""
    return libraries.folders("nvidia/cusparselt/lib", "nvidia/cu[0-9]*/lib", "torch/lib")


def installed(folders: Iterable[str] | None = None) -> str | None:
    """Path of a library that could be loaded, by name where only the linker knows it."""
    found = libraries.first(_folders() if folders is None else folders, _PATTERNS)
    if found is not None or folders is not None:
        return found
    return libraries.known_to_linker((_LINKED,))


def find() -> str | None:
    """The library to use, or None."""
    return mapped() or installed()


def _load() -> Api | Reason | None:
    """The loaded library, or why it cannot be used; None where there is none to load."""
    with _lock:
        if "api" not in _state:
            path = find()
            if path is None:
                return None
            _state["api"] = _opened(path)
        found: Api | Reason = _state["api"]
        return found


def _opened(path: str) -> Api | Reason:
    from sparseformats_kernels.cusparselt.api import Api, UnknownVersion

    try:
        return Api(path)
    except UnknownVersion as error:
        return _unknown(path, error.version)
    except (OSError, AttributeError, RuntimeError) as error:
        what = f"loading {path} raised {type(error).__name__}: {error}"
        hint = "reinstall the package that brings it, or check LD_LIBRARY_PATH"
        return Reason("package-broken", f"needs cuSPARSELt, which is installed, but {what}", hint)


def _unknown(path: str, version: Version) -> Reason:
    code = "package-too-old" if version[:2] < min(KNOWN) else "package-unknown"
    message = f"needs cuSPARSELt {known_versions()}, has {written(version)} from {path}"
    return Reason(code, message, _HINT)


def _missing() -> Reason:
    return Reason("missing-package", "needs cuSPARSELt, which is not installed", _HINT)


def trouble() -> Reason | None:
    """Why the library cannot be used, as far as shows without loading anything."""
    if "api" not in _state:
        # A search reads files, and every choice of a kernel asks.
        if monotonic() < _state.get("absent until", 0.0):
            return _missing()
        if not mapped():
            if installed() is not None:
                return None
            _state["absent until"] = monotonic() + libraries.PATIENCE
            return _missing()
    return _loaded_trouble()


def _loaded_trouble() -> Reason | None:
    found = _load()
    if found is None:
        return _missing()
    return found if isinstance(found, Reason) else None


def known_api() -> Api | None:
    """The library if it was loaded here before; loads nothing."""
    found = _state.get("api")
    return None if isinstance(found, Reason) else found


def the_api() -> Api:
    """The loaded library.

    Raises
    ------
    RuntimeError
        There is none; a kernel is not selected then.
    """
    found = _load()
    if found is None or isinstance(found, Reason):
        reason = _missing() if found is None else found
        raise RuntimeError(f"cuSPARSELt cannot be used: {reason.message}; {reason.hint}")
    return found


@dataclass(frozen=True, slots=True)
class CuSparseLt(Requirement):
    """The requirement of a kernel on the library, which is no Python package.

    Which versions will do is a table, `versions.KNOWN`, and not a minimum.
    """

    package: str = "cuSPARSELt"

    def reason(self) -> Reason | None:
        """Tell why the requirement is not met, as far as shows without loading anything."""
        return trouble()

    def load(self) -> Reason | None:
        """Load the library; tell why that is impossible, if it is."""
        return _loaded_trouble()
