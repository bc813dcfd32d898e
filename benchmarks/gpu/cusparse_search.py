"""Every algorithm that cuSPARSE has for a CSR product, each prepared and ready to be timed.

Our own kernel chooses one of them; here each is forced in turn, through the same code and with the
same preprocessing, so that nothing but the algorithm differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import sparseformats as sf
from benchmarks.gpu.matrices import Problem
from sparseformats import dispatch

__all__ = ["ALGORITHMS", "KERNEL", "every_algorithm"]

KERNEL = "cusparse-csr"
ALGORITHMS = {"default": 0, "CSR_ALG1": 4, "CSR_ALG2": 6, "CSR_ALG3": 12}
"""Of ``cusparseSpMMAlg_t``, those that take CSR; the numbers are of the library's header."""


def every_algorithm(problem: Problem) -> dict[str, Callable[[], Any]]:
    """Calls by the algorithm's name; one that cuSPARSE does not offer here raises when called.

    Raises
    ------
    NoKernelError, ValueError
        Our cuSPARSE kernel does not serve this product, or there is none.
    """
    from sparseformats_kernels.cusparse import spmm

    A, X, Y = problem.matrix, problem.X, problem.Y
    query = sf.plan(A, X, out=Y, kernel=KERNEL).query
    target: Any = dispatch.select(query, KERNEL).target
    kernel = target() if isinstance(target, type) else target
    calls: dict[str, Callable[[], Any]] = {}
    for name, number in ALGORITHMS.items():
        state = kernel.pack(A, query)  # one each: preprocessing is kept in it
        try:
            run = spmm.bind(state, query, partial(_always, number), False)
        except RuntimeError as error:
            calls[name] = partial(_refuse, error)
        else:
            calls[name] = partial(run, X, Y, 1, 0)
    return calls


def _refuse(error: RuntimeError) -> Any:
    raise error


def _always(number: int, *_: Any) -> int:
    return number
