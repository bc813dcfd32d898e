"""Matrices for tests of the packed 2:4 layout: every legal pattern, values of every kind."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import sparseformats as sf
from sparseformats import _arrays

DTYPES = ("float16", "bfloat16", "int8", "float32")
SHAPES = {"float16": (64, 192), "bfloat16": (32, 64), "int8": (48, 256), "float32": (64, 96)}
_WIDTH = {"float16": "uint16", "bfloat16": "uint16", "int8": "uint8", "float32": "uint32"}
# One, minus one, subnormals, infinities, NaN quiet and signalling with payloads.
_VALUES = {
    "float16": (0x3C00, 0xBC00, 0x0001, 0x83FF, 0x7C00, 0xFC00, 0x7E01, 0xFDFF),
    "bfloat16": (0x3F80, 0xBF80, 0x0001, 0x807F, 0x7F80, 0xFF80, 0x7FC1, 0xFFBF),
    "int8": (0x01, 0xFF, 0x80, 0x7F),
    "float32": (
        *(0x3F800000, 0xBF800000, 0x00000001, 0x807FFFFF, 0x7F800000, 0xFF800000),
        *(0x7FC00001, 0xFFBFFFFF, 0x00010000, 0x00000100),
    ),
}
ANY = [c for n in (0, 1, 2) for c in itertools.combinations(range(4), n)]
FULL = [c for c in ANY if len(c) == 2]
PAIRS = [c for c in ANY if len({x // 2 for x in c}) == len(c)]
FULL_PAIRS = [c for c in PAIRS if len(c) == 2]


def bits(dtype: str, patterns: Any = None, zeros: tuple[int, ...] = (0,)) -> np.ndarray[Any, Any]:
    """Bits of a dense matrix whose groups walk through `patterns`, with `zeros` where none is."""
    m, k = SHAPES[dtype]
    patterns = patterns or (PAIRS if dtype == "float32" else ANY)
    out = np.resize(np.array(zeros, _WIDTH[dtype]), (m, k // 4, 4))
    values = itertools.cycle(_VALUES[dtype])
    for i, g in itertools.product(range(m), range(k // 4)):
        for c in patterns[(i + g) % len(patterns)]:
            out[i, g, c] = next(values)
    return out.reshape(m, k)


def array(raw: np.ndarray[Any, Any], dtype: str, library: str = "torch") -> Any:
    """Bits as an array of values."""
    lib = _arrays.library(library)
    signed = raw.view(raw.dtype.name[1:])
    return lib.from_bits(lib.from_numpy(signed.copy()), dtype)


def bits_of(x: Any) -> np.ndarray[Any, Any]:
    """The reverse of `array`."""
    lib = _arrays.of(x)
    found = lib.to_numpy(lib.bits(x))
    return found.view(f"u{found.dtype.name}")


def minus_zero(dtype: str) -> int:
    """Bits of -0.0."""
    return 1 << (8 * np.dtype(_WIDTH[dtype]).itemsize - 1)


def matrix(dtype: str, library: str = "torch", patterns: Any = None) -> sf.NM:
    """The 2:4 matrix of those bits."""
    made = sf.from_dense(array(bits(dtype, patterns), dtype, library), "2:4")
    assert isinstance(made, sf.NM)
    return made


def by_bytes(
    function: Callable[[Any], Any], raw: np.ndarray[Any, Any], dtype: str
) -> np.ndarray[Any, Any]:
    """Bits of what torch's `function` makes of values, which it only moves.

    torch's gather and scatter on a CPU take half types through float32 and make all NaN alike, so
    those go byte by byte, each as a small number that every type holds.
    """
    if raw.dtype.itemsize != 2:
        return bits_of(function(array(raw, dtype)))
    import torch

    out = np.zeros((), raw.dtype)
    for shift in (0, 8):
        byte = np.where(raw, (raw >> shift & 255) + 1, 0)
        found = function(torch.from_numpy(byte.astype(np.float32)).to(getattr(torch, dtype)))
        moved = found.to(torch.float32).numpy().astype(raw.dtype)
        out = out | (np.where(moved, moved - 1, 0).astype(raw.dtype) << shift)
    return out
