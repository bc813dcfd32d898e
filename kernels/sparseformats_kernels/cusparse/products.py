"""A product that is ready to be launched: descriptors and workspace for one shape of operand.

The library writes to descriptors and workspace, so a product belongs to one thread and stream, or
to one graph. See "cusparseSpMM()" and "cusparseSpMV()" in NVIDIA's documentation: preprocessing
makes a workspace part of the sparse descriptor's state, hence one of each a product; operands may
differ between calls, shapes and orders may not.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple, final

from sparseformats._arrays import Array
from sparseformats_kernels.cusparse import api as c
from sparseformats_kernels.cusparse.handles import Owned

if TYPE_CHECKING:
    from sparseformats_kernels.cusparse.api import Api, Scalar
    from sparseformats_kernels.cusparse.handles import Handle
    from sparseformats_kernels.cusparse.state import State

__all__ = ["LEARNING", "Launch", "Place", "Product", "Shape", "extent", "view"]

LEARNING = frozenset({c.SPMV_CSR_ALG2, c.SPMM_CSR_ALG1, c.SPMM_CSR_ALG3})
"""Algorithms for which looking at the matrix ahead is of use."""

_ALIGNED = 256  # the library asks for 128 bytes; allocators give 256 or more

Place = tuple[int, int]
"""Address and leading dimension of a dense operand."""


def view(steps: tuple[int, ...], rows: int, columns: int) -> tuple[int, int] | None:
    """Order and leading dimension in which the library can read a matrix where it lies.

    Parameters
    ----------
    steps : (int, int)
        Elements between neighbours along each axis.

    Returns
    -------
    (order, leading dimension), or None where it must be copied.
    """
    down, along = steps
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return c.ORDER_ROW, down if rows > 1 else columns
    if (down == 1 or rows == 1) and (along >= rows or columns == 1):
        return c.ORDER_COL, along if columns > 1 else rows
    return None


def extent(found: tuple[int, int], rows: int, columns: int) -> int:
    """Elements from the first to the last of a matrix with this order and leading dimension."""
    order, step = found
    major, minor = (rows, columns) if order == c.ORDER_ROW else (columns, rows)
    return (major - 1) * step + minor


class Shape(NamedTuple):
    """What a product is prepared for, beside its matrix.

    Attributes
    ----------
    n : int
        Columns; 0 is a vector, for which the library has another function.
    transposed : bool
        The operand lies in the other order than the result.
    order : int
        Of the result.
    gives : str
        dtype of the result.
    algorithm : int
    """

    n: int
    transposed: bool
    order: int
    gives: str
    algorithm: int

    @property
    def function(self) -> str:
        return "cusparseSpMM" if self.n else "cusparseSpMV"


@final
class Product:
    """Descriptors, workspace and the arguments that no call changes.

    Parameters
    ----------
    state : State
        The matrix.
    shape : Shape
    """

    __slots__ = (
        "_api",
        "_head",
        "_matrix",
        "_operands",
        "_results",
        "_tail",
        "_workspace",
        "shape",
    )

    def __init__(self, state: State, shape: Shape) -> None:
        self._api = api = state.api
        self.shape = shape
        self._matrix = Owned(api, state.create, "cusparseDestroySpMat", *state.arguments)
        flip = c.TRANSPOSE if shape.transposed else c.NON_TRANSPOSE
        self._head = (c.NON_TRANSPOSE, flip) if shape.n else (c.NON_TRANSPOSE,)
        self._tail: tuple[int, ...] = (c.VALUES[state.computes], shape.algorithm)
        operand: tuple[int, ...] = (state.k, shape.n) if shape.n else (state.k,)
        result: tuple[int, ...] = (state.m, shape.n) if shape.n else (state.m,)
        operand = operand[::-1] if shape.transposed else operand
        self._operands = _Dense(api, operand, c.VALUES[state.dtype], shape.order)
        self._results = _Dense(api, result, c.VALUES[shape.gives], shape.order)
        self._workspace: Array | None = None

    def prepare(self, state: State, handle: Handle, x: Place, y: Place, preprocess: bool) -> None:
        """Take the workspace and, if wanted, let the library look at the matrix.

        Parameters
        ----------
        x, y : Place
            Of an operand and a result, whose contents do not count.
        preprocess : bool
            False while a graph is recorded: what is learnt would be learnt at each replay.
        """
        name = self.shape.function
        one, dense = state.one.address, (self._operands.at(*x), self._results.at(*y))
        arguments = self.arguments(handle.pointer, one, dense[0].pointer, one, dense[1].pointer)
        size = ctypes.c_size_t()
        self._api.call(f"{name}_bufferSize", *arguments, ctypes.byref(size))
        nbytes = -(-max(1, size.value) // _ALIGNED) * _ALIGNED
        self._workspace = state.device.empty((nbytes,), "uint8")
        where = state.lib.address(self._workspace)
        if preprocess and self.shape.algorithm in LEARNING:
            self._api.call(f"{name}_preprocess", *arguments, where)
        self._tail = (*self._tail, where)

    def arguments(self, handle: int, alpha: int, x: int, beta: int, y: int) -> tuple[int, ...]:
        """What the library's function takes, in its order."""
        return (handle, *self._head, alpha, self._matrix.pointer, x, beta, y, *self._tail)

    def launch(self, state: State, handle: Handle, stream: int, x: Place, y: Place) -> Launch:
        """What launches it on `stream`, with operands of these leading dimensions."""
        return Launch(self, state, handle, stream, (self._operands.at(*x), self._results.at(*y)))


