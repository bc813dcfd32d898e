"""What is kept for each matrix between calls: packed states, and light plans that use them.

Matrices are known by `id`, guarded by a weak reference: an entry goes with its matrix, and nothing
in it may refer to that matrix. Lookups take no lock. Builds happen outside the lock and may race;
the first to be kept wins. Nothing here knows a format class or an array library.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

__all__ = ["PLANS", "CacheInfo", "Entry", "LightPlan", "Packed", "PlanCache"]

PLANS = 64  # light plans a matrix


class LightPlan(Protocol):
    """What the cache asks of a light plan."""

    stamp: int
    packed: Packed


@dataclass(slots=True, eq=False)
class Packed:
    """A matrix as one kernel wants it, shared by all light plans that fit it.

    Attributes
    ----------
    state : object
        What the kernel's ``pack`` returned.
    nbytes : int
        Bytes that it holds beside the matrix's own buffers.
    kernel : object
        Whose state it is; kept, so that a cache key may hold its `id`.
    stamp : int
        When it was last used, in lookups.
    """

    state: Any
    nbytes: int
    kernel: object
    stamp: int = 0


@dataclass(slots=True, eq=False)
class Entry:
    """All that is kept for one matrix.

    Attributes
    ----------
    number : int
        The matrix's `id`.
    ref : weak reference to the matrix
    place : str
        Device whose memory the states fill.
    is_current : callable or None
        Tells whether the matrix still has the values that were packed; None where they cannot
        change.
    apart : bool
        A kernel keeps a workspace, so each thread and stream has states and plans of its own.
    """

    number: int
    ref: weakref.ref[Any]
    place: str
    is_current: Callable[[], bool] | None
    apart: bool = False
    packed: dict[Hashable, Packed] = field(default_factory=dict)
    plans: dict[Hashable, LightPlan] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all states."""
        return sum(packed.nbytes for packed in self.packed.copy().values())


class CacheInfo(NamedTuple):
    """How full the cache of packed matrices and plans is.

    Attributes
    ----------
    matrices, plans : int
        Living matrices of which something is kept, and light plans of all of them.
    packed_bytes : int
        Bytes of packed states, beside the matrices' own buffers.
    limit : dict of str to int
        Most bytes of packed states by device, of the devices seen so far.
    hits, misses : int
        Calls that found a light plan, and calls that had to make one. Racing threads may
        miscount hits.
    """

    matrices: int
    plans: int
    packed_bytes: int
    limit: dict[str, int]
    hits: int
    misses: int


