"""A plan with a workspace and a stream: the call itself."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, final

from sparseformats._arrays import Array

if TYPE_CHECKING:
    from sparseformats_kernels.cusparselt.plans import Plan
    from sparseformats_kernels.cusparselt.state import State

__all__ = ["Launch"]


@final
class Launch:
    """Multiplies by one plan on one stream, for one thread.

    Parameters
    ----------
    state : State
    plan : Plan
    stream : int
    workspace : uint8 array or None
    bias : array or None
        Memory that the plan reads the bias from, where that is the launch's own.
    vector : bool
        The plan multiplies each row of the result by a number of its own.
    """

    __slots__ = (
        *("_alpha", "_api", "_arguments", "_call", "_kept", "_numbers", "_stream", "_x", "_y"),
        *("bias", "plan", "vector"),
    )

    def __init__(
        self,
        state: State,
        plan: Plan,
        stream: int,
        workspace: Array | None,
        bias: Array | None,
        *,
        vector: bool = False,
    ) -> None:
        self._api, self._call = state.api, state.api.function("cusparseLtMatmul")
        self.plan, self.bias = plan, bias
        self._kept = workspace, state.blob.array
        # Numbers lie where the library reads them; alpha and beta are float32 for all types.
        self._numbers = (ctypes.c_float * 2)(1.0, 0.0)
        self._stream = ctypes.c_void_p(stream)
        self._x, self._y = ctypes.c_void_p(), ctypes.c_void_p()
        address, number = state.lib.address, ctypes.addressof(self._numbers)
        self.vector: Array | None = None
        self._alpha = ctypes.c_void_p(number)
        if vector:  # of added rows too, where it stays zero
            self.vector = state.lib.zeros((state.blob.m,), "float32", state.device.place)
            self._alpha.value = address(self.vector)
        self._arguments = (
            ctypes.c_void_p(plan.handle.address),
            ctypes.c_void_p(plan.address),
            self._alpha,
            ctypes.c_void_p(address(state.blob.array)),
            self._x,
            ctypes.c_void_p(number + ctypes.sizeof(ctypes.c_float)),
            self._y,
            self._y,
            ctypes.c_void_p(None if workspace is None else address(workspace)),
            ctypes.c_void_p(ctypes.addressof(self._stream)),
            ctypes.c_int(1),
        )

    def __call__(self, x: int, y: int, alpha: Any, beta: Any) -> None:
        """Multiply what lies at address `x` into what lies at `y`; with a vector, alpha is 1."""
        self._x.value, self._y.value = x, y
        self._numbers[0], self._numbers[1] = alpha, beta
        status = self._call(*self._arguments)
        if status:
            raise self._api.failure("cusparseLtMatmul", status)

    def scale(self, row: Array | None, column: Array | None, alpha: Any) -> None:
        """Set the vector: ``row * column * alpha``, each one scale, or `row` one for each row.

        Parameters
        ----------
        row, column : contiguous float32 arrays or None
        """
        assert self.vector is not None, "only of a plan with a vector"
        given = row if row is not None else column
        assert given is not None, "a scale that is an array"
        rows = int(given.shape[0])
        part = self.vector if rows == 1 else self.vector[:rows]
        part[...] = given
        if row is not None and column is not None:
            part *= column
        if alpha != 1:
            part *= alpha
