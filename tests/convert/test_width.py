"""Widths of index arrays."""

from __future__ import annotations

import numpy as np
import pytest

import sparseformats as sf
from sparseformats.convert import Options
from tests.convert import samples

FORMATS = {
    "coo": {},
    "csr": {},
    "csc": {},
    "bsr": {"blocksize": 2},
    "blocked_ell": {"blocksize": 2},
}


def width(A: sf.SparseMatrix) -> str:
    return A.lib.dtype_name(A.index_dtype)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_width_is_kept(index: str, library: str) -> None:
    A = samples.csr(library, index)
    for format, options in FORMATS.items():
        B = A.to(format, **options)
        assert width(B) == index
        assert width(B.to("csr")) == index


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_width_on_request(index: str, library: str) -> None:
    for given in ("int32", "int64"):
        A = samples.csr(library, given)
        for format, options in FORMATS.items():
            B = A.to(format, index_dtype=index, **options)
            assert width(B) == index
            assert {B.lib.dtype_name(x) for n, x in B.buffers().items() if n in "indptr row"} <= {
                index
            }
    D = samples.dense(library)
    assert width(sf.from_dense(D, "coo", index_dtype=index)) == index
    assert width(samples.bsr(library).T.to("bsr.T", index_dtype=index)) == index
    side = samples.nm(library).to("2:4", index_dtype=index).side
    assert width(side) == index


def test_numpy_and_library_spellings(library: str) -> None:
    A = samples.csr(library)
    assert width(A.to("coo", index_dtype=np.int64)) == "int64"
    assert width(A.to("coo", index_dtype=A.lib.dtype("int64"))) == "int64"
    with pytest.raises(TypeError, match="int16"):
        A.to("coo", index_dtype="int16")


def test_a_block_index_widens_when_it_becomes_a_column(library: str) -> None:
    parts = (
        np.ones((1, 1, 4), np.float32),
        np.array([2**29], np.int32),
        np.array([0, 1], np.int32),
    )
    A = sf.BSR(*(samples.put(library, x) for x in parts), (1, 2**31 + 4))
    B = A.to("csr")
    assert width(B) == "int64"
    assert B.lib.to_numpy(B.indices).tolist() == [2**31, 2**31 + 1, 2**31 + 2, 2**31 + 3]
    assert width(B.to("bsr", blocksize=(1, 4))) == "int64"
    assert width(B.to("bsr", blocksize=(1, 4), index_dtype="int32")) == "int32"
    with pytest.raises(OverflowError, match="2147483651"):
        B.to("coo", index_dtype="int32")
    with pytest.raises(OverflowError, match="2147483651"):
        A.to("csr", index_dtype="int32")


def test_options_never_narrow() -> None:
    assert Options().width("int32", 2**31 - 1) == "int32"
    assert Options().width("int32", 2**31) == "int64"
    assert Options().width("int64", 1) == "int64"
    assert Options(index_dtype="int64").width("int32", 1) == "int64"
    assert Options(index_dtype="int32").width("int64", 1) == "int64"