@final
class Launch:
    """Launches a product with operands of known strides, by one handle on one stream."""

    __slots__ = (
        *("_api", "_call", "_handle", "_plain", "_product", "_scaled", "_state", "_stream"),
        *("_x", "_y"),
    )

    def __init__(
        self,
        product: Product,
        state: State,
        handle: Handle,
        stream: int,
        dense: tuple[_Operand, _Operand],
    ) -> None:
        self._api, self._call = state.api, state.api.function(product.shape.function)
        self._product, self._state = product, state
        self._handle, self._stream = handle, stream
        self._x, self._y = dense
        self._plain = self._with(state.one, state.zero)
        self._scaled: tuple[Any, ...] = (1, 0, self._plain)  # the last numbers, and all arguments

    def __call__(self, x: int, y: int, alpha: Any, beta: Any) -> None:
        """Multiply what lies at address `x` into what lies at `y`."""
        if self._handle.stream != self._stream:
            self._handle.on(self._stream)
        operand, result = self._x, self._y
        if operand.address != x:
            operand.point(x)
        if result.address != y:
            result.point(y)
        if alpha == 1 and beta == 0:
            status = self._call(*self._plain)
        else:
            scaled = self._scaled
            if scaled[0] is not alpha or scaled[1] is not beta:
                numbers = self._state.scalar(alpha), self._state.scalar(beta)
                # The numbers lie where the library reads them for as long as they are kept.
                scaled = self._scaled = (alpha, beta, self._with(*numbers), numbers)
            status = self._call(*scaled[2])
        if status:
            raise self._api.failure(self._product.shape.function, status)

    def _with(self, alpha: Scalar, beta: Scalar) -> tuple[Any, ...]:
        product, dense = self._product, (self._x.pointer, self._y.pointer)
        numbers = alpha.address, beta.address
        found = product.arguments(self._handle.pointer, numbers[0], dense[0], numbers[1], dense[1])
        return self._api.converted(product.shape.function, *found)


@final
class _Operand:
    """The descriptor of a dense operand, and where it points to."""

    __slots__ = ("_api", "_owned", "_set", "address", "pointer")

    def __init__(self, api: Api, kind: str, address: int, *arguments: int) -> None:
        self._api = api
        self._set = api.function(f"cusparse{kind}SetValues")
        names = f"cusparseCreate{kind}", f"cusparseDestroy{kind}"
        self._owned = Owned(api, *names, *arguments)
        self.pointer = self._owned.pointer
        self.address = address

    def point(self, address: int) -> None:
        """Point it elsewhere."""
        status = self._set(self.pointer, address)
        if status:
            raise self._api.failure("SetValues of a dense operand", status)
        self.address = address


@final
class _Dense:
    """Descriptors of dense operands of one shape, one for each leading dimension met."""

    __slots__ = ("_api", "_found", "_order", "_size", "_value")

    def __init__(self, api: Api, size: tuple[int, ...], value: int, order: int) -> None:
        self._api, self._size, self._value, self._order = api, size, value, order
        self._found: dict[int, _Operand] = {}

    def at(self, address: int, step: int) -> _Operand:
        """The descriptor with leading dimension `step`; a new one points to `address`."""
        found = self._found.get(step)
        if found is None:
            found = self._found[step] = self._make(address, step)
        return found

    def _make(self, address: int, step: int) -> _Operand:
        if len(self._size) == 1:
            return _Operand(self._api, "DnVec", address, *self._size, address, self._value)
        arguments = *self._size, step, address, self._value, self._order
        return _Operand(self._api, "DnMat", address, *arguments)
