"""Lists of the tiles of a result, one tile a program, made once for each width of results."""

from __future__ import annotations

from threading import Lock
from typing import Any, final

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats_kernels.cuda.devices import Device
from sparseformats_kernels.triton.sending import KEPT_LISTS

__all__ = ["ItemLists", "tops"]

Host = np.ndarray[Any, np.dtype[Any]]


@final
class ItemLists:
    """The tiles of results of each width: long rows first, columns slowly.

    Parameters
    ----------
    lib : ArrayLibrary
    device : Device or None
        None on a CPU.
    rows : (top, begin, end), each (rows,) int64
        First row of the result of each row of tiles, and what it is made of.
    m : int
        Rows of the result; rows of tiles from there on make nothing.
    """

    __slots__ = ("_begin", "_device", "_end", "_lib", "_lists", "_lock", "_top")

    def __init__(
        self,
        lib: ArrayLibrary,
        device: Device | None,
        rows: tuple[Host, Host, Host],
        m: int,
    ) -> None:
        inside = rows[0] < m
        self._top, self._begin, self._end = (x[inside] for x in rows)
        self._lib, self._device = lib, device
        self._lists: dict[int, Array] = {}
        self._lock = Lock()

    def __call__(self, columns: int) -> Array:
        """(row, tile column, begin, end) of each tile, for results so many tiles wide; int32."""
        with self._lock:
            found = self._lists.get(columns)
            if found is None:
                found = self._made(columns)
                if len(self._lists) >= KEPT_LISTS:
                    self._lists.pop(next(iter(self._lists)))  # whoever uses it keeps it
                self._lists[columns] = found
        return found

    def _made(self, columns: int) -> Array:
        order = np.argsort(self._begin - self._end, kind="stable")
        row, column = np.tile(order, columns), np.repeat(np.arange(columns), order.size)
        parts = [self._top[row], column, self._begin[row], self._end[row]]
        place = "cpu" if self._device is None else self._device.place
        made = self._lib.from_numpy(np.stack(parts, axis=1).astype(np.int32), place)
        if self._device is not None:
            self._device.settle()  # other streams may use it at once
        return made


def tops(block_rows: int, r: int, bm: int) -> Host:
    """First rows of tiles of `bm` rows, of which ceil(r / bm) make a block row; (rows, parts)."""
    parts = np.arange(-(-r // bm)) * bm
    made: Host = np.arange(block_rows)[:, None] * r + parts[None, :]
    return made
