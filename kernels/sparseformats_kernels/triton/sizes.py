"""How much of a device there is to keep busy."""

from __future__ import annotations

from functools import lru_cache

from sparseformats_kernels.cuda.devices import Device

__all__ = ["processors_of"]

HOST = 4  # programs that the interpreter runs, one after the other


def processors_of(device: Device) -> int:
    """Multiprocessors of a device."""
    return _processors(device.lib.name, device.index)


@lru_cache(maxsize=64)
def _processors(library: str, index: int) -> int:
    if library == "torch":
        import torch

        return int(torch.cuda.get_device_properties(index).multi_processor_count)
    import cupy

    return int(cupy.cuda.Device(index).attributes["MultiProcessorCount"])
