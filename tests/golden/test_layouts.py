"""Golden buffers: the bytes of every format, written by hand in little-endian hex.

A change of any of these is a change of a layout that files, pickles and kernels rely on.
"""

import numpy as np
import pytest

from sparseformats import COO, NM, _arrays, reference
from tests.formats.examples import ALL_FORMATS, LIBRARIES, SHAPE, build

# The 3 x 5 example in int16 with int32 indices; spaces only group for the eye.
EXAMPLE = {
    "coo": {
        "data": "0100 0200 0300 0400 0500",
        "row": "00000000 00000000 01000000 02000000 02000000",
        "col": "00000000 03000000 04000000 01000000 04000000",
    },
    "csr": {
        "data": "0100 0200 0300 0400 0500",
        "indices": "00000000 03000000 04000000 01000000 04000000",
        "indptr": "00000000 02000000 03000000 05000000",
    },
    "csc": {
        "data": "0100 0400 0200 0300 0500",
        "indices": "00000000 02000000 00000000 01000000 02000000",
        "indptr": "00000000 01000000 02000000 02000000 03000000 05000000",
    },
    "bsr": {
        "data": "0100000000000000 0000020000000000 0000000003000000"
        "0000040000000000 0500000000000000",
        "indices": "00000000 01000000 02000000 00000000 02000000",
        "indptr": "00000000 03000000 05000000",
    },
    "blocked_ell": {
        "data": "0100000000000000 0000020000000000 0000000003000000"
        "0000040000000000 0500000000000000 0000000000000000",
        "col_indices": "00000000 01000000 02000000 00000000 02000000 ffffffff",
    },
    "2:4": {
        "data": "01000200 00000000  00000000 03000000  00000400 05000000",
        "indices": "0003 0001  0001 0001  0001 0001",
    },
}
STATIC = {
    **{name: {"shape": SHAPE} for name in ("coo", "csr", "csc", "bsr", "blocked_ell")},
    "2:4": {"shape": SHAPE, "n": 2, "m": 4},
    "bsr.T": {"base": "BSR", "shape": SHAPE},
    "blocked_ell.T": {"base": "BlockedELL", "shape": SHAPE},
    "2:4.T": {"base": "NM", "shape": SHAPE, "n": 2, "m": 4},
}


def raw(A):
    """Bytes of every buffer, in order, as hex."""
    return {
        name: np.ascontiguousarray(A.lib.to_numpy(x)).tobytes().hex()
        for name, x in A.buffers().items()
    }


def plain(buffers):
    return {name: text.replace(" ", "") for name, text in buffers.items()}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ALL_FORMATS)
def test_example(format, library):
    A = build(format, library, "int16")
    assert raw(A) == plain(EXAMPLE[format.removesuffix(".T")])
    assert A.static() == STATIC[format]


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_example_by_conversion(format):
    for source in ALL_FORMATS:
        if format.endswith(".T") or source.endswith(".T"):
            continue
        options = {"blocksize": (2, 2)} if format in ("bsr", "blocked_ell") else {}
        A = build(source, dtype="int16").to(format, **options)
        assert raw(A) == plain(EXAMPLE[format]), source


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_index_width_is_the_only_difference(index, library):
    A = build("csr", library, "int16", index)
    width = {"int32": 8, "int64": 16}[index]
    assert raw(A)["indptr"] == "".join(f"{x:02x}".ljust(width, "0") for x in (0, 2, 3, 5))


# Marks: BSR with stored zeros of both signs at slots 1 and 2 of one float32 block.
def test_marks():
    lib = _arrays.library("numpy")
    data = np.array([[[1.0, 0.0], [-0.0, 0.0]]], np.float32)
    mask = np.array([[[True, True], [True, False]]])
    A = build("bsr").__class__(data, [0], [0, 1], (2, 2), stored=mask)
    assert raw(A) == plain(
        {
            "data": "0000803f 00000000 00000080 00000000",
            "indices": "0000000000000000",
            "indptr": "0000000000000000 0100000000000000",
            "zeros": "0100000000000000 0200000000000000",
        }
    )
    assert A.static() == {"shape": (2, 2)}
    B = A.__class__(data, [0], [0, 1], (2, 2), stored="all")
    assert B.static() == {"shape": (2, 2), "zeros": "all"}
    assert "zeros" not in B.buffers()
    assert lib.equal_bits(B.data, A.data)


# n:m: the group holds 7 at 2 and a stored -0.0 at 3; a stored zero at 0 has no slot.
SIDE = {
    "data": "0000e040 00000080",
    "indices": "0203",
    "zeros": "0100000000000000",
    "side_data": "00000000",
    "side_row": "00000000",
    "side_col": "00000000",
}


def test_side_record():
    side = COO(np.zeros(1, np.float32), np.zeros(1, np.int32), np.zeros(1, np.int32), (1, 4))
    data = np.array([[[7.0, -0.0]]], np.float32)
    A = NM(data, [[[2, 3]]], (1, 4), stored=np.ones((1, 1, 2), bool), side=side)
    assert raw(A) == plain(SIDE)


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_buffers_read_back(format):
    """Golden bytes are readable: a matrix made from them is the example."""
    base = format.removesuffix(".T")
    A = build(format, dtype="int16")
    buffers = {}
    for name, x in A.buffers().items():
        found = bytes.fromhex(EXAMPLE[base][name].replace(" ", ""))
        buffers[name] = np.frombuffer(found, x.dtype).reshape(x.shape)
    B = A.from_parts(buffers, A.static())
    assert B.problems() == []
    assert reference.same_content(A, B)


# Values whose bits no sum of floats would give back.
BITS = {
    "float32": ["7f800001", "ffc12345", "80000000", "00000001", "7f800000"],
    "float64": ["7ff0000000000001", "fff8000000000abc", "8000000000000000", "0000000000000001"]
    + ["fff0000000000000"],
    "float16": ["7c01", "fe34", "8000", "0001", "fc00"],
    "bfloat16": ["7f81", "ffc1", "8000", "0001", "ff80"],
}


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_value_bits(dtype, library):
    lib, host = _arrays.library(library), _arrays.library("numpy")
    stored = b"".join(bytes.fromhex(x)[::-1] for x in BITS[dtype])
    data = lib.from_numpy(np.frombuffer(stored, host.dtype(dtype)), "cpu")
    A = build("csr", library, dtype)
    B = A.__class__(data, A.indices, A.indptr, SHAPE)
    assert raw(B)["data"] == stored.hex()
    assert raw(B.T)["data"] == stored.hex()
