"""All kernels, and whether this machine can run them at all."""

from __future__ import annotations

from typing import NamedTuple

from sparseformats.dispatch import loading
from sparseformats.dispatch.checks import Check
from sparseformats.dispatch.devices import missing_device
from sparseformats.dispatch.explanation import reason_lines, table
from sparseformats.dispatch.reason import Reason
from sparseformats.dispatch.record import ANY, KernelRecord
from sparseformats.dispatch.registry import REGISTRY

__all__ = ["KernelInfo", "KernelList", "kernels"]


class KernelInfo(NamedTuple):
    """One kernel on this machine.

    Attributes
    ----------
    name, op : str
        Its name and operation; for a backend that could not be read, the backend's name and ``""``.
    formats : tuple of str
        Formats served.
    needs : tuple of str
        Its conditions in words, as far as they are declared.
    reasons : tuple of Reason
        Why no call can use it here: packages missing, too old, broken; failure to load; no device
        of the kind that it runs on.
    doc : str
        What it says about itself.
    target : str
        Where its code is.
    """

    name: str
    op: str
    formats: tuple[str, ...]
    needs: tuple[str, ...]
    reasons: tuple[Reason, ...]
    doc: str
    target: str

    @property
    def available(self) -> bool:
        """Nothing on this machine stands against it."""
        return not self.reasons

    def to_dict(self) -> dict[str, object]:
        """Return the row as a JSON-able dict."""
        return {
            "name": self.name,
            "op": self.op,
            "formats": list(self.formats),
            "needs": list(self.needs),
            "available": self.available,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "doc": self.doc,
            "target": self.target,
        }


class KernelList(tuple[KernelInfo, ...]):
    """A tuple of `KernelInfo` that prints as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        if not self:
            return "no kernels"
        usable = ("no", "yes")
        rows = [(info.op, info.name, usable[info.available], _text(info)) for info in self]
        return table(("op", "kernel", "usable", "reasons, or what it needs of a call"), rows)


def kernels(op: str | None = None, library: str | None = None) -> KernelList:
    """List every kernel, and the reasons why this machine cannot run it. Loads none.

    Parameters
    ----------
    op : str or None
        Only kernels of this operation.
    library : str or None
        Only kernels that read arrays of this library.
    """
    found = [_info(record) for record in REGISTRY.records(op) if _reads(record, library)]
    found += [
        KernelInfo(refusal.name, refusal.op or "", (), (), (refusal.reason,), "", "")
        for refusal in REGISTRY.refusals(op)
    ]
    return KernelList(found)


def _info(record: KernelRecord) -> KernelInfo:
    reasons = record.package_reasons()
    failure = loading.load_failure(record)
    if failure is not None and failure not in reasons:
        reasons.append(failure)
    reasons += _missing_devices(record)
    declared = (*record.checks, *record.soft_checks)
    needs = tuple(check.needs for check in declared if isinstance(check, Check))
    return KernelInfo(
        record.name, record.op, record.formats, needs, tuple(reasons), record.doc, record.target
    )


def _missing_devices(record: KernelRecord) -> list[Reason]:
    """The reason why a kernel of one kind of device has nothing to run on here, if so."""
    kinds = {
        check.allowed
        for check in record.checks
        if isinstance(check, Check) and check.fact == "device"
    }
    found = [missing_device(str(allowed[0])) for allowed in kinds if len(allowed) == 1]
    return [reason for reason in found if reason is not None]


def _reads(record: KernelRecord, library: str | None) -> bool:
    return library is None or all(
        library in check.allowed
        for check in record.checks
        if isinstance(check, Check) and check.fact == "library"
    )


def _text(info: KernelInfo) -> list[str]:
    if info.reasons:
        return reason_lines(info.reasons)
    formats = "any format" if info.formats == ANY else ", ".join(info.formats)
    return [*([info.doc] if info.doc else []), "; ".join([formats, *info.needs])]
