"""n:m times dense on sparse tensor cores.

How a call is served is worked out once for each kind of operands, and kept for the calls after it:
a warm call makes one tuple, finds what serves it, and launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from threading import get_ident
from typing import Any, final

from sparseformats._arrays import Array
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.common import deliver
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.cusparselt.api import ORDER_COL, Api
from sparseformats_kernels.cusparselt.finding import the_api
from sparseformats_kernels.cusparselt.handles import Handle, handle
from sparseformats_kernels.cusparselt.launching import Launch
from sparseformats_kernels.cusparselt.packing import Blob, direct, tile, unpacked
from sparseformats_kernels.cusparselt.serving import Given, Served, given, serve, usual
from sparseformats_kernels.cusparselt.slices import Slices, edges_of
from sparseformats_kernels.cusparselt.state import State

__all__ = ["Bound", "CuSparseLtProduct", "is_direct"]

_KEPT = 64  # kinds of operands that a bound kernel remembers
_GIVES = {"int8": "int32", "float8_e4m3fn": "float32"}  # what the library writes, if not the dtype


@final
class CuSparseLtProduct:
    """cuSPARSELt's product; bias and relu fused."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State | Slices:
        """Compress the matrix; waits until that is done, since other streams may use it at once."""
        dtype = A.dtype_name
        device, api, gives = device_of(A.data, A.lib), the_api(), _GIVES.get(dtype, dtype)
        with device.here():
            context = handle(api, device.index)
            edges = edges_of(A, tile(dtype).sparse) if dtype == "int8" else (0, A.shape[1])
            parts, m = [], A.shape[0]
            for blob, (begin, end) in zip(
                _blobs(api, context, device, (A, gives, query.capability), edges),
                pairwise(edges),
                strict=True,
            ):
                out, shape = query.out_dtype or gives, (m, end - begin)
                parts.append(State(device, api, blob, shape, out, _name_of(device)))
            device.settle()  # only then may `dense` go, and other streams come
        return parts[0] if len(parts) == 1 else Slices(parts, edges)

    @staticmethod
    def run(
        state: State | Slices,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        *,
        bias: Array | None = None,
        activation: str | None = None,
    ) -> Array:
        """Multiply a single time, as `bind` would again and again."""
        if isinstance(state, Slices):
            runs = [Bound(part, None, part.lib.deterministic()) for part in state.parts]
            return state.run(runs)(x, out, alpha, beta)
        return Bound(state, activation, state.lib.deterministic())(x, out, alpha, beta, bias)

    @staticmethod
    def bind(state: State | Slices, query: Query) -> Callable[..., Array]:
        """A run for calls of these facts; searches for an algorithm if nobody has."""
        if isinstance(state, Slices):
            runs = [
                CuSparseLtProduct.bind(
                    part,
                    replace(
                        query,
                        k=part.k,
                        alpha_one=True,
                        beta_zero=True,
                        out_layout="C",
                        out_aligned=True,
                    ),
                )
                for part in state.parts
            ]
            return state.run(runs)
        relu = "relu" in (query.epilogue or "").split("+")
        if query.m and state.forced is None:
            for n in {query.n, query.n * query.batch} - {0}:
                direct = is_direct(state, query.alpha_one, query.beta_zero)
                served = serve(state.blob, (state.m, state.k), usual(query, n), direct)
                state.prepare(served.problem._replace(relu=relu), query.deterministic)
        return Bound(state, "relu" if relu else None, query.deterministic)

    bind_epilogue = bind

    @staticmethod
    def bind_batch(state: State | Slices, query: Query) -> Any:
        """The same for batches; None where one wide product of all pieces is quicker."""
        from sparseformats_kernels.cusparselt.batches import FEW, Batched

        if isinstance(state, Slices) or query.n < FEW:
            return None
        return Batched(state, query.deterministic)


