"""BSR and Blocked-ELL times a few columns, straight from the matrix's values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton import configs
from sparseformats_kernels.triton.calls import Bindable
from sparseformats_kernels.triton.few import multiply_few
from sparseformats_kernels.triton.items import ItemLists, tops
from sparseformats_kernels.triton.packing import Blocks, blocks_of
from sparseformats_kernels.triton.sizes import HOST, processors_of
from sparseformats_kernels.triton.strided import Call, Kernel

__all__ = ["KERNEL", "ROWS", "TritonFew"]

ROWS = 16  # of the result that one program makes: what the tensor cores' oldest instruction takes
_BYTES = 16  # that a vector of values is aligned to


class State:
    """A matrix's own blocks, and the lists of tiles made of them so far."""

    __slots__ = ("blocks", "device", "dtype", "items", "lib", "query", "shape", "values")

    def __init__(self, A: SparseMatrix, query: Query) -> None:
        lib = self.lib = A.lib
        on_host = A.device == "cpu"  # only under Triton's interpreter
        self.device: Device | None = None if on_host else device_of(A.data, lib)
        self.query, self.shape, self.dtype = query, (query.m, query.k), A.dtype_name
        self.blocks: Blocks = blocks_of(A, query.transposed)
        self.values = _readable(lib, lib.native(A.data))
        r = (query.blocksize or (1, 1))[query.transposed]
        top = tops(self.blocks.begin.size, r, ROWS)
        begin, end = (np.broadcast_to(x[:, None], top.shape) for x in self.blocks[2:])
        rows = (top.reshape(-1), begin.reshape(-1), end.reshape(-1))
        self.items = ItemLists(lib, self.device, rows, query.m)
        if self.device is not None:
            self.device.settle()  # other streams may use it at once

    def config(self, query: Query) -> configs.Config:
        """Launch parameters for a call."""
        processors = HOST if self.device is None else processors_of(self.device)
        return configs.choose("triton-few", query, processors)

    def arrays(self) -> Mapping[str, Array]:
        """What the kernel reads."""
        columns, places = self.blocks[:2]
        return {
            "values": self.values,
            "columns": columns,
            "places": columns if places is None else places,
        }


def _readable(lib: ArrayLibrary, data: Array) -> Array:
    """Values in one piece that begins at a multiple of 16 bytes, at least one of them."""
    flat = lib.reshape(lib.contiguous(data), (-1,))
    if not int(flat.shape[0]):
        return lib.zeros(1, lib.dtype_name(data), lib.device(data))
    return flat if lib.address(flat) % _BYTES == 0 else lib.copy(flat)


def _constants(query: Query, config: configs.Config) -> dict[str, Any]:
    r, c = query.blocksize or (1, 1)
    r, c = (c, r) if query.transposed else (r, c)
    return {
        "R": r,
        "C": c,
        "TRANSPOSED": query.transposed,
        "INDIRECT": query.transposed,
        "SLICES": config.G,
    }


_ARRAYS = (("values", False), ("columns", True), ("places", True))
KERNEL = Kernel(multiply_few, _ARRAYS, _constants)


@final
class TritonFew(Bindable):
    """The kernel for a few columns: half types and float32."""

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
        """Compile for calls of these facts."""
        return Call(KERNEL, state, query)
