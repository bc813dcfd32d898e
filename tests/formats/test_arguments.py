"""Arguments of the wrong kind: refused before anything is read, both sides named."""

import numpy as np
import pytest
import torch

from sparseformats import (
    BSR,
    COO,
    CSR,
    NM,
    BlockedELL,
    DeviceMismatchError,
    InvalidTensorError,
    SparseMatrix,
    Transposed,
)
from tests.formats.examples import CLASSES, FORMATS, LIBRARIES, SHAPE, arrays, build, lists

INDEX_NAMES = {name: [n for n in arrays(name) if n != "data"] for name in FORMATS}
EVERY_INDEX = [(format, name) for format in FORMATS for name in INDEX_NAMES[format]]


def _make(format, **values):
    return CLASSES[format](**{**arrays(format), "shape": SHAPE, **values})


@pytest.mark.parametrize(("format", "name"), EVERY_INDEX)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bool", "complex64"])
def test_index_dtype_refused(format, name, dtype):
    index = arrays(format)[name].astype(dtype)
    with pytest.raises(TypeError, match=f"{name} must have an integer dtype, got {dtype}"):
        _make(format, **{name: index})


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("dtype", "shown"),
    [("O", "object"), ("U3", "str"), ("M8[s]", "datetime64"), ("m8[s]", "timedelta64")]
    + [("g", "longdouble|float128"), ("V4", "void")],
)
def test_value_dtype_refused(format, dtype, shown):
    data = np.zeros(np.shape(lists(format)["data"]), dtype)
    with pytest.raises(TypeError, match=f"values of dtype ({shown}).* not supported for numpy"):
        _make(format, data=data)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.complex32])
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_torch_dtypes_left_out(dtype):
    data = torch.zeros(5, dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(TypeError, match=f"values of dtype {name} are not supported for torch"):
        COO(**{**arrays("coo", "torch"), "data": data}, shape=SHAPE)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("wrong", [5, 1.5, None, "ab", {1: 2}, {1, 2}, object()])
def test_no_array(format, wrong):
    for name in arrays(format):
        with pytest.raises(TypeError, match=rf"{name} must be a NumPy, torch or CuPy array or a l"):
            _make(format, **{name: wrong})


@pytest.mark.parametrize("format", FORMATS)
def test_masked_array(format):
    for name, x in arrays(format).items():
        with pytest.raises(TypeError, match=rf"{name} is a masked array; fill it first"):
            _make(format, **{name: np.ma.masked_array(x)})


@pytest.mark.parametrize(("format", "name"), EVERY_INDEX)
def test_mixed_libraries(format, name):
    with pytest.raises(TypeError, match="from one library, got numpy and torch"):
        _make(format, **{name: arrays(format, "torch")[name]})


@pytest.mark.parametrize(("format", "name"), EVERY_INDEX)
def test_mixed_devices(format, name):
    given = arrays(format, "torch")
    given[name] = given[name].to("meta")
    with pytest.raises(DeviceMismatchError, match=f"data is on 'cpu' but {name} is on 'meta'"):
        CLASSES[format](**given, shape=SHAPE)
    given = {n: x if n == name else x.to("meta") for n, x in arrays(format, "torch").items()}
    with pytest.raises(DeviceMismatchError, match=f"data is on 'meta' but {name} is on 'cpu'"):
        CLASSES[format](**given, shape=SHAPE)


@pytest.mark.parametrize("index", ["int32", "int64", "uint8", "uint32"])
@pytest.mark.parametrize("format", FORMATS)
def test_meta(format, index):
    given = {
        name: x if name == "data" else x.to(getattr(torch, index))
        for name, x in arrays(format, "torch").items()
    }
    with pytest.raises(ValueError, match="device 'meta' hold no values"):
        CLASSES[format](**{name: x.to("meta") for name, x in given.items()}, shape=SHAPE)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_dimensions(format, library):
    given = arrays(format, library)
    ndim = given["data"].ndim
    given["data"] = given["data"][None, ...]
    match = rf"data must be {ndim}-D, got shape \(1, "
    with pytest.raises(InvalidTensorError, match=match):
        CLASSES[format](**given, shape=SHAPE)


INDEXED = [name for name in FORMATS if name != "2:4"]


@pytest.mark.parametrize("format", INDEXED)
@pytest.mark.parametrize(
    "wrong", ["int8", "uint32", "float32", np.float64, torch.int16, "x", 7, [1], {}]
)
def test_index_dtype_option(format, wrong):
    with pytest.raises(TypeError, match="index_dtype must be 'int32' or 'int64', got"):
        _make(format, index_dtype=wrong)


@pytest.mark.parametrize("format", INDEXED)
@pytest.mark.parametrize("library", LIBRARIES)
def test_index_dtype_option_in_every_spelling(format, library):
    strict = build("coo", "array_api_strict", index="int64").index_dtype
    for spelling in ("int64", np.int64, np.dtype("int64"), torch.int64, int, strict):
        A = build(format, library, index_dtype=spelling)
        assert A.lib.dtype_name(A.index_dtype) == "int64"
    A = build(format, library, index="int64", index_dtype="int32")
    assert A.lib.dtype_name(A.index_dtype) == "int32"
    assert A.problems() == []


@pytest.mark.parametrize("stored", ["some", "", None, 3, [True], np.ones(3)])
@pytest.mark.parametrize("format", ["bsr", "blocked_ell", "2:4"])
def test_stored_option(format, stored):
    with pytest.raises((TypeError, ValueError), match="stored must be 'nonzero', 'all' or a"):
        _make(format, stored=stored)


@pytest.mark.parametrize("format", ["bsr", "blocked_ell", "2:4"])
def test_stored_mask_of_another_library_shape_or_device(format):
    given = arrays(format, "torch")
    mask = given["data"] != 0
    with pytest.raises(TypeError, match="bool array of the data's library, got ndarray"):
        CLASSES[format](**given, shape=SHAPE, stored=mask.numpy())
    with pytest.raises(TypeError, match="bool array of the data's library, got uint8"):
        CLASSES[format](**given, shape=SHAPE, stored=mask.to(torch.uint8))
    with pytest.raises(ValueError, match="must have the data's shape"):
        CLASSES[format](**given, shape=SHAPE, stored=mask[:1])
    with pytest.raises(DeviceMismatchError, match="data is on 'cpu' but stored is on 'meta'"):
        CLASSES[format](**given, shape=SHAPE, stored=mask.to("meta"))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ["bsr", "blocked_ell", "2:4"])
