"""The law of a product looks at more than values (values: the planted bugs)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparseformats import testing
from sparseformats.formats import CSR

A = CSR(np.array([1.0, 2.0]), np.array([0, 1]), np.array([0, 1, 2]), (2, 3))
X = np.ones((3, 2))


@pytest.mark.parametrize("out", [None, *testing.LAYOUTS[:-1]])
@pytest.mark.parametrize("left", [False, True])
def test_the_library_obeys(out: str | None, left: bool) -> None:
    testing.check_product(A, X.T[:, :2].copy() if left else X, out=out, left=left)


def test_scalars() -> None:
    testing.check_product(A, X, alpha=2, beta=3, out="F")
    testing.check_product(A, X[:, 0], alpha=2, beta=3, out="rows")


def test_another_array_than_out_fails() -> None:
    def matmul(A: Any, X: Any, **call: Any) -> Any:
        return A.to_dense() @ X

    testing.check_product(A, X, matmul=matmul)
    with pytest.raises(AssertionError, match="not the array that was given as out"):
        testing.check_product(A, X, out="C", matmul=matmul)


def test_memory_beside_out_must_stay() -> None:
    def matmul(A: Any, X: Any, *, out: Any, **call: Any) -> Any:
        out.base[...] = 0
        out[...] = A.to_dense() @ X
        return out

    with pytest.raises(AssertionError, match="memory beside out was written to"):
        testing.check_product(A, X, out="rows", matmul=matmul)


def test_operands_must_stay() -> None:
    def matmul(A: Any, X: Any, **call: Any) -> Any:
        Y = A.to_dense() @ X
        X[0, 0] = -0.0
        return Y

    with pytest.raises(AssertionError, match="inputs untouched"):
        testing.check_product(A, X.copy(), matmul=matmul)


def test_bounds_may_be_widened() -> None:
    def matmul(A: Any, X: Any, **call: Any) -> Any:
        return A.to_dense() @ X + 1e-12

    with pytest.raises(AssertionError, match="elements are wrong"):
        testing.check_product(A, X, matmul=matmul)
    testing.check_product(A, X, matmul=matmul, bound={"extra": 1e-11})
