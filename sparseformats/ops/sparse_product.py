"""Products of two sparse matrices."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from sparseformats import dispatch
from sparseformats._arrays import placed
from sparseformats.dispatch import Explanation, Query
from sparseformats.formats import SparseMatrix
from sparseformats.ops.facts import matrix_facts
from sparseformats.ops.operands import same_place
from sparseformats.ops.scalars import result_dtype

__all__ = ["explain_sparse", "sparse_product"]


@placed
def sparse_product(
    A: SparseMatrix, B: SparseMatrix, alpha: Any, beta: Any, out: Any, kernel: str | None
) -> SparseMatrix:
    """``A @ B`` as CSR: only stored elements meet.

    Raises
    ------
    ValueError
        Shapes do not match; alpha, beta or out is given.
    TypeError, DeviceMismatchError
        Matrices of two libraries or on two devices.
    NoKernelError
        No kernel multiplies two sparse matrices of this library.
    """
    query = _query(A, B, alpha, beta, out)
    selection = dispatch.select(query, kernel)
    start = perf_counter()
    target: Any = selection.target
    product: SparseMatrix = target(A.to("csr"), B.to("csr"), query)
    if dispatch.is_tracing():
        dispatch.record_run("spgemm", selection.name, query, perf_counter() - start)
    return product


def explain_sparse(
    A: SparseMatrix, B: SparseMatrix, alpha: Any, beta: Any, out: Any, kernel: str | None
) -> Explanation:
    """Tell which kernel `sparse_product` would run."""
    return dispatch.explain(_query(A, B, alpha, beta, out), kernel)


def _query(A: SparseMatrix, B: SparseMatrix, alpha: Any, beta: Any, out: Any) -> Query:
    if out is not None or alpha != 1 or beta != 0:
        raise ValueError("a product of two sparse matrices takes no alpha, beta or out")
    if A.shape[1] != B.shape[0]:
        raise ValueError(f"matmul: shapes {A.shape} and {B.shape} do not match")
    same_place(A, B.value_buffers()[0])
    base = A.T if A.family == "transposed" else A
    lib = A.lib
    return Query(
        "spgemm",
        base.family,
        transposed=base is not A,
        m=A.shape[0],
        k=A.shape[1],
        n=B.shape[1],
        **matrix_facts(lib, base),
        x_dtype=B.dtype_name,
        out_dtype=result_dtype(lib, A.dtype_name, B.dtype_name),
    )
