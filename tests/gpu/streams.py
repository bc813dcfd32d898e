"""Streams that are current for torch and CuPy alike, and calls that must not wait for a device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["forbidden_synchronisation", "side_stream", "synchronisations"]


class _Foreign:
    """A stream as CuPy asks for other libraries' ones."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.keep, self.handle = stream, int(stream.cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@contextmanager
def side_stream(library: str, device: str) -> Iterator[torch.cuda.Stream]:
    """A new stream that is current for torch, and for CuPy where arrays are CuPy's."""
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        if library != "cupy":
            yield stream
            return
        import cupy

        with cupy.cuda.Device(stream.device.index):
            make = getattr(cupy.cuda.Stream, "from_external", None)
            theirs = cupy.cuda.ExternalStream(int(stream.cuda_stream)) if make is None else None
            with theirs or make(_Foreign(stream)):
                yield stream


@contextmanager
def forbidden_synchronisation() -> Iterator[None]:
    """Let torch raise where something in the block waits for the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the switch itself is a prototype
        try:
            torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


@contextmanager
def synchronisations() -> Iterator[list[str]]:
    """Give what torch says of each wait for the device in the block, one text each."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            torch.cuda.set_sync_debug_mode("warn")
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
            texts = (str(warning.message) for warning in said)
            found += [text for text in texts if "synchroniz" in text and "prototype" not in text]
