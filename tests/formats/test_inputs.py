"""Layouts, widths and byte orders of the caller's arrays: all are read right and left alone."""

import numpy as np
import pytest
import torch

from sparseformats import COO, CSR, NM, InvalidTensorError, _arrays, reference
from sparseformats.testing import unchanged
from tests.formats.examples import CLASSES, DENSE, FORMATS, SHAPE, arrays, build, host

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def _make(format, given, **options):
    A = CLASSES[format](**given, shape=SHAPE, **options)
    assert A.problems() == []
    assert reference.dense(A).tolist() == DENSE
    return A


def _index(format, given, change):
    return {name: x if name == "data" else change(x) for name, x in given.items()}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("format", FORMATS)
def test_index_widths(format, dtype, copy):
    given = arrays(format)
    if format == "blocked_ell" and dtype.startswith("u"):  # no -1: an equal block instead
        given["col_indices"] = np.array([[0, 1, 2], [0, 2, 2]])
    A = _make(format, _index(format, given, lambda x: x.astype(dtype)), copy=copy)
    wide = dtype in ("int64", "uint32", "uint64")
    expected = "uint8" if format == "2:4" else "int64" if wide else "int32"
    assert A.lib.dtype_name(A.index_dtype) == expected


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "uint16", "uint32", "uint64"])
def test_torch_index_widths(dtype):
    given = _index("csr", arrays("csr", "torch"), lambda x: x.to(getattr(torch, dtype)))
    wide = dtype in ("uint32", "uint64")
    assert _make("csr", given).index_dtype == (torch.int64 if wide else torch.int32)


@pytest.mark.parametrize("format", ["csr", "csc", "bsr", "coo"])
def test_index_arrays_of_two_widths_take_the_wider(format):
    given = arrays(format)
    first = next(name for name in given if name != "data")
    A = _make(format, {**given, first: given[first].astype("int64")})
    assert {str(x.dtype) for name, x in A.buffers().items() if name != "data"} == {"int64"}


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_unsigned_index_beyond_int64(library):
    row = _arrays.library(library).from_numpy(np.array([0, 2**64 - 1, 2**63], "uint64"), "cpu")
    data, col = (_arrays.library(library).from_numpy(np.ones(3, int), "cpu") for _ in "ab")
    with pytest.raises(InvalidTensorError, match="18446744073709551615 does not fit") as caught:
        COO(data, row, col, (2, 2))
    assert [(p.rule, p.place, p.value) for p in caught.value.problems] == [
        ("index-range", "row.flat[1]", 2**64 - 1),
        ("index-range", "row.flat[2]", 2**63),
    ]


def test_narrowing_only_on_request_and_checked():
    given = {"data": [5.0, 7.0], "indices": [3, 2**31 + 5], "indptr": [0, 2], "shape": (1, 2**32)}
    A = CSR(**given)
    assert A.indices.tolist() == [3, 2**31 + 5]
    assert A.index_dtype == np.int64
    with pytest.raises(OverflowError, match="indices holds 2147483653, which int32 cannot"):
        CSR(**given, index_dtype="int32")


def test_int32_indices_of_a_shape_beyond_int32():
    for library in ("numpy", "torch", "array_api_strict"):
        for format, shape in (("coo", (2**40, 2**40)), ("csr", (3, 2**40)), ("csc", (2**40, 5))):
            A = CLASSES[format](**arrays(format, library), shape=shape)
            assert A.problems() == []
            assert A.lib.dtype_name(A.index_dtype) == "int32"
        A = CLASSES["bsr"](**arrays("bsr", library), shape=(3, 2**40 + 1))
        assert (A.problems(), A.nnz) == ([], 5)
        A = CLASSES["blocked_ell"](**arrays("blocked_ell", library), shape=(3, 2**40 + 1))
        assert (A.problems(), A.nnz) == ([], 5)


def test_the_largest_shape():
    A = COO([1.0], [2**63 - 2], [2**63 - 2], (2**63 - 1, 2**63 - 1))
    assert (A.nnz, A.problems(), A.T.problems()) == (1, [], [])
    assert 0 < A.density < 1e-30


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("dtype", [">f8", ">f4", ">f2", ">i4", ">c8", ">u2"])
@pytest.mark.parametrize("format", FORMATS)
def test_big_endian_values(format, dtype, copy):
    given = arrays(format)
    given["data"] = given["data"].astype(dtype)
    A = _make(format, given, copy=copy)
    assert A.data.dtype.isnative
    assert A.data.dtype == np.dtype(dtype).newbyteorder("=")


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_big_endian_indices(format, copy):
    A = _make(format, _index(format, arrays(format), lambda x: x.astype(">i8")), copy=copy)
    assert all(x.dtype.isnative for x in A.buffers().values())


def test_big_endian_keeps_nan_payloads():
    data = np.frombuffer(bytes.fromhex("7ff0000000000001fff8000000000abc"), ">f8")
    A = COO(data, [0, 1], [0, 1], (2, 2))
    assert A.data.view("u8").tolist() == [0x7FF0000000000001, 0xFFF8000000000ABC]


def _spread(x):
    """The same elements at every second place, backwards, of a larger array."""
    big = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    view = big[..., ::-2]
    view[...] = x
    return view


