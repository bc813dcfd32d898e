"""``plan_conversion``: a conversion prepared once, for sources that come again and again."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import partial
from typing import Any

from sparseformats import dispatch
from sparseformats._arrays import Array, placed
from sparseformats._dtypes import IndexWidth, index_width
from sparseformats.convert.graph import Node, path
from sparseformats.convert.request import requested
from sparseformats.convert.run import follow
from sparseformats.dispatch import Query
from sparseformats.formats import CSR
from sparseformats.formats.inputs import index_name
from sparseformats.ops.compiling import DYNAMO, entry, modules, opaque, watched
from sparseformats.ops.conversion_plans import ConversionPlan
from sparseformats.ops.conversion_sources import WHAT, Kind, kind_of
from sparseformats.ops.room import Room, room_for

__all__ = ["plan_conversion"]

TARGETS = {"dense": ("csr", "bsr", "blocked_ell"), "csr": ("bsr",)}


@entry
@placed
def plan_conversion(
    source: Any,
    format: str,
    *,
    capacity: int,
    mask: Any = None,
    blocksize: Any = None,
    index_dtype: Any = None,
) -> ConversionPlan:
    """Prepare a conversion for sources of one shape and dtype that come again and again.

    The plan owns memory for `capacity` elements or blocks. Running it never waits for a GPU, so it
    can be recorded into a CUDA graph: the pattern is found anew by each run and each replay, and
    how much was found stays on the device.

    Parameters
    ----------
    source : (m, n) array or CSR
        An example, which is converted at once. Dense arrays become CSR, BSR or Blocked-ELL; CSR
        matrices become BSR.
    format : ``"csr"``, ``"bsr"`` or ``"blocked_ell"``
    capacity : int
        The most that a source may need: elements of CSR, blocks of BSR, slots of the fullest block
        row of Blocked-ELL.
    mask : (m, n) bool array, optional
        As of `from_dense`: exactly these elements are stored, zeros included. Each run then needs
        one.
    blocksize : (R, C) or int, optional
        For the block formats.
    index_dtype : optional
        ``"int32"`` or ``"int64"``; by default what the ordinary conversion takes.

    Returns
    -------
    ConversionPlan
        Call it: ``plan(D)``. Then ``plan.product(X)`` multiplies, ``plan.matrix()`` gives an
        ordinary matrix.

    Raises
    ------
    TypeError, ValueError, DeviceMismatchError
        As of `from_dense`; there is no such conversion; or a bad capacity.
    NoKernelError
        On a GPU, no kernel converts such values without waiting; the text has every reason.
    OverflowError
        ``index_dtype="int32"`` is too narrow.
    MemoryError
        There is not so much memory.
    RuntimeError
        A CUDA graph is being recorded: plans are prepared before.
    NotImplementedError
        `source` requires grad while grad mode is on.

    Notes
    -----
    A source that needs more than the capacity is converted in part, nothing is written elsewhere,
    and ``plan.overflowed`` is set on the device. ``plan.product`` then gives NaN alone (on a CPU:
    `CapacityError`), and ``plan.matrix()`` raises `CapacityError`, which says how much was needed.

    Examples
    --------
    >>> import numpy as np
    >>> import sparseformats as sf
    >>> D = np.diag([1.0, 2.0, 3.0, 4.0])
    >>> plan = sf.plan_conversion(D, "bsr", capacity=3, blocksize=2)
    >>> plan(2 * D).product(np.ones(4))
    array([2., 4., 6., 8.])
    >>> plan.matrix()
    <BSR 4x4, float64, blocksize=(2, 2), numpy on cpu>
    >>> plan(np.ones((4, 4))).matrix()
    Traceback (most recent call last):
    sparseformats.errors.CapacityError: plan_conversion: the last source needs 4 blocks, the \
capacity is 3; plan again with capacity=4 or more
    """
    if DYNAMO in modules and watched():
        options: dict[str, Any] = {"capacity": capacity, "mask": mask, "blocksize": blocksize}
        return opaque(plan_conversion)(source, format, index_dtype=index_dtype, **options)
    kind, _ = kind_of(source, mask)
    target = requested(format, blocksize, Node(kind.format), WHAT)
    if target.name not in TARGETS[kind.format]:
        raise ValueError(
            f"{WHAT} converts dense -> csr, bsr, blocked_ell and csr -> bsr, not {kind.format} -> "
            f"{format}; convert with from_dense or A.to"
        )
    lib = kind.lib
    if lib.capturing(kind.device):
        raise RuntimeError(
            f"{WHAT}: prepare before capture: a plan cannot be made while a graph is being recorded"
        )
    most = _capacity(capacity)
    width = _width(kind, target, most, index_name(index_dtype))
    marked = kind.masked or kind.format == "csr"
    place = (kind.device, kind.dtype)
    room = room_for(lib, place, target.name, kind.shape, target.key, most, width, marked=marked)
    made = _plan(kind, room, width)
    return made(source, mask=mask)


def _capacity(capacity: Any) -> int:
    try:
        found = operator.index(capacity)
    except TypeError:
        found = 0
    if isinstance(capacity, bool) or found < 1:
        raise ValueError(f"{WHAT}: capacity must be an integer of at least 1, got {capacity!r}")
    return found


def _width(kind: Kind, target: Node, capacity: int, asked: str | None) -> IndexWidth:
    """Width of index arrays: they must name columns, and count what there is room for."""
    rows = -(-kind.shape[0] // (target.key or (1, 1))[0])
    slots = rows * capacity if target.name == "blocked_ell" else capacity
    if asked == "int32" and index_width("int32", kind.shape[1], slots) == "int64":
        raise OverflowError(
            f"{WHAT}: room for {slots:,} of a matrix {kind.shape} needs int64 indices, got "
            "index_dtype='int32'"
        )
    current = asked or kind.index_dtype or "int32"
    return index_width(current, kind.shape[1], slots)


def _plan(kind: Kind, room: Room, width: IndexWidth) -> ConversionPlan:
    query = _query(kind, room, width)
    # On a CPU there is nothing to wait for: the ordinary conversion does.
    selection = dispatch.find(query) if kind.device == "cpu" else dispatch.select(query)
    if selection is None:
        return ConversionPlan(kind, room, query, None, partial(_fill, kind, room))
    target: Any = selection.target
    return ConversionPlan(kind, room, query, selection, target(room, query))


def _query(kind: Kind, room: Room, width: IndexWidth) -> Query:
    blocks = None if room.blocksize is None else room.capacity
    if room.format == "blocked_ell":
        blocks = int(room.starts.shape[0]) * room.capacity
    return Query(
        f"{WHAT}:{kind.format}->{room.format}",
        kind.format,
        m=kind.shape[0],
        k=kind.shape[1],
        blocksize=room.blocksize,
        nnz=room.capacity if blocks is None else None,
        nnzb=blocks,
        a_dtype=kind.dtype,
        index_dtype=width,
        library=kind.lib.name,
        device=kind.device.partition(":")[0],
    )


def _fill(kind: Kind, room: Room, **sources: Array) -> None:
    """Convert as always, and copy what there is room for."""
    steps = path(Node(kind.format), Node(room.format, room.blocksize))
    room.take(follow(_source(kind, sources), steps, mask=sources.get("mask")))


def _source(kind: Kind, sources: Mapping[str, Array]) -> Any:
    if kind.format == "dense":
        return sources["dense"]
    return CSR.trusted(**sources, shape=kind.shape)
