"""Layers of fp8 with scales: ``activation(scales * (A @ x) + bias)``, rounded once.

Where a small product has shown that the library does all of that right (see `results`), it writes
the result itself: a scale for everything is its alpha, scales of rows are its vector of alphas.
Elsewhere, and for what it refuses after all, its sums are left in float32 and the array library
does the rest, in a second pass over four bytes an element.
"""

from __future__ import annotations

from typing import Any, Self, final

import numpy as np

from sparseformats._arrays import Array
from sparseformats.dispatch.query import Query
from sparseformats_kernels.cusparselt import results
from sparseformats_kernels.cusparselt.bound import Bound, Scales
from sparseformats_kernels.cusparselt.serving import serve, usual
from sparseformats_kernels.cusparselt.state import State

__all__ = ["Layer"]


@final
class Layer:
    """A kernel bound to a packed matrix: ``(x, out, alpha, beta, bias, **scales) -> y``.

    Parameters
    ----------
    state : State
        Of sums in float32.
    features : Features or None
        What the library does itself; None for sums alone.
    activation : str or None
        ``"relu"``.
    same_bits : bool
    """

    __slots__ = ("_activation", "_direct", "_state", "_sums")

    def __init__(
        self,
        state: State,
        features: results.Features | None,
        activation: str | None,
        same_bits: bool,
    ) -> None:
        self._state, self._activation = state, activation
        self._sums = Bound(state.giving("float32"), None, same_bits)
        self._direct: Bound | None = None
        if features is not None:
            other = state.giving(features.gives, features.bias)
            casts = features.bias not in (None, "float32")
            self._direct = Bound(other, activation, same_bits, casts=casts)

    @classmethod
    def made(cls, state: State, query: Query) -> Self:
        """The kernel for calls of these facts; tries what the library does, searches, plans."""
        relu = "relu" in (query.epilogue or "").split("+")
        features = results.tried(state, query) if query.m and query.n else None
        if features is not None and not _prepared(state, query, features):
            features = None
        if features is None and query.m and query.n:
            _prepare(state.giving("float32"), query, False, False)
        return cls(state, features, "relu" if relu else None, query.deterministic)

    @property
    def is_direct(self) -> bool:
        """Whether the library writes the result itself."""
        return self._direct is not None

    def __call__(
        self,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        bias: Array | None = None,
        row_scale: Array | None = None,
        column_scale: Array | None = None,
    ) -> Array:
        """Compute on the current stream; `beta` is 0."""
        state = self._state
        if out is None:
            size = state.m, int(x.shape[1])
            out = state.lib.empty(size, state.out_dtype, state.device.place)
        scales = None if row_scale is None and column_scale is None else (row_scale, column_scale)
        direct = self._direct
        if direct is not None:
            try:
                return direct(x, out, alpha, 0, bias, scales)
            except RuntimeError as error:
                if "cuSPARSELt" not in str(error):
                    raise
                self._direct = None  # not for these sizes, say; sums it does give
        return self._passed(x, out, alpha, bias, scales or (None, None))

    def _passed(
        self, x: Array, out: Array, alpha: Any, bias: Array | None, scales: Scales
    ) -> Array:
        """Sums in float32, and a second pass."""
        state, (row, column) = self._state, scales
        lib, (m, n) = state.lib, (state.m, int(x.shape[1]))
        steps = state.device.steps(out)
        across = steps[0] < steps[1]  # as the result lies, so that the pass reads in its order
        y = lib.empty((n, m) if across else (m, n), "float32", state.device.place)
        y = y.mT if across else y
        if 0 in (m, n):
            return out
        self._sums(x, y, 1, 0)
        with state.device.here(), np.errstate(all="ignore"):
            if alpha != 1:
                y *= alpha
            if row is not None:
                y *= row[:, None]
            if column is not None:
                y *= column
            if bias is not None:
                y += bias[:, None]
            if self._activation == "relu":
                y = lib.where(y < 0, lib.zeros(1, "float32", state.device.place), y)
            out[...] = lib.astype(y, state.out_dtype)
        return out


def _prepared(state: State, query: Query, features: results.Features) -> bool:
    """Whether the library takes a call's sizes with these features; makes what calls will need."""
    try:
        other = state.giving(features.gives, features.bias)
        _prepare(other, query, features.relu, features.vector)
    except RuntimeError as error:
        if "cuSPARSELt" not in str(error):
            raise
        results.refused(state, query, str(error))
        return False
    return True


def _prepare(state: State, query: Query, relu: bool, vector: bool) -> None:
    if state.forced is None:
        served = serve(state.blob, (state.m, state.k), usual(query, query.n), True)
        problem = served.problem._replace(relu=relu, vector=vector)
        state.prepare(problem, query.deterministic)
