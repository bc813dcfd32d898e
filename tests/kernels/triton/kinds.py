"""Which kernels of the backend are written in what."""

from __future__ import annotations

__all__ = ["EVERYWHERE", "GLUON", "GROUPS", "NARROW", "PACK", "ROWS"]

GLUON = {"triton-blocks", "triton-shared"}
"""Kernels that no interpreter runs: they are compiled, run on a GPU, and compared with others."""

EVERYWHERE = "triton-tiles"
"""The kernel in plain Triton that takes every block size, dtype and layout, from sm_80 on."""

GROUPS = "triton-nm"
"""The kernel of 2:4 matrices: Gluon too, but its state on a CPU runs a plain twin of it."""

PACK = "triton-pack"
"""The conversion of dense arrays to 2:4."""

ROWS = "triton-csr"
"""The kernel of elements by rows, which has tests of its own."""

NARROW = {"triton-tiles-int8": "int8", "triton-tiles-fp8": "float8_e4m3fn"}
"""Kernels of 8-bit values, which have tests of their own, with the dtype of each."""
