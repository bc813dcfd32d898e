"""Products of what lies in a room: bounded by what the device's memory says, not by the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple, final

from sparseformats import _arrays, dispatch
from sparseformats._arrays import Array
from sparseformats.dispatch import Query
from sparseformats.errors import DeviceMismatchError
from sparseformats.ops.facts import aligned, layout
from sparseformats.ops.operands import check_target, refuse_stand_in
from sparseformats.ops.product import matmul
from sparseformats.ops.room import Room

__all__ = ["Multiply", "RoomProduct"]

KEPT = 64  # sets of facts of operands

Multiply = Callable[[Array, Array], None]
"""What multiplies a room: ``multiply(X, out)`` of matrices.

A kernel of the operation ``"plan_conversion:matmul"`` is ``f(room, query) -> multiply``. Where
``room.overflow`` is set it fills `out` with NaN, without waiting for the device.
"""


class _Ready(NamedTuple):
    """What runs for operands of one set of facts."""

    name: str
    query: Query
    multiply: Multiply


@final
class RoomProduct:
    """``A @ X`` for what a room holds, see `ConversionPlan.product`.

    Parameters
    ----------
    room : Room
    query : Query
        The facts of the conversion that fills it.
    """

    __slots__ = ("_query", "_ready", "_room", "_spans")

    def __init__(self, room: Room, query: Query) -> None:
        self._room, self._query = room, query
        self._ready: dict[tuple[Any, ...], _Ready] = {}
        self._spans = [room.lib.extent(x) for x in room.buffers().values()]

    def __call__(self, X: Any, out: Array | None) -> Array:
        """Multiply, into `out` where there is one."""
        room = self._room
        X = self._operand(X)
        shape = (room.shape[0], *(int(s) for s in X.shape[1:]))
        if room.device == "cpu" and dispatch.find(self._facts(X)) is None:
            if room.lib.owns(out) and not room.lib.is_stand_in(out):
                self._refuse_shared(X, out)
            return matmul(room.matrix(room.needed()), X, out=out)
        ready = self._prepared(X, out, shape)
        if out is None:
            out = room.lib.empty(shape, room.dtype, room.device)
        else:
            self._refuse_shared(X, out)
        start = perf_counter()
        if 0 not in shape:
            columns = (X[:, None], out[:, None]) if len(shape) == 1 else (X, out)
            ready.multiply(*columns)
        if dispatch.is_tracing():
            dispatch.record_run(ready.query.op, ready.name, ready.query, perf_counter() - start)
        return out

    def refuse_own(self, x: Array, what: str) -> None:
        """Refuse an array that shares memory with the room.

        Raises
        ------
        ValueError
        """
        low, high = self._room.lib.extent(x)
        if any(low < end and start < high for start, end in self._spans):
            raise ValueError(f"{what} shares memory with the plan's buffers; pass a copy")

    def _refuse_shared(self, X: Array, out: Array) -> None:
        self.refuse_own(out, "product: out")
        if self._room.lib.overlaps(out, X):
            raise ValueError("product: out shares memory with X; pass a copy of X")

    def _operand(self, X: Any) -> Array:
        room, lib = self._room, self._room.lib
        if not _arrays.is_array(X) or _arrays.of(X) is not lib:
            raise TypeError(f"product: X must be a {lib.name} array, got {type(X).__name__}")
        if lib.device(X) != room.device:
            raise DeviceMismatchError(
                f"product: the plan is on {room.device!r}, X is on {lib.device(X)!r}"
            )
        if len(X.shape) not in (1, 2) or int(X.shape[0]) != room.shape[1]:
            raise ValueError(
                f"product: X must have shape ({room.shape[1]},) or ({room.shape[1]}, p), "
                f"got {tuple(X.shape)}"
            )
        if lib.requires_grad(X):
            raise NotImplementedError(
                "product: gradients are not supported yet, and X requires grad; detach it, or "
                "call under torch.no_grad()"
            )
        refuse_stand_in(lib, X, "product")
        return lib.native(X)

    def _prepared(self, X: Array, out: Array | None, shape: tuple[int, ...]) -> _Ready:
        """The kernel for operands of these facts."""
        room, lib = self._room, self._room.lib
        facts = [lib.facts(x) for x in (X, out) if x is not None]
        key = None if None in facts else tuple(facts)
        found = None if key is None else self._ready.get(key)
        if found is not None:
            return found
        if out is not None:
            check_target(lib, room.device, shape, room.dtype, out)
        query = self._facts(X)
        selection = dispatch.select(query)
        target: Any = selection.target
        found = _Ready(selection.name, query, self._known(selection.name) or target(room, query))
        if len(self._ready) >= KEPT:
            self._ready.clear()
        if key is not None:
            self._ready[key] = found
        return found

    def _known(self, name: str) -> Multiply | None:
        """The kernel as it is ready for other operands."""
        return next((ready.multiply for ready in self._ready.values() if ready.name == name), None)

    def _facts(self, X: Array) -> Query:
        room, lib, matrix = self._room, self._room.lib, len(X.shape) == 2
        return replace(
            self._query,
            op="plan_conversion:matmul",
            format=room.format,
            n=int(X.shape[1]) if matrix else 1,
            x_dtype=lib.dtype_name(X),
            out_dtype=room.dtype,
            x_layout=layout(lib, X) if matrix else "C",
            x_aligned=aligned(lib, X) if matrix else None,
            capability=lib.capability(room.device),
        )
