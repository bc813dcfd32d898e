"""Importing a kernel's code, once, at its first selection.

A target that fails to load gives one `KernelLoadWarning` and is refused from then on, with the
exception as the reason. As in `sources`, no lock is held during an import.
"""

from __future__ import annotations

import importlib
import warnings

from sparseformats.dispatch.reason import Reason, exception_text
from sparseformats.dispatch.record import KernelRecord
from sparseformats.dispatch.registry import REGISTRY
from sparseformats.errors import KernelLoadWarning

__all__ = ["load", "load_failure"]

_loaded: dict[str, object] = {}  # target -> what it names
_failed: dict[str, Reason] = {}  # target -> why it cannot be had


def load(record: KernelRecord) -> object | Reason:
    """Return what the record's target names, or the `Reason` why it cannot be had."""
    target = record.target
    if target in _loaded:
        return _loaded[target]
    if target in _failed:
        return _failed[target]
    for requirement in record.requires:
        reason = requirement.load()
        if reason is not None:
            return _refuse(record, reason)
    try:
        found = _find(target)
    except Exception as error:  # noqa: BLE001 - whatever a kernel's import raises is a refusal
        message = f"needs {target!r}, importing it raised {exception_text(error)}"
        module = target.partition(":")[0]
        hint = f"see the whole error with `python -c 'import {module}'`"
        return _refuse(record, Reason("failed-to-load", message, hint))
    return _loaded.setdefault(target, found)


def load_failure(record: KernelRecord) -> Reason | None:
    """Tell why an earlier load failed; None if it did not, or was never tried."""
    return _failed.get(record.target)


def forget() -> None:
    """Forget what was loaded and what failed (for tests)."""
    _loaded.clear()
    _failed.clear()
    REGISTRY.bump()


def _find(target: str) -> object:
    module, _, path = target.partition(":")
    found: object = importlib.import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    if found is None:
        raise TypeError(f"{target!r} is None")
    return found


def _refuse(record: KernelRecord, reason: Reason) -> Reason:
    known = _failed.setdefault(record.target, reason)
    if known is reason:  # not another thread's, which has warned
        REGISTRY.bump()
        text = f"kernel {record.name!r} of {record.op!r} is refused: {reason.message}"
        warnings.warn(text, KernelLoadWarning, stacklevel=2)
    return known
