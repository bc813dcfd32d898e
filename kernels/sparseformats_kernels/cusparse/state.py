"""A packed matrix and the products that were prepared for it, by thread, stream and graph.

The arrays are shared by all; what the library writes to is not. A graph gets a product of its own,
since it may be replayed while other streams work: one that was preprocessed ahead by `reserve`, or
else a new one without preprocessing, whose workspace is part of the graph's memory.
"""

from __future__ import annotations

from threading import Lock, get_ident
from typing import Any, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats_kernels.cuda.devices import Device
from sparseformats_kernels.cusparse.api import ORDER_ROW, Api, Scalar
from sparseformats_kernels.cusparse.handles import Handle, handle
from sparseformats_kernels.cusparse.products import Launch, Place, Product, Shape

__all__ = ["State"]

_PRODUCTS = 64  # kept for threads and streams of one matrix
_SPARES = 8  # made ahead for graphs in the life of a packed matrix
_CAPTURED = 256  # kept for graphs; the oldest graphs' products go first


@final
class State:
    """A packed matrix.

    Parameters
    ----------
    device : Device
    api : Api
    create : str
        The function that describes the matrix, and its arguments but the first.
    arguments : tuple
    arrays : tuple of array
        What the arguments point to.
    shape : (m, k)
    nnz : int
        Stored slots; 0 if no element meets any operand.
    dtypes : (dtype, gives, computes)
        Of the values and the operand, of the result, and in which is computed.
    longest : int
        Elements of the longest row, where an algorithm is chosen by it.
    reach : int or None
        Elements of a dense operand, from the first to the last, up to which the library's
        arithmetic of addresses goes.
    """

    __slots__ = (
        "lent",
        *("api", "arguments", "arrays", "captured", "computes", "create", "device", "dtype"),
        *("gives", "home", "is_half", "k", "lib", "lock", "lent", "longest", "m", "nnz", "one"),
        *("products", "raw_dtype", "reach", "spared", "spares", "zero"),
    )

    def __init__(
        self,
        device: Device,
        api: Api,
        create: str,
        arguments: tuple[Any, ...],
        arrays: tuple[Array, ...],
        *,
        shape: tuple[int, int],
        nnz: int,
        dtypes: tuple[str, str, str],
        longest: int = 0,
        reach: int | None = None,
    ) -> None:
        self.device, self.api, self.create = device, api, create
        self.arguments, self.arrays = arguments, arrays
        self.lib: ArrayLibrary = device.lib
        (self.m, self.k), self.nnz = shape, nnz
        self.longest, self.reach = longest, reach
        self.dtype, self.gives, self.computes = dtypes
        self.raw_dtype = self.lib.dtype(self.dtype)
        self.is_half = self.computes == "float32" != self.gives
        self.one, self.zero = Scalar(1, self.computes), Scalar(0, self.computes)
        self.products: dict[tuple[Any, ...], Product] = {}
        self.captured: dict[tuple[Any, ...], Product] = {}
        self.spares: dict[Shape, Product] = {}
        self.lent: list[Product] = []
        self.spared = 0
        self.lock = Lock()
        self.home = device.stream()

    def launch(self, shape: Shape, x: Place, y: Place, stream: int, capture: int) -> Launch:
        """What multiplies operands of this kind on `stream`, which is the calling thread's."""
        context = handle(self.api, self.device.index)
        context.on(stream)
        known = self.captured if capture else self.products
        key = (get_ident(), stream, capture, shape)
        product = known.get(key)
        if product is None:
            product = self._make(shape, context, x, y, stream, capture)
            with self.lock:
                while len(known) >= (_CAPTURED if capture else _PRODUCTS):
                    known.pop(next(iter(known)))
                known[key] = product
        return product.launch(self, context, stream, x, y)

    def is_ready(self, shape: Shape, stream: int, capture: int) -> bool:
        """Whether a graph can have a product that was preprocessed."""
        return shape in self.spares or (get_ident(), stream, capture, shape) in self.captured

    def scalar(self, value: Any) -> Scalar:
        """A number as the library reads it."""
        if type(value) is int and value in (0, 1):
            return self.one if value else self.zero
        return Scalar(value, self.computes)

    def _make(
        self, shape: Shape, context: Handle, x: Place, y: Place, stream: int, capture: int
    ) -> Product:
        if capture:
            spare = self.spares.pop(shape, None)
            if spare is not None:
                self.lent.append(spare)  # a graph replays it: its workspace stays ours for good
                return spare
            self.refuse_memory_in(capture)
        elif stream != self.home:
            self.device.share(self.arrays)
        product = Product(self, shape)
        product.prepare(self, context, x, y, not capture)
        return product

    def refuse_memory_in(self, capture: int) -> None:
        """Refuse to take memory while a graph is recorded that would not own it.

        Raises
        ------
        RuntimeError
        """
        if capture and not self.device.can_allocate_in_capture():
            raise RuntimeError(
                "matmul: prepare before capture: this call needs memory that CuPy cannot give to "
                "a graph; call sparseformats.plan(A, X, out=Y) with these operands before it, all "
                "row-major or column-major, and of half types only with assume_finite=True"
            )

    def reserve(self, shapes: set[Shape]) -> None:
        """Prepare products for graphs that may be recorded later."""
        device = self.device
        stream = device.stream()
        if device.capture(stream):
            return
        with self.lock:
            wanted = [shape for shape in sorted(shapes) if shape not in self.spares]
            wanted = wanted[: max(0, _SPARES - self.spared)]
            self.spared += len(wanted)
        if not wanted:
            return
        with device.here():
            context = handle(self.api, device.index)
            context.on(stream)
            for shape in wanted:
                product = Product(self, shape)
                # Any address does: only the matrix is looked at.
                here = self.lib.address(self.arrays[0])
                steps = self._steps(shape)
                product.prepare(self, context, (here, steps[0]), (here, steps[1]), True)
                self.spares[shape] = product
            device.settle()  # a graph runs on other streams

    def _steps(self, shape: Shape) -> tuple[int, int]:
        """Leading dimensions of contiguous operands."""
        by_row = shape.order == ORDER_ROW
        result = shape.n if by_row else self.m
        operand = shape.n if by_row != shape.transposed else self.k
        return max(1, operand), max(1, result)
