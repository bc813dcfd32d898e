"""Where records come from: our own backends, listed in code, and other people's entry points.

Reading a source never fails; what could not be read is returned as a `Refusal`, so that it shows
up in explanations. No lock is held while foreign modules are imported: a lock of ours around
Python's import locks could deadlock, and those already make sure that a module runs once.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import NamedTuple

from sparseformats.dispatch.reason import Reason, exception_text
from sparseformats.dispatch.record import KernelRecord

__all__ = ["GROUP", "Refusal", "Source", "own_sources", "third_party_sources"]

GROUP = "sparseformats.kernels"
"""Entry-point group of other people's kernels; each names one `KernelRecord` or several."""

_LIST = "sparseformats_kernels"  # by name: nothing imports the backends


class Refusal(NamedTuple):
    """A source, or one kernel of it, that could not be registered.

    Attributes
    ----------
    name : str
        The source, or the kernel where one kernel is refused.
    reason : Reason
        Why.
    op : str or None
        The kernel's operation; None where the whole source is refused.
    """

    name: str
    reason: Reason
    op: str | None = None


class Source(NamedTuple):
    """The records of one backend or entry point, or the refusal of the whole."""

    name: str
    records: tuple[KernelRecord, ...] = ()
    refusal: Refusal | None = None


def own_sources() -> list[Source]:
    """Read the backends listed in `sparseformats_kernels.BACKENDS`, in that order."""
    try:
        backends: tuple[str, ...] = tuple(importlib.import_module(_LIST).BACKENDS)
    except Exception as error:  # noqa: BLE001 - becomes a refusal that every explanation shows
        return [_refused(_LIST, error)]
    return [_backend(name) for name in backends]


def third_party_sources() -> list[Source]:
    """Read what installed distributions offer under the entry-point group, ordered by name."""
    from importlib import metadata  # slow to import, hence not before the first selection

    try:
        points = sorted(metadata.entry_points(group=GROUP), key=lambda p: (p.name, p.value))
    except Exception as error:  # noqa: BLE001 - somebody's unreadable metadata, as above
        return [_refused(f"entry points {GROUP}", error)]
    found = []
    for point in points:
        name = f"{point.name} (entry point {point.value})"
        try:
            found.append(Source(name, _records(point.load())))
        except Exception as error:  # noqa: BLE001 - as above
            found.append(_refused(name, error))
    return found


def _backend(module: str) -> Source:
    try:
        return Source(module, _records(importlib.import_module(module).RECORDS))
    except Exception as error:  # noqa: BLE001 - as above
        return _refused(module, error)


def _records(offered: object) -> tuple[KernelRecord, ...]:
    if isinstance(offered, KernelRecord):
        return (offered,)
    if not isinstance(offered, Iterable):
        raise TypeError(f"expected a KernelRecord or several, got {type(offered).__name__}")
    records = tuple(offered)
    for record in records:
        if not isinstance(record, KernelRecord):
            raise TypeError(f"expected KernelRecord objects, one is {type(record).__name__}")
    return records


def _refused(name: str, error: Exception) -> Source:
    message = f"needs a readable list of kernels, reading it raised {exception_text(error)}"
    hint = "repair or uninstall what fails to import; other kernels are not affected"
    return Source(name, refusal=Refusal(name, Reason("backend-failed", message, hint)))
