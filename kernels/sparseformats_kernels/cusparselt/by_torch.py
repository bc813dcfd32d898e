"""2:4 times dense by torch's operators, where the library cannot be called by address.

They make a plan on every call, on the host, in 0.6 to 0.95 ms, and take the library's default
algorithm. What they are good for is a version of the library whose structs are not known here.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.cusparselt.packing import padded, tile, unpacked

__all__ = ["State", "TorchProduct"]


class State(NamedTuple):
    """A packed matrix: torch's compressed tensor, and the matrix's own shape."""

    lib: ArrayLibrary
    device: Device
    packed: Array
    shape: tuple[int, int]
    wide: int  # columns that the compressed matrix has
    dtype: str


@final
class TorchProduct:
    """``torch._cslt_sparse_mm``."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Compress the matrix."""
        import torch

        device = device_of(A.data, A.lib)
        with device.here():
            dense = unpacked(A, A.dtype_name)
            packed = torch._cslt_compress(dense)
            device.settle()  # other streams may use it at once
        return State(A.lib, device, packed, A.shape, int(dense.shape[1]), A.dtype_name)

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
        """Multiply; `alpha` is 1 and `beta` is 0, as the record asks."""
        import torch

        (m, _), n, lib = state.shape, int(x.shape[1]), state.lib
        if not (m and n):
            return lib.empty((m, n), state.dtype, state.device.place) if out is None else out
        rows = int(state.packed.shape[0])
        turned = out is not None and out.mT.is_contiguous() and not out.is_contiguous()
        if bias is not None and rows != m:
            bias = torch.nn.functional.pad(bias, (0, rows - m))
        with state.device.here():
            y = torch._cslt_sparse_mm(
                state.packed, _readable(state, x), bias=bias, transpose_result=turned
            )
        y = (y.mT if turned else y)[:m, :n]
        if out is None:
            return y.contiguous()
        out.copy_(y)
        return out


def _readable(state: State, x: Array) -> Array:
    """The operand in whole rows or columns, of sizes that the library takes."""
    k, n = (int(size) for size in x.shape)
    wide = padded(n, tile(state.dtype).dense)
    if (k, n) == (state.wide, wide):
        return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()
    made = state.lib.zeros((state.wide, wide), state.dtype, state.device.place)
    made[:k, :n] = x
    return made
