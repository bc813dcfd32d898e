"""BSR and Blocked-ELL times a few columns, straight from the matrix's values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
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
from sparseformats_kernels.triton.strided import Call
from sparseformats_kernels.triton.strided_variants import Kernel

__all__ = ["KERNEL", "TritonFew"]

KNOWN = 64  # blocks of a row whose names are brought at once
_BYTES = 16  # that a vector of values is aligned to


class State:
    """A matrix's own blocks, and the lists of tiles made of them so far."""

    __slots__ = ("blocks", "device", "lib", "lists", "lock", "one", "query", "shape", "values")

    def __init__(self, A: SparseMatrix, query: Query) -> None:
        lib = self.lib = A.lib
        on_host = A.device == "cpu"  # only under Triton's interpreter
        self.device: Device | None = None if on_host else device_of(A.data, lib)
        self.query, self.shape = query, (query.m, query.k)
        self.one = lib.full((1,), 1.0, "float32", A.device)
        self.blocks: Blocks = blocks_of(A, query.transposed)
        self.values = _readable(lib, lib.native(A.data))
        self.lists: dict[int, ItemLists] = {}  # by rows of a tile
        self.lock = Lock()
        if self.device is not None:
            self.device.settle()  # other streams may use it at once

    def config(self, query: Query) -> configs.Config:
        """Launch parameters for a call."""
        processors = HOST if self.device is None else processors_of(self.device)
        return configs.choose("triton-few", query, processors)

    def items(self, columns: int, high: int) -> Array:
        """The tiles, of so many rows, of a result that is so many tiles wide."""
        with self.lock:
            if high not in self.lists:
                r = (self.query.blocksize or (1, 1))[self.query.transposed]
                top = tops(self.blocks.begin.size, r, high)
                begin, end = (np.broadcast_to(x[:, None], top.shape) for x in self.blocks[2:])
                rows = (top.reshape(-1), begin.reshape(-1), end.reshape(-1))
                self.lists[high] = ItemLists(self.lib, self.device, rows, self.query.m)
        return self.lists[high](columns)

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
        "KNOWN": KNOWN,
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

    @staticmethod
    def bind_batch(state: State, query: Query) -> Callable[..., Array] | None:
        """Compile for batches in one launch; None where pieces are better laid side by side."""
        least = configs.BATCHED["triton-few"]
        return Call(KERNEL, state, query, pieces=True) if query.n >= least else None
