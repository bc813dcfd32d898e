"""Compressed 2:4 matrices of cuSPARSELt, by index arithmetic where their layout was learnt.

NVIDIA does not document what the library's compressed bytes, a *blob*, mean, and may change it with
any version. A layout in `LEARNT` was found on a device, for that very version, compute capability
and dtype, from blobs of matrices that number their own values and groups; what is not in the table
is not known.

Layout
------
The kept values by row, (m, k/2), as they are. Behind them one code of four bits a group of four
columns: the position of the first kept value in bits 0 and 1, that of the second in bits 2 and 3,
ascending. Codes lie in tiles of 64 rows and 64 columns, 512 bytes each, tile after tile along a row
of tiles; rows that were added to fill a tile have the code 0b1110 everywhere. Within a tile the
place of a code, counted in half bytes with the low half first, has ten bits, each of which is one
bit of the row (r0 to r5) or of the group (c0 to c3) in the tile. `BlobLayout.bits` names them,
lowest first.

A group with fewer than two non-zeros keeps a lone one and, as the second, the last column; a lone
one in the last column comes behind the column before it; an empty group keeps the last two columns.
What is kept but not filled holds +0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.errors import InvalidTensorError, Problem
from sparseformats.formats.checks import violations
from sparseformats.formats.nm import NM

__all__ = ["LEARNT", "BlobLayout", "Key", "as_number", "decode", "elements", "encode", "learnt"]

_ROWS, _GROUPS = 64, 16  # of a tile of codes
_LAST_TWO = 0b1110  # the code of columns 2 and 3

Key = tuple[int, tuple[int, int], str]
"""Version as ``torch.backends.cusparselt.version()`` has it, compute capability, dtype."""


@dataclass(frozen=True, slots=True)
class BlobLayout:
    """Where the codes of a blob lie, and for which shapes that was seen to be so.

    Attributes
    ----------
    bits : str
        Bits of the place of a code within its tile, lowest first, see the module.
    source : str
        Where it was learnt.
    rows, columns : int
        What the sizes of all matrices were multiples of from which it was learnt.
    """

    bits: str
    source: str
    rows: int = 32
    columns: int = 64

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of codes as they lie, (row tiles, column tiles, 10 of size 2), sorted by place.

        That is row tile, bits of the row, column tile, bits of the group, the highest first.
        """
        names = self.bits.split()[::-1]
        row, group = (
            [2 + names.index(f"{x}{i}") for i in range(n)] for x, n in (("r", 6), ("c", 4))
        )
        return (0, *row[::-1], 1, *group[::-1])

    def unfit(self, shape: tuple[int, int]) -> str:
        """Why it is not known how a matrix of this shape lies; empty where it is."""
        m, k = shape
        if m and k and m % self.rows == 0 and k % self.columns == 0:
            return ""
        return (
            f"the layout is known for rows that are a multiple of {self.rows} and columns that are "
            f"one of {self.columns}, neither of them 0; got {shape}"
        )


def as_number(version: tuple[int, int, int]) -> int:
    """``(0, 8, 0)`` as torch writes it, 800."""
    major, minor, patch = version
    return 1000 * major + 100 * minor + patch


_H200 = (
    "cuSPARSELt 0.8.0 by torch 2.11.0+cu130 on an H200, shapes 32x64 to 256x256 and 160x320, by "
    "tests/gpu/cusparselt_layout.py"
)
_16_BITS = BlobLayout("r3 c2 c0 c1 r0 r1 r2 r4 r5 c3", _H200)
_8_BITS = BlobLayout("c0 r3 c3 c1 c2 r0 r1 r2 r4 r5", _H200)

LEARNT: Final[dict[Key, BlobLayout]] = {
    (800, (9, 0), "float16"): _16_BITS,
    (800, (9, 0), "bfloat16"): _16_BITS,
    (800, (9, 0), "int8"): _8_BITS,
    (800, (9, 0), "float8_e4m3fn"): _8_BITS,
}
"""Layouts by version, compute capability and dtype.

Not float32, whose blobs do not hold the values: the library adds half a unit of TF32 to the bits of
each, so that the hardware's cutting rounds, and takes subnormal ones for zeros.
"""


def learnt() -> str:
    """The keys of `LEARNT`, for people."""
    parts = [f"{v} on {a}.{b} ({dtype})" for v, (a, b), dtype in sorted(LEARNT)]
    return ", ".join(parts) or "none so far"


