"""BSR and Blocked-ELL times dense by packed tiles: blocks of any size, operands of any strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton import configs, gather
from sparseformats_kernels.triton.calls import Bindable
from sparseformats_kernels.triton.items import ItemLists, tops
from sparseformats_kernels.triton.packing import tiles
from sparseformats_kernels.triton.sizes import HOST, processors_of
from sparseformats_kernels.triton.strided import Call
from sparseformats_kernels.triton.strided_variants import Kernel

__all__ = ["KERNEL", "TritonTiles"]


class State:
    """Packed tiles, and lists of the tiles of results made of them so far."""

    __slots__ = (
        *("BK", "BM", "columns", "device"),
        *("lib", "lists", "one", "query", "shape", "values"),
    )

    def __init__(self, A: SparseMatrix, query: Query) -> None:
        self.lib: ArrayLibrary = A.lib
        on_host = A.device == "cpu"  # only under Triton's interpreter
        self.device: Device | None = None if on_host else device_of(A.data, A.lib)
        self.query = query
        chosen = configs.choose("triton-tiles", query, self.processors)
        self.BM, self.BK = chosen.BM, chosen.BK
        self.shape = (query.m, query.k)
        found = tiles(A, query.transposed, self.shape, (self.BM, self.BK))
        self.values, self.columns = _some(A.lib, found.values), _some(A.lib, found.columns)
        self.one = A.lib.full((1,), 1.0, "float32", A.device)
        r = (query.blocksize or (1, 1))[query.transposed]
        high = -(-r // self.BM)
        top = tops(found.begin.size // high, r, self.BM).reshape(-1)
        self.lists = ItemLists(self.lib, self.device, (top, found.begin, found.end), query.m)
        if self.device is not None:
            self.device.settle()  # other streams may use it at once

    @property
    def processors(self) -> int:
        """Programs that run at the same time."""
        return HOST if self.device is None else processors_of(self.device)

    def config(self, query: Query) -> configs.Config:
        """Launch parameters for a call, in tiles as the values were packed."""
        found = configs.choose("triton-tiles", query, self.processors)
        return replace(found, BM=self.BM, BK=self.BK)

    def items(self, columns: int, high: int) -> Array:
        """The tiles of a result that is so many tiles wide; all have the height of those packed."""
        return self.lists(columns)

    def arrays(self) -> Mapping[str, Array]:
        """What the kernel reads."""
        return {"values": self.values, "columns": self.columns}


def _some(lib: ArrayLibrary, x: Array) -> Array:
    """The array, or one element where it has none: a kernel is given an address in any case."""
    if int(x.shape[0]):
        return x
    return lib.zeros((1, *x.shape[1:]), lib.dtype_name(x), lib.device(x))


def _constants(query: Query, config: configs.Config) -> dict[str, Any]:
    return {"R": (query.blocksize or (1, 1))[query.transposed], "SWAP": config.swap}


KERNEL = Kernel(gather.multiply, (("values", False), ("columns", True)), _constants)


@final
class TritonTiles(Bindable):
    """The gathering kernel: half types, float32, int8 and fp8."""

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
    def bind(state: State, query: Query) -> Callable[..., Array]:
        """Compile for calls of these facts."""
        return Call(KERNEL, state, query)

    @staticmethod
    def bind_batch(state: State, query: Query) -> Callable[..., Array] | None:
        """Compile for batches in one launch; None where pieces are better laid side by side."""
        least = configs.BATCHED["triton-tiles"]
        return Call(KERNEL, state, query, pieces=True) if query.n >= least else None
