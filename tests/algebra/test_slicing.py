"""Slices, index arrays, masks and single elements against dictionaries and NumPy's own rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import sparseformats as sf
from sparseformats import reference
from sparseformats.algebra import slicing
from sparseformats.testing import matrices, unchanged
from tests.algebra.support import EXAMPLES, LIBRARIES, PLANTED, array, host, moved

Index = Any


def index(rng: np.random.Generator, size: int, arrays: bool) -> Index:
    """A slice, or an integer array or a mask if `arrays`."""
    kind = rng.integers(0, 4)
    if arrays and kind == 0:
        return rng.random(size) < 0.6
    if arrays and kind == 1 and size:
        return rng.integers(-size, size, rng.integers(0, size + 3))
    if kind == 2:
        return slice(None)
    start, stop = (
        None if rng.random() < 0.3 else int(rng.integers(-size - 2, size + 3)) for _ in "ab"
    )
    return slice(start, stop, rng.choice([None, 1, 1, 2, 3, -1, -2]))


@st.composite
def cases(draw: Any, library: str) -> tuple[Any, Index, Index]:
    A = draw(matrices(library=library))
    # Drawn by a seed: spread evenly, where Hypothesis prefers what is simple.
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    first = bool(rng.integers(0, 2))
    return A, index(rng, A.shape[0], first), index(rng, A.shape[1], not first)


def taken(A: Any, rows: Index, cols: Index) -> tuple[dict[Any, Any], tuple[int, int]]:
    found, entries = {}, reference.entries(A)
    row, col = (np.arange(n)[item] for n, item in zip(A.shape, (rows, cols), strict=True))
    for i, old_i in enumerate(row.tolist()):
        for j, old_j in enumerate(col.tolist()):
            if (old_i, old_j) in entries:
                found[i, j] = entries[old_i, old_j]
    return found, (len(row), len(col))


def given_to(library: str, item: Index) -> Index:
    return array(item, library) if isinstance(item, np.ndarray) else item


@pytest.mark.parametrize("library", LIBRARIES)
def test_slicing(library: str) -> None:
    @given(cases(library))
    def law(case: Any) -> None:
        A, rows, cols = case
        with unchanged(A):
            B = A[given_to(library, rows), given_to(library, cols)]
        moved(B, *taken(A, rows, cols))
        assert (B.library, B.dtype_name) == (library, A.dtype_name)
        assert B.format in (A.format, "csr")
        if A.family in ("coo", "csr", "csc"):
            assert B.format == A.format
            assert B.index_dtype == A.index_dtype

    law()


@pytest.mark.parametrize("library", LIBRARIES)
def test_elements(library: str) -> None:
    @given(matrices(library=library), st.data())
    def law(A: Any, data: Any) -> None:
        m, n = A.shape
        if not m * n:
            return
        i, j = (data.draw(st.integers(-size, size - 1)) for size in (m, n))
        value = host(A[i, j])
        assert value.shape == ()
        assert value.tobytes() == reference.dense(A)[i, j].tobytes()

    law()


@pytest.mark.parametrize(("format", "options"), EXAMPLES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_formats_stay_where_blocks_stay_whole(
    format: str, options: dict[str, Any], library: str
) -> None:
    D = np.arange(96.0).reshape(8, 12) * (np.arange(12) % 4 < 2) * (np.arange(8) % 4 < 2)[:, None]
    A = sf.from_dense(array(D, library), "csr").to(format, **options)
    grain = {"2:4": (1, 4), "2:4.T": (4, 1)}.get(format, A.blocksize)
    for rows, cols in [
        (slice(4, None), slice(None)),
        (slice(None), slice(None, 11)),
        (slice(6, 7), slice(0, 11)),
        (slice(12, 14), slice(6, 9)),
        (slice(None), slice(4, 8)),
    ]:
        B = A[rows, cols]
        assert np.array_equal(host(B.to_dense()), D[rows, cols])
        begins = [
            len(range(*s.indices(n))) == 0 or (s.start or 0) % g == 0
            for s, n, g in zip((rows, cols), (8, 12), grain, strict=True)
        ]
        assert B.format == (format if all(begins) else "csr")
    assert A[4:].format == (format if A.blocksize != (3, 2) else "csr")
    assert A[1:].format == (format if A.blocksize == (1, 1) and format != "2:4.T" else "csr")
    assert A[:, 1:].format == (format if format in ("coo", "csr", "csc", "2:4.T") else "csr")
    assert A[::2].format == ("csr" if A.blocksize != (1, 1) or format == "2:4.T" else format)
    assert A[:] is A
    assert A[..., :] is A
    assert A[:, ...] is A


def test_a_mark_of_whole_blocks_stays() -> None:
    A = sf.BSR(np.zeros((2, 2, 2)), [0, 1], [0, 1, 2], (4, 4), stored="all")
    assert (A[2:].zeros, A[2:].nnz) == ("all", 4)
    assert A[:3].zeros == "all"
    assert A[:3].nnz == 6


def test_wide_shapes_and_repeats() -> None:
    A = sf.CSR([5.0, 7.0], [3, 2**31 + 5], [0, 2], (1, 2**32))
    assert A[0, 2**31 + 5] == 7
    assert A[:, 2**31 :].indices.tolist() == [5]
    assert A[[0, 0, -1]].nnz == 6
    narrow = sf.CSR([5.0], np.array([3], np.int32), np.array([0, 1], np.int32), (1, 2**32))
    assert narrow[0, 2**31 + 5] == 0
    assert narrow[:, 2**31 :].nnz == 0
    assert narrow[:, 3:].index_dtype == np.int32


def test_lists_ranges_and_scalars_of_every_kind() -> None:
    A = sf.from_dense(np.arange(6.0).reshape(3, 2), "csr")
    assert A[[True, False, True]].shape == (2, 2)
    assert A[range(2)].shape == (2, 2)
    assert A[[]].shape == (0, 2)
    assert A[np.array([2], np.uint8)].shape == (1, 2)
    assert A[np.int8(2), np.array(1)] == 5
    assert isinstance(A[0, 1], np.float64)
    T = A.to_library("torch")
    assert T[torch.tensor(2), -1].item() == 5
    T[2, 1].fill_(9)
    assert T[2, 1].item() == 5


A = sf.from_dense(np.arange(6.0).reshape(3, 2), "csr")
T = A.to_library("torch")
WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: A[0], TypeError, "row 0 alone .* slice 0:1"),
    (lambda: A[:, 1], TypeError, "column 1 alone"),
    (lambda: A[-1, [0]], TypeError, "row 2 alone"),
    (lambda: A[3, 0], IndexError, "row index 3 is out of range for an axis of 3"),
    (lambda: A[0, -3], IndexError, "column index -3 is out of range for an axis of 2"),
    (lambda: A[[0, 3]], IndexError, "row index 3 is out of range"),
    (lambda: A[:, [-3]], IndexError, "column index -3"),
    (lambda: A[[0], [0]], IndexError, r"A\[rows\]\[:, cols\]"),
    (lambda: A[np.array([True])], IndexError, "row mask must have 3 elements, got 1"),
    (lambda: A[np.ones((3, 2), bool)], IndexError, r"1-D integer or bool array, got shape \(3, 2"),
    (lambda: A[np.array([0.0])], IndexError, "dtype float64"),
    (lambda: A[True, 0], IndexError, "True is no integer"),
    (lambda: A[np.array(1.0), 0], IndexError, "no integer"),
    (lambda: A["x"], IndexError, "got str"),
    (lambda: A[1.5, 0], IndexError, "got float"),
    (lambda: A[None], IndexError, "None is no index"),
    (lambda: A[:, :, 0], IndexError, "takes two indices, one for each axis, got 3"),
    (lambda: A[..., ...], IndexError, "one ellipsis"),
    (lambda: A[torch.tensor([0])], TypeError, "numpy array or a list, got a torch array"),
    (lambda: T[torch.ones(1, dtype=torch.int64, device="meta")], sf.DeviceMismatchError, "'meta'"),
    (lambda: A[::0], ValueError, "zero"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_refusals(number: int) -> None:
    what, error, text = WRONG[number]
    with pytest.raises(error, match=text) as caught:
        what()
    assert "{" not in str(caught.value)


# ---- planted bugs


def ignores_steps(A: Any, cols: Any) -> Any:
    if isinstance(cols, range) and cols.step > 1:
        cols = range(cols.start, cols.start + len(cols))
    return RIGHT(A, cols)


def loses_the_offset(A: Any, cols: Any) -> Any:
    B = RIGHT(A, cols)
    if isinstance(cols, range) and cols and cols.step == 1 and B.nnz and cols.start:
        B = sf.CSR(B.data, (B.indices + 1) % B.shape[1], B.indptr, B.shape)
    return B


RIGHT = slicing._select_columns


@pytest.mark.parametrize("planted", [ignores_steps, loses_the_offset])
def test_planted(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slicing, "_select_columns", planted)

    @settings(PLANTED, max_examples=1000)  # one case in a hundred has what shows it
    @given(cases("numpy"))
    def law(case: Any) -> None:
        moved(case[0][case[1], case[2]], *taken(*case))

    with pytest.raises(AssertionError):
        law()
