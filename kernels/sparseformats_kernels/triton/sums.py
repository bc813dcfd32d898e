"""The second launch of a product some of whose rows were cut: adding up their parts."""

from __future__ import annotations

from typing import Any

from sparseformats._arrays import Array
from sparseformats.dispatch.query import Query
from sparseformats_kernels.triton.block_state import Lists, State
from sparseformats_kernels.triton.calls import activation_of, capability_of, has_bias
from sparseformats_kernels.triton.combining import combine
from sparseformats_kernels.triton.configs import Config
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled

__all__ = ["Sums", "specimen_of_sums"]

_TYPES = {"float16": "fp16", "bfloat16": "bf16"}
_ELEMENTS = 4096  # that one program adds at a time
_WARPS = 4


class Sums:
    """Adds the parts of rows that were cut, in tiles of the kernel before."""

    def __init__(self, query: Query, state: State, config: Config, lists: Lists, n: int) -> None:
        if lists.split is None:
            raise ValueError("no row was cut: there is nothing to add")
        columns = -(-n // config.BN)
        device, address = state.device, state.device.lib.address
        self.device = device
        self.shape = (lists.parts * columns, config.BM, config.BN)
        made = specimen_of_sums(query, config)
        grid = int(lists.split.shape[0]) * columns * (config.BM // _rows(config))
        code = compiled(made, capability_of(query), device.index)
        self.launch = Launch(code, grid, device.index, (lists.split,))
        self.launch.set(split=address(lists.split), M=state.shape[0], N=n, COLUMNS=columns)
        self.launch.set(bias=0, alpha=1.0, beta=0.0)
        self.pointer = device.lib.pointer()
        self.scalars = not (query.alpha_one and query.beta_zero)

    def prepare(self, out: int, alpha: Any, beta: Any, bias: Array | None) -> Array:
        """Set what varies, and make memory for the parts, to be kept until both are launched."""
        partial = self.device.empty(self.shape, "float32")
        self.launch.set(partial=self.pointer(partial), out=out)
        if self.scalars:
            self.launch.set(alpha=float(alpha), beta=float(beta))
        if bias is not None:
            self.launch.set(bias=self.pointer(bias))
        return partial


def specimen_of_sums(query: Query, config: Config) -> Specimen:
    """The adding kernel for the tiles of a product."""
    dtype = _TYPES[query.a_dtype or ""]
    types = {"partial": "*fp32", "split": "*i32", "out": f"*{dtype}", "bias": f"*{dtype}"}
    types |= {"out_row": "i64", "out_column": "i64", "alpha": "fp32", "beta": "fp32"}
    types |= {"M": "i32", "N": "i32", "COLUMNS": "i32"}
    constants: dict[str, Any] = {
        "BM": config.BM,
        "BN": config.BN,
        "ROWS": _rows(config),
        "ALPHA": not query.alpha_one,
        "BETA": not query.beta_zero,
        "BIAS": has_bias(query),
        "ACTIVATION": activation_of(query),
    }
    names = combine.arg_names
    return Specimen(
        combine,
        tuple((name, types[name]) for name in names if name in types),
        tuple((name, constants[name]) for name in names if name in constants),
        frozenset({"partial", "split"}),
        _WARPS,
    )


def _rows(config: Config) -> int:
    return min(config.BM, max(1, _ELEMENTS // config.BN))
