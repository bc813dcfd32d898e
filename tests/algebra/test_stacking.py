"""hstack, vstack and block_diag move elements and change no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import reference
from sparseformats.testing import matrices, unchanged
from tests.algebra.support import ANY, EXAMPLES, LIBRARIES, PLANTED, moved

STACKS = ("hstack", "vstack", "block_diag")


@st.composite
def stacks(draw: Any, library: str, kind: str) -> list[Any]:
    """One to three matrices that fit, of one dtype and any formats."""
    dtype = draw(st.sampled_from(["float32", "float64", "int8", "complex64"]))
    common = draw(st.integers(0, 5))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        m, n = draw(st.integers(0, 5)), draw(st.integers(0, 5))
        shape = {"hstack": (common, n), "vstack": (m, common), "block_diag": (m, n)}[kind]
        format = draw(st.sampled_from(ANY))
        shape = shape[::-1] if format.endswith(".T") else shape
        found.append(draw(matrices(format, library=library, dtypes=dtype, shapes=shape)))
    return found


def put_together(parts: list[Any], kind: str) -> tuple[dict[Any, Any], tuple[int, int]]:
    top = left = 0
    found = {}
    for A in parts:
        for (i, j), v in reference.entries(A).items():
            found[top + i, left + j] = v
        top += A.shape[0] if kind != "hstack" else 0
        left += A.shape[1] if kind != "vstack" else 0
    first = parts[0].shape
    return found, (first[0] if kind == "hstack" else top, first[1] if kind == "vstack" else left)


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_stacks(library: str, kind: str) -> None:
    @given(stacks(library, kind))
    def law(parts: list[Any]) -> None:
        with unchanged(*parts):
            B = getattr(sf, kind)(parts)
        moved(B, *put_together(parts, kind))
        assert B.format in {"csr", parts[0].format}
        C = getattr(sf, kind)(iter(parts), format="bsr", blocksize=(2, 3))
        assert (C.format, C.blocksize) == ("bsr", (2, 3))
        moved(C, *put_together(parts, kind))

    law()


@pytest.mark.parametrize(("format", "options"), EXAMPLES)
@pytest.mark.parametrize("kind", STACKS)
def test_a_common_format_stays_where_blocks_stay_whole(
    format: str, options: dict[str, Any], kind: str
) -> None:
    A = sf.eye(12, format=format, **options)
    assert getattr(sf, kind)([A, A]).format == format
    odd = sf.eye(11, format=format, **options)
    cut = getattr(sf, kind)([odd, odd])
    plain = A.family in ("coo", "csr", "csc")
    lucky = (format, kind) in {("2:4", "vstack"), ("2:4.T", "hstack")}
    assert cut.format == (format if plain or lucky else "csr")
    assert getattr(sf, kind)([A, sf.eye(12, format="csc")]).format in ("csr", "csc")
    assert getattr(sf, kind)([odd]) is odd


def test_marks_and_widths() -> None:
    A = sf.BSR(np.zeros((1, 2, 2)), [0], [0, 1], (2, 2), stored="all")
    for kind in STACKS:
        B = getattr(sf, kind)([A, A])
        assert (B.zeros, B.nnz) == ("all", 8)
    wide = sf.COO([1.0], [0], [2**31 - 2], (1, 2**31 - 1))
    assert wide.index_dtype == np.int64 or wide.to("coo", index_dtype="int32") is not None
    narrow = wide.to("coo", index_dtype="int32")
    two = sf.hstack([narrow, narrow])
    assert two.col.tolist() == [2**31 - 2, 2**32 - 3]
    assert sf.hstack([sf.eye(2), sf.eye(2, dtype="int8")]).dtype == np.float64


T = sf.eye(2, library="torch")
WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: sf.hstack([]), ValueError, "hstack takes at least one matrix, got none"),
    (lambda: sf.hstack([sf.eye(2), sf.eye(3)]), ValueError, r"heights must be equal, got \[2, 3\]"),
    (lambda: sf.vstack([sf.eye(2), sf.eye(3)]), ValueError, r"widths must be equal, got \[2, 3\]"),
    (lambda: sf.vstack(sf.eye(2)), TypeError, "a list of matrices, got one CSR"),
    (lambda: sf.vstack([sf.eye(2), np.eye(2)]), TypeError, "got ndarray; .*asformat"),
    (lambda: sf.vstack([sf.eye(2), T]), TypeError, "to_library"),
    (
        lambda: sf.vstack(
            [T, T.from_parts({k: x.to("meta") for k, x in T.buffers().items()}, T.static())]
        ),
        sf.DeviceMismatchError,
        "'meta'",
    ),
    (lambda: sf.vstack([sf.eye(2)], blocksize=2), ValueError, "blocksize=2 needs format="),
    (lambda: sf.hstack([sf.eye(2), sf.eye(2)], format="bsr"), ValueError, "blocksize"),
    (lambda: sf.hstack([T, T.astype(torch.float8_e5m2)]), TypeError, "no common dtype"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_refusals(number: int) -> None:
    what, error, text = WRONG[number]
    with pytest.raises(error, match=text) as caught:
        what()
    assert "{" not in str(caught.value)


def adds_onto_zeros(parts: list[Any]) -> Any:
    """Stacks as sums over a common shape, which loses -0.0 and stored zeros."""
    return sf.from_dense(np.hstack([A.to_dense() + 0 for A in parts]), "csr")


def test_planted() -> None:
    @PLANTED
    @given(stacks("numpy", "hstack"))
    def law(parts: list[Any]) -> None:
        with np.errstate(all="ignore"):
            moved(adds_onto_zeros(parts), *put_together(parts, "hstack"))

    with pytest.raises(AssertionError):
        law()
