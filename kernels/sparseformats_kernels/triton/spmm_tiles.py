"""BSR and Blocked-ELL times dense by packed tiles: blocks of any size, operands of any strides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple, final

import numpy as np
import triton

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton import configs, gather
from sparseformats_kernels.triton.calls import activation_of, called_with, capability_of, has_bias
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled
from sparseformats_kernels.triton.packing import Tiles, tiles
from sparseformats_kernels.triton.sending import KEPT_LISTS, Sender, refuse_in_capture
from sparseformats_kernels.triton.sizes import HOST, processors_of

__all__ = ["Strides", "TritonTiles", "like_of", "specimen_of", "strides_of"]

_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_BYTES = 16  # that an aligned address and line step are multiples of
_LONGEST = 16  # columns side by side beyond which nothing is gained by knowing of them


class State:
    """Packed tiles, and lists of the tiles of results made of them so far."""

    __slots__ = (
        *("BK", "BM", "columns", "device", "dtype", "host", "lib", "lists"),
        *("lock", "query", "rows", "shape", "tiles", "values"),
    )

    def __init__(self, A: SparseMatrix, query: Query) -> None:
        self.lib: ArrayLibrary = A.lib
        self.host = A.device == "cpu"  # only under Triton's interpreter
        self.device: Device | None = None if self.host else device_of(A.data, A.lib)
        config = configs.choose("triton-tiles", query, self.processors)
        self.BM, self.BK = config.BM, config.BK
        self.shape = (query.m, query.k)
        found: Tiles = tiles(A, query.transposed, self.shape, (self.BM, self.BK))
        self.tiles = found._replace(values=_some(A.lib, found.values))
        self.values, self.columns = self.tiles.values, _some(A.lib, self.tiles.columns)
        self.dtype, self.query = A.dtype_name, query
        self.rows = (query.blocksize or (1, 1))[query.transposed]
        self.lists: dict[int, Array] = {}
        self.lock = Lock()
        self._settle()

    @property
    def processors(self) -> int:
        """Programs that run at the same time."""
        return HOST if self.device is None else processors_of(self.device)

    def items(self, columns: int) -> Array:
        """The tiles of a result that is so many tiles wide: long rows first, columns slowly."""
        with self.lock:
            found = self.lists.get(columns)
            if found is None:
                top = self._tops()
                begin, end = (x[top < self.shape[0]] for x in (self.tiles.begin, self.tiles.end))
                top = top[top < self.shape[0]]
                order = np.argsort(begin - end, kind="stable")
                row, column = np.tile(order, columns), np.repeat(np.arange(columns), top.size)
                made = np.stack([top[row], column, begin[row], end[row]], axis=1).astype(np.int32)
                found = self.lib.from_numpy(made, self.lib.device(self.values))
                self._settle()
                if len(self.lists) >= KEPT_LISTS:
                    self.lists.pop(next(iter(self.lists)))  # whoever uses it keeps it
                self.lists[columns] = found
        return found

    def _settle(self) -> None:
        """Other streams may use what was just made."""
        if self.device is not None:
            self.device.settle()

    def _tops(self) -> Any:
        """First row of the result that each row of tiles makes."""
        high = -(-self.rows // self.BM)
        parts = np.arange(high) * self.BM
        blocks = np.arange(self.tiles.begin.size // high) * self.rows
        return (blocks[:, None] + parts).reshape(-1)


def _some(lib: ArrayLibrary, x: Array) -> Array:
    """The array, or one element where it has none: a kernel is given an address in any case."""
    if int(x.shape[0]):
        return x
    return lib.zeros((1, *x.shape[1:]), lib.dtype_name(x), lib.device(x))


def _run_length(query: Query) -> int:
    """Columns of the operand that lie side by side in every tile, from a multiple of it on."""
    r, c = query.blocksize or (1, 1)
    wide = r if query.transposed else c
    run = 1
    while run < _LONGEST and wide % (2 * run) == 0 and query.k % (2 * run) == 0:
        run *= 2
    return run


@final
class TritonTiles:
    """The gathering kernel: half types and float32."""

    @staticmethod
    def layout(query: Query) -> tuple[int, int, str | None]:
        """Tiles of what size are packed."""
        config = configs.choose("triton-tiles", query, HOST)
        return config.BM, config.BK, query.precision

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Copy the values into tiles."""
        return State(A, query)

    @staticmethod
    def run(
        state: State,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        *,
        bias: Array | None = None,
        activation: str | None = None,
    ) -> Array:
        """Multiply a single time, as `bind` would again and again."""
        query = called_with(state.query, state.lib, x, out, (alpha, beta), bias, activation)
        return TritonTiles.bind(state, query)(x, out, alpha, beta, bias)

    @staticmethod
    def bind(state: State, query: Query) -> Callable[..., Array]:
        """Compile for calls of these facts."""
        return _Call(state, query)

    bind_epilogue = bind