def test_stored_mask_must_cover_values_and_stay_inside(format, library):
    A = build(format, library)
    xp, lib = A.lib.xp, A.lib
    with pytest.raises(InvalidTensorError, match="leaves out the non-zero value") as caught:
        build(format, library, stored=xp.zeros(A.data.shape, dtype=lib.dtype("bool")))
    assert [p.value for p in caught.value.problems] == [
        v for v in lib.to_numpy(A.data).reshape(-1).tolist() if v
    ]
    with pytest.raises(InvalidTensorError, match="outside the logical shape or in an empty slot"):
        build(format, library, stored=xp.ones(A.data.shape, dtype=lib.dtype("bool")))


@pytest.mark.parametrize("wrong", [(4, 4), 4, (2, 3)])
def test_blocksize_that_clashes(wrong):
    with pytest.raises(InvalidTensorError, match=r"was asked for, the data's blocks are \(2, 2\)"):
        _make("bsr", blocksize=wrong)
    assert _make("bsr", blocksize=(2, 2)).blocksize == _make("bsr", blocksize=2).blocksize == (2, 2)


@pytest.mark.parametrize("wrong", [(0, 2), (-2, 2), (2,), (2, 2, 2), (2.0, 2), "22", True, 0, 1.5])
def test_blocksize_that_is_none(wrong):
    with pytest.raises((TypeError, ValueError), match="two positive integers such as") as caught:
        _make("bsr", blocksize=wrong)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("block", [(0, 2), (2, 0), (0, 0)])
@pytest.mark.parametrize("check", [True, False])
def test_blocks_without_extent(block, check):
    with pytest.raises(InvalidTensorError, match="at least one row"):
        BSR(np.ones((0, *block)), [], [0, 0], (2, 2), check=check)
    with pytest.raises(InvalidTensorError, match="at least one row"):
        BlockedELL(np.ones((1, 0, *block)), np.zeros((1, 0), int), (2, 2), check=check)
    drafts = (
        BSR.trusted(data=np.ones((0, *block)), indices=[], indptr=[0], shape=(2, 2)),
        BlockedELL.trusted(data=np.ones((1, 0, *block)), col_indices=[], shape=(2, 2)),
    )
    for A in drafts:
        assert [p.rule for p in A.problems()] == ["blocksize"]


def test_blocks_that_are_not_square():
    with pytest.raises(InvalidTensorError, match=r"must be square .* got \(2, 3\)"):
        BlockedELL(np.ones((1, 1, 2, 3)), [[0]], (2, 3))


@pytest.mark.parametrize(("n", "m"), [(0, 4), (5, 4), (2, 257), (-1, 4), (2, 0)])
def test_pattern_numbers(n, m):
    with pytest.raises(ValueError, match=f"1 <= n <= m <= 256, got n={n}, m={m}"):
        NM(np.zeros((1, 1, 2)), np.zeros((1, 1, 2), int), (1, 4), n, m)


@pytest.mark.parametrize("n", ["2", 2.0, None])
def test_pattern_numbers_that_are_none(n):
    with pytest.raises(TypeError, match="n:m needs two integers"):
        NM(np.zeros((1, 1, 2)), np.zeros((1, 1, 2), int), (1, 4), n)


@pytest.mark.parametrize("value", [-1, 256, 1000])
def test_positions_beyond_a_byte(value):
    with pytest.raises(InvalidTensorError, match=f"position {value} is not within 0 … 255"):
        NM(np.zeros((1, 1, 2)), np.array([[[0, value]]]), (1, 4))


@pytest.mark.parametrize("base", [build("coo"), build("csr"), build("bsr").T, 5, None, np.ones(3)])
def test_transposed_of_other_things(base):
    with pytest.raises(TypeError, match="holds a BSR, BlockedELL or NM, got"):
        Transposed(base)


def test_the_base_class_has_no_instances():
    with pytest.raises(TypeError, match="make a COO, CSR"):
        SparseMatrix()


def test_flat_layout_errors():
    for values, b in ((np.ones(4), 2), (np.ones((3, 4)), 2), (np.ones((4, 3)), 2), (3.0, 2)):
        with pytest.raises(ValueError, match=f"divided by blocksize={b}, got"):
            BlockedELL.from_flat(values, [[0]], (4, 4), b)
    for bad in (0, -2, (2,), (0, 2), 2**63, "2", 2.0, None, True, (2, 1)):
        with pytest.raises((ValueError, TypeError), match="blocks"):
            BlockedELL.from_flat(np.ones((4, 4)), [[0]], (4, 4), bad)


def test_ragged_lists():
    with pytest.raises(ValueError, match=r"inhomogeneous|ragged"):
        CSR([[1], [1, 2]], [0], [0, 1], (1, 1))
