"""Rules about value and index types, by name.

Names such as ``"float32"`` are the one language that every layer shares: NumPy, torch and CuPy
each have their own dtype objects, and `sparseformats._arrays` alone translates.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "VALUE_DTYPES",
    "IndexWidth",
    "accumulator",
    "bits_name",
    "index_width",
    "itemsize",
    "kind",
]

IndexWidth = Literal["int32", "int64"]

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_SIZES: Final[dict[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}

_EVERYWHERE: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_WIDE_UNSIGNED: Final = ("uint16", "uint32", "uint64")
_FP8: Final = ("float8_e4m3fn", "float8_e5m2")

# torch has uint16/32/64 tensors but hardly an operation on them, so it is left out for good.
VALUE_DTYPES: Final[dict[str, tuple[str, ...]]] = {
    "numpy": (*_EVERYWHERE, *_WIDE_UNSIGNED, "bfloat16"),
    "torch": (*_EVERYWHERE, "bfloat16", *_FP8),
    "cupy": (*_EVERYWHERE, *_WIDE_UNSIGNED),
    "array_api_strict": tuple(
        name for name in (*_EVERYWHERE, *_WIDE_UNSIGNED) if name != "float16"
    ),
}

_KINDS: Final = {"b": "b", "i": "i", "u": "u", "f": "f", "c": "c"}


def itemsize(name: str) -> int:
    """Bytes of one element."""
    return _SIZES[name]


def kind(name: str) -> str:
    """``"b"`` bool, ``"i"`` signed, ``"u"`` unsigned, ``"f"`` floating (bfloat16 too), ``"c"``."""
    return "f" if name == "bfloat16" else _KINDS[name[0]]


def bits_name(name: str) -> str:
    """Integer type of the same width through which values move unchanged.

    complex128 has no integer of its width and keeps its own type: gather and scatter copy it
    byte by byte anyhow.
    """
    if name == "bool":
        return "uint8"
    return name if name == "complex128" else f"int{8 * _SIZES[name]}"


def accumulator(name: str) -> str:
    """Type in which products of `name` are summed."""
    if kind(name) == "f" and _SIZES[name] < 4:
        return "float32"
    return name


def index_width(current: str, *extents: int) -> IndexWidth:
    """Width that index arrays need: never narrower than `current`, int64 beyond int32's reach.

    Parameters
    ----------
    current : str
        ``"int32"`` or ``"int64"``, the width of the source.
    *extents : int
        Largest addresses (exclusive) or counts that the arrays must express.
    """
    if current == "int64" or any(extent > INT32_MAX for extent in extents):
        return "int64"
    return "int32"
