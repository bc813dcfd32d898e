"""Kernels that take operands of any strides, as they are compiled for the facts of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats_kernels.triton.calls import activation_of, has, has_bias
from sparseformats_kernels.triton.configs import Config
from sparseformats_kernels.triton.launch import Specimen

__all__ = ["ALIGNED", "OPERANDS", "Kernel", "Lie", "Strides", "constants_of", "like_of", "sizes_of"]
__all__ += ["specimen_of", "strides_of"]

_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
_TYPES |= {"int8": "i8", "int32": "i32", "float8_e4m3fn": "fp8e4nv"}
ALIGNED = 16  # bytes that an aligned address is a multiple of
_MULTIPLE = 16  # of steps and sizes: a vector of elements then lies inside or outside as a whole
_LONGEST = 16  # columns side by side beyond which nothing is gained by knowing of them

OPERANDS = ("x", "out", "residual")


def _none(query: Query) -> dict[str, str]:
    return {}


class Kernel(NamedTuple):
    """A kernel, and what its machine code depends on beside the operands.

    Attributes
    ----------
    function : JITFunction
    arrays : tuple of (parameter, whether it holds indices, else values)
        As `Packed.arrays` has them.
    constants : callable
        ``(query, config) -> dict`` of the constants that are its own.
    types : callable
        ``query -> dict`` of Triton's types of parameters, where not those of all such kernels.
    """

    function: Any
    arrays: tuple[tuple[str, bool], ...]
    constants: Callable[[Query, Config], dict[str, Any]]
    types: Callable[[Query], dict[str, str]] = _none


class Strides(NamedTuple):
    """What the machine code may rely on about one operand."""

    row: int
    column: int
    aligned: bool
    piece: int = 0  # from one piece of a batch to the next

    def constants(self, name: str) -> dict[str, int]:
        """Steps of one element, which the compiler must know of."""
        steps = {f"{name}_row": self.row, f"{name}_column": self.column}
        return {key: 1 for key, step in steps.items() if step == 1}


Lie = tuple[Strides, Strides, Strides | None]
"""Strides of operand, result and residual."""


def specimen_of(
    kernel: Kernel,
    query: Query,
    config: Config,
    x: Strides,
    out: Strides,
    residual: Strides | None = None,
    n: int | None = None,
    *,
    pieces: bool = False,
) -> Specimen:
    """What is compiled for calls of these facts, with operands of these strides and n columns."""
    dtype, gives = _TYPES[query.a_dtype or ""], _TYPES[query.out_dtype or query.a_dtype or ""]
    lie = {"x": x, "out": out} | ({} if residual is None else {"residual": residual})
    types = {name: "*i32" if index else f"*{dtype}" for name, index in kernel.arrays}
    types |= {"items": "*i32", "x": f"*{dtype}", "out": f"*{gives}", "residual": f"*{gives}"}
    types |= {"bias": "*fp32" if has(query, "scale") else f"*{gives}"}
    scalar = gives if gives in ("i32", "fp64") else "fp32"
    types |= dict.fromkeys(("alpha", "beta"), scalar)
    for name in ("row_scale", "column_scale"):
        types |= {name: "*fp32", f"{name}_step": "i32"}
    sizes = sizes_of((query.m, query.k), query.n if n is None else n)
    types |= dict.fromkeys((*sizes, "tiles"), "i32")
    types |= {f"{a}_{b}": "i64" for a in OPERANDS for b in ("row", "column", "piece")}
    types |= kernel.types(query)
    constants = constants_of(kernel, query, config) | _absent(query, pieces)
    for name, steps in lie.items():
        constants |= steps.constants(name)
    aligned = {"items", "partial", *(name for name, _ in kernel.arrays)}
    aligned |= {name for name, size in sizes.items() if size % _MULTIPLE == 0}
    for name, steps in lie.items():
        steps_of = {f"{name}_{axis}" for axis in ("row", "column", "piece")}
        aligned |= {name, *steps_of} if steps.aligned else set()
    names = kernel.function.arg_names
    return Specimen(
        kernel.function,
        tuple((n, types[n]) for n in names if n in types and n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset(n for n in names if n in aligned and n not in constants),
        config.warps,
        config.stages,
    )


def _absent(query: Query, pieces: bool) -> dict[str, Any]:
    """Parameters that the machine code of a call does not have."""
    absent: dict[str, Any] = {"PIECES": pieces}
    if not pieces:
        absent |= {"tiles": 0} | {f"{name}_piece": 0 for name in OPERANDS}
    if not has(query, "residual"):
        absent |= {"residual": None, "residual_row": 0, "residual_column": 0, "residual_piece": 0}
    if not has(query, "scale"):
        absent |= {"row_scale": None, "row_scale_step": 0}
        absent |= {"column_scale": None, "column_scale_step": 0}
    return absent


def _promotes(query: Query) -> str:
    """How sums of fp8 come to float32: Hopper's and Ada's instructions keep some 14 bits."""
    if query.a_dtype != "float8_e4m3fn":
        return ""
    major = (query.capability or (9, 0))[0]
    return {9: "partial", 10: "", 11: ""}.get(major, "added")


def _run(*sizes: int) -> int:
    """The longest power of two, of what is worth knowing, that divides all sizes."""
    run = 1
    while run < _LONGEST and all(size % (2 * run) == 0 for size in sizes):
        run *= 2
    return run


def constants_of(kernel: Kernel, query: Query, config: Config) -> dict[str, Any]:
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
        "SCALE": has(query, "scale"),
        "BIAS": has_bias(query),
        "ACTIVATION": activation_of(query),
        "RESIDUAL": has(query, "residual"),
        "PRECISION": "tf32" if query.precision == "tf32" else "ieee",
        "UPCAST": False,
        "PROMOTE": _promotes(query),
        "INTEGER": query.a_dtype == "int8",
    }


def sizes_of(shape: tuple[int, int], n: int) -> dict[str, int]:
    return {"M": shape[0], "N": n, "K": shape[1]}


def strides_of(lib: ArrayLibrary, x: Array) -> Strides:
    """Of a matrix, or of a batch of them."""
    size = itemsize(lib.dtype_name(x))
    steps = [step // size for step in lib.strides(x)]
    row, column = steps[-2:]
    if int(x.shape[-1]) == 1:
        column = 1 if row != 1 else max(column, int(x.shape[-2]))
    piece = steps[0] if len(steps) > 2 else 0
    long = [piece, *(step for step in (row, column) if step != 1)]
    aligned = all(step % _MULTIPLE == 0 for step in long) and lib.address(x) % ALIGNED == 0
    return Strides(row, column, aligned, piece)


def like_of(layout: str | None, rows: int, columns: int, aligned: bool | None) -> Strides:
    """Strides that an operand of these facts will have."""
    row, column = (1, rows) if layout == "F" or columns == 1 else (columns, 1)
    if layout == "strided":
        row, column = 2 * columns + 1, 2
    return Strides(row, column, aligned is not False and (column if row == 1 else row) % 16 == 0)
