"""2:4 times few columns: the weights' compressed bytes are read once, at the speed of memory."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, final

import triton

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats.formats import NM, SparseMatrix
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton import configs, nm_plain
from sparseformats_kernels.triton.calls import Bindable, activation_of, capability_of, has_bias
from sparseformats_kernels.triton.launch import Launch, compiled
from sparseformats_kernels.triton.nm_bringing import TILE_WORDS
from sparseformats_kernels.triton.nm_packing import COLUMNS, packed
from sparseformats_kernels.triton.nm_variants import Facts, facts_of, sizes_of, specimen_of
from sparseformats_kernels.triton.sending import Sender, refuse_in_capture
from sparseformats_kernels.triton.sizes import HOST, processors_of
from sparseformats_kernels.triton.strided import Strides, like_of, strides_of
from sparseformats_kernels.triton.sums import specimen_of_sums

__all__ = ["State", "TritonNM"]

NAME = "triton-nm"
_MEMORY = "the sums of parts need memory, which this library cannot give while recording"


class State:
    """Tiles of a 2:4 matrix."""

    __slots__ = ("across", "device", "dtype", "lib", "query", "shape", "tiles")

    def __init__(self, A: SparseMatrix, query: Query) -> None:
        if not isinstance(A, NM):
            raise TypeError(f"expected an n:m matrix, got {A.format}")
        self.lib: ArrayLibrary = A.lib
        # On a CPU only under Triton's interpreter.
        self.device: Device | None = None if A.device == "cpu" else device_of(A.data, A.lib)
        self.shape, self.dtype, self.query = (query.m, query.k), A.dtype_name, query
        if self.shape[0] and self.shape[1]:
            self.tiles = packed(A, True)
        else:  # nothing to read, but a kernel is given an address in any case
            self.tiles = A.lib.zeros((1, 1, TILE_WORDS), "int32", A.device)
        self.across = -(-self.shape[1] // COLUMNS)
        if self.device is not None:
            self.device.settle()  # other streams may use it at once

    @property
    def processors(self) -> int:
        """Programs that run at the same time."""
        return HOST if self.device is None else processors_of(self.device)


@final
class TritonNM(Bindable):
    """The kernel of 2:4 matrices for few columns: half types."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Lay the values out for tensor cores."""
        return State(A, query)

    @staticmethod
    def bind(state: State, query: Query) -> Callable[..., Array]:
        """Compile for calls of these facts."""
        return _Call(state, query)


