"""Conversion plans: what `sparseformats.plan_conversion` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, NoReturn, final

from sparseformats import _arrays, dispatch
from sparseformats._arrays import Array
from sparseformats.dispatch import Explanation, Query, Selection
from sparseformats.formats import SparseMatrix
from sparseformats.ops.compiling import DYNAMO, entry, modules, opaque, watched
from sparseformats.ops.conversion_sources import Kind, sources_of
from sparseformats.ops.room import Room
from sparseformats.ops.room_products import RoomProduct

__all__ = ["ConversionPlan", "Fill"]

KEPT = 64  # sets of facts of sources that are known to be right

Fill = Callable[..., None]
"""What fills a room: ``fill(dense=D)``, with ``mask=`` where there is one, or the buffers of a CSR.

A kernel of the operation ``"plan_conversion:dense->bsr"`` and its kin is ``f(room, query) -> fill``
with a `Room`; `fill` neither waits for the device nor takes memory once it has met such arrays.
"""


@final
class ConversionPlan:
    """A conversion prepared once and run again and again; see `sparseformats.plan_conversion`.

    Call it with a new source to convert that, `product` to multiply what it has converted, and
    `matrix` to get it as an ordinary matrix. It owns the memory of the result, so each run
    overwrites the one before. Runs and products are work on the current stream, in the order of
    the calls: a plan belongs to one stream at a time.

    Attributes
    ----------
    query : Query
        The facts of the conversion that was planned.
    """

    __slots__ = (
        *("__weakref__", "_checked", "_fill", "_kind", "_product", "_room", "_selection", "query"),
    )

    def __init__(
        self, kind: Kind, room: Room, query: Query, selection: Selection | None, fill: Fill
    ) -> None:
        self.query = query
        self._kind, self._room, self._fill, self._selection = kind, room, fill, selection
        self._checked: set[Any] = set()
        self._product = RoomProduct(room, query)

    @property
    def format(self) -> str:
        """Format of the result: ``"csr"``, ``"bsr"`` or ``"blocked_ell"``."""
        return self._room.format

    @property
    def shape(self) -> tuple[int, int]:
        """Logical shape (m, n)."""
        return self._room.shape

    @property
    def blocksize(self) -> tuple[int, int] | None:
        """(R, C) of the result's blocks, None for CSR."""
        return self._room.blocksize

    @property
    def capacity(self) -> int:
        """Elements of CSR, blocks of BSR, or slots of each block row of Blocked-ELL."""
        return self._room.capacity

    @property
    def device(self) -> str:
        """Where everything is."""
        return self._room.device

    @property
    def library(self) -> str:
        """Name of the array library."""
        return self._room.lib.name

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, without what lies between the steps of a kernel."""
        return sum(int(x.nbytes) for x in self._room.buffers().values())

    @property
    def kernel(self) -> str:
        """Name of what converts; ``"array-api"`` where that is the ordinary conversion."""
        return "array-api" if self._selection is None else self._selection.name

    @property
    def explanation(self) -> Explanation | None:
        """Why that kernel was chosen; None for the ordinary conversion."""
        return None if self._selection is None else self._selection.explanation

    @property
    def count(self) -> Array:
        """How many the last run found, more than the capacity too: (1,) int64, on the device.

        Elements of CSR, blocks of BSR, slots of the fullest block row of Blocked-ELL.
        """
        return self._room.lib.readonly(self._room.count)

    @property
    def overflowed(self) -> Array:
        """Whether the last run found more than there is room for: (1,) bool, on the device."""
        return self._room.lib.readonly(self._room.overflow)

    def buffers(self) -> dict[str, Array]:
        """The plan's own arrays by name, for kernels of your own; read them only.

        ``data`` and ``indices`` as in a matrix of the format, with the capacity in place of what
        is stored; ``indptr``, which never points beyond the capacity (Blocked-ELL: ``starts`` and
        ``ends`` of each block row among all slots); ``count`` and ``overflow``; ``marked``, which
        slots hold stored zeros, where there may be such. What lies behind ``indptr[-1]`` is left
        over from other runs.
        """
        lib = self._room.lib
        return {name: lib.readonly(x) for name, x in self._room.buffers().items()}

    @entry
    def __call__(self, source: Any, *, mask: Any = None) -> ConversionPlan:
        """Convert another source, without waiting for the device.

        Parameters
        ----------
        source : array or CSR
            Of the planned kind, shape, dtype, library and device; a dense array of any strides.
        mask : (m, n) bool array, optional
            Needed if and only if the plan was made with one: exactly these elements are stored.

        Returns
        -------
        ConversionPlan
            The plan itself.

        Raises
        ------
        TypeError, ValueError, DeviceMismatchError
            `source` or `mask` is not what was planned; the text has both sides. The plan holds
            what it held.
        RuntimeError
            A CUDA graph is being recorded, and arrays that lie like these were not met before.
        NotImplementedError
            `source` requires grad while grad mode is on.
        """
        if DYNAMO in modules and watched():
            return opaque(ConversionPlan.__call__)(self, source, mask=mask)
        room = self._room
        with room.lib.on(room.device):
            sources = self._sources(source, mask)
            for name, x in sources.items():
                self._product.refuse_own(x, f"plan_conversion: the source's {name}")
            start = perf_counter()
            self._fill(**sources)
        if self._selection is not None and dispatch.is_tracing():
            dispatch.record_run(self.query.op, self.kernel, self.query, perf_counter() - start)
        return self

    def _sources(self, source: Any, mask: Any) -> Mapping[str, Array]:
        """The arrays of a source; facts of dense ones that were found right are not looked at."""
        lib = self._room.lib
        if _arrays.known(source) is not lib or (mask is not None and not lib.owns(mask)):
            return sources_of(source, mask, self._kind)
        facts = [lib.facts(x) for x in (source, mask) if x is not None]
        key = None if None in facts or not lib.is_native(source) else tuple(facts)
        if key is None or key not in self._checked:
            found = sources_of(source, mask, self._kind)
            if key is None:
                return found
            if len(self._checked) >= KEPT:
                self._checked.clear()
            self._checked.add(key)
        return {"dense": source} if mask is None else {"dense": source, "mask": mask}

    def matrix(self) -> SparseMatrix:
        """Copy what was converted last into an ordinary matrix; waits for the device.

        Returns
        -------
        SparseMatrix
            As the ordinary conversion makes it. Later runs do not change it.

        Raises
        ------
        CapacityError
            There was no room for everything; the text says how much was needed.
        RuntimeError
            A CUDA graph is being recorded.
        """
        room = self._room
        with room.lib.on(room.device):
            if room.lib.capturing(room.device):
                raise RuntimeError(
                    "plan_conversion: matrix() waits for the device, which cannot be recorded "
                    "into a graph; call it after a replay"
                )
            return room.matrix(room.needed(), like_csr=self._kind.format == "csr")

    @entry
    def product(self, X: Array, *, out: Array | None = None) -> Array:
        """Multiply what was converted last: ``A @ X``.

        On a GPU this waits for nothing: where the last source did not fit, every element of the
        result is NaN. On a CPU that is an error.

        Parameters
        ----------
        X : (n,) or (n, p) array
            Of the plan's library and device; on a GPU of the plan's dtype. float32 is multiplied as
            IEEE float32, whatever torch's switch for TF32 says.
        out : array, optional
            Takes the result. It must not share memory with `X` or with the plan.

        Returns
        -------
        (m,) or (m, p) array

        Raises
        ------
        ValueError, TypeError, DeviceMismatchError
            `X` or `out` do not match; the text has both sides.
        CapacityError
            On a CPU, the last source did not fit.
        NoKernelError
            No kernel multiplies such values; the text has every reason.
        RuntimeError
            A CUDA graph is being recorded, and operands that lie like these were not met before.
        NotImplementedError
            `X` requires grad while grad mode is on.
        """
        if DYNAMO in modules and watched():
            return opaque(ConversionPlan.product)(self, X, out=out)
        with self._room.lib.on(self._room.device):
            return self._product(X, out)

    def __repr__(self) -> str:
        room = self._room
        blocks = "" if room.blocksize is None else f", blocksize={room.blocksize}"
        what = f"{self.query.format} -> {room.format} {room.shape[0]}x{room.shape[1]}"
        kept = f"{room.dtype}{blocks}, capacity={room.capacity}"
        return f"<ConversionPlan {what}, {kept}, {room.lib.name} on {room.device}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a ConversionPlan belongs to its process and device and cannot be pickled or copied; "
            "save plan.matrix(), or plan again with sparseformats.plan_conversion"
        )
