"""Blobs that cuSPARSELt made, for tests without a device.

``data/blobs.npz`` was written on an H200 (compute capability 9.0) by cuSPARSELt 0.8.0 through
torch 2.11.0+cu130. ``in/MxK`` holds a random matrix of whole numbers with none to two non-zeros a
group of four, ``DTYPE/MxK`` the bytes that ``torch._cslt_compress`` made of it, each number taken
as the bits of a value, for 16-bit types seven places up. ``python -m tests.gpu.cusparselt_layout
--fixture FILE`` writes such a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sparseformats import _arrays

FILE = Path(__file__).parent / "data" / "blobs.npz"
SHIFTS = {"float16": 7, "bfloat16": 7, "int8": 0, "float8_e4m3fn": 0}
SHAPES = [(32, 64), (96, 192)]
DTYPES = tuple(SHIFTS)
VERSION, CAPABILITY = 800, (9, 0)


def load() -> dict[str, np.ndarray[Any, Any]]:
    with np.load(FILE, allow_pickle=False) as found:
        return dict(found)


def dense(shape: tuple[int, int], dtype: str, library: str = "torch") -> Any:
    """The matrix that was compressed."""
    raw = load()[f"in/{shape[0]}x{shape[1]}"]
    wide = raw.astype(np.int16 if SHIFTS[dtype] else np.int8) << SHIFTS[dtype]
    return _of_bits(wide, dtype, library)


def blob(shape: tuple[int, int], dtype: str) -> np.ndarray[Any, Any]:
    """What the library made of it, as bytes."""
    return load()[f"{dtype}/{shape[0]}x{shape[1]}"]


def packed(shape: tuple[int, int], dtype: str, library: str = "torch") -> Any:
    """The same as torch holds it."""
    raw = blob(shape, dtype).view(np.int16 if SHIFTS[dtype] else np.int8)
    return _of_bits(raw.reshape(shape[0], -1), dtype, library)


def _of_bits(raw: np.ndarray[Any, Any], dtype: str, library: str) -> Any:
    lib = _arrays.library(library)
    return lib.from_bits(lib.from_numpy(raw.copy()), dtype)
