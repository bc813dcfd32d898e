"""The packed 2:4 layout of torch's CUTLASS tensors, by index arithmetic.

Layout
------
``packed (m, k/2)``
    The kept values by row. A group of four columns keeps two; a group of four 16-bit columns is
    what the hardware counts, so two neighbouring float32 columns are a group and keep one.
``meta (m, k/c)`` int16, for int8 values int32
    One code of four bits a group, the first group in the lowest bits: the position of the first
    kept value in bits 0 and 1, that of the second in bits 2 and 3, ascending. A float32 value is
    two 16-bit halves, so its codes are 0b0100 (the first column) and 0b1110 (the second). c is
    16 columns for 16-bit values, 8 for float32, 32 for int8.

The words of ``meta`` do not lie in that order. Tiles of 32 rows (16 for int32) have their rows
dealt out over eight, then each 2 x 2 block of words is transposed, and columns of words lie in
pairs, column after column. All of it is one permutation of axes: with row
``i = tile T + 16 h + 8 b + l`` and word ``w = 2 C + a`` the place in memory is that of
``[C, T, l, h, a, b]``.

References
----------
NVIDIA, PTX ISA, "Sparse matrix storage" of ``mma.sp``: codes and their order.
CUTLASS, ``host_reorder.h`` (the reordering) and ``layout/matrix.h``
(``ColumnMajorInterleaved<2>``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.errors import InvalidTensorError, LossyConversionError, PatternError, Problem
from sparseformats.formats import NM
from sparseformats.formats.checks import violations

__all__ = ["PACKINGS", "Packing", "pack", "refuse_side_minus", "unpack"]


@dataclass(frozen=True, slots=True)
class Packing:
    """How values of one dtype are packed.

    Attributes
    ----------
    meta : str
        Dtype of the metadata.
    rows, columns : int
        What torch asks the shape of a tensor to be a multiple of, and not zero.
    group : int
        Columns that a code stands for.
    """

    meta: str
    rows: int
    columns: int
    group: int = 4

    @property
    def codes(self) -> int:
        """Codes in a word of metadata."""
        return 2 * itemsize(self.meta)

    @property
    def width(self) -> int:
        """Columns that a word of metadata stands for."""
        return self.group * self.codes


PACKINGS: Final = {
    "float16": Packing("int16", 32, 64),
    "bfloat16": Packing("int16", 32, 64),
    "float32": Packing("int16", 32, 32, group=2),
    "int8": Packing("int32", 16, 128),
}

_FIRST, _SECOND = 0b0100, 0b1110  # of a pair of float32 columns


def unpack(what: str, lib: ArrayLibrary, packed: Array, meta: Array) -> tuple[Array, Array]:
    """Values and positions of 2:4 slots, (m, k/4, 2) each; the values may share memory.

    Parameters
    ----------
    what : str
        What is read, for messages.
    packed : (m, k/2) array
    meta : (m, k/c) array
        Of the dtype that goes with the values; an even number of columns, m a multiple of the
        tile's rows.

    Raises
    ------
    InvalidTensorError
        A code that no hardware defines: positions that do not ascend, or half a float32.
    """
    packing = PACKINGS[lib.dtype_name(packed)]
    m, half = (int(s) for s in packed.shape)
    codes = _codes(lib, _by_row(lib, meta, packing), packing)
    problems = _illegal(lib, codes, packing)
    if problems:
        raise InvalidTensorError(what, problems)
    if packing.group == 2:
        # Two pairs make a group of four: the second pair's columns are its third and fourth.
        column = lib.xp.reshape((codes & 3) >> 1, (m, half // 2, 2))
        positions = column + lib.asarray([0, 2], "uint8", lib.device(packed))
    else:
        positions = lib.xp.stack([codes & 3, codes >> 2], axis=-1)
    return lib.xp.reshape(packed, (m, half // 2, 2)), positions


def pack(A: NM) -> tuple[Array, Array]:
    """``packed`` and ``meta`` of a 2:4 matrix; slots keep their positions and the bits they hold.

    Parameters
    ----------
    A : NM
        2:4, of a dtype in `PACKINGS`, of a shape that its `Packing` divides.

    Raises
    ------
    PatternError
        A pair of float32 columns with two non-zeros.
    LossyConversionError
        A stored -0.0 without a place: in the side record, or beside another value of its pair.
    """
    lib, packing = A.lib, PACKINGS[A.dtype_name]
    (m, k), xp = A.shape, A.lib.xp
    refuse_side_minus(A)
    if packing.group == 2:
        values, codes = _by_pairs(A)
    else:
        values, codes = A.data, A.indices[..., 0] | (A.indices[..., 1] << 2)
    words = _words(lib, xp.reshape(codes, (m, k // packing.width, packing.codes)), packing)
    return xp.reshape(values, (m, k // 2)), _as_laid_out(lib, words, packing)


def refuse_side_minus(A: NM) -> None:
    """Refuse a stored -0.0 in the side record, for which no packed layout has a place.

    Raises
    ------
    LossyConversionError
    """
    if A.side is not None:
        _refuse_minus(A.lib, A.lib.bits(A.side.data) != 0, "side record")


# ---- words: their order in memory, and the codes in them


def _by_row(lib: ArrayLibrary, meta: Array, packing: Packing) -> Array:
    """Words by row and column, from the order in which they lie in memory."""
    m, count = (int(s) for s in meta.shape)
    tiles, high = m // packing.rows, packing.rows // 16
    x = lib.reshape(meta, (count // 2, tiles, 8, high, 2, 2))
    return lib.reshape(lib.xp.permute_dims(x, (1, 3, 5, 2, 0, 4)), (m, count))


def _as_laid_out(lib: ArrayLibrary, words: Array, packing: Packing) -> Array:
    """The reverse of `_by_row`."""
    m, count = (int(s) for s in words.shape)
    tiles, high = m // packing.rows, packing.rows // 16
    x = lib.reshape(words, (tiles, high, 2, 8, count // 2, 2))
    return lib.reshape(lib.xp.permute_dims(x, (4, 0, 3, 1, 5, 2)), (m, count))


def _codes(lib: ArrayLibrary, words: Array, packing: Packing) -> Array:
    """Codes (m, k/group) uint8 of words by row and column."""
    m, count = (int(s) for s in words.shape)
    parts = [lib.astype((words >> (4 * i)) & 15, "uint8") for i in range(packing.codes)]
    return lib.xp.reshape(lib.xp.stack(parts, axis=-1), (m, count * packing.codes))


def _words(lib: ArrayLibrary, codes: Array, packing: Packing) -> Array:
    """Words (m, count) from codes (m, count, codes a word)."""
    words = lib.astype(codes[..., 0], "int64")
    for i in range(1, packing.codes):
        words = words | (lib.astype(codes[..., i], "int64") << (4 * i))
    bits = 8 * itemsize(packing.meta)
    negative = words >> (bits - 1)  # the highest bit is the sign's
    return lib.astype(words - (negative << bits), packing.meta)


def _illegal(lib: ArrayLibrary, codes: Array, packing: Packing) -> list[Problem]:
    _, count = (int(s) for s in codes.shape)
    if packing.group == 2:
        wrong, expected = (codes != _FIRST) & (codes != _SECOND), "0b0100 or 0b1110 for float32"
    else:
        wrong, expected = (codes & 3) >= (codes >> 2), "two ascending positions"
    return violations(
        lib,
        wrong,
        codes,
        "meta-code",
        lambda p: f"meta (row {p // count}, group {p % count})",
        lambda v: f"code {v:#06b} must be {expected}",
    )


# ---- float32: one value a pair


def _by_pairs(A: NM) -> tuple[Array, Array]:
    """Values and codes (m, k/4, 2): what each pair of columns keeps, and which of the two it is."""
    lib, xp = A.lib, A.lib.xp
    bits, pair, column = lib.bits(A.data), A.indices >> 1, A.indices & 1
    held = bits != 0  # non-zeros, and stored zeros with a sign
    _refuse_crowded_pairs(A, held[..., 0] & held[..., 1] & (pair[..., 0] == pair[..., 1]))
    values, codes = [], []
    for p in (0, 1):
        first, second = (held[..., s] & (pair[..., s] == p) for s in (0, 1))
        found = lib.where(first, bits[..., 0], xp.zeros_like(bits[..., 0]))
        values.append(lib.where(second, bits[..., 1], found))
        # A pair that keeps nothing says "the second", as torch does.
        left = (first & (column[..., 0] == 0)) | (second & (column[..., 1] == 0))
        codes.append(lib.astype(left, "uint8"))
    code = _SECOND - xp.stack(codes, axis=-1) * (_SECOND - _FIRST)
    return lib.from_bits(xp.stack(values, axis=-1), A.dtype_name), code


def _refuse_crowded_pairs(A: NM, together: Array) -> None:
    """Refuse two values in one pair of columns."""
    lib, full = A.lib, A.lib.nonzero_mask(A.data)
    crowded = lib.flatnonzero(together & full[..., 0] & full[..., 1])
    many = int(crowded.shape[0])
    if many:
        _raise_crowded(A, int(lib.item(crowded[:1])), many)
    _refuse_minus(lib, together, "slots, beside another value of its pair of columns")


def _raise_crowded(A: NM, first: int, many: int) -> NoReturn:
    row, group = divmod(first, int(A.data.shape[1]))
    column = group * 4 + 2 * (int(A.indices[row, group, 0]) // 2)
    raise PatternError(
        "the hardware's pattern for float32 is 1:2, one non-zero in each pair of columns; row "
        f"{row}, columns {column} and {column + 1} are both non-zero ({many} "
        f"pair{'s' * (many > 1)} violate{'s' * (many == 1)} in all); conversions never prune, use "
        'sparseformats.prune(A, "1:2"), or float16 values'
    )


def _refuse_minus(lib: ArrayLibrary, where: Array, place: str) -> None:
    many = lib.count_nonzero(where)
    if many:
        raise LossyConversionError(
            f"torch's packed 2:4 keeps two values a group: {many} stored -0.0 in the {place} would "
            "lose the sign; use A.eliminate_zeros() first, which drops stored zeros"
        )
