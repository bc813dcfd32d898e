"""BSR and Blocked-ELL times dense on Hopper, straight from the matrix's values."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import Device
from sparseformats_kernels.triton import configs
from sparseformats_kernels.triton.block_state import ALIGNED, State
from sparseformats_kernels.triton.calls import Bindable, activation_of, capability_of, has_bias
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled
from sparseformats_kernels.triton.sending import Sender, refuse_in_capture
from sparseformats_kernels.triton.sizes import processors_of
from sparseformats_kernels.triton.sums import Sums
from sparseformats_kernels.triton.variants import specimen_of

__all__ = ["TritonBlocks"]

_MEMORY = "this call needs memory beside its result, which CuPy cannot give to a graph"
_TYPES = {"float16": "fp16", "bfloat16": "bf16"}


@final
class TritonBlocks(Bindable):
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
    def bind(state: State, query: Query) -> Callable[..., Array]:
        """Compile for calls of these facts, and lay out their parameters."""
        return Call(state, query)


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
        self.steps: tuple[int, ...] | None = None  # of the operand that `()` is ready for
        self.prepared: dict[int, tuple[Launch, Sums | None]] = {}
        for n in {query.n, query.n * query.batch} - {0} if state.shape[0] else ():
            self.prepared[n] = self.launch(n)

    def launch(self, n: int) -> tuple[Launch, Sums | None]:
        """The kernel for n columns, compiled, with its parameters but those of a call.

        And what adds the parts of rows that were cut, if there are any.
        """
        state, query = self.state, self.query
        device, address, blocks = state.device, state.device.lib.address, state.blocks
        with self.lock, device.here():
            config = configs.choose("triton-blocks", query, processors_of(device))
            lists = state.tiles(config, -(-n // config.BN))
            made = specimen(self, config, lists.split is not None)
            code = compiled(made, capability_of(query), device.index)
            launch = Launch(code, lists.programs, device.index, lists.arrays)
            launch.set(
                program_ptr=address(lists.program_ptr),
                items=address(lists.items),
                partial=0,
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
            sums = None if lists.split is None else Sums(query, state, config, lists, n)
        return launch, sums

    def __call__(
        self, x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None = None
    ) -> Array:
        """``alpha * (A @ x) + beta * out``, and what the query's epilogue says."""
        device = self.state.device
        alike = self.alike and (out is None or device.steps(x) == self.steps)
        key = () if alike else self._key(x, out)
        ready = self.ready.get(key)
        if ready is None:
            n = int(x.shape[1])
            if not self.state.shape[0] or not n:
                shape = (self.state.shape[0], n)
                return device.empty(shape, self.state.dtype) if out is None else out
            if self.steps is None:
                self.steps, key = device.steps(x), () if self.alike else key
            ready = self.ready.setdefault(key, _Ready(self, *self._prepared(n), x, out))
        return ready(x, out, alpha, beta, bias)

    def _prepared(self, n: int) -> tuple[Launch, Sums | None]:
        """What was prepared for n columns, else made now."""
        made = self.prepared.get(n)
        if made is None:
            refuse_in_capture(self.state.device, f"nothing is prepared for {n} columns yet")
            return self.launch(n)
        launch = made[0]
        if launch.taken:  # the parameters are those of operands of other strides
            return self.launch(n)
        launch.taken = True
        return made

    def _key(self, x: Array, out: Array | None) -> tuple[Any, ...]:
        """What tells the pieces of a batch apart."""
        lib = self.state.device.lib
        return tuple(
            (tuple(a.shape), lib.strides(a), lib.address(a) % ALIGNED)
            for a in (x, out)
            if a is not None
        )


