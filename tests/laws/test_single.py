"""Laws of one matrix: its constructor, copies, pickles, transposes and dense view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from sparseformats import reference, testing
from sparseformats.testing import matrices, raw_inputs
from tests.laws.contract import FORMATS, LIBRARIES, sources

LAWS: dict[str, Callable[[Any], None]] = {
    "valid": testing.check_valid,
    "immutable": testing.check_immutable,
    "copy": testing.check_copy,
    "pickle": testing.check_pickle,
    "transpose": testing.check_transpose,
    "dense": testing.check_dense_round_trip,
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("law", LAWS)
def test_law(law: str, library: str) -> None:
    if (law, library) == ("pickle", "array_api_strict"):
        pytest.skip("array-api-strict's arrays cannot be pickled")

    @given(matrices(sources(), library=library))
    def check(A: Any) -> None:
        LAWS[law](A)

    check()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", FORMATS)
def test_constructors_mean_what_they_were_given(format: str, library: str) -> None:
    @given(raw_inputs(format, library=library))
    def check(raw: Any) -> None:
        arguments = raw.arguments(library)
        with testing.unchanged(arguments):
            A = raw.make(**arguments)
        raw.check(A)
        testing.check_valid(A)
        arrays = {name: arguments[name] for name in raw.arrays}
        testing.check_no_shared_memory(arrays, A)
        if raw.canonical:
            testing.check_same_buffers(A, raw.build(library, check=False))

    check()


@pytest.mark.parametrize("library", LIBRARIES)
def test_counts_agree_with_the_reference(library: str) -> None:
    @given(matrices(sources(), library=library))
    def check(A: Any) -> None:
        m, n = A.shape
        assert A.nnz == len(reference.entries(A))
        assert A.density == (A.nnz / (m * n) if m * n else 0.0)
        assert A.nbytes == sum(A.lib.to_numpy(x).nbytes for x in A.buffers().values())

    check()


@given(matrices(sources()))
def test_facts_of_numpy_matrices(A: Any) -> None:
    first = A.parts[0] if A.format == "sum" else A
    assert A.dtype == first.data.dtype
    assert str(np.dtype(A.dtype).name) == A.dtype_name
    assert (A.library, A.device, A.ndim) == ("numpy", "cpu", 2)
    assert "\n" not in repr(A)