LAYOUTS = {
    "strided": _spread,
    "fortran": np.asfortranarray,
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "matrix of memory": lambda x: np.asarray(memoryview(x)),
}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("format", FORMATS)
def test_numpy_layouts(format, layout, copy):
    given = {name: LAYOUTS[layout](x) for name, x in arrays(format).items()}
    with unchanged(*given.values()):
        _make(format, given, copy=copy)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_torch_layouts(format, copy):
    given = {}
    for name, x in arrays(format, "torch").items():
        big = torch.zeros((*x.shape, 2), dtype=x.dtype)
        big[..., 1] = x
        given[name] = big[..., 1]
        assert x.ndim == 1 or not given[name].is_contiguous()
    with unchanged(*given.values()):
        _make(format, given, copy=copy)


@pytest.mark.parametrize("copy", [True, False])
def test_broadcast_values(copy):
    for data in (np.broadcast_to(3.0, 5), torch.tensor([3.0]).expand(5)):
        index = arrays("csr", "torch" if isinstance(data, torch.Tensor) else "numpy")
        A = CSR(data, index["indices"], index["indptr"], SHAPE, copy=copy)
        assert A.problems() == []
        assert host(A, "data").tolist() == [3.0] * 5


def test_subclasses_become_plain_arrays(tmp_path):
    given = arrays("coo")
    for name, x in given.items():
        file = np.memmap(tmp_path / name, x.dtype, "w+", shape=x.shape)
        file[:] = x
        given[name] = file
    for copy in (True, False):
        A = _make("coo", given, copy=copy)
        assert all(type(x) is np.ndarray for x in A.buffers().values())
        assert np.shares_memory(A.data, given["data"]) is not copy


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_numpy_matrix_is_two_dimensional():
    with pytest.raises(InvalidTensorError, match=r"data must be 1-D, got shape \(1, 5\)"):
        COO(**{**arrays("coo"), "data": np.matrix([1.0, 2, 3, 4, 5])}, shape=SHAPE)


EMPTY = [
    ("coo", {"data": (0,), "row": (0,), "col": (0,)}),
    ("csr", {"data": (0,), "indices": (0,), "indptr": (1,)}),
    ("csc", {"data": (0,), "indices": (0,), "indptr": (1,)}),
    ("bsr", {"data": (0, 2, 3), "indices": (0,), "indptr": (1,)}),
    ("blocked_ell", {"data": (0, 0, 2, 2), "col_indices": (0, 0)}),
    ("blocked_ell", {"data": (0, 4, 2, 2), "col_indices": (0, 4)}),
    ("2:4", {"data": (0, 0, 2), "indices": (0, 0, 2)}),
]


@pytest.mark.parametrize("library", ["numpy", "torch", "array_api_strict"])
@pytest.mark.parametrize(("format", "extents"), EMPTY)
def test_zero_by_zero(format, extents, library):
    lib = _arrays.library(library)
    given = {
        name: lib.zeros(extent, "float32" if name == "data" else "int64", "cpu")
        for name, extent in extents.items()
    }
    for copy in (True, False):
        A = CLASSES[format](**given, shape=(0, 0), copy=copy)
        assert (A.nnz, A.density, A.problems(), A.T.shape) == (0, 0.0, [], (0, 0))
        assert A.T.problems() == []
        assert A.conj().problems() == []
    assert (CLASSES[format](**given, shape=(0, 0)).dtype_name) == "float32"


@pytest.mark.parametrize("format", FORMATS)
def test_stored_all_without_any_slot(format):
    if format not in ("bsr", "blocked_ell", "2:4"):
        return
    extents = dict(EMPTY[-1][1]) if format == "2:4" else dict(dict(EMPTY)[format])
    given = {name: np.zeros(extent, "int64") for name, extent in extents.items()}
    assert CLASSES[format](**given, shape=(0, 0), stored="all").nnz == 0


def test_no_columns_and_no_rows():
    assert CSR([], [], [0, 0, 0], (2, 0)).problems() == []
    assert CSR([], [], [0], (0, 7)).problems() == []
    assert NM(np.zeros((3, 0, 2)), np.zeros((3, 0, 2), int), (3, 0)).nnz == 0
    assert NM(np.zeros((0, 2, 2)), np.zeros((0, 2, 2), int), (0, 7)).nnz == 0


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arguments_are_left_as_they_were(format, library):
    given = arrays(format, library)
    with unchanged(*given.values()):
        for copy in (True, False):
            A = CLASSES[format](**given, shape=SHAPE, copy=copy)
            A.problems(), repr(A), A.nnz, A.T, A.conj()
    if library == "numpy":
        assert all(x.flags.writeable for x in given.values())


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_unsorted_arguments_are_left_as_they_were(library):
    lib = _arrays.library(library)
    row, col = (lib.from_numpy(np.array(x), "cpu") for x in ([1, 0, 1], [2, 1, 2]))
    data = lib.from_numpy(np.array([1.0, 2.0, 4.0]), "cpu")
    for copy in (True, False):
        with unchanged(data, row, col):
            A = COO(data, row, col, (2, 3), copy=copy)
        assert host(A, "data").tolist() == [2.0, 5.0]


@pytest.mark.parametrize("format", FORMATS)
def test_check_false_takes_canonical_input(format):
    assert build(format, check=False).problems() == []


def test_check_false_checks_nothing_that_reads_values():
    A = CSR([1.0, 2.0], [7, 0], [0, 2], (1, 2), check=False)
    assert [p.rule for p in A.problems()] == ["index-range", "sorted"]
