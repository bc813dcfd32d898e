"""Certification of kernels whose result is sparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from sparseformats import _dtypes
from sparseformats.testing._values import Draw, value_arrays
from sparseformats.testing.operands import LAYOUTS, laid_out
from sparseformats.testing.sparse_results import check_sampled, check_sparse_product
from sparseformats.testing.strategies import FORMATS, matrices

__all__ = ["sampled_law", "sparse_product_law"]

Judge = Callable[[Any, Callable[[], None]], None]
"""``judge(A, check)`` runs the check of a call with matrix A and counts how it went."""


def sampled_law(drawn: Any, values: Any, options: dict[str, Any], judge: Judge) -> Any:
    """A Hypothesis test of ``"sddmm"``; `options` are those of `check_sampled`."""

    def law(P: Any, data: Any, inner: int, alpha: int) -> None:
        (m, k), dtype = P.shape, P.dtype_name
        X = data.draw(_operands(P, (m, inner), values), label="X")
        Y = data.draw(_operands(P, (inner, k), values), label="Y")
        factor = abs(alpha) if _dtypes.kind(dtype) == "u" else 1 if dtype == "bool" else alpha
        judge(P, lambda: check_sampled(P, X, Y, alpha=factor, **options))

    return given(drawn, st.data(), st.integers(0, 5), st.sampled_from([1, 2, -1]))(law)


def sparse_product_law(drawn: Any, values: Any, options: dict[str, Any], judge: Judge) -> Any:
    """A Hypothesis test of ``"spgemm"``; `options` are those of `check_sparse_product`."""

    def law(A: Any, data: Any, n: int) -> None:
        shape, place = (A.shape[1], n), {"library": A.library, "device": A.device}
        seconds = matrices(FORMATS, shapes=shape, dtypes=A.dtype_name, values=values, **place)
        B = data.draw(seconds, label="B")
        judge(A, lambda: check_sparse_product(A, B, **options))

    return given(drawn, st.data(), st.integers(0, 5))(law)


def _operands(A: Any, shape: tuple[int, int], values: Any) -> Any:
    """Strategy of dense operands of a shape, in every memory layout."""

    def draw_operand(draw: Draw) -> Any:
        X = draw(value_arrays(A.dtype_name, int(np.prod(shape)), values)).reshape(shape)
        return laid_out(X, draw(st.sampled_from(LAYOUTS)), A.lib, A.device)

    return st.composite(draw_operand)()
