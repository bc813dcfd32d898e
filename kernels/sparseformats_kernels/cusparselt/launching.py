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
    """

    __slots__ = (
        *("_api", "_arguments", "_call", "_kept", "_numbers", "_stream", "_x", "_y", "bias"),
        "plan",
    )

    def __init__(
        self, state: State, plan: Plan, stream: int, workspace: Array | None, bias: Array | None
    ) -> None:
        self._api, self._call = state.api, state.api.function("cusparseLtMatmul")
        self.plan, self.bias = plan, bias
        self._kept = workspace, state.blob.array
        # Numbers lie where the library reads them; alpha and beta are float32 for all types.
        self._numbers = (ctypes.c_float * 2)(1.0, 0.0)
        self._stream = ctypes.c_void_p(stream)
        self._x, self._y = ctypes.c_void_p(), ctypes.c_void_p()
        address, number = state.lib.address, ctypes.addressof(self._numbers)
        self._arguments = (
            ctypes.c_void_p(plan.handle.address),
            ctypes.c_void_p(plan.address),
            ctypes.c_void_p(number),
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
        """Multiply what lies at address `x` into what lies at `y`."""
        self._x.value, self._y.value = x, y
        self._numbers[0], self._numbers[1] = alpha, beta
        status = self._call(*self._arguments)
        if status:
            raise self._api.failure("cusparseLtMatmul", status)
