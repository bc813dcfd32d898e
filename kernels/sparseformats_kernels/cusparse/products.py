"""A product that is ready to be launched: descriptors and workspace for one shape of operand.

The library writes to descriptors and workspace, so a product belongs to one thread and stream, or
to one graph. See "cusparseSpMM()" and "cusparseSpMV()" in NVIDIA's documentation: preprocessing
makes a workspace part of the sparse descriptor's state, hence one of each a product; operands may
differ between calls, shapes and orders may not.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple, final

from sparseformats._arrays import Array
from sparseformats_kernels.cusparse import api as c
from sparseformats_kernels.cusparse.handles import Owned

if TYPE_CHECKING:
    from sparseformats_kernels.cusparse.api import Api
    from sparseformats_kernels.cusparse.state import State

__all__ = ["Product", "Shape", "view"]

# Algorithms for which looking at the matrix ahead is of use.
_LEARNING = {c.SPMV_CSR_ALG2, c.SPMM_CSR_ALG1, c.SPMM_CSR_ALG3}
_ALIGNED = 256  # the library asks for 128 bytes; allocators give 256 or more


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
        *("_api", "_head", "_launch", "_matrix", "_operands", "_results", "_tail", "_workspace"),
        "shape",
    )

    def __init__(self, state: State, shape: Shape) -> None:
        self._api = api = state.api
        self.shape = shape
        self._matrix = Owned(api, state.create, "cusparseDestroySpMat", *state.arguments)
        self._launch = api.function(shape.function)
        flip = c.TRANSPOSE if shape.transposed else c.NON_TRANSPOSE
        self._head = (c.NON_TRANSPOSE, flip) if shape.n else (c.NON_TRANSPOSE,)
        self._tail: tuple[int, ...] = (c.VALUES[state.computes], shape.algorithm)
        operand: tuple[int, ...] = (state.k, shape.n) if shape.n else (state.k,)
        result: tuple[int, ...] = (state.m, shape.n) if shape.n else (state.m,)
        operand = operand[::-1] if shape.transposed else operand
        self._operands = _Dense(api, operand, c.VALUES[state.dtype], shape.order)
        self._results = _Dense(api, result, c.VALUES[shape.gives], shape.order)
        self._workspace: Array | None = None

    def prepare(
        self, state: State, handle: int, x: tuple[int, int], y: tuple[int, int], preprocess: bool
    ) -> None:
        """Take the workspace and, if wanted, let the library look at the matrix.

        Parameters
        ----------
        x, y : (address, leading dimension)
            Of an operand and a result, whose contents do not count.
        preprocess : bool
            False while a graph is recorded: what is learnt would be learnt at each replay.
        """
        dense = self._operands.at(*x), self._results.at(*y)
        one, name = state.one.address, self.shape.function
        arguments = (handle, *self._head, one, self._matrix.pointer, dense[0], one, dense[1])
        size = ctypes.c_size_t()
        self._api.call(f"{name}_bufferSize", *arguments, *self._tail, ctypes.byref(size))
        nbytes = -(-max(1, size.value) // _ALIGNED) * _ALIGNED
        self._workspace = state.device.empty((nbytes,), "uint8")
        self._tail = (*self._tail, state.lib.address(self._workspace))
        if preprocess and self.shape.algorithm in _LEARNING:
            self._api.call(f"{name}_preprocess", *arguments, *self._tail)

    def __call__(
        self, handle: int, x: tuple[int, int], y: tuple[int, int], alpha: int, beta: int
    ) -> None:
        """Launch; `alpha` and `beta` are addresses of numbers in the host's memory."""
        operand, result = self._operands.at(*x), self._results.at(*y)
        status = self._launch(
            handle, *self._head, alpha, self._matrix.pointer, operand, beta, result, *self._tail
        )
        if status:
            raise self._api.failure(self.shape.function, status)


@final
class _Dense:
    """Descriptors of dense operands of one shape, one for each leading dimension met."""

    __slots__ = ("_api", "_found", "_order", "_set", "_size", "_value")

    def __init__(self, api: Api, size: tuple[int, ...], value: int, order: int) -> None:
        self._api, self._size, self._value, self._order = api, size, value, order
        self._set = api.function(f"cusparseDn{'Mat' if len(size) == 2 else 'Vec'}SetValues")
        self._found: dict[int, Owned] = {}

    def at(self, address: int, step: int) -> int:
        """The descriptor with leading dimension `step`, pointed to `address`."""
        found = self._found.get(step)
        if found is None:
            found = self._found[step] = self._make(address, step)
            return found.pointer
        status = self._set(found.pointer, address)
        if status:
            raise self._api.failure("SetValues of a dense operand", status)
        return found.pointer

    def _make(self, address: int, step: int) -> Owned:
        if len(self._size) == 1:
            names = "cusparseCreateDnVec", "cusparseDestroyDnVec"
            return Owned(self._api, *names, *self._size, address, self._value)
        names = "cusparseCreateDnMat", "cusparseDestroyDnMat"
        arguments = *self._size, step, address, self._value, self._order
        return Owned(self._api, *names, *arguments)
