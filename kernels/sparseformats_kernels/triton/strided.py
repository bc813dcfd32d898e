"""Calls of the kernels that take operands of any strides, on a device or under the interpreter.

Such a kernel makes one tile of the result a program. It is given ``items``, the (row, tile column,
begin, end) of each, the arrays of a matrix's packed state, and both operands by address and steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple, Protocol

import triton

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats_kernels.cuda.devices import Device
from sparseformats_kernels.triton.calls import activation_of, capability_of, has_bias
from sparseformats_kernels.triton.configs import Config
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled
from sparseformats_kernels.triton.sending import Sender, refuse_in_capture

__all__ = ["Call", "Kernel", "Packed", "Strides", "like_of", "specimen_of", "strides_of"]

_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_BYTES = 16  # that an aligned address is a multiple of
_MULTIPLE = 16  # of steps and sizes: a vector of elements then lies inside or outside as a whole
_LONGEST = 16  # columns side by side beyond which nothing is gained by knowing of them


class Packed(Protocol):
    """A matrix as such a kernel reads it."""

    lib: ArrayLibrary
    device: Device | None  # None on a CPU, where only Triton's interpreter runs
    shape: tuple[int, int]
    dtype: str

    def config(self, query: Query) -> Config:
        """Launch parameters for a call."""

    def arrays(self) -> Mapping[str, Array]:
        """What the kernel reads beside `items` and the operands, by parameter."""

    def items(self, columns: int) -> Array:
        """The tiles of a result that is so many tiles wide."""


class Kernel(NamedTuple):
    """A kernel, and what its machine code depends on beside the operands.

    Attributes
    ----------
    function : JITFunction
    arrays : tuple of (parameter, whether it holds indices, else values)
        As `Packed.arrays` has them.
    constants : callable
        ``(query, config) -> dict`` of the constants that are its own.
    """

    function: Any
    arrays: tuple[tuple[str, bool], ...]
    constants: Callable[[Query, Config], dict[str, Any]]


class Strides(NamedTuple):
    """What the machine code may rely on about one operand."""

    row: int
    column: int
    aligned: bool

    def constants(self, name: str) -> dict[str, int]:
        """Steps of one element, which the compiler must know of."""
        steps = {f"{name}_row": self.row, f"{name}_column": self.column}
        return {key: 1 for key, step in steps.items() if step == 1}


class Call:
    """A kernel ready for operands of one set of facts, or for the pieces of a batch."""

    def __init__(self, kernel: Kernel, state: Packed, query: Query) -> None:
        self.kernel, self.state, self.query = kernel, state, query
        self.lib = state.lib
        self.config = state.config(query)
        self.alike = query.batch == 1  # every call brings arrays of the same shapes and strides
        self.steps: tuple[int, ...] | None = None  # of the operand that `()` is ready for
        self.ready: dict[tuple[Any, ...], _Ready] = {}
        self.codes: dict[Specimen, Any] = {}
        self.lock = Lock()
        if state.device is None or not query.n or not state.shape[0]:
            return
        with state.device.here():
            for n in {query.n, query.n * query.batch}:
                like = like_of(query.x_layout, state.shape[1], n, query.x_aligned)
                made = like_of(query.out_layout or "C", state.shape[0], n, query.out_aligned)
                self.code(like, made, n)
                state.items(-(-n // self.config.BN))

    def code(self, x: Strides, out: Strides, n: int) -> Any:
        """The kernel for operands of these strides and n columns, compiled and loaded."""
        device = self.state.device
        if device is None:
            raise RuntimeError("kernels are launched on a device only; this state is on a CPU")
        made = specimen_of(self.kernel, self.query, self.config, x, out, n)
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
            out = self.lib.empty((m, n), state.dtype, self.lib.device(x))
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
        items = state.items(-(-n // self.config.BN))
        given = dict(state.arrays()) | {"items": items, "x": x, "out": out}
        given |= {"bias": out if bias is None else bias}
        given |= {"alpha": float(scalars[0]), "beta": float(scalars[1])}
        given |= _sizes(state.shape, n)
        for name, steps in (("x", strides_of(self.lib, x)), ("out", strides_of(self.lib, out))):
            given |= {f"{name}_row": steps.row, f"{name}_column": steps.column}
        upcast = state.dtype == "bfloat16"
        constants = _constants(self.kernel, self.query, self.config) | {"UPCAST": upcast}
        function = self.kernel.function
        known = {name: given[name] for name in function.arg_names if name in given}
        function[(int(items.shape[0]),)](**known, **constants)


class _Ready:
    """A launch for operands of the shapes, strides and alignments of an example."""

    def __init__(self, call: Call, x: Array, out: Array | None) -> None:
        state, lib = call.state, call.lib
        if state.device is None:
            raise RuntimeError("kernels are launched on a device only; this state is on a CPU")
        self.device, n = state.device, int(x.shape[1])
        self.make = lib.maker((state.shape[0], n), state.dtype, state.device.place)
        steps, out_steps = strides_of(lib, x), strides_of(lib, self.make() if out is None else out)
        code = call.code(steps, out_steps, n)
        with self.device.here():
            items = state.items(-(-n // call.config.BN))
        self.launch = launch = Launch(code, int(items.shape[0]), self.device.index, (items,))
        self.lock = launch.lock
        arrays = dict(state.arrays()) | {"items": items}
        launch.set(**{name: lib.address(array) for name, array in arrays.items()})
        names = call.kernel.function.arg_names
        sizes = {k: size for k, size in _sizes(state.shape, n).items() if k in names}
        launch.set(**sizes, bias=0, alpha=1.0, beta=0.0)
        for name, found in (("x", steps), ("out", out_steps)):
            for axis, step in (("row", found.row), ("column", found.column)):
                if f"{name}_{axis}" not in found.constants(name):
                    launch.set(**{f"{name}_{axis}": step})
        self.scalars = not (call.query.alpha_one and call.query.beta_zero)
        self.x, self.out, self.bias = (launch.slot(name) for name in ("x", "out", "bias"))
        self.pointer = lib.pointer()
        self.send = Sender(self.device, (launch,), arrays.values())

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


def specimen_of(
    kernel: Kernel, query: Query, config: Config, x: Strides, out: Strides, n: int | None = None
) -> Specimen:
    """What is compiled for calls of these facts, with operands of these strides and n columns."""
    dtype = _TYPES[query.a_dtype or ""]
    types = dict.fromkeys(("x", "out", "bias"), f"*{dtype}")
    types |= {name: "*i32" if index else f"*{dtype}" for name, index in kernel.arrays}
    types |= {"items": "*i32", "alpha": "fp32", "beta": "fp32"}
    sizes = _sizes((query.m, query.k), query.n if n is None else n)
    types |= dict.fromkeys(sizes, "i32")
    types |= {f"{a}_{b}": "i64" for a in ("x", "out") for b in ("row", "column")}
    constants = _constants(kernel, query, config) | x.constants("x") | out.constants("out")
    aligned = {"items", *(name for name, _ in kernel.arrays)}
    aligned |= {name for name, size in sizes.items() if size % _MULTIPLE == 0}
    for name, steps in (("x", x), ("out", out)):
        aligned |= {name, f"{name}_row", f"{name}_column"} if steps.aligned else set()
    names = kernel.function.arg_names
    return Specimen(
        kernel.function,
        tuple((n, types[n]) for n in names if n in types and n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset(n for n in names if n in aligned and n not in constants),
        config.warps,
        config.stages,
    )


def _run(*sizes: int) -> int:
    """The longest power of two, of what is worth knowing, that divides all sizes."""
    run = 1
    while run < _LONGEST and all(size % (2 * run) == 0 for size in sizes):
        run *= 2
    return run


def _constants(kernel: Kernel, query: Query, config: Config) -> dict[str, Any]:
    """Constants of a kernel but strides."""
    r, c = query.blocksize or (1, 1)
    r, c = (c, r) if query.transposed else (r, c)
    return kernel.constants(query, config) | {
        "BM": config.BM,
        "BN": config.BN,
        "BK": config.BK,
        "RUN": _run(c, query.k),
        "SIDE": _run(r, query.m, config.BM),
        "ALPHA": not query.alpha_one,
        "BETA": not query.beta_zero,
        "BIAS": has_bias(query),
        "ACTIVATION": activation_of(query),
        "PRECISION": "tf32" if query.precision == "tf32" else "ieee",
        "UPCAST": False,
    }


def _sizes(shape: tuple[int, int], n: int) -> dict[str, int]:
    return {"M": shape[0], "N": n, "K": shape[1]}


def strides_of(lib: ArrayLibrary, x: Array) -> Strides:
    size = itemsize(lib.dtype_name(x))
    steps = lib.strides(x)
    row, column = steps[0] // size, steps[1] // size
    if int(x.shape[1]) == 1:
        column = 1 if row != 1 else max(column, int(x.shape[0]))
    long = [step for step in (row, column) if step != 1]
    aligned = all(step % _MULTIPLE == 0 for step in long) and lib.address(x) % _BYTES == 0
    return Strides(row, column, aligned)


def like_of(layout: str | None, rows: int, columns: int, aligned: bool | None) -> Strides:
    """Strides that an operand of these facts will have."""
    row, column = (1, rows) if layout == "F" or columns == 1 else (columns, 1)
    if layout == "strided":
        row, column = 2 * columns + 1, 2
    return Strides(row, column, aligned is not False and (column if row == 1 else row) % 16 == 0)
