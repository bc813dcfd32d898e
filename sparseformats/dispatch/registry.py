"""Which kernels there are.

Our own backends are read at the first question, other people's entry points at the first
selection. Every change bumps `Registry.generation`, which is part of all cache keys.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from sparseformats.dispatch.reason import Reason
from sparseformats.dispatch.record import KernelRecord
from sparseformats.dispatch.sources import Refusal, Source, own_sources, third_party_sources
from sparseformats.errors import KernelLoadWarning

__all__ = ["REGISTRY", "Registry"]

_Key = tuple[str, str]  # operation, name


class Registry:
    """A set of kernel records; the library uses the one that is `REGISTRY`.

    Attributes
    ----------
    generation : int
        Grows by at least one with every change.
    """

    def __init__(self, *, populate: bool = True) -> None:
        self.generation = 0
        self._lock = threading.RLock()
        self._records: dict[_Key, KernelRecord] = {}
        self._refusals: list[Refusal] = []
        self._by_op: dict[str | None, tuple[KernelRecord, ...]] = {}
        self._has_own = self._has_third_party = not populate
        self._reading: set[int] = set()  # threads that are importing sources right now

    def register(self, record: KernelRecord) -> None:
        """Add a kernel.

        Raises
        ------
        ValueError
            The operation has a kernel of that name.
        TypeError
            Not a `KernelRecord`.
        """
        if not isinstance(record, KernelRecord):
            raise TypeError(f"expected a KernelRecord, got {type(record).__name__}")
        # Not the entry points: a package may call this while its own entry point is being read.
        self._read_own()
        with self._lock:
            refusal = self._add(record)
        if refusal is not None:
            raise ValueError(f"kernel {record.name!r} of {record.op!r}: {refusal.reason.message}")

    def unregister(self, name: str, op: str | None = None) -> None:
        """Remove the kernels of that name, from one operation or from all.

        Raises
        ------
        KeyError
            There is none.
        """
        self._read_own()
        with self._lock:
            gone = [key for key in self._records if key[1] == name and op in (None, key[0])]
            if not gone:
                raise KeyError(f"no kernel {name!r}" + (f" of {op!r}" if op is not None else ""))
            for key in gone:
                del self._records[key]
            self.bump()

    @contextmanager
    def temporary(self, *records: KernelRecord, only: bool = False) -> Iterator[None]:
        """Have these kernels registered within a ``with`` block, for tests.

        Parameters
        ----------
        *records : KernelRecord
            Kernels to add.
        only : bool
            Have these and no others. Afterwards the registry is as it was.
        """
        if not only:
            self.populate()
        with self._lock:
            kept = (self._records, self._refusals, self._has_own, self._has_third_party)
            self._records = {} if only else dict(self._records)
            self._refusals = [] if only else list(self._refusals)
            self._has_own = self._has_third_party = True
            self.bump()
        try:
            for record in records:
                self.register(record)
            yield
        finally:
            with self._lock:
                self._records, self._refusals, self._has_own, self._has_third_party = kept
                self.bump()

    def records(self, op: str | None = None) -> tuple[KernelRecord, ...]:
        """List the kernels of an operation, or all, ordered by operation and name."""
        self.populate()
        found = self._by_op.get(op)
        if found is None:
            with self._lock:
                keys = sorted(key for key in self._records if op in (None, key[0]))
                found = self._by_op[op] = tuple(self._records[key] for key in keys)
        return found

    def refusals(self, op: str | None = None) -> tuple[Refusal, ...]:
        """List sources that could not be read, and kernels (of an operation) refused from one."""
        self.populate()
        return tuple(r for r in tuple(self._refusals) if op is None or r.op in (None, op))

    def bump(self) -> None:
        """Say that something changed upon which selections depend."""
        with self._lock:
            self.generation += 1
            self._by_op = {}

    def populate(self) -> None:
        """Read all sources that were not read yet."""
        if self._has_third_party and self._has_own:
            return
        self._read_own()
        if not self._has_third_party and not self._is_reading():
            with self._reads():
                found = third_party_sources()
            self._merge(found, own=False)

    def _read_own(self) -> None:
        if not self._has_own and not self._is_reading():
            with self._reads():
                found = own_sources()
            self._merge(found, own=True)

    def _is_reading(self) -> bool:
        # A source that asks about kernels while it is imported sees those known so far.
        return threading.get_ident() in self._reading

    @contextmanager
    def _reads(self) -> Iterator[None]:
        me = threading.get_ident()
        self._reading.add(me)
        try:
            yield
        finally:
            self._reading.discard(me)

    def _merge(self, sources: list[Source], *, own: bool) -> None:
        with self._lock:
            if self._has_own if own else self._has_third_party:
                return  # another thread was faster
            refused = []
            for source in sources:
                refused += [source.refusal] if source.refusal is not None else []
                added = [self._add(record) for record in source.records]
                refused += [refusal for refusal in added if refusal is not None]
            self._refusals += refused
            if own:
                self._has_own = True
            else:
                self._has_third_party = True
            self.bump()
        # After the state is complete: under `-W error` this raises.
        for refusal in refused:
            what = "kernels of" if refusal.op is None else f"kernel of {refusal.op!r}"
            text = f"{what} {refusal.name} not registered: {refusal.reason.message}"
            warnings.warn(text, KernelLoadWarning, stacklevel=2)

    def _add(self, record: KernelRecord) -> Refusal | None:
        old = self._records.get((record.op, record.name))
        if old is not None:
            message = (
                f"needs a name of its own, has that of {old.target!r} (its own target: "
                f"{record.target!r})"
            )
            hint = "rename one of them, or unregister the old one first"
            return Refusal(record.name, Reason("duplicate-name", message, hint), record.op)
        self._records[record.op, record.name] = record
        self.bump()
        return None

    def _after_fork(self) -> None:
        self._lock = threading.RLock()  # its owner may not exist in the child
        self._reading.clear()


REGISTRY = Registry()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=REGISTRY._after_fork)
