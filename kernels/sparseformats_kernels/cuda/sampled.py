"""Sampled products of block formats on a device: the CPU's code, in the precision of the call."""

from __future__ import annotations

from typing import Any

from sparseformats._arrays import Array
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cpu import sddmm
from sparseformats_kernels.cuda.spmm_dense import exact

__all__ = ["block_gemm"]


def block_gemm(A: SparseMatrix, X: Array, Y: Array, alpha: Any, query: Query) -> Array:
    """One GEMM a stored block, in IEEE arithmetic unless the query says otherwise."""
    import torch

    with exact(torch, torch.float32, query.precision is None):
        return sddmm.block_gemm(A, X, Y, alpha, query)
