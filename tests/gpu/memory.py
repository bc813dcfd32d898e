"""Memory around and inside buffers that tells whether somebody reads or writes where nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparseformats import _arrays, _dtypes

__all__ = ["GUARD", "Arena", "guarded", "guarded_matrix", "poisoned", "watched"]

GUARD = 1024
"""Elements of guard zone on each side of a buffer."""

# Sizes that the allocators of torch and CuPy keep apart, and how many of each to fill.
SIZES = [(1 << 9, 512), (1 << 13, 128), (1 << 17, 64), (1 << 20, 8), (1 << 24, 4)]


def poisoned(device: str) -> None:
    """Leave NaN and -1 in the memory that the next arrays are given.

    All bits set are a NaN in every floating type and -1 in every integer. What an allocator hands
    out next comes from what was freed last, so memory that a kernel forgets to write, and memory
    beside its packed buffers, is poison.
    """
    if not device.startswith("cuda"):
        return
    import cupy
    import torch

    held = [
        torch.full((size,), 255, dtype=torch.uint8, device=device)
        for size, count in SIZES
        for _ in range(count)
    ]
    del held
    with cupy.cuda.Device(torch.device(device).index or 0):
        kept = [cupy.full(size, 255, cupy.uint8) for size, count in SIZES for _ in range(count)]
        del kept
    torch.cuda.synchronize(device)


class Arena:
    """An array with guard zones of poison around it.

    Attributes
    ----------
    view : array
        The array itself, of the values that were given.
    """

    def __init__(self, values: Any, library: str, device: str, *, name: str = "") -> None:
        lib = _arrays.library(library)
        host = values if isinstance(values, np.ndarray) else _arrays.of(values).to_numpy(values)
        fill = np.nan if _dtypes.kind(host.dtype.name) in "fc" else 0
        zone = np.full(GUARD, fill).astype(host.dtype)
        self._lib, self.name = lib, name
        self._memory = lib.from_numpy(np.concatenate([zone, host.reshape(-1), zone]), device)
        middle = self._memory[GUARD : GUARD + host.size]
        self.view = lib.xp.reshape(middle, host.shape)
        self._zone = zone.tobytes()

    def check(self) -> None:
        """Raise AssertionError where a guard zone was written to."""
        memory = self._lib.to_numpy(self._memory)
        for side, zone in (("before", memory[:GUARD]), ("behind", memory[-GUARD:])):
            if zone.tobytes() != self._zone:
                at = int(
                    np.flatnonzero(zone.view(np.uint8) != np.frombuffer(self._zone, np.uint8))[0]
                )
                raise AssertionError(f"byte {at} of the guard zone {side} {self.name} was written")


def guarded(values: Any, library: str, device: str, arenas: list[Arena], name: str = "") -> Any:
    """An array of these values between guard zones, which are added to a list to check."""
    arenas.append(Arena(values, library, device, name=name))
    return arenas[-1].view


def guarded_matrix(A: Any, arenas: list[Arena]) -> Any:
    """The matrix with every one of its buffers between guard zones."""
    if A.format.endswith(".T"):
        return guarded_matrix(A.T, arenas).T
    buffers = {
        name: guarded(x, A.library, A.device, arenas, name) for name, x in A.buffers().items()
    }
    return type(A).from_parts(buffers, A.static())


@contextmanager
def watched() -> Iterator[list[Arena]]:
    """Check every arena that the block adds to the list."""
    arenas: list[Arena] = []
    yield arenas
    for arena in arenas:
        arena.check()
