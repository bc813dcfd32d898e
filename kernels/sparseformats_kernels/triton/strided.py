"""Calls of the kernels that take operands of any strides, on a device or under the interpreter.

Such a kernel makes one tile of the result a program. It is given ``items``, the (row, tile column,
begin, end) of each, the arrays of a matrix's packed state, and both operands by address and steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, NamedTuple, Protocol

import triton

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats_kernels.cuda.devices import Device
from sparseformats_kernels.triton.calls import capability_of, has
from sparseformats_kernels.triton.configs import Config
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled
from sparseformats_kernels.triton.sending import Sender, refuse_in_capture
from sparseformats_kernels.triton.strided_variants import (
    ALIGNED,
    OPERANDS,
    Kernel,
    Lie,
    Strides,
    constants_of,
    like_of,
    sizes_of,
    specimen_of,
    strides_of,
)

__all__ = ["Call", "Given", "Packed"]


class Packed(Protocol):
    """A matrix as such a kernel reads it."""

    lib: ArrayLibrary
    device: Device | None  # None on a CPU, where only Triton's interpreter runs
    shape: tuple[int, int]
    one: Array  # a scale that changes nothing

    def config(self, query: Query) -> Config:
        """Launch parameters for a call."""

    def arrays(self) -> Mapping[str, Array]:
        """What the kernel reads beside `items` and the operands, by parameter."""

    def items(self, columns: int, high: int) -> Array:
        """The tiles, of so many rows, of a result that is so many tiles wide."""


class Given(NamedTuple):
    """What a call may bring beside its operands, as the query's epilogue names it.

    Attributes
    ----------
    bias : (m,) array or None
        Of the result's dtype; of float32 where the product is scaled.
    residual : array of the result's shape or None
    row_scale, column_scale : (m,), (n,) or (1,) float32 array or None
        In a batch columns are numbered through.
    partial : array or None
        What the kernel leaves for a launch after it.
    """

    bias: Array | None = None
    residual: Array | None = None
    row_scale: Array | None = None
    column_scale: Array | None = None
    partial: Array | None = None


class Call:
    """A kernel ready for operands of one set of facts, or for the pieces of a batch.

    With `pieces` a whole batch is one operand, (b, k, n), and one launch multiplies it.
    """

    def __init__(
        self, kernel: Kernel, state: Packed, query: Query, *, pieces: bool = False
    ) -> None:
        self.kernel, self.state, self.query, self.pieces = kernel, state, query, pieces
        self.lib, self.pointer = state.lib, state.lib.pointer()
        self.dtype = query.out_dtype or query.a_dtype or ""
        self.config = state.config(query)
        # Every call brings arrays of the same shapes and strides.
        self.alike = query.batch == 1 or pieces
        self.steps: tuple[int, ...] | None = None  # of the operand that `()` is ready for
        self.ready: dict[tuple[Any, ...], _Ready] = {}
        self.codes: dict[Specimen, Any] = {}
        self.lock = Lock()
        if state.device is None or not query.n or not state.shape[0]:
            return
        with state.device.here():
            for n in {query.n, query.n if pieces else query.n * query.batch}:
                like = like_of(query.x_layout, state.shape[1], n, query.x_aligned)
                made = like_of(query.out_layout or "C", state.shape[0], n, query.out_aligned)
                self.code((like, made, made if has(query, "residual") else None), n)
                state.items(-(-n // self.config.BN), self.config.BM)

    def code(self, lie: Lie, n: int) -> Any:
        """The kernel for operands of these strides and n columns, compiled and loaded."""
        device = self.state.device
        if device is None:
            raise RuntimeError("kernels are launched on a device only; this state is on a CPU")
        made = specimen_of(self.kernel, self.query, self.config, *lie, n, pieces=self.pieces)
        found = self.codes.get(made)
        if found is None:
            refuse_in_capture(device, "no kernel is compiled yet for operands that lie like these")
            with self.lock, device.here():
                found = self.codes[made] = compiled(made, capability_of(self.query), device.index)
        return found

    def __call__(
        self,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        bias: Array | None = None,
        **beside: Array | None,
    ) -> Array:
        """``alpha * (A @ x) + beta * out``, and what the query's epilogue says."""
        # A copy of an operand, made since `out` overlaps it, may lie otherwise.
        given, steps = Given(bias, **beside), self._lie(x)
        if given.residual is not None:
            steps += self._lie(given.residual)
        alike = self.alike and steps == self.steps
        key = () if alike else self._key(x, out, given.residual)
        ready = self.ready.get(key)
        if ready is not None:
            return ready(x, out, alpha, beta, given)
        state, shape = self.state, self.shape_for(x)
        if out is None and (0 in shape or state.device is None):
            out = self.lib.empty(shape, self.dtype, self.lib.device(x))
        if out is not None and 0 in shape:
            return out
        if out is not None and state.device is None:
            self._interpret(x, out, (alpha, beta), given)
            return out
        if self.steps is None:
            self.steps, key = steps, () if self.alike else key
        ready = self.ready.setdefault(key, _Ready(self, x, out, given))
        return ready(x, out, alpha, beta, given)

    def shape_for(self, x: Array) -> tuple[int, ...]:
        """Shape of the result."""
        return (*(int(size) for size in x.shape[:-2]), self.state.shape[0], int(x.shape[-1]))

    def _lie(self, x: Array) -> tuple[int, ...]:
        """What the machine code relies on about an operand of a known shape."""
        return (*self.lib.strides(x), self.pointer(x) % ALIGNED == 0)

    def _key(self, *arrays: Array | None) -> tuple[Any, ...]:
        """What tells the pieces of a batch, and operands that lie otherwise, apart."""
        found = (x for x in arrays if x is not None)
        return tuple((tuple(a.shape), strides_of(self.lib, a)) for a in found)

    def _interpret(self, x: Array, out: Array, scalars: tuple[Any, Any], given: Given) -> None:
        """Run on the CPU, for tests."""
        if not triton.knobs.runtime.interpret:
            raise RuntimeError("Triton runs on a CPU only under its interpreter")
        state, n = self.state, int(x.shape[-1])
        items = state.items(-(-n // self.config.BN), self.config.BM)
        count, kind = int(items.shape[0]), _scalar(self.dtype)
        known = dict(state.arrays()) | {"items": items, "tiles": count, "x": x, "out": out}
        known |= {"bias": out if given.bias is None else given.bias}
        known |= {"residual": out if given.residual is None else given.residual}
        known |= {} if given.partial is None else {"partial": given.partial}
        known |= {"alpha": kind(scalars[0]), "beta": kind(scalars[1])}
        known |= sizes_of(state.shape, n)
        for name in ("row_scale", "column_scale"):
            scale = getattr(given, name)
            scale = state.one if scale is None else scale
            known |= {name: scale, f"{name}_step": int(int(scale.shape[0]) > 1)}
        for name in ("x", "out", "residual"):
            steps = strides_of(self.lib, known[name])
            known |= {f"{name}_row": steps.row, f"{name}_column": steps.column}
            known |= {f"{name}_piece": steps.piece}
        upcast = self.query.a_dtype in ("bfloat16", "float8_e4m3fn")
        constants = constants_of(self.kernel, self.query, self.config) | {"PIECES": self.pieces}
        constants |= {"UPCAST": upcast, "PROMOTE": ""}
        function = self.kernel.function
        known = {name: known[name] for name in function.arg_names if name in known}
        constants = {name: constants[name] for name in function.arg_names if name in constants}
        pieces = int(x.shape[0]) if self.pieces else 1
        function[(count * pieces,)](**known, **constants)


class _Ready:
    """A launch for operands of the shapes, strides and alignments of an example."""

    def __init__(self, call: Call, x: Array, out: Array | None, given: Given) -> None:
        state, lib = call.state, call.lib
        if state.device is None:
            raise RuntimeError("kernels are launched on a device only; this state is on a CPU")
        self.device, n = state.device, int(x.shape[-1])
        self.make = lib.maker(call.shape_for(x), call.dtype, state.device.place)
        steps = strides_of(lib, x), strides_of(lib, self.make() if out is None else out)
        residual = None if given.residual is None else strides_of(lib, given.residual)
        code = call.code((*steps, residual), n)
        with self.device.here():
            items = state.items(-(-n // call.config.BN), call.config.BM)
        count, pieces = int(items.shape[0]), int(x.shape[0]) if call.pieces else 1
        self.launch = launch = Launch(code, count * pieces, self.device.index, (items,))
        self.lock = launch.lock
        self.kind = _scalar(call.dtype)
        arrays = dict(state.arrays()) | {"items": items}
        launch.set(**{name: lib.address(array) for name, array in arrays.items()})
        names = call.kernel.function.arg_names
        sizes = {k: size for k, size in sizes_of(state.shape, n).items() if k in names}
        launch.set(**sizes, bias=0, alpha=self.kind(1), beta=self.kind(0))
        if call.pieces:
            launch.set(tiles=count)
        for name, found in zip(OPERANDS, (*steps, residual), strict=True):
            if found is not None:
                launch.set(**_steps(name, found, call.pieces))
        self.scalars = not (call.query.alpha_one and call.query.beta_zero)
        self.x, self.out, self.bias = (launch.slot(name) for name in ("x", "out", "bias"))
        self.residual = launch.slot("residual") if given.residual is not None else None
        self.partial = launch.slot("partial") if given.partial is not None else None
        self.scaled, self.one = has(call.query, "scale"), state.one
        self.pointer = lib.pointer()
        self.send = Sender(self.device, (launch,), [*arrays.values(), self.one])

    def __call__(self, x: Array, out: Array | None, alpha: Any, beta: Any, given: Given) -> Array:
        if out is None:
            out = self.make()
        with self.lock:
            self.x.value, self.out.value = self.pointer(x), self.pointer(out)
            if self.scalars:
                self.launch.set(alpha=self.kind(alpha), beta=self.kind(beta))
            if given.bias is not None:
                self.bias.value = self.pointer(given.bias)
            if self.residual is not None:
                self.residual.value = self.pointer(given.residual)
            if self.partial is not None:
                self.partial.value = self.pointer(given.partial)
            if self.scaled:
                self._scale(given)
            self.send()
        return out

    def _scale(self, given: Given) -> None:
        for name, scale in (("row_scale", given.row_scale), ("column_scale", given.column_scale)):
            scale = self.one if scale is None else scale
            step = int(int(scale.shape[0]) > 1)
            self.launch.set(**{name: self.pointer(scale), f"{name}_step": step})


def _scalar(dtype: str) -> type[int] | type[float]:
    """What alpha and beta are to a kernel with such results."""
    return int if dtype == "int32" else float


def _steps(name: str, found: Strides, pieces: bool) -> dict[str, int]:
    """Steps of an operand that the machine code does not know."""
    steps = {"row": found.row, "column": found.column} | ({"piece": found.piece} if pieces else {})
    known = found.constants(name)
    return {f"{name}_{k}": step for k, step in steps.items() if f"{name}_{k}" not in known}