class PlanCache:
    """Packed states and light plans by matrix.

    Parameters
    ----------
    limit_of : callable
        From a place to the most bytes of packed states there. Least recently used states go
        first, with the plans that use them; one that alone exceeds the limit is never kept.
    """

    def __init__(self, limit_of: Callable[[str], int]) -> None:
        self.hits = self.misses = 0
        self._limit_of = limit_of
        self._lock = threading.Lock()
        self._entries: dict[int, Entry] = {}
        self._bytes: dict[str, int] = {}
        # Weak references die in any thread, even in one that holds the lock: they only leave a
        # note, and whoever holds the lock next does the sums.
        self._gone: deque[tuple[str, int]] = deque()

    def find(self, matrix: object) -> Entry | None:
        """Return what is kept for a matrix, if its values are those that were packed."""
        entry = self._entries.get(id(matrix))
        if entry is None or entry.ref() is not matrix:
            return None
        if entry.is_current is not None and not entry.is_current():
            return None
        return entry

    def touch(self, plan: LightPlan) -> None:
        """Count a hit, and note that the plan was used just now."""
        self.hits += 1
        plan.stamp = plan.packed.stamp = self.hits

    def entry(self, matrix: object, place: str, is_current: Callable[[], bool] | None) -> Entry:
        """Return what is kept for a matrix, making an entry where there is none of its values."""
        with self._lock:
            entry = self.find(matrix)
            if entry is None:
                self._drop(self._entries.get(id(matrix)))
                entry = Entry(id(matrix), self._reference(matrix), place, is_current)
                self._entries[entry.number] = entry
            return entry

    def keep(self, entry: Entry, key: Hashable, packed: Packed) -> Packed:
        """Keep a state unless another thread was faster; return the one to use."""
        with self._lock:
            known = entry.packed.get(key)
            if known is not None:
                return known
            limit = self._limit_of(entry.place)
            if packed.nbytes > limit or not self._is_live(entry):
                return packed
            packed.stamp = self.hits + 1
            entry.packed[key] = packed
            self._bytes[entry.place] = self._bytes.get(entry.place, 0) + packed.nbytes
            self._settle()
            if self._bytes[entry.place] > limit:
                self._make_room(entry.place, limit - limit // 8, packed)
            return packed

    def remember(self, entry: Entry, key: Hashable, plan: LightPlan) -> None:
        """Keep a light plan whose state is kept, in the place of the least recently used one."""
        with self._lock:
            self.misses += 1
            if all(packed is not plan.packed for packed in entry.packed.values()):
                return
            plan.stamp = plan.packed.stamp = self.hits
            while len(entry.plans) >= PLANS:
                del entry.plans[min(entry.plans, key=lambda k: entry.plans[k].stamp)]
            entry.plans[key] = plan

    def clear(self, matrix: object = None) -> None:
        """Forget what is kept for one matrix, or for all."""
        with self._lock:
            known = self._entries.get(id(matrix))
            if matrix is None:
                for entry in self._entries.copy().values():
                    self._drop(entry)
                self.hits = self.misses = 0
            elif known is not None and known.ref() is matrix:
                self._drop(known)

    def info(self) -> CacheInfo:
        """Count what is kept."""
        with self._lock:
            self._settle()
            entries = list(self._entries.copy().values())
            limits = {place: self._limit_of(place) for place in self._bytes}
            plans = sum(len(entry.plans) for entry in entries)
            packed = sum(self._bytes.values())
            return CacheInfo(len(entries), plans, packed, limits, self.hits, self.misses)

    def trim(self) -> None:
        """Make room where a limit has become smaller."""
        with self._lock:
            self._settle()
            for place in list(self._bytes):
                self._make_room(place, self._limit_of(place))

    def _reference(self, matrix: object) -> weakref.ref[Any]:
        key, entries, gone = id(matrix), self._entries, self._gone

        def forget(ref: weakref.ref[Any]) -> None:
            # The id may be another matrix's by now, or this one's entry may have been replaced.
            entry = entries.get(key)
            if entry is not None and entry.ref is ref:
                del entries[key]
                gone.append((entry.place, entry.nbytes))

        return weakref.ref(matrix, forget)

    def _is_live(self, entry: Entry) -> bool:
        matrix = entry.ref()
        return matrix is not None and self._entries.get(id(matrix)) is entry

    def _settle(self) -> None:
        while self._gone:
            place, nbytes = self._gone.popleft()
            self._bytes[place] = self._bytes.get(place, 0) - nbytes

    def _drop(self, entry: Entry | None) -> None:
        if entry is not None and self._entries.get(entry.number) is entry:
            del self._entries[entry.number]
            self._gone.append((entry.place, entry.nbytes))
        self._settle()

    def _make_room(self, place: str, target: int, spare: Packed | None = None) -> None:
        """Drop least recently used states of a place, but `spare`, down to `target` bytes."""
        held = [
            (packed.stamp, number, entry, key, packed)
            for number, entry in enumerate(self._entries.copy().values())
            if entry.place == place
            for key, packed in entry.packed.items()
            if packed.nbytes and packed is not spare
        ]
        for _, _, entry, key, packed in sorted(held, key=lambda item: item[:2]):
            if self._bytes[place] <= target:
                return
            del entry.packed[key]
            self._bytes[place] -= packed.nbytes
            for name in [name for name, plan in entry.plans.items() if plan.packed is packed]:
                del entry.plans[name]

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # its owner may not exist in the child


def protect_fork(cache: PlanCache) -> PlanCache:
    """Give the cache a free lock in forked children; return it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=cache._after_fork)
    return cache
