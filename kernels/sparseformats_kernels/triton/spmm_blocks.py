"""BSR and Blocked-ELL times dense on Hopper, straight from the matrix's values."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton import configs
from sparseformats_kernels.triton.calls import activation_of, called_with, capability_of, has_bias
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled
from sparseformats_kernels.triton.packing import Blocks, blocks_of
from sparseformats_kernels.triton.schedule import schedule
from sparseformats_kernels.triton.sizes import processors_of
from sparseformats_kernels.triton.variants import specimen_of

__all__ = ["TritonBlocks"]

_TYPES = {"float16": "fp16", "bfloat16": "bf16"}
_ALIGNED = 16  # bytes: addresses and row steps that the copy engine takes


class State:
    """A matrix's blocks, and the lists of tiles made of them so far."""

    __slots__ = (
        *("block", "blocks", "device", "dtype", "lists", "lock", "query", "shape", "values"),
    )

    def __init__(self, A: SparseMatrix, query: Query) -> None:
        lib = A.lib
        self.device: Device = device_of(A.data, lib)
        self.blocks: Blocks = blocks_of(A, query.transposed)
        size = tuple(int(s) for s in A.data.shape[-2:])
        values = lib.reshape(A.data, (-1, size[1]))
        if not values.shape[0]:
            values = lib.zeros((size[0], size[1]), A.dtype_name, A.device)  # something to name
        self.values = _aligned_copy(lib, values)
        self.block = (size[1], size[0]) if query.transposed else (size[0], size[1])
        self.shape = (query.m, query.k)
        self.dtype = lib.dtype_name(A.data)
        self.query = query
        self.lists: dict[tuple[int, ...], tuple[Array, Array, int]] = {}
        self.lock = Lock()

    def tiles(self, config: configs.Config, columns: int) -> tuple[Array, Array, int]:
        """Programs' shares of the tiles, the tiles, and how many programs there are."""
        key = (config.BM, config.G, columns)
        with self.lock:
            found = self.lists.get(key)
            if found is None:
                found = self.lists[key] = self._deal(config, columns)
        return found

    def _deal(self, config: configs.Config, columns: int) -> tuple[Array, Array, int]:
        lib, rows = self.device.lib, -(-self.shape[0] // config.BM)
        high = self.block[0] // config.BM
        begin, end = (x.repeat(high)[:rows] for x in (self.blocks.begin, self.blocks.end))
        programs = min(processors_of(self.device), rows * columns)
        parts = self.block[1] // config.BK
        ptr, items = schedule(begin, end, columns, max(1, programs), config.G, parts)
        place = self.device.place
        return lib.from_numpy(ptr, place), lib.from_numpy(items, place), programs


@final
class TritonBlocks:
    """The warp-specialised kernel: half types, blocks of 16, 32, 64 or multiples of 64."""

    @staticmethod
    def layout(query: Query) -> int:
        """One state serves all sizes."""
        return 0

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Name the blocks; their values stay where they are."""
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
        lib = state.device.lib
        query = called_with(state.query, lib, x, out, (alpha, beta), bias, activation)
        return TritonBlocks.bind(state, query)(x, out, alpha, beta, bias)

    @staticmethod
    def bind(state: State, query: Query) -> Callable[..., Array]:
        """Compile for calls of these facts, and lay out their parameters."""
        return Call(state, query)

    bind_epilogue = bind


class Call:
    """A kernel ready for operands of one set of facts, or for the pieces of a batch."""

    def __init__(self, state: State, query: Query) -> None:
        self.state, self.query = state, query
        self.x_rows = _rows_contiguous(query.x_layout, query.n)
        self.y_rows = _rows_contiguous(query.out_layout or "C", query.n)
        if state.block[1] < 32 and not self.x_rows and query.n > 1:
            self.x_rows = True  # boxes of 16 columns crawl: a copy by rows pays
        self.ready: dict[tuple[Any, ...], _Ready] = {}
        self.alike = query.batch == 1  # every call brings arrays of the same shapes and strides
        self.lock = Lock()
        if query.n and state.shape[0]:
            self.launch(query.n)

    def launch(self, n: int) -> Launch:
        """The kernel for n columns, compiled, and its parameters but those of a call."""
        state, query = self.state, self.query
        device, address, blocks = state.device, state.device.lib.address, state.blocks
        with self.lock, device.here():
            config = configs.choose("triton-blocks", query, processors_of(device))
            program_ptr, items, programs = state.tiles(config, -(-n // config.BN))
            code = compiled(specimen(self, config), capability_of(query), device.index)
            launch = Launch(code, programs, device.index, (program_ptr, items))
            launch.set(
                program_ptr=address(program_ptr),
                items=address(items),
                columns=address(blocks.columns),
                places=address(blocks.columns if blocks.places is None else blocks.places),
                M=state.shape[0],
                N=n,
                value_rows=int(state.values.shape[0]),
                alpha=1.0,
                beta=0.0,
                bias=0,
                out=0,
            )
            rows, columns = (int(s) for s in state.values.shape)
            launch.mapped("values", state.dtype, (rows, columns), columns)(address(state.values))
        return launch

    def __call__(
        self, x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None = None
    ) -> Array:
        """``alpha * (A @ x) + beta * out``, and what the query's epilogue says."""
        key = () if self.alike else self._key(x, out)
        ready = self.ready.get(key)
        if ready is None:
            n = int(x.shape[1])
            if not self.state.shape[0] or not n:
                shape = (self.state.shape[0], n)
                return self.state.device.empty(shape, self.state.dtype) if out is None else out
            ready = self.ready.setdefault(key, _Ready(self, self.launch(n), x, out))
        return ready(x, out, alpha, beta, bias)

    def _key(self, x: Array, out: Array | None) -> tuple[Any, ...]:
        """What tells the pieces of a batch apart."""
        lib = self.state.device.lib
        return tuple(
            (tuple(a.shape), lib.strides(a), lib.address(a) % _ALIGNED)
            for a in (x, out)
            if a is not None
        )


class _Ready:
    """A launch for operands of the shapes, strides and alignments of an example."""

    def __init__(self, call: Call, launch: Launch, x: Array, out: Array | None) -> None:
        state = call.state
        self.device, lib, dtype = state.device, state.device.lib, state.dtype
        self.launch, self.lock = launch, launch.lock
        (m, k), n = state.shape, int(x.shape[1])
        self.x_rows, self.y_rows = call.x_rows, call.y_rows
        self.make = lib.maker((m, n), dtype, self.device.place)
        if out is None:
            out = self.make()
        x_step, y_step = (
            _line_step(self.device, lib, a if rows else a.T)
            for a, rows in ((x, self.x_rows), (out, self.y_rows))
        )
        self.copies = not x_step, not y_step
        self.lines = [
            _lines(dtype, shape if rows else shape[::-1])
            for shape, rows in (((k, n), self.x_rows), ((m, n), self.y_rows))
        ]
        x_shape = (k, n) if self.x_rows else (n, k)
        x_step = x_step or self.lines[0][1]
        if not k:  # nothing to read: any memory will do
            x_shape, x_step = (1, int(state.values.shape[1])), int(state.values.shape[1])
        y_shape, y_step = (m, n) if self.y_rows else (n, m), y_step or self.lines[1][1]
        self.point_x = launch.mapped("dense", dtype, x_shape, x_step)
        self.point_y = launch.mapped("result", dtype, y_shape, y_step)
        self.nothing = None if k else state.values
        self.scalars = not (call.query.alpha_one and call.query.beta_zero)
        if not call.query.beta_zero:
            row, column = (y_step, 1) if self.y_rows else (1, y_step)
            launch.set(out_row=row, out_column=column)
            self.out = launch.slot("out")
        self.bias = launch.slot("bias")
        self.pointer = lib.pointer()
        self.at = [0, 0]

    def __call__(
        self, x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None
    ) -> Array:
        if out is None:
            out = self.make()
        y = out
        if self.copies[0]:
            x = self._copied(0, x, self.x_rows)
        if self.copies[1]:
            y = self._copied(1, out, self.y_rows, empty=beta == 0)
        if self.nothing is not None:
            x = self.nothing
        x_at, y_at = self.pointer(x), self.pointer(y)
        with self.lock:
            at = self.at
            if x_at != at[0]:
                self.point_x(x_at)
                at[0] = x_at
            if y_at != at[1]:
                self.point_y(y_at)
                at[1] = y_at
            if self.scalars:
                self.launch.set(alpha=float(alpha), beta=float(beta))
                if beta != 0:
                    self.out.value = y_at
            if bias is not None:
                self.bias.value = self.pointer(bias)
            if self.device.is_current():
                self.launch(self.device.stream())
            else:
                with self.device.here():
                    self.launch(self.device.stream())
        if y is not out:
            out[...] = y if self.y_rows else y.T
        return out

    def _copied(self, which: int, x: Array, rows: bool, empty: bool = False) -> Array:
        """Memory that the copy engine can use, with the elements of `x` unless `empty`."""
        (lines, length), wide = self.lines[which]
        made = self.device.empty((lines, wide), self.device.lib.dtype_name(x))[:, :length]
        if not empty:
            made[...] = x if rows else x.T
        return made


def _lines(dtype: str, shape: tuple[int, int]) -> tuple[tuple[int, int], int]:
    """Shape of an array whose lines begin at multiples of 16 bytes, and their distance."""
    per = _ALIGNED // itemsize(dtype)
    return shape, max(1, -(-shape[1] // per)) * per


def specimen(call: Call, config: configs.Config) -> Specimen:
    """The kernel of a call, compiled for exactly its facts."""
    state, query = call.state, call.query
    return specimen_of(
        config,
        state.block,
        _TYPES[state.dtype],
        transposed=query.transposed,
        indirect=state.blocks.places is not None,
        x_rows=call.x_rows,
        y_rows=call.y_rows,
        alpha=not query.alpha_one,
        beta=not query.beta_zero,
        bias=has_bias(query),
        activation=activation_of(query),
    )


def _rows_contiguous(layout: str | None, n: int) -> bool:
    """Whether to read or write along rows: columns for one column and for transposed arrays."""
    return n > 1 and layout != "F"


def _line_step(device: Device, lib: ArrayLibrary, x: Array) -> int:
    """Elements from line to line of what the copy engine can use as it is; else 0."""
    steps = device.steps(x)
    size = itemsize(lib.dtype_name(x))
    lines = int(x.shape[0])
    step = steps[0] if lines > 1 else -(-int(x.shape[1]) * size // _ALIGNED) * _ALIGNED // size
    contiguous = steps[1] == 1 or int(x.shape[1]) == 1
    aligned = step * size % _ALIGNED == 0 and lib.address(x) % _ALIGNED == 0
    return int(step) if contiguous and aligned and step >= int(x.shape[1]) else 0


def _aligned_copy(lib: ArrayLibrary, values: Array) -> Array:
    """The values, copied where they do not begin at a multiple of 16 bytes."""
    return values if lib.address(values) % _ALIGNED == 0 else lib.copy(values)
