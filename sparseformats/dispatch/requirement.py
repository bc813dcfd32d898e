"""Packages that a kernel needs: missing, too old and broken are three different reasons.

Versions are read from a package that is already imported, else from its installed metadata; no
package is imported to list kernels. That a package is broken shows only when it is imported,
at the first load of a kernel that requires it (`load`), and is remembered for all kernels.
"""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass

from sparseformats.dispatch.reason import Reason, exception_text

__all__ = ["Requirement", "version_key"]

_broken: dict[str, str] = {}  # import name -> what its import raised
_met: set[Requirement] = set()  # found to be met, as far as is known
_versions: dict[tuple[str, ...], str | None] = {}  # distributions -> version in the metadata


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that a kernel imports.

    Attributes
    ----------
    package : str
        Its name as the user installs it.
    minimum : str or None
        The lowest version that will do.
    import_name : str or None
        Top-level module, where it differs from the package's name.
    distributions : tuple of str
        Names under which it may be installed, where there are several (``"cupy-cuda12x"``).
    """

    package: str
    minimum: str | None = None
    import_name: str | None = None
    distributions: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module to import."""
        return self.import_name or self.package.replace("-", "_")

    def __str__(self) -> str:
        return self.package if self.minimum is None else f"{self.package} >= {self.minimum}"

    def reason(self) -> Reason | None:
        """Tell why the requirement is not met, as far as shows without importing the package."""
        if self in _met:
            return None
        reason = self._judge()
        if reason is None:
            _met.add(self)  # only this: what is missing may be installed while a notebook runs
        return reason

    def _judge(self) -> Reason | None:
        if self.module in _broken:
            return self._broken(f"importing it raised {_broken[self.module]}")
        version = self._loaded_version()
        if version is None:
            version = self._installed_version()
            if not _can_be_found(self.module):
                if version is None:
                    return self._missing()
                return self._broken(f"its module {self.module!r} cannot be found")
        # A package without metadata and without `__version__` is a source tree: its import decides.
        if version is None or self.minimum is None:
            return None
        return self._too_old(version) if version_key(version) < version_key(self.minimum) else None

    def load(self) -> Reason | None:
        """Import the package; tell why that is impossible, if it is."""
        reason = self.reason()
        if reason is not None:
            return reason
        try:
            importlib.import_module(self.module)
        except Exception as error:  # noqa: BLE001 - whatever a foreign package raises is a refusal
            _broken.setdefault(self.module, exception_text(error))
        _met.clear()  # others may require this package too; now its version is that of its code
        return self.reason()

    def _loaded_version(self) -> str | None:
        version = getattr(sys.modules.get(self.module), "__version__", None)
        return version if isinstance(version, str) else None

    def _installed_version(self) -> str | None:
        names = self.distributions or (self.package,)
        if names not in _versions:
            _versions[names] = _metadata_version(names)
        return _versions[names]

    def _missing(self) -> Reason:
        return Reason(
            "missing-package",
            f"needs {self}, which is not installed",
            f"install {' or '.join(self.distributions or (self.package,))}",
        )

    def _too_old(self, version: str) -> Reason:
        return Reason(
            "package-too-old",
            f"needs {self}, has {self.package} {version}",
            f"upgrade {self.package} to {self.minimum} or later",
        )

    def _broken(self, what: str) -> Reason:
        version = self._installed_version()
        installed = "installed" if version is None else f"installed (version {version})"
        return Reason(
            "package-broken",
            f"needs {self}, which is {installed}, but {what}",
            f"see `python -c 'import {self.module}'`, repair or reinstall {self.package}",
        )


def version_key(version: str) -> tuple[tuple[int, ...], int]:
    """Make a key that orders versions; pre-releases come before the release itself.

    Examples
    --------
    >>> version_key("2.11.0a0+git1") < version_key("2.11") == version_key("2.11.0+cu128")
    True
    """
    match = re.match(r"[vV]?(?:\d+!)?(\d+(?:\.\d+)*)(.*)", version.strip())
    if match is None:
        return (), 0
    release = [int(part) for part in match[1].split(".")]
    while release and release[-1] == 0:
        release.pop()
    suffix = match[2].partition("+")[0].lstrip("-_.").lower()
    return tuple(release), 0 if suffix.startswith(("a", "b", "c", "rc", "dev", "pre")) else 1


def forget() -> None:
    """Forget what was found out about packages (for tests)."""
    _broken.clear()
    _met.clear()
    _versions.clear()


def _metadata_version(names: tuple[str, ...]) -> str | None:
    from importlib import metadata  # as slow as NumPy itself, so not before the first selection

    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _can_be_found(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    from importlib import util

    try:
        return util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent package that is missing or has no spec
        return False
