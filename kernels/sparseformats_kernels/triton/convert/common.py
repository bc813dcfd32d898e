"""How values are handed to the kernels that move them, and how much each program moves."""

from __future__ import annotations

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import bits_name, itemsize, kind

__all__ = ["ELEMENTS", "bits_of", "kind_of", "power", "some_of", "steps_of", "tiling"]

ELEMENTS = 2048  # that a program moves at a time


def tiling(count: int, size: tuple[int, int]) -> tuple[int, dict[str, int], int]:
    """Programs that move so many blocks, what each moves, and the parts of a block."""
    r, c = size
    each = power(r * c, ELEMENTS)
    blocks, parts = max(1, ELEMENTS // each), -(-r * c // each)
    return -(-count // blocks) * parts, {"R": r, "C": c, "NB": blocks, "E": each}, parts


def bits_of(lib: ArrayLibrary, x: Array) -> Array:
    """The same memory as integers."""
    return lib.bits(x)


def some_of(lib: ArrayLibrary, x: Array) -> Array:
    """The bits of an array, or of one element where it has none: kernels are given an address."""
    if 0 in x.shape:
        shape = (1,) * len(x.shape)
        return lib.zeros(shape, bits_name(lib.dtype_name(x)), lib.device(x))
    return lib.bits(x)


def steps_of(lib: ArrayLibrary, x: Array) -> tuple[int, ...]:
    """Elements between neighbours along each axis."""
    size = itemsize(lib.dtype_name(x))
    return tuple(step // size for step in lib.strides(x))


def kind_of(name: str) -> int:
    """How a zero is told from its bits."""
    return int(kind(name) == "f")


def power(size: int, limit: int = 1 << 30) -> int:
    """The smallest power of two from `size` on, or the largest one up to `limit`."""
    found = 1
    while found < size and 2 * found <= limit:
        found *= 2
    return found
