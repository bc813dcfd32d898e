"""Batches ``(b, k, n)`` in one launch: one matrix, operands and results at even distances.

Where a piece would have to be copied, pieces go one by one.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any, final

from sparseformats._arrays import Array
from sparseformats._dtypes import itemsize
from sparseformats_kernels.cusparselt.bound import Bound, is_direct
from sparseformats_kernels.cusparselt.launching import Launch
from sparseformats_kernels.cusparselt.plans import ALIGNED
from sparseformats_kernels.cusparselt.serving import given, serve
from sparseformats_kernels.cusparselt.state import State

__all__ = ["FEW", "Batched"]

FEW = 32  # columns of a piece up to which one product of all pieces side by side is quicker
_KEPT = 64


@final
class Batched:
    """A kernel bound to a packed matrix, for batches: ``(x, out, alpha, beta) -> y``."""

    __slots__ = ("_address", "_one", "_quiet", "_ready", "_same_bits", "_state", "_steps")

    def __init__(self, state: State, same_bits: bool) -> None:
        self._state, self._same_bits = state, same_bits
        self._one = Bound(state, None, same_bits)
        self._quiet, self._steps = state.device.quiet, state.device.stepping()
        self._address = state.lib.pointer()
        self._ready: dict[tuple[Any, ...], Launch | None] = {}

    def __call__(self, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """``alpha * (A @ x) + beta * out`` for each piece, on the current stream."""
        state = self._state
        if out is None:
            shape = int(x.shape[0]), state.m, int(x.shape[2])
            out = state.lib.empty(shape, state.out_dtype, state.device.place)
        launch = self._launch(x, out, alpha == 1, beta == 0)
        if launch is None:
            for i in range(int(x.shape[0])):
                self._one(x[i, ...], out[i, ...], alpha, beta)
        else:
            launch(self._address(x), self._address(out), alpha, beta)
        return out

    def _launch(self, x: Array, out: Array, alpha_one: bool, beta_zero: bool) -> Launch | None:
        """What multiplies all pieces at once; None where they go one by one."""
        if 0 in x.shape or not self._state.m:
            return None
        stream = self._quiet()
        if stream is None:
            return self._elsewhere(x, out, alpha_one, beta_zero)
        places = self._address(x) % ALIGNED, self._address(out) % ALIGNED
        where = x.shape, self._steps(x), self._steps(out), places
        key = (get_ident(), stream, where, alpha_one, beta_zero)
        if key not in self._ready:
            if len(self._ready) >= _KEPT:
                self._ready.clear()
            self._ready[key] = self._prepare(x, out, (alpha_one, beta_zero), stream, 0)
        return self._ready[key]

    def _elsewhere(self, x: Array, out: Array, alpha_one: bool, beta_zero: bool) -> Launch | None:
        """A graph is recorded; on another device than the current one pieces go one by one."""
        device = self._state.device
        if not device.is_current():
            return None
        stream = device.stream()
        return self._prepare(x, out, (alpha_one, beta_zero), stream, device.capture(stream))

    def _prepare(
        self, x: Array, out: Array, plain: tuple[bool, bool], stream: int, capture: int
    ) -> Launch | None:
        state, (b, k, n) = self._state, (int(size) for size in x.shape)
        steps, result = self._steps(x), self._steps(out)
        dtypes = state.blob.dtype, state.out_dtype
        places = (steps[1:], self._address(x)), (result[1:], self._address(out))
        call = given((state.m, k, n), dtypes, *places, 0)
        served = serve(state.blob, (state.m, k), call, is_direct(state, *plain))
        gaps = steps[0] * itemsize(dtypes[0]), result[0] * itemsize(dtypes[1])
        if served.copies or served.aside or b == 1 or any(g <= 0 or g % ALIGNED for g in gaps):
            return None
        problem = served.problem._replace(batch=b, x_gap=steps[0], y_gap=result[0])
        return state.launch(problem, stream, capture, self._same_bits)
