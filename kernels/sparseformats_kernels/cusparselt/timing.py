"""Microseconds of calls on the current stream of a device, by its own events."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sparseformats_kernels.cuda.devices import Device

__all__ = ["Elapsed", "elapsed_on", "timed"]

K = TypeVar("K")

Elapsed = Callable[[Callable[[], Any], int], float]
"""``(call, count) -> microseconds`` of so many calls in a row."""

_SHORT, _LONG = 300.0, 1500.0  # us of calls in a row, in a quick look and in earnest
_MOST = 200
_ROUNDS = 5


def elapsed_on(device: Device) -> Elapsed:
    """A clock of the device's current stream."""
    by_torch = device.lib.name == "torch"

    def elapsed(call: Callable[[], Any], count: int) -> float:
        first, last = (_event(device, by_torch) for _ in range(2))
        _record(device, first, by_torch)
        for _ in range(count):
            call()
        _record(device, last, by_torch)
        last.synchronize()
        if by_torch:
            return float(first.elapsed_time(last)) * 1e3
        import cupy

        return float(cupy.cuda.get_elapsed_time(first, last)) * 1e3

    return elapsed


def _event(device: Device, by_torch: bool) -> Any:
    if by_torch:
        import torch

        return torch.cuda.Event(enable_timing=True)
    import cupy

    return cupy.cuda.Event()


def _record(device: Device, event: Any, by_torch: bool) -> None:
    if by_torch:
        import torch

        event.record(torch.cuda.current_stream(device.index))
    else:
        event.record()


def timed(elapsed: Elapsed, calls: Mapping[K, Callable[[], Any]], thorough: bool) -> dict[K, float]:
    """Microseconds of one call of each.

    Parameters
    ----------
    thorough : bool
        Measure in turns, several times, and take the medians.
    """
    counts: dict[K, int] = {}
    for key, call in calls.items():
        call()  # the first one loads the kernel
        once = max(1.0, elapsed(call, 3) / 3)
        counts[key] = int(max(3, min(_MOST, (_LONG if thorough else _SHORT) / once)))
    rounds = _ROUNDS if thorough else 1
    found: dict[K, list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            found[key].append(elapsed(call, counts[key]) / counts[key])
    return {key: statistics.median(times) for key, times in found.items()}