class _Call:
    """A kernel ready for operands of one set of facts, or for the pieces of a batch."""

    def __init__(self, state: State, query: Query) -> None:
        self.state, self.query, self.lib = state, query, state.lib
        self.config = configs.choose(NAME, query, state.processors)
        self.alike = query.batch == 1  # every call brings arrays of the same shapes and strides
        self.steps: tuple[int, ...] | None = None  # of the operand that `()` is ready for
        self.ready: dict[tuple[Any, ...], _Ready] = {}
        self.codes: dict[Facts, tuple[Any, Any]] = {}
        self.lock = Lock()
        if state.device is not None and query.n and state.shape[0]:
            like = like_of(query.x_layout, state.shape[1], query.n, query.x_aligned)
            made = like_of(query.out_layout or "C", state.shape[0], query.n, query.out_aligned)
            self.code(facts_of(like, made, state.shape[1], query.n))

    def code(self, facts: Facts) -> tuple[Any, Any]:
        """The kernel, compiled and loaded, and the one that adds parts, if there are any."""
        device = self.state.device
        if device is None:
            raise RuntimeError("kernels are launched on a device only; this state is on a CPU")
        found = self.codes.get(facts)
        if found is None:
            refuse_in_capture(device, "no kernel is compiled yet for operands that lie like these")
            capability = capability_of(self.query)
            with self.lock, device.here():
                made = compiled(
                    specimen_of(self.query, self.config, facts), capability, device.index
                )
                sums = None
                if self.config.G > 1:
                    sums = compiled(
                        specimen_of_sums(self.query, self.config), capability, device.index
                    )
                found = self.codes[facts] = made, sums
        return found

    def __call__(
        self, x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None = None
    ) -> Array:
        """``alpha * (A @ x) + beta * out``, and what the query's epilogue says."""
        steps = self.lib.strides(x)
        alike = self.alike and steps == self.steps  # a copy of an operand may lie otherwise
        key = () if alike else self._key(x, out)
        ready = self.ready.get(key)
        if ready is not None:
            return ready(x, out, alpha, beta, bias)
        state, (m, n) = self.state, (self.state.shape[0], int(x.shape[1]))
        if out is None and (not m or not n or state.device is None):
            out = self.lib.empty((m, n), state.dtype, self.lib.device(state.tiles))
        if out is not None and (not m or not n):
            return out
        if out is not None and state.device is None:
            self._interpret(x, out, (alpha, beta), bias)
            return out
        if self.steps is None:
            self.steps, key = steps, () if self.alike else key
        return self.ready.setdefault(key, _Ready(self, x, out))(x, out, alpha, beta, bias)

    def _key(self, x: Array, out: Array | None) -> tuple[Any, ...]:
        """What tells the pieces of a batch apart."""
        arrays = (x,) if out is None else (x, out)
        return tuple((tuple(a.shape), strides_of(self.lib, a)) for a in arrays)

    def _interpret(
        self, x: Array, out: Array, scalars: tuple[Any, Any], bias: Array | None
    ) -> None:
        """Run the plain kernel on the CPU, for tests."""
        if not triton.knobs.runtime.interpret:
            raise RuntimeError("Triton runs on a CPU only under its interpreter")
        state, n = self.state, int(x.shape[1])
        steps, out_steps = strides_of(self.lib, x), strides_of(self.lib, out)
        nm_plain.multiply[(-(-state.shape[0] // 16), -(-n // 16))](
            *(state.tiles, x, steps.row, steps.column),
            *(out, out_steps.row, out_steps.column, out if bias is None else bias),
            *(float(scalars[0]), float(scalars[1]), *state.shape, n, state.across),
            BN=16,
            WORDS=TILE_WORDS,
            ALPHA=not self.query.alpha_one,
            BETA=not self.query.beta_zero,
            BIAS=has_bias(self.query),
            ACTIVATION=activation_of(self.query),
            UPCAST=state.dtype == "bfloat16",
        )


class _Ready:
    """A launch for operands of the shapes, strides and alignments of an example."""

    def __init__(self, call: _Call, x: Array, out: Array | None) -> None:
        state, lib, config = call.state, call.lib, call.config
        if state.device is None:
            raise RuntimeError("kernels are launched on a device only; this state is on a CPU")
        self.device, (m, k), n = state.device, state.shape, int(x.shape[1])
        self.make = lib.maker((m, n), state.dtype, state.device.place)
        steps, out_steps = strides_of(lib, x), strides_of(lib, self.make() if out is None else out)
        facts = facts_of(steps, out_steps, k, n)
        code, sums = call.code(facts)
        programs, sizes = sizes_of(config, state.shape, n)
        self.shape = (programs, config.BM, config.BN)
        self.launch = launch = Launch(code, programs, state.device.index)
        self.lock, self.pointer = launch.lock, lib.pointer()
        launch.set(packed=lib.address(state.tiles), partial=0, bias=0, alpha=1.0, beta=0.0, **sizes)
        named = {"x": steps, "out": out_steps}
        _set_steps(launch, named)
        self.sums = None
        if sums is not None:
            with self.device.here():
                self.sums = _sums(call, sums, n)
            _set_steps(self.sums, {"out": out_steps}, ())
        self.takes = self.sums is not None and not self.device.can_allocate_in_capture()
        self.scalars = not (call.query.alpha_one and call.query.beta_zero)
        self.x, self.out, self.bias = (launch.slot(name) for name in ("x", "out", "bias"))
        launches = (launch,) if self.sums is None else (launch, self.sums)
        reads = (state.tiles, *(y for each in launches for y in each.keep))
        self.send = Sender(self.device, launches, reads)

    def __call__(
        self, x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None
    ) -> Array:
        if self.takes:
            refuse_in_capture(self.device, _MEMORY)
        if out is None:
            out = self.make()
        with self.lock:
            self.x.value, self.out.value = self.pointer(x), self.pointer(out)
            if self.scalars:
                self.launch.set(alpha=float(alpha), beta=float(beta))
            if bias is not None:
                self.bias.value = self.pointer(bias)
            parts = None if self.sums is None else self._parts(self.sums, alpha, beta)
            self.send()
            del parts
        return out

    def _parts(self, sums: Launch, alpha: Any, beta: Any) -> Array:
        """Memory for the sums of parts, to be kept until both kernels are launched."""
        parts = self.device.empty(self.shape, "float32")
        self.launch.set(partial=self.pointer(parts))
        sums.set(partial=self.pointer(parts), out=self.out.value, bias=self.bias.value)
        if self.scalars:
            sums.set(alpha=float(alpha), beta=float(beta))
        return parts


def _set_steps(
    launch: Launch, named: dict[str, Strides], skipped: tuple[str, ...] | None = None
) -> None:
    """Set strides, but those that the machine code knows."""
    for name, found in named.items():
        constants = found.constants(name) if skipped is None else skipped
        for axis, step in (("row", found.row), ("column", found.column)):
            if f"{name}_{axis}" not in constants:
                launch.set(**{f"{name}_{axis}": step})


def _sums(call: _Call, code: Any, n: int) -> Launch:
    """The second launch: every row of tiles is a sum of parts."""
    state, lib, parts = call.state, call.lib, call.config.G
    rows, columns = -(-state.shape[0] // call.config.BM), -(-n // call.config.BN)
    if state.device is None:
        raise RuntimeError("kernels are launched on a device only; this state is on a CPU")
    row = lib.arange(rows, "int32", state.device.place)
    split = lib.contiguous(lib.xp.stack([row, row * parts, row * 0 + parts], axis=1))
    state.device.settle()
    launch = Launch(code, rows * columns, state.device.index, (split,))
    launch.set(split=lib.address(split), M=state.shape[0], N=n, COLUMNS=columns)
    launch.set(partial=0, out=0, bias=0, alpha=1.0, beta=0.0)
    return launch
