"""What dispatch loads for a product: the two phases that every matmul kernel has.

A kernel need not import this; an object or a class with these two functions will do.
"""

from __future__ import annotations

from typing import Any, Protocol

from sparseformats._arrays import Array
from sparseformats.dispatch import Query
from sparseformats.formats import SparseMatrix

__all__ = ["MatmulKernel"]


class MatmulKernel(Protocol):
    """A kernel of the operation ``"matmul"``."""

    def pack(self, A: SparseMatrix, query: Query) -> Any:
        """Prepare a matrix once for many products.

        Parameters
        ----------
        A : SparseMatrix
            The matrix as stored, never a `Transposed`: ``query.transposed`` says whether it or its
            transpose is meant, ``query.m`` and ``query.k`` are the shape after that.
        query : Query
            Beside the facts of the matrix only the dtypes and ``size_bucket(query.n)`` may shape
            the state: it serves every operand of those.

        Returns
        -------
        state
            Anything that does not hold `A` itself, and that several threads may read.
        """
        ...

    def run(self, state: Any, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Compute ``alpha * (A @ x) + beta * out``.

        Parameters
        ----------
        state
            What `pack` returned.
        x : (k, n) array
            Of the query's library, device and ``x_dtype``; any strides; n may be 0.
        out : (m, n) array or None
            Of ``out_dtype``, any strides, sharing no memory with `x`; to be filled and returned.
            Not read if beta is 0.
        alpha, beta : bool, int, float or complex
            Python numbers that ``out_dtype`` can hold.

        Returns
        -------
        (m, n) array of ``out_dtype``
            `out`, or a new row-major array.
        """
        ...