def _blobs(
    api: Api,
    context: Handle,
    device: Device,
    matrix: tuple[SparseMatrix, str, tuple[int, int] | None],
    edges: tuple[int, ...],
) -> Iterator[Blob]:
    """Slices of a matrix, compressed: (A, results' dtype, compute capability) between edges."""
    A, gives, capability = matrix
    whole = len(edges) == 2
    blob = direct(api, context, device, A, gives, capability) if whole else None
    if blob is not None:
        yield blob
        return
    dense = unpacked(A, A.dtype_name)
    for begin, end in pairwise(edges):
        last = end == A.shape[1]  # which has the columns that were added as well
        piece = dense if whole else A.lib.contiguous(dense[:, begin : None if last else end])
        yield Blob(api, context, device, piece, A.dtype_name, gives)


def _name_of(device: Device) -> str:
    """The device's name, as tables have it."""
    if device.lib.name == "torch":
        import torch

        return str(torch.cuda.get_device_name(device.index))
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(device.index)["name"].decode())


def is_direct(state: State, alpha_one: bool, beta_zero: bool) -> bool:
    """Whether the library's own arithmetic gives what is asked for.

    It scales in float32, which integers do not survive, and writes no fp8 as we round it.
    """
    if state.blob.gives != state.out_dtype:
        return False
    return state.blob.gives != "int32" or (alpha_one and beta_zero)


@final
class Bound:
    """A kernel bound to a packed matrix: ``(x, out, alpha, beta, bias) -> y``."""

    __slots__ = ("_activation", "_address", "_quiet", "_ready", "_same_bits", "_state", "_steps")

    def __init__(self, state: State, activation: str | None, same_bits: bool) -> None:
        self._state, self._activation, self._same_bits = state, activation, same_bits
        self._quiet, self._steps = state.device.quiet, state.device.stepping()
        self._address = state.lib.pointer()
        self._ready: dict[tuple[Any, ...], _Ready] = {}

    def __call__(
        self, x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None = None
    ) -> Array:
        """``activation(alpha * (A @ x) + beta * out + bias)`` on the current stream."""
        stream = self._quiet()
        if stream is None:
            return self._elsewhere(x, out, alpha, beta, bias)
        steps, address = self._steps, self._address
        x_at, y_at, bias_at = address(x), 0, 0
        result: Any = None
        if out is not None:
            y_at, result = address(out), steps(out)
        if bias is not None:
            bias_at = address(bias)
        plain = alpha == 1, beta == 0
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
        return found(x, out, alpha, beta, bias)

    def _elsewhere(
        self, x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None
    ) -> Array:
        """Another device is the current one, or a graph is being recorded."""
        device = self._state.device
        if not device.is_current():
            with device.here():
                return self(x, out, alpha, beta, bias)
        if not (self._state.m and x.shape[1]):
            return self._nothing(x, out)
        stream = device.stream()
        plain = bool(alpha == 1), bool(beta == 0)
        bias_at = 0 if bias is None else self._address(bias)
        ready = self._prepare(x, out, plain, bias_at, stream, device.capture(stream))
        return ready(x, out, alpha, beta, bias)

    def _nothing(self, x: Array, out: Array | None) -> Array:
        state = self._state
        shape = state.m, int(x.shape[1])
        return state.lib.empty(shape, state.out_dtype, state.device.place) if out is None else out

    def _prepare(
        self,
        x: Array,
        out: Array | None,
        plain: tuple[bool, bool],
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
        served = serve(state.blob, shape[:2], call, is_direct(state, *plain))
        if served.copies or served.aside:
            state.refuse_memory_in(capture)
        problem = served.problem._replace(relu=self._activation is not None)
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
        self, x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None
    ) -> Array:
        if self._makes_x is not None:
            x = self._readable(self._makes_x(), x)
        if out is None:
            out = self._new()
        launch, address = self._launch, self._address
        if launch.bias is not None and bias is not None:
            launch.bias[: self._state.m] = bias
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
