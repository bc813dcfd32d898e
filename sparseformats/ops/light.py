"""Light plans: a kernel bound to a packed matrix, for operands of one set of facts."""

from __future__ import annotations

from functools import partial
from threading import get_ident
from time import perf_counter
from types import ModuleType
from typing import Any, cast, final

from sparseformats import _arrays, dispatch
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch import Query, Selection
from sparseformats.dispatch.plan_cache import Packed
from sparseformats.ops.contract import MatmulKernel
from sparseformats.ops.execution import Run, shaped
from sparseformats.ops.operands import Operands, guard
from sparseformats.ops.scalars import Scalar

__all__ = ["Light", "bound", "execute", "is_apart", "pack", "refuse_capture", "whereabouts"]

_LEAVES = (str, bytes, int, float, complex, type, ModuleType, ArrayLibrary, Query)


@final
class Light:
    """Everything that calls of equal facts have in common; refers to no matrix and no operand.

    Attributes
    ----------
    kernel : str
        Name of the kernel.
    query : Query
        Facts of the call.
    lib : ArrayLibrary
        Library of the operands.
    native : bool
        Operands can be used as they are.
    run : callable
        ``(x, out, alpha, beta) -> y`` for operands with those facts.
    guard : callable or None
        ``(x, out) -> x`` that shares no memory with `out`; None for calls without `out`.
    packed : Packed
        The state that `run` uses.
    stamp : int
        When it was last used.
    """

    __slots__ = ("dtype", "guard", "kernel", "lib", "native", "packed", "query", "run", "stamp")

    def __init__(
        self,
        o: Operands,
        x: Array,
        out: Array | None,
        query: Query,
        selection: Selection,
        packed: Packed,
    ) -> None:
        target: Any = selection.target
        self.kernel = selection.name
        self.query = query
        self.lib = o.lib
        self.dtype = o.dtype
        self.native = o.lib.is_native(x)
        whole = not o.left or _lies_apart(o, x, out)
        run = bound(target, o, out is not None, query, packed.state, whole=whole)
        self.run = o.lib.here(o.matrix.device, run)
        self.guard = None if out is None else guard(o.lib, x, out, o.matrix.buffers().values())
        self.packed = packed
        self.stamp = 0


def bound(
    target: Any, o: Operands, has_out: bool, query: Query, state: Any, *, whole: bool = True
) -> Run:
    """The kernel's run for operands of this shape.

    Parameters
    ----------
    whole : bool
        Whether a batch is better taken as it is than seen as one wide matrix.
    """
    if len(o.shape) == 1 and hasattr(target, "bind_vector"):
        run: Run | None = target.bind_vector(state, query)
        if run is not None:
            return run
    if len(o.shape) == 3 and whole and hasattr(target, "bind_batch"):
        batched: Run | None = target.bind_batch(state, query)
        if batched is not None:
            return _from_left(batched, o) if o.left else batched
    bind = getattr(target, "bind", None)
    run = partial(target.run, state) if bind is None else bind(state, query)
    return shaped(run, o, has_out)


def _lies_apart(o: Operands, x: Array, out: Array | None) -> bool:
    """Whether a batch on the left, or its `out`, is no matrix of so many rows."""
    return o.lib.is_spread(x) or (out is not None and not o.lib.is_contiguous(out))


def _from_left(run: Run, o: Operands) -> Run:
    """A run of batches on the right, for a batch on the left."""
    make = o.lib.maker(o.shape, o.dtype, o.matrix.device)

    def call(x: Array, out: Array | None, alpha: Scalar, beta: Scalar) -> Array:
        out = make() if out is None else out
        run(x.mT, out.mT, alpha, beta)
        return out

    return call


def execute(light: Light, x: Array, out: Array | None, alpha: Scalar, beta: Scalar) -> Array:
    """Run a light plan, telling who listens.

    Raises
    ------
    ValueError
        `out` shares memory with a buffer of the matrix.
    """
    if light.guard is not None:
        x = light.guard(x, out)
    if not light.native:
        x = light.lib.native(x)
    if not dispatch.is_tracing():
        return light.run(x, out, alpha, beta)
    start = perf_counter()
    y = light.run(x, out, alpha, beta)
    dispatch.record_run("matmul", light.kernel, light.query, perf_counter() - start)
    return y


def pack(o: Operands, query: Query, selection: Selection) -> Packed:
    """Let a kernel prepare the matrix."""
    kernel = cast("MatmulKernel", selection.target)
    state = kernel.pack(o.matrix, query)
    own = {o.lib.address(x) for x in o.matrix.buffers().values()}
    return Packed(state, _nbytes(state, own, set()), kernel)


def is_apart(selection: Selection) -> bool:
    """Whether the kernel's states must not be shared by threads and streams."""
    return bool(getattr(selection.target, "per_thread", False))


def whereabouts(lib: ArrayLibrary, device: str) -> tuple[int, int]:
    """Numbers of the thread that calls and of the current stream of a device."""
    return get_ident(), lib.stream(device)


def refuse_capture(lib: ArrayLibrary, device: str, *, apart: bool = False) -> None:
    """Refuse to prepare anything while a graph is being recorded.

    Parameters
    ----------
    apart : bool
        The kernel's states belong to one thread and stream each.

    Raises
    ------
    RuntimeError
    """
    if lib.capturing(device):
        where = "; this kernel has a workspace: on the stream that records" if apart else ""
        raise RuntimeError(
            "matmul: prepare before capture: this call has no plan yet, and making one cannot be "
            "recorded into a graph; make the same call, or sparseformats.plan(A, X, out=Y), before "
            f"it{where}"
        )


def _nbytes(state: Any, own: set[int], seen: set[int]) -> int:
    """Bytes of the arrays within a state, but those at the addresses `own`."""
    if id(state) in seen or isinstance(state, _LEAVES) or callable(state):
        return 0
    seen.add(id(state))
    if _arrays.is_array(state):
        lib = _arrays.of(state)
        return sum(int(x.nbytes) for x in lib.parts(state) if lib.address(x) not in own)
    if isinstance(state, dict):
        parts: Any = state.values()
    elif isinstance(state, (list, tuple, set)):
        parts = state
    else:
        slots = [n for c in type(state).__mro__ for n in getattr(c, "__slots__", ())]
        parts = [getattr(state, name, None) for name in slots]
        parts += list(getattr(state, "__dict__", {}).values())
    return sum(_nbytes(part, own, seen) for part in parts)