class Strides(NamedTuple):
    """What the machine code may rely on about one operand."""

    row: int
    column: int
    aligned: bool

    def constants(self, name: str) -> dict[str, int]:
        """Steps of one element, which the compiler must know of."""
        steps = {f"{name}_row": self.row, f"{name}_column": self.column}
        return {key: 1 for key, step in steps.items() if step == 1}

    def key(self) -> tuple[bool, bool, bool]:
        """What tells machine codes apart."""
        return self.row == 1, self.column == 1 and self.row != 1, self.aligned


class _Call:
    """A kernel ready for operands of one set of facts, or for the pieces of a batch."""

    def __init__(self, state: State, query: Query) -> None:
        self.state, self.query = state, query
        self.lib = state.lib
        found = configs.choose("triton-tiles", query, state.processors)
        self.config = replace(found, BM=state.BM, BK=state.BK)  # as the values were packed
        self.alike = query.batch == 1  # every call brings arrays of the same shapes and strides
        self.steps: tuple[int, ...] | None = None  # of the operand that `()` is ready for
        self.ready: dict[tuple[Any, ...], _Ready] = {}
        self.codes: dict[Specimen, Any] = {}
        self.lock = Lock()
        if state.device is not None and query.n and state.shape[0]:
            like = like_of(query.x_layout, state.shape[1], query.n, query.x_aligned)
            made = like_of(query.out_layout or "C", state.shape[0], query.n, query.out_aligned)
            self.code(like, made)
            with state.device.here():
                for n in {query.n, query.n * query.batch}:
                    state.items(-(-n // self.config.BN))

    def code(self, x: Strides, out: Strides) -> Any:
        """The kernel for operands of these strides, compiled and loaded."""
        device = self.state.device
        if device is None:
            raise RuntimeError("kernels are launched on a device only; this state is on a CPU")
        made = specimen_of(self.query, self.config, x, out)
        found = self.codes.get(made)
        if found is None:
            refuse_in_capture(device, "no kernel is compiled yet for operands that lie like these")
            with self.lock, device.here():
                found = self.codes[made] = compiled(made, capability_of(self.query), device.index)
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
            out = self.lib.empty((m, n), state.dtype, self.lib.device(state.values))
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
        """Run on the CPU, for tests."""
        if not triton.knobs.runtime.interpret:
            raise RuntimeError("Triton runs on a CPU only under its interpreter")
        state, n = self.state, int(x.shape[1])
        steps, out_steps = strides_of(self.lib, x), strides_of(self.lib, out)
        items = state.items(-(-n // self.config.BN))
        gather.multiply[(int(items.shape[0]),)](
            *(state.values, state.columns, items, x, steps.row, steps.column),
            *(out, out_steps.row, out_steps.column, out if bias is None else bias),
            *(float(scalars[0]), float(scalars[1]), state.shape[0], n),
            **constants_of(self.query, self.config, upcast=state.dtype == "bfloat16"),
        )


class _Ready:
    """A launch for operands of the shapes, strides and alignments of an example."""

    def __init__(self, call: _Call, x: Array, out: Array | None) -> None:
        state, lib = call.state, call.lib
        if state.device is None:
            raise RuntimeError("kernels are launched on a device only; this state is on a CPU")
        self.device, n = state.device, int(x.shape[1])
        self.make = lib.maker((state.shape[0], n), state.dtype, state.device.place)
        steps, out_steps = strides_of(lib, x), strides_of(lib, self.make() if out is None else out)
        code = call.code(steps, out_steps)
        with self.device.here():
            items = state.items(-(-n // call.config.BN))
        self.launch = launch = Launch(code, int(items.shape[0]), self.device.index, (items,))
        self.lock = launch.lock
        address = lib.address
        launch.set(values=address(state.values), columns=address(state.columns))
        launch.set(items=address(items), M=state.shape[0], N=n, bias=0, alpha=1.0, beta=0.0)
        for name, found in (("x", steps), ("out", out_steps)):
            for axis, step in (("row", found.row), ("column", found.column)):
                if f"{name}_{axis}" not in found.constants(name):
                    launch.set(**{f"{name}_{axis}": step})
        self.scalars = not (call.query.alpha_one and call.query.beta_zero)
        self.x, self.out, self.bias = (launch.slot(name) for name in ("x", "out", "bias"))
        self.pointer = lib.pointer()
        self.send = Sender(self.device, (launch,), (state.values, state.columns, items))

    def __call__(
        self, x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None
    ) -> Array:
        if out is None:
            out = self.make()
        with self.lock:
            self.x.value, self.out.value = self.pointer(x), self.pointer(out)
            if self.scalars:
                self.launch.set(alpha=float(alpha), beta=float(beta))
            if bias is not None:
                self.bias.value = self.pointer(bias)
            self.send()
        return out


def specimen_of(query: Query, config: configs.Config, x: Strides, out: Strides) -> Specimen:
    """What is compiled for calls of these facts, with operands of these strides."""
    dtype = _TYPES[query.a_dtype or ""]
    types = dict.fromkeys(("values", "x", "out", "bias"), f"*{dtype}")
    types |= {"columns": "*i32", "items": "*i32", "M": "i32", "N": "i32"}
    types |= {"alpha": "fp32", "beta": "fp32"}
    types |= {f"{a}_{b}": "i64" for a in ("x", "out") for b in ("row", "column")}
    constants = constants_of(query, config) | x.constants("x") | out.constants("out")
    aligned = {"values", "columns", "items"}
    for name, steps in (("x", x), ("out", out)):
        aligned |= {name, f"{name}_row", f"{name}_column"} if steps.aligned else set()
    names = gather.multiply.arg_names
    return Specimen(
        gather.multiply,
        tuple((n, types[n]) for n in names if n in types and n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset(aligned - set(constants)),
        config.warps,
        config.stages,
    )


def constants_of(query: Query, config: configs.Config, upcast: bool = False) -> dict[str, Any]:
    """Constants of the kernel but strides."""
    return {
        "R": (query.blocksize or (1, 1))[query.transposed],
        "BM": config.BM,
        "BN": config.BN,
        "BK": config.BK,
        "RUN": _run_length(query),
        "SWAP": config.swap,
        "ALPHA": not query.alpha_one,
        "BETA": not query.beta_zero,
        "BIAS": has_bias(query),
        "ACTIVATION": activation_of(query),
        "PRECISION": "tf32" if query.precision == "tf32" else "ieee",
        "UPCAST": upcast,
    }


def strides_of(lib: ArrayLibrary, x: Array) -> Strides:
    size = itemsize(lib.dtype_name(x))
    steps = lib.strides(x)
    row, column = steps[0] // size, steps[1] // size
    if int(x.shape[1]) == 1:
        column = 1 if row != 1 else max(column, int(x.shape[0]))
    long = [step for step in (row, column) if step != 1]
    aligned = all(step % 16 == 0 for step in long) and lib.address(x) % _BYTES == 0
    return Strides(row, column, aligned)


def like_of(layout: str | None, rows: int, columns: int, aligned: bool | None) -> Strides:
    """Strides that an operand of these facts will have."""
    row, column = (1, rows) if layout == "F" or columns == 1 else (columns, 1)
    if layout == "strided":
        row, column = 2 * columns + 1, 2
    return Strides(row, column, aligned is not False and (column if row == 1 else row) % 16 == 0)
