"""In and out of SciPy: every format and dtype, nothing changed, nothing shared."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from sparseformats import BSR, COO, CSR, NM, BlockedELL, InvalidTensorError, Transposed
from sparseformats.convert.interop import from_scipy, to_library, to_scipy
from sparseformats.testing import (
    blocksizes,
    check_content_preserved,
    check_no_shared_memory,
    check_same_buffers,
    check_valid,
    matrices,
    shapes,
    unchanged,
)

PLAIN = ("coo", "csr", "csc")
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)
KINDS = [f"{f}_{kind}" for f in (*PLAIN, "bsr") for kind in ("array", "matrix")]


def arrays(S: Any) -> list[Any]:
    if S.format == "coo":
        return [S.data, S.row, S.col]
    return [S.data, S.indices, S.indptr]


def unsorted(kind: str, dtype: str = "float64", width: str = "int32") -> Any:
    """A 2x4 matrix with rows out of order, position (0, 1) twice and a stored zero."""
    data = np.array([8, 7, 1, 0]).astype(dtype)
    row, col = np.array([0, 0, 0, 1], width), np.array([3, 1, 1, 0], width)
    cls = getattr(sp, kind)
    if kind.startswith("coo"):
        return cls((data, (row, col)), shape=(2, 4))
    if kind.startswith("csc"):
        return cls((data, col, np.array([0, 3, 4], width)), shape=(4, 2))
    if kind.startswith("bsr"):
        blocks = np.stack([data.reshape(2, 2), data.reshape(2, 2), np.zeros((2, 2), dtype)])
        indptr = np.array([0, 3], width)
        return cls((blocks, np.array([1, 0, 1], width), indptr), shape=(2, 4))
    return cls((data, col, np.array([0, 3, 4], width)), shape=(2, 4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
def test_unsorted_and_duplicates_become_canonical_and_the_source_stays(
    kind: str, dtype: str
) -> None:
    S = unsorted(kind, dtype)
    with unchanged(arrays(S)):
        A = from_scipy(S)
    assert (A.format, A.library, A.dtype_name) == (kind[:3], "numpy", dtype)
    check_valid(A)
    check_no_shared_memory(list(A.buffers().values()), arrays(S))
    np.testing.assert_array_equal(to_scipy(A).toarray(), S.toarray())
    if S.format != "bsr":
        assert A.nnz == 3  # two summed, the stored zero kept


def test_bool_duplicates_are_or() -> None:
    A = from_scipy(unsorted("csr_array", "bool"))
    assert to_scipy(A).toarray().tolist() == [[False, True, False, True], [False] * 4]


def test_integer_sum_that_does_not_fit() -> None:
    S = sp.coo_array((np.array([255, 1], np.uint8), ([0, 0], [1, 1])), shape=(1, 2))
    with pytest.raises(OverflowError, match="uint8"):
        from_scipy(S)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", ["int32", "int64"])
def test_index_width_is_kept(kind: str, width: str) -> None:
    S = unsorted(kind, width=width)
    found = arrays(S)[1].dtype
    assert from_scipy(S).index_dtype == found
    A = from_scipy(S, index_dtype="int64")
    back = to_scipy(A)
    assert {x.dtype for x in arrays(back)[1:]} == {np.dtype(np.int64)}


def test_int64_beyond_int32_survives_and_narrows_only_with_an_error() -> None:
    indices, indptr = np.array([3, 2**31 + 5]), np.array([0, 2])
    S = sp.csr_array((np.array([5.0, 7]), indices, indptr), shape=(1, 2**32))
    A = from_scipy(S)
    assert A.indices.tolist() == [3, 2147483653]
    assert to_scipy(A).indices.tolist() == [3, 2147483653]
    with pytest.raises(OverflowError, match="2147483653"):
        from_scipy(S, index_dtype="int32")


def test_dia_stores_its_nonzeros_and_dok_and_lil_what_is_explicit() -> None:
    dia = sp.dia_array((np.array([[1.0, 0, 2]]), [0]), shape=(3, 3))
    before = dia.data.copy()
    A = from_scipy(dia)
    assert (A.format, A.nnz) == ("coo", 2)
    assert before.tobytes() == dia.data.tobytes()
    dok = sp.dok_array((2, 2))
    dok[0, 1] = 3.0
    dok._dict[1, 1] = 0.0
    assert (from_scipy(dok).format, from_scipy(dok).nnz) == ("coo", 2)
    lil = sp.lil_array((2, 2))
    lil[1, 0] = 4.0
    lil.rows[0], lil.data[0] = [1], [0.0]
    assert (from_scipy(lil).format, from_scipy(lil).nnz) == ("csr", 2)


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_spare_room_is_cut(kind: str) -> None:
    S = unsorted(f"{kind}_array")
    S.sort_indices()
    full = from_scipy(S)
    S.data = np.concatenate([S.data, np.full((2, *S.data.shape[1:]), 9.0)])
    S.indices = np.concatenate([S.indices, np.array([77, -5], np.int32)])
    with unchanged(arrays(S)):
        A = from_scipy(S)
    check_same_buffers(full, A)


@pytest.mark.parametrize("kind", ["csr_array", "bsr_array"])
def test_copy_false_shares_what_is_canonical(kind: str) -> None:
    S = getattr(sp, kind)(np.diag([1.0, 2, 3, 4]))
    A = from_scipy(S, copy=False)
    assert np.shares_memory(A.data, S.data)
    assert np.shares_memory(A.indices, S.indices)
    assert S.data.flags.writeable
    assert not A.data.flags.writeable


def test_check_false_takes_the_order_as_it_is() -> None:
    A = from_scipy(unsorted("csr_array"), check=False)
    assert A.indices.tolist() == [3, 1, 1, 0]
    assert A.problems()


def test_big_endian_values_are_swapped() -> None:
    S = sp.csr_array((np.array([1.5, 2], ">f8"), [0, 1], [0, 2]), shape=(1, 2))
    A = from_scipy(S)
    assert A.data.dtype == np.float64
    assert A.data.dtype.isnative
    assert A.data.tolist() == [1.5, 2.0]


def test_stored_of_blocks() -> None:
    B = sp.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    assert from_scipy(B).nnz == 4
    assert from_scipy(B, stored="all").nnz == 8
    mask = B.data != 0
    mask[0, 0, 1] = True
    A = from_scipy(B, stored=mask)
    assert A.nnz == 5
    assert A.zeros.tolist() == [1]


@pytest.mark.parametrize(
    ("stored", "text"), [("some", "'some'"), (np.ones(2, bool), "block formats only")]
)
def test_stored_is_refused_where_it_means_nothing(stored: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        from_scipy(unsorted("csr_array"), stored=stored)


@pytest.mark.parametrize(
    ("thing", "instead"),
    [(np.eye(2), "from_dense"), ([[1.0]], "from_dense"), (object(), "from_dense")],
)
def test_what_is_not_scipy(thing: Any, instead: str) -> None:
    with pytest.raises(TypeError, match=instead) as error:
        from_scipy(thing)
    assert type(thing).__name__ in str(error.value)
    assert "{" not in str(error.value)


def test_torch_tensor_is_sent_to_from_torch() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="from_torch"):
        from_scipy(torch.eye(2))


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2)])
def test_other_dimensions_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two dimensions") as error:
        from_scipy(sp.coo_array(np.ones(shape)))
    assert str(shape) in str(error.value)


@pytest.mark.parametrize(
    ("dtype", "name"), [(object, "object"), (np.longdouble, np.dtype(np.longdouble).name)]
)
def test_values_without_a_form_here(dtype: Any, name: str) -> None:
    S = sp.csr_array((np.array([1, 2], dtype), [0, 1], [0, 2]), shape=(1, 2))
    with pytest.raises(TypeError, match=name):
        from_scipy(S)


def test_bsr_that_its_blocks_do_not_divide() -> None:
    S = sp.bsr_array((np.ones((1, 2, 3)), np.array([0]), np.array([0, 1])), shape=(3, 3))
    with pytest.raises(ValueError, match="multiple") as error:
        from_scipy(S)
    assert "(3, 3)" in str(error.value)
    assert "(2, 3)" in str(error.value)


def test_broken_structure_lists_problems() -> None:
    S = sp.csr_array(np.eye(3))
    S.indices[1] = 9
    with pytest.raises(InvalidTensorError, match=r"indices\[1\]"):
        from_scipy(S)
    S = sp.csr_array(np.eye(3))
    S.indptr = S.indptr[:0]
    with pytest.raises(InvalidTensorError, match="indptr"):
        from_scipy(S)
    S = sp.csr_array(np.eye(3))
    S.indptr[-1] = -2
    with pytest.raises(InvalidTensorError, match="indptr-end"):
        from_scipy(S)


@given(matrices(PLAIN, dtypes=DTYPES))
def test_round_trip_of_plain_formats_keeps_every_bit(A: Any) -> None:
    with unchanged(A):
        S = to_scipy(A)
    assert S.format == A.format
    assert S.has_canonical_format
    assert all(x.flags.writeable for x in arrays(S))
    check_no_shared_memory(A, arrays(S))
    check_same_buffers(A, from_scipy(S))


@given(matrices("bsr", dtypes=DTYPES))
def test_round_trip_of_blocks_keeps_values_and_blocks(A: Any) -> None:
    m, n = A.shape
    r, c = A.blocksize
    if m % r or n % c:
        with pytest.raises(TypeError, match="multiple"):
            to_scipy(A)
        return
    S = to_scipy(A)
    assert S.blocksize == (r, c)
    assert S.has_canonical_format
    back = from_scipy(S, stored=A.stored_mask())
    check_content_preserved(A, back)
    assert back.indices.tobytes() == A.indices.tobytes()


@given(matrices("bsr", dtypes="float64", shapes=shapes(4), blocksizes=blocksizes(1)))
def test_marks_of_stored_zeros_end_at_scipy_and_values_do_not(A: Any) -> None:
    back = from_scipy(to_scipy(A))
    assert back.zeros is None
    assert back.lib.equal_bits(back.data, A.data)


def refusals() -> list[Any]:
    ell = BlockedELL(np.ones((1, 1, 2, 2)), [[0]], (2, 2))
    nm = NM(np.ones((1, 1, 2)), [[[0, 1]]], (1, 4))
    bsr = BSR(np.ones((1, 2, 2)), [0], [0, 1], (2, 2))
    edge = np.array([[[1.0, 0], [0, 0]]])
    return [
        (ell, ("blocked_ell", 'A.to("bsr")', 'A.to("csr")')),
        (nm, ("2:4", 'A.to("csr")')),
        (bsr.T, ("bsr.T", 'A.to("bsr")')),
        (nm.T, ("2:4.T", 'A.to("csr")')),
        (BSR(edge, [0], [0, 1], (1, 1)), ("(1, 1)", "(2, 2)", 'A.to("csr")')),
        (CSR(np.ones(1, np.float16), [0], [0, 1], (1, 1)), ("float16", "to_torch")),
    ]


@pytest.mark.parametrize(("A", "texts"), refusals())
def test_what_scipy_cannot_hold(A: Any, texts: tuple[str, ...]) -> None:
    with pytest.raises(TypeError) as error:
        to_scipy(A)
    for text in texts:
        assert text in str(error.value)
    assert "{" not in str(error.value)


def test_bfloat16_and_foreign_buffers() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    pytest.importorskip("torch")
    A = COO(np.ones(1, ml_dtypes.bfloat16), [0], [0], (1, 1))
    with pytest.raises(TypeError, match="bfloat16"):
        to_scipy(A)
    T = to_library(COO([1.0], [0], [0], (1, 1)), "torch")
    with pytest.raises(TypeError, match=r'to_library\("numpy"\)'):
        to_scipy(T)


@pytest.mark.parametrize("shape", [(0, 0), (0, 6), (4, 0), (3, 5)])
@pytest.mark.parametrize("kind", KINDS)
def test_empty_shapes(kind: str, shape: tuple[int, int]) -> None:
    A = from_scipy(getattr(sp, kind)(shape, dtype=np.float32))
    assert (A.shape, A.nnz, A.dtype_name) == (shape, 0, "float32")
    check_valid(A)
    assert to_scipy(A).shape == shape


def test_a_transposed_bsr_is_a_value_of_its_own() -> None:
    A = Transposed(BSR(np.ones((1, 1, 2)), [0], [0, 1], (1, 2)))
    with pytest.raises(TypeError, match=r"bsr\.T"):
        to_scipy(A)
