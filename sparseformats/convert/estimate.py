"""How large a matrix would be in a format, from facts that no device must be asked for."""

from __future__ import annotations

import math
from typing import NamedTuple

from sparseformats._dtypes import itemsize
from sparseformats.convert.graph import Node

__all__ = ["Size", "Stored", "size_of"]


class Stored(NamedTuple):
    """What is known of a matrix: it stores at most `elements`, exactly so many if `exact`."""

    shape: tuple[int, int]
    elements: int
    exact: bool
    dtype: str
    index_dtype: str


class Size(NamedTuple):
    """Estimated size of a result.

    ``elements`` are the stored elements, or slots, or dense elements that are to be written;
    ``nbytes`` all buffers; ``bound`` is ``""`` (exactly), ``"at most"`` or ``"at least"``.
    """

    elements: int
    nbytes: int
    bound: str


def size_of(node: Node, stored: Stored) -> Size:
    """Size of a matrix in the format of a node."""
    shape = stored.shape[::-1] if node.name.endswith(".T") else stored.shape
    value, index = itemsize(stored.dtype), itemsize(stored.index_dtype)
    name, count = node.name.removesuffix(".T"), stored.elements
    bound = "" if stored.exact else "at most"
    if name == "dense":
        return Size(math.prod(shape), math.prod(shape) * value, "")
    if name == "coo":
        return Size(count, count * (value + 2 * index), bound)
    if node.key is None:
        major = shape[1] if name == "csc" else shape[0]
        return Size(count, count * (value + index) + (major + 1) * index, bound)
    if name == "n:m":
        n, m = node.key
        slots = shape[0] * -(-shape[1] // m) * n
        return Size(slots, slots * (value + 1), "")
    return _blocks(name, node.key, shape, count, value, index)


def _blocks(
    name: str, key: tuple[int, int], shape: tuple[int, int], count: int, value: int, index: int
) -> Size:
    rows, cols = -(-shape[0] // key[0]), -(-shape[1] // key[1])
    size = key[0] * key[1]
    if name == "bsr":
        blocks = min(count, rows * cols)
        nbytes = blocks * (size * value + index) + (rows + 1) * index
        return Size(blocks * size, nbytes, "at most")
    # As many slots as the fullest block row needs: at least what even rows of full blocks do.
    width = -(-count // max(1, size * rows)) if rows else 0
    return Size(rows * width * size, rows * width * (size * value + index), "at least")
