"""What dispatch loads for a product: the two phases that every matmul kernel has.

A kernel need not import this; an object or a class with these two functions will do.
"""

from __future__ import annotations

from typing import Any, Protocol

from sparseformats._arrays import Array
from sparseformats.dispatch import Query
from sparseformats.formats import SparseMatrix

__all__ = ["FusingKernel", "MatmulKernel"]


class MatmulKernel(Protocol):
    """A kernel of the operation ``"matmul"``.

    Five more attributes are read where a kernel has them:

    ``layout(query)``
        What of a call, beside its dtypes, shapes the packed state, as a hashable value: for
        example ``size_bucket(query.n)``. Without it one state serves all sizes of operands.
    ``bind(state, query)``
        ``run`` for calls of these facts: a callable ``(x, out, alpha, beta) -> y``, made once and
        kept. Dtypes, library, device and the triviality of alpha and beta are as the query says;
        of `x` the facts are those of one call, but a batch (``query.batch > 1``) comes in pieces or
        laid anew side by side: of other widths and layouts, with or without `out`, aligned where
        the query says so.
    ``bind_vector(state, query)``
        The same for a vector: ``x`` is (k,), ``out`` and the result are (m,). None where `bind`,
        with one column, will do as well.
    ``bind_batch(state, query)``
        The same for a batch on the right: ``x`` is (b, k, n), ``out`` and the result are (b, m, n),
        of any strides. None where `bind`, piece by piece, will do as well. Of a record that names
        `batches` it is also asked for what `bind_epilogue` would be, and never None from that many
        columns on.
    ``per_thread``
        True if the state has a workspace: each thread and stream then packs its own, and a graph is
        recorded on the stream on which the call was prepared.

    On a GPU a bound kernel launches on the stream that is current when it is called, never
    synchronises and allocates by the array library only, so that it can be recorded into a graph;
    what may compile, search or synchronise belongs into `pack` and ``bind``, which never run while
    one is recorded. Of a library that computes on the current device only (CuPy), that of the
    matrix is the current one whenever a kernel is called.
    """

    def pack(self, A: SparseMatrix, query: Query) -> Any:
        """Prepare a matrix once for many products.

        Parameters
        ----------
        A : SparseMatrix
            The matrix as stored, never a `Transposed`: ``query.transposed`` says whether it or its
            transpose is meant, ``query.m`` and ``query.k`` are the shape after that.
        query : Query
            Beside the facts of the matrix only the dtypes and what ``layout`` names may shape the
            state: it is kept with the matrix and serves every operand of those.

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


class FusingKernel(MatmulKernel, Protocol):
    """A kernel whose record names epilogues, with `checks.epilogue_in` or `checks.epilogue_of`.

    It computes ``activation(alpha * (A @ x) + beta * out + bias) + residual`` and rounds once.
    `bind` is asked for calls without an epilogue only; for others there is, where a kernel has it,

    ``bind_epilogue(state, query)``
        A callable ``(x, out, alpha, beta, bias, **beside) -> y``, made once and kept: the
        activation is that of ``query.epilogue``, `bias` is None where it names none. Without it
        `run` is called.

    What `beside` has is given only where the epilogue names it, to `run` as well:

    ``residual=``
        Where it names ``"residual"``: an (m, n) array of ``out_dtype``, of any strides, sharing no
        memory with `out`.
    ``row_scale=``, ``column_scale=``
        Where it names ``"scale"``, one of them, both or none: contiguous float32, (m,) and (n,), or
        (1,) for all. The sums of int8 or fp8 are multiplied by them, and by alpha, in float32;
        `bias` is then of float32, and ``out_dtype`` float16, bfloat16, float32, or that fp8.

    A layer gives `out`: most often the transpose of a row-major array (layout ``"F"``), or what its
    caller gave.
    """

    def run(
        self,
        state: Any,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        *,
        bias: Array | None = None,
        activation: str | None = None,
    ) -> Array:
        """Compute as `MatmulKernel.run`, and what follows.

        Parameters
        ----------
        bias : (m,) array or None
            Contiguous, of ``out_dtype``: one number a row of the result.
        activation : str or None
            ``"relu"``, ``"gelu"`` or ``"silu"``, as `sparseformats.linear` defines them.
        """
        ...
