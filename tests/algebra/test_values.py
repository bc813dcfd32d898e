"""with_data, eliminate_zeros, astype, scalars and signs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st

import sparseformats as sf
from sparseformats import _dtypes, reference
from sparseformats.reference.decoding import is_nonzero
from sparseformats.testing import check_valid, host_dtype, matrices, unchanged
from tests.algebra.support import ANY, LIBRARIES, expect, host, moved

EVERY = pytest.mark.parametrize("library", LIBRARIES)


def stored_mask(A: Any) -> Any:
    base = A.T if A.family == "transposed" else A
    if not hasattr(base, "zeros"):
        return np.ones(base.data.shape, np.bool_)
    return host(base.stored_mask())


def positions(A: Any) -> Any:
    return set(reference.entries(A))


# ---- with_data

ONE_ARRAY = [format for format in ANY if format != "sum"]


@EVERY
def test_with_data_keeps_the_stored_slots(library: str) -> None:
    @given(matrices(ONE_ARRAY, library=library), st.integers(0, 2**32))
    def law(A: Any, seed: int) -> None:
        rng, mask = np.random.default_rng(seed), stored_mask(A)
        fresh = rng.integers(-2, 3, mask.shape) * mask
        given_values = A.lib.from_numpy(fresh.astype(np.float32), A.device)
        with unchanged(A):
            B = A.with_data(given_values)
        check_valid(B)
        assert (B.format, B.dtype_name) == (A.format, "float32")
        assert positions(B) == positions(A)
        got = host(B.data)
        assert np.array_equal(got[mask], fresh[mask])
        assert not np.shares_memory(got, host(given_values))

    law()


@EVERY
def test_with_data_of_its_own_data_is_the_same(library: str) -> None:
    @given(matrices(ONE_ARRAY, library=library))
    def law(A: Any) -> None:
        moved(A.with_data(A.data), reference.entries(A), A.shape)
        moved(A.with_data(A.data, copy=False), reference.entries(A), A.shape)

    law()


def test_a_value_that_reaches_zero_stays_stored() -> None:
    A = sf.BSR(np.ones((1, 2, 2)), [0], [0, 1], (2, 2))
    B = A.with_data(np.array([[[0.0, 1], [1, 1]]]))
    assert (B.nnz, B.zeros.tolist()) == (4, [0])
    assert B.with_data(np.ones((1, 2, 2))).zeros is None
    whole = sf.BSR(np.ones((1, 2, 2)), [0], [0, 1], (2, 2), stored="all")
    assert whole.with_data(np.zeros((1, 2, 2))).zeros == "all"
    N = sf.from_dense([[1.0, 0, 2, 0]], "2:4")
    assert N.with_data(np.array([[[0.0, 3]]])).nnz == 2


def test_minus_zero_in_an_unstored_slot_is_cleared() -> None:
    N = sf.from_dense([[0.0, 0, 2, 0]], "2:4")
    B = N.with_data(np.array([[[-0.0, 2]]]))
    check_valid(B)
    assert B.nnz == 1


def test_copy_false_shares() -> None:
    fresh = np.array([3.0, 4.0])
    assert np.shares_memory(sf.eye(2).with_data(fresh, copy=False).data, fresh)


ELL = sf.BlockedELL([[[[2.0]], [[0.0]]]], [[1, -1]], (1, 2))
RAGGED = sf.from_dense([[1.0]], "bsr", blocksize=2)
CSR = sf.eye(2)
T = sf.eye(2, library="torch")
WRONG = [
    (lambda: CSR.with_data(np.ones(3)), ValueError, r"\(2,\), got \(3,\)"),
    (lambda: CSR.with_data([1.0, 2.0]), TypeError, "numpy array .* got list"),
    (lambda: CSR.with_data(torch.ones(2)), TypeError, "got torch"),
    (lambda: CSR.with_data(np.ones(2, object)), TypeError, "dtype object"),
    (lambda: T.with_data(torch.ones(2, device="meta")), sf.DeviceMismatchError, "'meta'"),
    (lambda: T.with_data(torch.ones(2, requires_grad=True)), NotImplementedError, "^with_data"),
    (lambda: ELL.with_data(np.ones((1, 2, 1, 1))), sf.InvalidTensorError, r"values.flat\[1\]"),
    (lambda: RAGGED.with_data(np.ones((1, 2, 2))), sf.InvalidTensorError, "3 problems"),
    (lambda: RAGGED.T.with_data(np.ones((1, 2, 2))), sf.InvalidTensorError, "got 1.0"),
    (lambda: CSR.astype("float8_e5m2"), TypeError, "'float8_e5m2' is not supported for numpy"),
    (lambda: CSR.astype(object), TypeError, "not supported"),
    (lambda: CSR.astype("single"), TypeError, "'single'"),
    (lambda: T.astype(3), TypeError, "dtype 3"),
    (lambda: sf.eye(2, dtype="complex64").astype("float32"), TypeError, "two parts"),
    (lambda: (CSR * np.nan).astype("int8"), OverflowError, "nan does not fit, and 1 more do not"),
    (lambda: (CSR * 128).astype("int8"), OverflowError, "-128 … 127, stored value 128"),
    (lambda: (CSR * -1).astype("uint64"), OverflowError, "uint64"),
    (lambda: (CSR * 2.0**63).astype("int64"), OverflowError, "int64"),
    (lambda: (sf.eye(2, dtype="int16") * 300).astype("uint8"), OverflowError, "300"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_refusals(number: int) -> None:
    what, error, text = WRONG[number]
    with pytest.raises(error, match=text) as caught:
        what()
    assert "{" not in str(caught.value)


# ---- eliminate_zeros


@EVERY
def test_eliminate_zeros(library: str) -> None:
    @given(matrices(library=library))
    def law(A: Any) -> None:
        with unchanged(A):
            B = A.eliminate_zeros()
        assert B.format == A.format
        assert B.blocksize == A.blocksize
        kept = {at: v for at, v in reference.entries(A).items() if is_nonzero(v[None])[0]}
        moved(B, kept, A.shape)
        base = B.T if B.family == "transposed" else B
        if base.family == "bsr":
            assert all(is_nonzero(block).any() for block in host(base.data))

    law()


def test_eliminate_zeros_drops_empty_blocks_and_keeps_what_has_none() -> None:
    A = sf.BSR(np.array([[[0.0]], [[2.0]]]), [0, 1], [0, 2], (1, 2), stored="all")
    assert A.eliminate_zeros().nnzb == 1
    B = sf.BSR(np.array([[[0.0]], [[2.0]]]), [0, 1], [0, 2], (1, 2))
    assert B.eliminate_zeros().nnzb == 1
    assert CSR.eliminate_zeros() is CSR


# ---- astype


@EVERY
@pytest.mark.parametrize("target", ["float32", "float64", "complex128", "bool"])
def test_astype(library: str, target: str) -> None:
    @given(matrices(library=library))
    def law(A: Any) -> None:
        source = A.dtype_name
        assume(not (_dtypes.kind(source) == "c" and _dtypes.kind(target) == "f"))
        B = A.astype(target)
        with np.errstate(all="ignore"):
            cast = {
                at: is_nonzero(v[None])[0] if target == "bool" else v.astype(host_dtype(target))
                for at, v in reference.entries(A).items()
            }
        assert B.format == A.format
        expect(B, cast, A.shape, target)

    law()


@EVERY
@pytest.mark.parametrize("target", ["int8", "int64", "uint8"])
def test_astype_to_integers_refuses_what_does_not_fit(library: str, target: str) -> None:
    info = np.iinfo(target)

    @given(matrices(library=library))
    def law(A: Any) -> None:
        assume(_dtypes.kind(A.dtype_name) != "c")
        found = {at: v.item() for at, v in reference.entries(A).items()}
        fits = all(np.isfinite(float(v)) and info.min <= int(v) <= info.max for v in found.values())
        if fits:
            expect(A.astype(target), {at: int(v) for at, v in found.items()}, A.shape, target)
        elif A.dtype_name != target:
            with pytest.raises(OverflowError, match=target):
                A.astype(target)

    law()


def test_spellings_of_dtypes() -> None:
    for dtype in ("float32", np.float32, np.dtype("float32"), np.dtype(">f4")):
        assert CSR.astype(dtype).dtype == np.float32
    assert CSR.astype(int).dtype == np.int64
    assert T.astype(torch.bfloat16).dtype == torch.bfloat16
    assert T.astype("float8_e4m3fn").dtype == torch.float8_e4m3fn
    assert CSR.astype("bfloat16").dtype_name == "bfloat16"
    assert CSR.astype("float64") is CSR


def test_what_becomes_zero_by_a_cast_stays_stored() -> None:
    A = sf.from_dense([[1e-300, 0, 2.0, 0]], "2:4").astype("float32")
    assert (A.nnz, A.to_dense().tolist()) == (2, [[0, 0, 2, 0]])
