"""How values are handed to the kernels that move them, and how much each program moves."""

from __future__ import annotations

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import bits_name, itemsize, kind

__all__ = ["ELEMENTS", "LINE", "ROWS", "bits_of", "kind_of", "power", "some_of", "steps_of"]
__all__ += ["strips", "tiling", "whole"]

ELEMENTS = 2048  # that a program moves at a time
ROWS = 16  # of a block row, that a program looks at
LINE = 2048  # bytes of a dense row that a program looks at: 16 for each thread


def tiling(count: int, size: tuple[int, int]) -> tuple[int, dict[str, int], int]:
    """Programs that move so many blocks, what each moves, and the parts of a block."""
    r, c = size
    each = power(r * c, ELEMENTS)
    blocks, parts = max(1, ELEMENTS // each), -(-r * c // each)
    return -(-count // blocks) * parts, {"R": r, "C": c, "NB": blocks, "E": each}, parts


def strips(n: int, c: int, size: int) -> tuple[int, int]:
    """Blocks side by side that a program looks at, and programs for a row of blocks.

    `size` is that of a value, in bytes.
    """
    groups = max(1, min(LINE // size, power(n)) // c)
    return groups, -(-n // (groups * c))


def whole(lib: ArrayLibrary, x: Array) -> Array:
    """Values in one piece, as they are in memory."""
    if not lib.is_native(x):
        x = lib.native(x)
    return x if lib.is_contiguous(x) else lib.contiguous(x)


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
    return {"f": 1, "c": 2}.get(kind(name), 0)


def power(size: int, limit: int = 1 << 30) -> int:
    """The smallest power of two from `size` on, or the largest one up to `limit`."""
    found = 1
    while found < size and 2 * found <= limit:
        found *= 2
    return found
