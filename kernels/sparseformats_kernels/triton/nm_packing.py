"""2:4 matrices in the order in which tensor core instructions want them in registers.

A tile is 16 rows x 64 columns of the matrix: two instructions of 32 columns. It takes 288 words of
32 bits: for each instruction 128 words of values, four for each of the 32 lanes, a word being the
two slots of one group; then for each lane one word of positions. Rows are padded to 64, columns to
64, with +0 at positions 0 and 1.

Lane ``4 g + t`` holds rows g and g + 8. Which groups of columns it holds is ours to choose, as
long as the operand's rows are brought in the same order (`nm_fragments`): they are chosen so that
a lane finds the rows it needs side by side.

References
----------
PTX ISA, "Matrix fragments for sparse mma.m16n8k32 with .f16 and .bf16 types" and "Matrix fragments
for mma.m16n8k16 with floating point type".
"""

from __future__ import annotations

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.formats import NM

__all__ = ["COLUMNS", "ROWS", "packed"]

ROWS = 64
"""Rows to a multiple of which a packed matrix is padded."""

COLUMNS = 64
"""Columns of a tile."""

_HIGH, _GROUPS = 16, 16  # rows and groups of a tile
_VALUE_WORDS = 256

# The axes of the nibbles and values of tiles are (tiles down, row bit 3, row bits 0-2, tiles
# across, instruction, three bits of the group). Each order below says which become what.
_SPARSE_VALUES = (0, 3, 4, 2, 7, 5, 6, 1)  # ..., g, t1, t0, register bits 1 and 0
_SPARSE_POSITIONS = (0, 3, 2, 4, 6, 1, 7, 5)  # ..., g, t1, t0, three bits of the nibble
_DENSE_VALUES = (0, 3, 4, 2, 5, 6, 7, 1)
_DENSE_POSITIONS = (0, 3, 2, 5, 6, 4, 7, 1)


def packed(A: NM, sparse: bool) -> Array:
    """Tiles of a 2:4 matrix of a 16-bit dtype.

    Parameters
    ----------
    A : NM
    sparse : bool
        For ``mma.sp``, whose lanes hold positions for each other; else each lane holds codes of
        the groups whose values it holds, and expands them itself.

    Returns
    -------
    (tiles down, tiles across, 288) int32 array
    """
    lib, xp = A.lib, A.lib.xp
    down, across = -(-A.shape[0] // ROWS) * (ROWS // _HIGH), -(-A.shape[1] // COLUMNS)
    halves = _tiled(lib, lib.bits(lib.native(A.data)), 0, (down, across))
    order = _SPARSE_VALUES if sparse else _DENSE_VALUES
    halves = lib.contiguous(xp.permute_dims(halves, (*order, 8)))
    values = _words(lib, lib.reshape(halves, (down, across, _VALUE_WORDS, 2)))
    first, second = (A.indices[..., s] for s in range(2))
    if sparse:
        nibbles, free = first | second << 2, 0 | 1 << 2
    else:  # one number for each of the six pairs of positions
        nibbles, free = first + second - lib.astype(first == 0, "uint8"), 0
    nibbles = _tiled(lib, nibbles, free, (down, across))
    order = _SPARSE_POSITIONS if sparse else _DENSE_POSITIONS
    nibbles = lib.reshape(lib.contiguous(xp.permute_dims(nibbles, order)), (down, across, 32, 8))
    return lib.contiguous(lib.concat([values, _joined(lib, nibbles, 4)], axis=2))


def _tiled(lib: ArrayLibrary, x: Array, fill: int, tiles: tuple[int, int]) -> Array:
    """Pad (rows, groups, ...) to whole tiles, and give each part of a row and group an axis."""
    (down, across), (rows, groups) = tiles, (int(s) for s in x.shape[:2])
    rest = tuple(int(s) for s in x.shape[2:])
    shape = (down * _HIGH, across * _GROUPS, *rest)
    whole = lib.full(shape, fill, lib.dtype_name(x), lib.device(x))
    whole[:rows, :groups] = x
    return lib.reshape(whole, (down, 2, 8, across, 2, 2, 2, 2, *rest))


def _words(lib: ArrayLibrary, halves: Array) -> Array:
    """Pairs of 16-bit numbers along the last axis as 32-bit ones, the first one low."""
    low, high = (lib.astype(halves[..., i], "int32") for i in range(2))
    return (low & 0xFFFF) | high << 16


def _joined(lib: ArrayLibrary, parts: Array, bits: int) -> Array:
    """Numbers of so many bits along the last axis as one 32-bit number, the first one lowest."""
    found = lib.astype(parts[..., 0], "int32")
    for i in range(1, 32 // bits):
        found = found | lib.astype(parts[..., i], "int32") << bits * i
    return found
