"""Launching on the caller's stream, and keeping memory alive for as long as streams read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from sparseformats._arrays import Array
from sparseformats_kernels.cuda.devices import Device
from sparseformats_kernels.triton.launch import Launch

__all__ = ["KEPT_LISTS", "Sender", "refuse_in_capture"]

KEPT_LISTS = 64
"""Lists of tiles that a state keeps, one for each width of results."""


def refuse_in_capture(device: Device, why: str) -> None:
    """Refuse what cannot be recorded into a graph, while one is.

    Raises
    ------
    RuntimeError
    """
    if device.capture(device.stream()):
        raise RuntimeError(f"matmul: prepare before capture: {why}")


@final
class Sender:
    """Sends launches to the current stream of a device.

    Parameters
    ----------
    device : Device
    launches : iterable of Launch
        In this order.
    reads : iterable of array
        What they read beside the operands: memory of the plan's, which nobody but us could keep
        from being given back and reused while a stream still reads it.
    """

    __slots__ = ("_device", "_launches", "_reads", "_streams")

    def __init__(
        self, device: Device, launches: Iterable[Launch], reads: Iterable[Array | None]
    ) -> None:
        self._device, self._launches = device, tuple(launches)
        self._reads = tuple(x for x in reads if x is not None)
        self._streams: set[int] = set()

    def __call__(self) -> None:
        """Launch everything, with the device made current where it is not."""
        if self._device.is_current():
            self._send()
        else:
            with self._device.here():
                self._send()

    def _send(self) -> None:
        stream = self._device.stream()
        if stream not in self._streams and not self._device.capture(stream):
            self._device.share(self._reads)
            self._streams.add(stream)
        for launch in self._launches:
            launch(stream)