def elements(dtype: str, shape: tuple[int, int]) -> int:
    """Elements of a blob, of which each has the size of a value."""
    m, k = shape
    tiles = -(-m // _ROWS) * (k // (4 * _GROUPS))
    return m * k // 2 + tiles * _ROWS * _GROUPS // (2 * itemsize(dtype))


def decode(
    what: str, lib: ArrayLibrary, layout: BlobLayout, blob: Array, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Values and positions of 2:4 slots, (m, k/4, 2) each; the values may share memory.

    Parameters
    ----------
    what : str
        What is read, for messages.
    blob : array
        Of the values' dtype; what lies behind `elements` is not looked at.
    shape : (m, k)
        One that is not `BlobLayout.unfit`.

    Raises
    ------
    InvalidTensorError
        Positions that do not ascend, or added rows that are not empty.
    """
    (m, k), flat = shape, lib.reshape(blob, (-1,))
    kept, end = m * k // 2, elements(lib.dtype_name(blob), shape)
    codes = _by_row(lib, layout, lib.from_bits(flat[kept:end], "uint8"), k // 4)
    problems = _problems(lib, codes, m)
    if problems:
        raise InvalidTensorError(what, problems)
    codes = codes[:m]
    positions = lib.xp.stack([codes & 3, codes >> 2], axis=-1)
    return lib.reshape(flat[:kept], (m, k // 4, 2)), positions


def encode(layout: BlobLayout, A: NM) -> Array:
    """The blob of a 2:4 matrix as bytes (count,) uint8.

    Bit by bit what the library makes of the same matrix, as far as that was seen. A stored -0.0
    keeps its place and sign if it has a slot; what the library does with one was not learnt. Zeros
    in the side record stay behind.

    Parameters
    ----------
    A : NM
        2:4, of a shape that is not `BlobLayout.unfit`.
    """
    lib, (m, k) = A.lib, A.shape
    assert (A.n, A.m, layout.unfit(A.shape)) == (2, 4, "")
    values, codes = _kept(A)
    missing = -m % _ROWS
    if missing:
        filling = lib.full((missing, k // 4), _LAST_TWO, "uint8", A.device)
        codes = lib.concat([codes, filling])
    values = lib.from_bits(lib.reshape(values, (-1,)), "uint8")
    return lib.concat([values, _as_laid_out(lib, layout, codes)])


# ---- codes: their order in memory, and what they mean


def _by_row(lib: ArrayLibrary, layout: BlobLayout, laid: Array, groups: int) -> Array:
    """Codes (rows of whole tiles, groups) from bytes as they lie."""
    halves = lib.xp.stack([laid & 15, laid >> 4], axis=-1)
    x = lib.reshape(halves, (-1, groups // _GROUPS, *(2,) * 10))
    return lib.reshape(lib.xp.permute_dims(x, layout.axes), (-1, groups))


def _as_laid_out(lib: ArrayLibrary, layout: BlobLayout, codes: Array) -> Array:
    """The reverse of `_by_row`."""
    rows, groups = (int(s) for s in codes.shape)
    axes = layout.axes
    x = lib.reshape(codes, (rows // _ROWS, *(2,) * 6, groups // _GROUPS, *(2,) * 4))
    x = lib.xp.permute_dims(x, tuple(axes.index(i) for i in range(len(axes))))
    halves = lib.reshape(x, (rows * groups // 2, 2))
    return halves[:, 0] | (halves[:, 1] << 4)


def _problems(lib: ArrayLibrary, codes: Array, m: int) -> list[Problem]:
    groups = int(codes.shape[1])

    def place(p: int) -> str:
        return f"codes (row {p // groups}, group {p % groups})"

    inside, added = codes[:m], codes[m:]
    wrong = (inside & 3) >= (inside >> 2)
    found = violations(
        lib,
        wrong,
        inside,
        "meta-code",
        place,
        lambda v: f"code {v:#06b} must be two ascending positions",
    )
    return found + violations(
        lib,
        added != _LAST_TWO,
        added,
        "meta-padding",
        lambda p: place(p + m * groups),
        lambda v: f"code {v:#06b} of a row that was added must be {_LAST_TWO:#06b}",
    )


def _kept(A: NM) -> tuple[Array, Array]:
    """What the library keeps: bits of values (m, k/4, 2), and codes (m, k/4)."""
    lib, bits, at = A.lib, A.lib.bits(A.data), A.indices
    none = lib.xp.zeros_like(bits[..., 0])
    held = bits != 0  # non-zeros, and stored zeros with a sign
    first, both = held[..., 0], held[..., 0] & held[..., 1]
    lone = lib.where(first, bits[..., 0], bits[..., 1])  # of no meaning where both are held
    spot = lib.where(first, at[..., 0], at[..., 1])
    early = (first | held[..., 1]) & (spot < 3)
    low = lib.where(both, bits[..., 0], lib.where(early, lone, none))
    high = lib.where(both, bits[..., 1], lib.where(early, none, lone))
    two = lib.xp.full_like(spot, 2)
    left = lib.where(both, at[..., 0], lib.where(early, spot, two))
    right = lib.where(both, at[..., 1], two + 1)
    return lib.xp.stack([low, high], axis=-1), left | (right << 2)
