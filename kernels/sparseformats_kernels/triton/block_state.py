"""A matrix as the warp-specialised kernels read it, and the lists of tiles made of it so far."""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton.configs import Config
from sparseformats_kernels.triton.packing import Blocks, blocks_of
from sparseformats_kernels.triton.schedule import in_parts, schedule
from sparseformats_kernels.triton.sending import KEPT_LISTS
from sparseformats_kernels.triton.sizes import processors_of

__all__ = ["ALIGNED", "Lists", "State"]

ALIGNED = 16  # bytes: addresses and row steps that the copy engine takes


class Lists(NamedTuple):
    """The tiles of a result of some width, dealt to programs.

    Attributes
    ----------
    program_ptr, items : array
        As `schedule` makes them; with `split` an item has a fifth number, see `specialised`.
    programs : int
        How many there are.
    split : (rows, 3) int32 array or None
        Rows that are summed in parts, see `schedule.Parts`.
    parts : int
        Parts of these rows.
    """

    program_ptr: Array
    items: Array
    programs: int
    split: Array | None = None
    parts: int = 0

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All of them."""
        return tuple(x for x in (self.program_ptr, self.items, self.split) if x is not None)


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
        values = lib.contiguous(lib.reshape(lib.native(A.data), (-1, size[1])))
        if not values.shape[0]:
            values = lib.zeros((size[0], size[1]), A.dtype_name, A.device)  # something to name
        self.values = _aligned_copy(lib, values)
        self.block = (size[1], size[0]) if query.transposed else (size[0], size[1])
        self.shape = (query.m, query.k)
        self.dtype = lib.dtype_name(A.data)
        self.query = query
        self.lists: dict[tuple[int, ...], Lists] = {}
        self.lock = Lock()
        self.device.settle()  # other streams may use it at once

    @property
    def lib(self) -> ArrayLibrary:
        """The array library of matrix and operands."""
        return self.device.lib

    def tiles(self, config: Config, columns: int) -> Lists:
        """The tiles of a result that is so many tiles wide."""
        key = (config.BM, config.BK, config.G, columns)
        with self.lock:
            found = self.lists.get(key)
            if found is None:
                if len(self.lists) >= KEPT_LISTS:
                    self.lists.pop(next(iter(self.lists)))  # whoever uses it keeps it
                found = self.lists[key] = self._deal(config, columns)
        return found

    def _deal(self, config: Config, columns: int) -> Lists:
        lib, place = self.device.lib, self.device.place
        rows, high = -(-self.shape[0] // config.BM), self.block[0] // config.BM
        begin, end = (x.repeat(high)[:rows] for x in (self.blocks.begin, self.blocks.end))
        processors = processors_of(self.device)
        parts = in_parts(begin, end, columns, processors)
        programs = max(1, min(processors, parts.row.size * columns))
        times = self.block[1] // config.BK
        program_ptr, items = schedule(parts.begin, parts.end, columns, programs, config.G, times)
        split = None
        if parts.split.size:
            number = parts.number[items[:, 0]]
            tile = np.where(number > 0, (number - 1) * columns + items[:, 1] + 1, 0)
            items = np.concatenate([items, tile[:, None]], axis=1).astype(np.int32)
            split = lib.from_numpy(parts.split.astype(np.int32), place)
        items[:, 0] = parts.row[items[:, 0]]
        on_device = [lib.from_numpy(x, place) for x in (program_ptr, items)]
        most = int(parts.number.max(initial=0))
        self.device.settle()
        return Lists(on_device[0], on_device[1], programs, split, most)


def _aligned_copy(lib: ArrayLibrary, values: Array) -> Array:
    """The values, copied where they do not begin at a multiple of 16 bytes."""
    return values if lib.address(values) % ALIGNED == 0 else lib.copy(values)
