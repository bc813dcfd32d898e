"""A kernel bound to a packed matrix: how calls are served is worked out once, and kept.

A warm call makes one tuple, finds what serves it, and launches.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, final

from sparseformats._arrays import Array
from sparseformats_kernels.cuda.common import deliver
from sparseformats_kernels.cusparselt.api import ORDER_COL
from sparseformats_kernels.cusparselt.launching import Launch
from sparseformats_kernels.cusparselt.plans import OWN_BIAS
from sparseformats_kernels.cusparselt.serving import Given, Served, given, serve
from sparseformats_kernels.cusparselt.state import State

__all__ = ["Bound", "Scales", "is_direct"]

_KEPT = 64  # kinds of operands that a bound kernel remembers

Scales = tuple[Array | None, Array | None]
"""Float32 scales of rows, and of everything: one of them at least."""


def is_direct(state: State, alpha_one: bool, beta_zero: bool) -> bool:
    """Whether the library's own arithmetic gives what is asked for.

    It scales in float32, which integers do not survive, and writes no fp8 as we round it.
    """
    if state.blob.gives != state.out_dtype:
        return False
    return state.blob.gives != "int32" or (alpha_one and beta_zero)


@final
class Bound:
    """A kernel bound to a packed matrix: ``(x, out, alpha, beta, bias, scales) -> y``.

    Parameters
    ----------
    state : State
    activation : str or None
        ``"relu"``.
    same_bits : bool
    casts : bool
        A bias comes in another dtype than the library reads.
    """

    __slots__ = (
        *("_activation", "_address", "_casts", "_quiet", "_ready", "_same_bits", "_state"),
        "_steps",
    )

    def __init__(
        self, state: State, activation: str | None, same_bits: bool, *, casts: bool = False
    ) -> None:
        self._state, self._activation, self._same_bits = state, activation, same_bits
        self._casts = casts
        self._quiet, self._steps = state.device.quiet, state.device.stepping()
        self._address = state.lib.pointer()
        self._ready: dict[tuple[Any, ...], _Ready] = {}

    def __call__(
        self,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        bias: Array | None = None,
        scales: Scales | None = None,
    ) -> Array:
        """``activation(scales * alpha * (A @ x) + beta * out + bias)`` on the current stream."""
        stream = self._quiet()
        if stream is None:
            return self._elsewhere(x, out, alpha, beta, bias, scales)
        steps, address = self._steps, self._address
        x_at, y_at, bias_at = address(x), 0, 0
        result: Any = None
        if out is not None:
            y_at, result = address(out), steps(out)
        if bias is not None:
            bias_at = address(bias)
        plain = alpha == 1, beta == 0, scales is not None
        places = x_at % 16, y_at % 16
        key = (get_ident(), stream, x.shape, steps(x), result, plain, places, bias_at)
        found = self._ready.get(key)
        if found is None:
            if not (self._state.m and x.shape[1]):
                return self._nothing(x, out)
            found = self._prepare(x, out, plain, bias_at, stream, 0)
            if len(self._ready) >= _KEPT:
                self._ready.clear()
            self._ready[key] = found
        return found(x, out, alpha, beta, bias, scales)

    def _elsewhere(
        self,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        bias: Array | None,
        scales: Scales | None,
    ) -> Array:
        """Another device is the current one, or a graph is being recorded."""
        device = self._state.device
        if not device.is_current():
            with device.here():
                return self(x, out, alpha, beta, bias, scales)
        if not (self._state.m and x.shape[1]):
            return self._nothing(x, out)
        stream = device.stream()
        plain = bool(alpha == 1), bool(beta == 0), scales is not None
        bias_at = 0 if bias is None else self._address(bias)
        ready = self._prepare(x, out, plain, bias_at, stream, device.capture(stream))
        return ready(x, out, alpha, beta, bias, scales)

    def _nothing(self, x: Array, out: Array | None) -> Array:
        state = self._state
        shape = state.m, int(x.shape[1])
        return state.lib.empty(shape, state.out_dtype, state.device.place) if out is None else out

    def _prepare(
        self,
        x: Array,
        out: Array | None,
        plain: tuple[bool, bool, bool],
        bias: int,
        stream: int,
        capture: int,
    ) -> _Ready:
        """How to serve calls like this one."""
        state, steps = self._state, self._steps
        shape = state.m, state.k, int(x.shape[1])
        dtypes = state.blob.dtype, state.out_dtype
        y = None if out is None else (steps(out), self._address(out))
        call = given(shape, dtypes, (steps(x), self._address(x)), y, bias)
        served = serve(state.blob, shape[:2], call, is_direct(state, *plain[:2]))
        if served.copies or served.aside:
            state.refuse_memory_in(capture)
        relu = self._activation is not None
        problem = served.problem._replace(relu=relu, vector=plain[2])
        if bias and self._casts:
            problem = problem._replace(bias=OWN_BIAS)
        launch = state.launch(problem, stream, capture, self._same_bits)
        return _Ready(state, call, served, launch)


@final
class _Ready:
    """How calls with operands of one kind are served."""

    __slots__ = (
        *("_address", "_copies", "_exact", "_launch", "_lib", "_makes_x"),
        *("_makes_y", "_n", "_new", "_state", "_turns"),
    )

    def __init__(self, state: State, call: Given, served: Served, launch: Launch) -> None:
        problem, blob, place = served.problem, state.blob, state.device.place
        self._state, self._lib, self._launch = state, state.lib, launch
        self._address, self._n = state.lib.pointer(), call.n
        # Scaled by the array library, in integers or once more than the library could round.
        self._exact = blob.gives in ("int32",) or blob.gives != state.out_dtype
        self._turns = problem.x_order == ORDER_COL, problem.y_order == ORDER_COL
        self._makes_x: Callable[[], Array] | None = None
        self._makes_y: Callable[[], Array] | None = None
        if served.copies:
            size = (blob.k, problem.n)
            size = size[::-1] if self._turns[0] else size
            self._makes_x = state.lib.maker(size, blob.dtype, place)
        if served.aside:
            size = (blob.m, problem.n)
            size = size[::-1] if self._turns[1] else size
            self._makes_y = state.lib.maker(size, blob.gives, place)
        self._new = state.lib.maker((state.m, call.n), state.out_dtype, place)

    def __call__(
        self,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        bias: Array | None,
        scales: Scales | None,
    ) -> Array:
        if self._makes_x is not None:
            x = self._readable(self._makes_x(), x)
        if out is None:
            out = self._new()
        launch, address = self._launch, self._address
        if launch.bias is not None and bias is not None:
            launch.bias[: self._state.m] = bias
        if scales is not None:
            launch.scale(*scales, alpha)
            alpha = 1
        if self._makes_y is None:
            launch(address(x), address(out), alpha, beta)
        else:
            self._aside(self._makes_y(), address(x), out, alpha, beta)
        return out

    def _readable(self, made: Array, x: Array) -> Array:
        """The operand in memory that the library can read."""
        k, wide = self._state.k, made
        if self._turns[0]:
            wide = made.mT
        wide[:k, : self._n] = x
        # Added columns give results that nobody looks at; added rows meet zeros of the matrix,
        # and what lay there before might be NaN.
        wide[k:] = 0
        return made

    def _aside(self, made: Array, x: int, out: Array, alpha: Any, beta: Any) -> None:
        """Make the result in other memory, and bring it to `out`."""
        part = (made.mT if self._turns[1] else made)[: self._state.m, : self._n]
        if self._exact:
            self._launch(x, self._address(made), 1, 0)
            deliver(self._lib, part, out, alpha, beta)
            return
        if beta != 0:
            part[...] = out
        self._launch(x, self._address(made), alpha, beta)
        out[...] = part
