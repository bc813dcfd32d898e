"""Malformed structure (C09), empty slots (C11), messages about block sizes (C18)."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparseformats as sf
from tests.cases.support import (
    LIBRARIES,
    SPARSE_LINES,
    STRICT,
    array,
    convert,
    dense,
    fits,
    host,
    name_of,
    products,
)

# C09: each is refused at construction, with the rule and the place.
MALFORMED = {
    "oob": ([9, 1], [0, 1, 2], (2, 4), "index-range", "indices[0]", 9),
    "neg": ([-1, 1], [0, 1, 2], (2, 4), "index-range", "indices[0]", -1),
    "start": ([], [3, 0], (1, 1), "indptr-start", "indptr[0]", 3),
    "short": ([1, 0, 1], [0, 1, 3], (2, 2), "length", "indices", (3,)),
    "zero_cols": ([0, 0], [0, 1, 2], (2, 0), "index-range", "indices[0]", 0),
    "falling": ([0, 1], [0, 2, 1, 2], (3, 2), "indptr-ascending", "indptr[2]", 1),
    "end": ([0, 1], [0, 1, 9], (2, 2), "indptr-end", "indptr[2]", 9),
    "spare": ([0, 1], [0, 1, 1], (2, 2), "indptr-end", "indptr[2]", 1),
    "rows": ([0, 1], [0, 1, 2], (3, 2), "length", "indptr", (3,)),
}


def _parts(case, library):
    indices, indptr, shape, *_ = MALFORMED[case]
    data = np.ones(0 if case == "start" else 2)
    return array(data, library), array(indices, library, int), array(indptr, library), shape


@pytest.mark.parametrize("library", STRICT)
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_csr_and_csc(case, library):
    *_, rule, place, value = MALFORMED[case]
    data, indices, indptr, shape = _parts(case, library)
    for make, extents in ((sf.CSR, shape), (sf.CSC, shape[::-1])):
        for copy in (True, False):
            with pytest.raises(sf.InvalidTensorError) as caught:
                make(data, indices, indptr, extents, copy=copy)
            assert isinstance(caught.value, ValueError)
            assert (rule, place, value) in [p[:3] for p in caught.value.problems]
            assert rule in str(caught.value)
            assert place in str(caught.value)


@pytest.mark.parametrize("library", STRICT)
@pytest.mark.parametrize("case", [c for c in MALFORMED if c not in ("start", "spare", "end")])
def test_malformed_bsr(case, library):
    data, indices, indptr, shape = _parts(case, library)
    data = array(np.ones((2, 1, 1)), library)
    *_, rule, place, value = MALFORMED[case]
    with pytest.raises(sf.InvalidTensorError) as caught:
        sf.BSR(data, indices, indptr, shape)
    assert (rule, place, value) in [p[:3] for p in caught.value.problems]


def test_malformed_coo():
    for row, col, place in (([0, 2], [0, 1], "row[1]"), ([0, 1], [0, 4], "col[1]")):
        with pytest.raises(sf.InvalidTensorError) as caught:
            sf.COO(np.ones(2), row, col, (2, 4))
        assert [p.place for p in caught.value.problems] == [place]


def test_malformed_scipy_object_is_refused():
    S = sp.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 1, 2])), shape=(2, 4))
    S.indices[0] = 9
    for T in (S, S.copy()):
        with pytest.raises(sf.InvalidTensorError, match=r"index-range at indices\[0\]"):
            sf.from_scipy(T)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_malformed_torch_object_is_refused():
    torch = pytest.importorskip("torch")
    T = torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2]), torch.tensor([9, 1]), torch.ones(2), (2, 4), check_invariants=False
    )
    with pytest.raises(sf.InvalidTensorError, match=r"index-range at indices\[0\]"):
        sf.from_torch(T)


def test_unchecked_structure_is_found_by_validate():
    data, indices, indptr, shape = _parts("oob", "numpy")
    A = sf.CSR(data, indices, indptr, shape, check=False)
    for check in (A.validate, lambda: sf.validate(A)):
        with pytest.raises(sf.InvalidTensorError, match="index-range"):
            check()


# C11: a slot of -1 is no block, whatever lies in it.
COLUMNS = [[1, -1], [0, 3], [2, -1], [3, 1]]
BLOCKS = [[2.0, 50], [3, 4], [5, 60], [6, 7]]


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int16"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_empty_slots_never_count(library, dtype, index):
    blocks = np.array(BLOCKS).reshape(4, 2, 1, 1)
    x = array([1, 2, 3, 4], library, dtype)
    A = sf.BlockedELL(array(blocks, library, dtype), array(COLUMNS, library, index), (4, 4))
    assert A.nnz == 6
    assert dense(A)[0].tolist() == [0, 2, 0, 0]
    for target in (("blocked_ell", {}), *SPARSE_LINES):
        if fits(dense(A), target):
            B = convert(A, target)
            assert B.nnz == 6
            for kernel, y in products(B, x):
                assert y.tolist() == [4, 19, 15, 38], (name_of(target), kernel)


@pytest.mark.parametrize("left", [np.nan, np.inf, -5.0])
@pytest.mark.parametrize("library", LIBRARIES)
def test_empty_slots_in_front_and_between(left, library):
    cols = np.array([[-1, 0, -1, 1], [-1, -1, -1, -1]])
    blocks = np.full((2, 4, 2, 2), left)
    blocks[0, 1], blocks[0, 3] = 1, 2
    A = sf.BlockedELL(array(blocks, library), array(cols, library), (4, 4))
    expected = np.zeros((4, 4))
    expected[:2] = [1, 1, 2, 2]
    assert np.array_equal(dense(A), expected)
    for kernel, y in products(A, array(np.eye(4), library)):
        assert np.array_equal(y, expected), kernel
    # An operand full of NaN where no block is must not be read for an empty slot.
    X = np.eye(4)
    for kernel, y in products(A.to("blocked_ell"), array(X, library)):
        assert np.array_equal(y, expected), kernel


@pytest.mark.parametrize("library", LIBRARIES)
def test_empty_slots_do_not_meet_an_infinite_operand(library):
    A = sf.BlockedELL(
        array(np.ones((2, 2, 2, 2)), library), array([[1, -1], [-1, -1]], library), (4, 4)
    )
    X = np.ones((4, 1))
    X[:2] = np.inf  # rows of block column 0, which no slot holds
    for kernel, y in products(A, array(X, library)):
        assert y.reshape(-1).tolist() == [2, 2, 0, 0], kernel


# C18: messages about block sizes show what was given and what is needed.
def test_flat_values_need_three_dimensions():
    flat = {"data": np.arange(12.0), "indices": [0, 1, 1], "indptr": [0, 2, 3], "shape": (4, 4)}
    with pytest.raises(sf.InvalidTensorError, match=r"data must be 3-D, got shape \(12,\)"):
        sf.BSR(**flat, blocksize=(2, 2))


def test_clash_names_both_sizes():
    clash = {"data": np.arange(12.0).reshape(3, 2, 2), "indices": [0, 1, 1], "indptr": [0, 2, 3]}
    with pytest.raises(sf.InvalidTensorError) as caught:
        sf.BSR(**clash, shape=(4, 4), blocksize=(4, 4))
    assert "(2, 2)" in str(caught.value)
    assert "(4, 4)" in str(caught.value)


BAD = [(0, 2), (-2, 2), (2,), (2.0, 2), (2, 2, 2), "ab", 0, -1, (True, 2), (None, 2)]


@pytest.mark.parametrize("size", BAD)
@pytest.mark.parametrize("library", LIBRARIES)
def test_bad_sizes_are_shown(size, library):
    A = sf.from_dense(array(np.eye(4), library))
    for format in ("bsr", "blocked_ell"):
        for convert_ in (A.to, lambda f, **o: sf.from_dense(array(np.eye(4), library), f, **o)):
            with pytest.raises((ValueError, TypeError)) as caught:
                convert_(format, blocksize=size)
            assert repr(size) in str(caught.value)
            assert "blocksize" in str(caught.value)


@pytest.mark.parametrize("format", ["bsr", "blocked_ell"])
def test_a_missing_size_is_asked_for(format):
    A = sf.from_dense(np.eye(4))
    for convert_ in (A.to, lambda f: sf.from_dense(np.eye(4), f)):
        with pytest.raises(ValueError, match=r"blocksize=\("):
            convert_(format)
    with pytest.raises(ValueError, match=r"blocksize=\("):
        A.to(format, blocksize=None)


def test_a_size_is_inherited_where_that_is_legal():
    A = sf.from_dense(np.eye(6), "bsr", blocksize=(2, 2))
    assert A.to("blocked_ell").blocksize == (2, 2)
    assert A.to("blocked_ell").to("bsr").blocksize == (2, 2)
    B = sf.from_dense(np.eye(6), "bsr", blocksize=(2, 3))
    with pytest.raises(ValueError, match=r"\(2, 3\)|square"):
        B.to("blocked_ell")


def test_one_ragged_block_is_legal():
    A = sf.from_dense(np.eye(4)).to("bsr", blocksize=(8, 8))
    assert (A.nnzb, A.blocksize, A.shape) == (1, (8, 8), (4, 4))
    assert np.array_equal(host(A.to_dense()), np.eye(4))


@pytest.mark.parametrize("format", ["coo", "csr", "csc", "2:4"])
def test_a_size_for_a_format_without_blocks_is_refused(format):
    with pytest.raises((ValueError, TypeError), match="block"):
        sf.from_dense(np.eye(4)).to(format, blocksize=(2, 2))


@pytest.mark.parametrize(
    "format", ["", "CSR ", "bcsr", "2:", ":4", "2:4:6", "0:4", "5:4", "a:b", 3]
)
def test_unknown_formats_are_named(format):
    with pytest.raises((ValueError, TypeError)) as caught:
        sf.from_dense(np.eye(4)).to(format)
    shown = (repr(format), str(format), "got n=5, m=4", "got n=0, m=4")
    assert any(text in str(caught.value) for text in shown if text)