class _Ready:
    """A launch for operands of the shapes, strides and alignments of an example."""

    def __init__(
        self, call: Call, launch: Launch, sums: Sums | None, x: Array, out: Array | None
    ) -> None:
        state = call.state
        self.sums = sums
        self.device, lib, dtype = state.device, state.device.lib, state.dtype
        self.launch, self.lock = launch, launch.lock
        (m, k), n = state.shape, int(x.shape[1])
        self.x_rows, self.y_rows = call.x_rows, call.y_rows
        self.make = lib.maker((m, n), dtype, self.device.place)
        if out is None:
            out = self.make()
        x_step = _line_step(self.device, lib, x if self.x_rows else x.T)
        y_step = _line_step(self.device, lib, out if self.y_rows else out.T)
        if (n if self.y_rows else m) * itemsize(dtype) % ALIGNED:
            y_step = 0  # the copy engine writes whole pieces of 16 bytes, beyond the end of a line
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
            launch.set(**self.steps(y_step))
            self.out = launch.slot("out")
        if sums is not None:
            sums.launch.set(**self.steps(y_step))
        self.bias = launch.slot("bias")
        self.pointer = lib.pointer()
        self.at = [0, 0]
        self.takes = (any(self.copies) or sums is not None) and (
            not self.device.can_allocate_in_capture()
        )
        launches = (launch,) if sums is None else (launch, sums.launch)
        reads = (state.values, *state.blocks[:2], *(x for each in launches for x in each.keep))
        self.send = Sender(self.device, launches, reads)

    def steps(self, step: int) -> dict[str, int]:
        """Elements from row to row and from column to column of the result."""
        row, column = (step, 1) if self.y_rows else (1, step)
        return {"out_row": row, "out_column": column}

    def __call__(
        self, x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None
    ) -> Array:
        if self.takes:
            refuse_in_capture(self.device, _MEMORY)
        if out is None:
            out = self.make()
        y = out
        if self.copies[0]:
            x = self._copied(0, x, self.x_rows)
        if self.copies[1]:
            y = self._copied(1, out, self.y_rows, empty=beta == 0)
        if self.nothing is not None:
            x = self.nothing
        with self.lock:
            parts = self._set(self.pointer(x), self.pointer(y), alpha, beta, bias)
            self.send()
            del parts
        if y is not out:
            out[...] = y if self.y_rows else y.T
        return out

    def _set(self, x: int, y: int, alpha: Any, beta: Any, bias: Array | None) -> Array | None:
        """Set the parameters of this call; what is returned is needed until it is launched."""
        if x != self.at[0]:
            self.point_x(x)
            self.at[0] = x
        if y != self.at[1]:
            self.point_y(y)
            self.at[1] = y
        if self.scalars:
            self.launch.set(alpha=float(alpha), beta=float(beta))
            if beta != 0:
                self.out.value = y
        if bias is not None:
            self.bias.value = self.pointer(bias)
        if self.sums is None:
            return None
        parts = self.sums.prepare(y, alpha, beta, bias)
        self.launch.set(partial=self.pointer(parts))
        return parts

    def _copied(self, which: int, x: Array, rows: bool, empty: bool = False) -> Array:
        """Memory that the copy engine can use, with the elements of `x` unless `empty`."""
        (lines, length), wide = self.lines[which]
        made = self.device.empty((lines, wide), self.device.lib.dtype_name(x))[:, :length]
        if not empty:
            made[...] = x if rows else x.T
        return made


def _lines(dtype: str, shape: tuple[int, int]) -> tuple[tuple[int, int], int]:
    """Shape of an array whose lines begin at multiples of 16 bytes, and their distance."""
    per = ALIGNED // itemsize(dtype)
    return shape, max(1, -(-shape[1] // per)) * per


def specimen(call: Call, config: configs.Config, split: bool) -> Specimen:
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
        split=split,
    )


def _rows_contiguous(layout: str | None, n: int) -> bool:
    """Whether to read or write along rows: columns for one column and for transposed arrays."""
    return n > 1 and layout != "F"


def _line_step(device: Device, lib: ArrayLibrary, x: Array) -> int:
    """Elements from line to line of what the copy engine can use as it is; else 0."""
    steps = device.steps(x)
    size = itemsize(lib.dtype_name(x))
    lines = int(x.shape[0])
    step = steps[0] if lines > 1 else -(-int(x.shape[1]) * size // ALIGNED) * ALIGNED // size
    contiguous = steps[1] == 1 or int(x.shape[1]) == 1
    aligned = step * size % ALIGNED == 0 and lib.address(x) % ALIGNED == 0
    return int(step) if contiguous and aligned and step >= int(x.shape[1]) else 0
