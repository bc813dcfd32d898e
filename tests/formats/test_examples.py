"""The canonical example in every format, library and dtype."""

import numpy as np
import pytest

from sparseformats import _arrays, reference
from sparseformats._dtypes import VALUE_DTYPES
from tests.formats.examples import (
    ALL_FORMATS,
    CLASSES,
    DENSE,
    FORMATS,
    LIBRARIES,
    SHAPE,
    build,
    host,
    lists,
)

EVERY = [(library, dtype) for library in LIBRARIES for dtype in VALUE_DTYPES[library]]


@pytest.mark.parametrize("format", ALL_FORMATS)
@pytest.mark.parametrize(("library", "dtype"), EVERY)
def test_valid_and_right(format, library, dtype):
    A = build(format, library, dtype)
    expected = np.array(DENSE).astype(_arrays.library("numpy").dtype(dtype))
    expected = expected.T if format.endswith(".T") else expected
    assert A.problems() == []
    A.validate()
    assert reference.dense(A).tobytes() == np.ascontiguousarray(expected).tobytes()
    assert A.nnz == 5
    assert A.shape == expected.shape
    assert (A.dtype_name, A.library, A.device, A.ndim) == (dtype, library, "cpu", 2)
    assert A.format == format
    assert A.density == pytest.approx(5 / 15)
    assert A.dtype == A.data.dtype


@pytest.mark.parametrize("format", [name for name in ALL_FORMATS if ":" not in name])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_index_dtype_kept(format, library, index):
    A = build(format, library, index=index)
    assert A.lib.dtype_name(A.index_dtype) == index
    for name, x in A.buffers().items():
        if name != "data":
            assert A.lib.dtype_name(x) == index, name


@pytest.mark.parametrize("library", LIBRARIES)
def test_positions_are_bytes(library):
    assert build("2:4", library).lib.dtype_name(build("2:4", library).index_dtype) == "uint8"


@pytest.mark.parametrize("format", FORMATS)
def test_lists(format):
    A = CLASSES[format](**lists(format), shape=SHAPE)
    assert (A.library, A.dtype_name, A.problems()) == ("numpy", "int64", [])
    assert reference.dense(A).tolist() == DENSE


@pytest.mark.parametrize("format", FORMATS)
def test_lists_join_the_library_of_the_array_beside_them(format):
    made = lists(format)
    made["data"] = build(format, "torch", "float16").data
    A = CLASSES[format](**made, shape=SHAPE)
    assert (A.library, A.dtype_name, A.problems()) == ("torch", "float16", [])
    made = lists(format)
    name = next(name for name in made if name != "data")
    made[name] = build(format, "torch").buffers()[name]
    B = CLASSES[format](**made, shape=SHAPE)
    assert (B.library, B.problems()) == ("torch", [])


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_blocksize(format):
    expected = (2, 2) if "bsr" in format or "ell" in format else (1, 1)
    assert build(format).blocksize == expected


@pytest.mark.parametrize("format", FORMATS)
def test_nbytes_counts_every_buffer(format):
    A = build(format)
    assert A.nbytes == sum(host(A, name).nbytes for name in A.buffers())


@pytest.mark.parametrize("format", FORMATS)
def test_shape_from_any_integers(format):
    made = lists(format)
    for shape in ([3, 5], np.array([3, 5]), (np.int32(3), np.uint8(5))):
        A = CLASSES[format](**made, shape=shape)
        assert A.shape == (3, 5)
        assert all(type(extent) is int for extent in A.shape)


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        (5, TypeError),
        (None, TypeError),
        ("35", TypeError),
        ((3.0, 5), TypeError),
        ((True, 5), TypeError),
        ((3,), ValueError),
        ((3, 5, 1), ValueError),
        ((-3, 5), ValueError),
        ((3, 2**63), ValueError),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_bad_shape(format, shape, error):
    with pytest.raises(error, match="shape must"):
        CLASSES[format](**lists(format), shape=shape)
