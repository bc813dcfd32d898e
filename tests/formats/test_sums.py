"""What equal positions sum to, and that a single element is never touched."""

import itertools

import numpy as np
import pytest
import torch

from sparseformats import BSR, COO, CSC, CSR, NM, BlockedELL, _arrays, reference
from sparseformats._dtypes import VALUE_DTYPES, kind
from sparseformats.reference.decoding import host_dtype
from tests.formats.examples import LIBRARIES

INTEGERS = [
    (library, dtype)
    for library in LIBRARIES
    for dtype in VALUE_DTYPES[library]
    if kind(dtype) in "iu"
]
FORMATS = ("coo", "csr", "csc", "bsr", "blocked_ell", "2:4")


def summed(format, values, library="numpy", stored="nonzero"):
    """A 2 x 4 matrix whose element (0, 1) is given once for each of `values` (1-D)."""
    lib = _arrays.library(library)
    count = len(values)

    def array(x, dtype=None):
        return lib.from_numpy(np.array(x, dtype=dtype), "cpu")

    xp = lib.xp
    data, zeros, ones = array(values), array(np.zeros(count), "int32"), array(np.ones(count), "i4")
    if format == "coo":
        return COO(data, zeros, ones, (2, 4))
    if format == "csr":
        return CSR(data, ones, array([0, count, count], "int32"), (2, 4))
    if format == "csc":
        return CSC(data, zeros, array([0, 0, count, count, count], "int32"), (2, 4))
    blocks = np.zeros((count, 2, 2), np.asarray(values).dtype)
    blocks[:, 0, 1] = values
    mask = None
    if stored == "mask":
        mask = np.zeros(blocks.shape, bool)
        mask[:, 0, 1] = True
    if format == "bsr":
        mark = "nonzero" if mask is None else array(mask)
        return BSR(array(blocks), zeros, array([0, count], "int32"), (2, 4), stored=mark)
    if format == "blocked_ell":
        mark = "nonzero" if mask is None else array(mask[None])
        data = array(blocks[None])
        return BlockedELL(data, xp.reshape(zeros, (1, count)), (2, 4), stored=mark)
    slots = np.zeros((2, 1, count), np.asarray(values).dtype)
    slots[0, 0] = values
    mark = "nonzero"
    if stored == "mask":
        flags = np.zeros(slots.shape, bool)
        flags[0] = True
        mark = array(flags)
    at = np.ones(slots.shape, np.uint8)
    return NM(array(slots), array(at), (2, 4), n=count, m=max(4, count), stored=mark)


def only(A):
    """Value at (0, 1), as a 0-d array; nothing else may be stored."""
    found = reference.entries(A)
    assert set(found) == {(0, 1)}
    assert A.problems() == []
    return found[0, 1]


@pytest.mark.parametrize(("library", "dtype"), INTEGERS)
@pytest.mark.parametrize("format", FORMATS)
def test_integer_sums_at_the_limits(format, library, dtype):
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    fits = [[high, 0], [high - 3, 1, 2], [low, 0], [low, high], [high, low, high], [low + 1, -1]]
    for values in fits:
        total = sum(values)
        if low <= min(values) and low <= total <= high:
            stored = summed(format, np.array(values, dtype), library, "mask")
            assert int(only(stored)) == total
    for values in ([high, 1], [low, -1], [high, high], [high] * 5, [low, low], [1, high, high]):
        if min(values) < low or low <= sum(values) <= high:
            continue
        with pytest.raises(OverflowError, match=f"does not fit {dtype}"):
            summed(format, np.array(values, dtype), library)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "int8", "uint8"])
def test_order_of_addition_cannot_overflow(dtype):
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    values = [high, high, low, low, 1, 1] if low else [high, 0, 0, 0]
    for order in set(itertools.permutations(values)):
        assert int(only(summed("coo", np.array(order, dtype)))) == sum(values)


def test_long_integer_run():
    values = np.full(100_001, 2**63 // 100_001, np.int64)
    assert int(only(summed("coo", values))) == sum(values.tolist())
    with pytest.raises(OverflowError):
        summed("coo", values + 1)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", FORMATS)
def test_bool_is_or(format, library):
    for values in ([True, True], [True, False], [False, True, True]):
        assert only(summed(format, np.array(values), library)).tolist() is True
    assert only(summed(format, np.array([False, False]), library, "mask")).tolist() is False


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", FORMATS)
def test_opposites_leave_a_stored_zero(format, library):
    A = summed(format, np.array([2.5, -2.5]), library)
    assert only(A).tobytes() == np.float64(0).tobytes()
    assert A.nnz == 1


HALF = [("numpy", "float16"), ("numpy", "bfloat16"), ("torch", "float16"), ("torch", "bfloat16")]
HALF += [("torch", "float8_e4m3fn"), ("torch", "float8_e5m2")]


@pytest.mark.parametrize(("library", "dtype"), HALF)
@pytest.mark.parametrize("format", FORMATS[:-1])
def test_half_types_accumulate_in_float32(format, library, dtype):
    # Adding 1 to the large value rounds back to it at every step in the type itself.
    large = {"float16": 2048, "bfloat16": 256, "float8_e4m3fn": 16, "float8_e5m2": 8}[dtype]
    ones = 64
    values = np.array([large, *[1] * ones], "float32").astype(host_dtype(dtype))
    expected = np.array(large + ones, "float32").astype(host_dtype(dtype))
    assert only(summed(format, values, library)).tobytes() == expected.tobytes()
    assert float(expected) > large


@pytest.mark.parametrize("format", FORMATS)
def test_float16_sum_beyond_its_range_on_the_way(format):
    values = np.array([60000, 60000, -60000], np.float16)
    assert float(only(summed(format, values))) == 60000


@pytest.mark.parametrize("library", LIBRARIES)
def test_sums_do_not_depend_on_the_rest(library):
    rng = np.random.default_rng(3)
    values = rng.standard_normal(37) * 10.0 ** rng.integers(-12, 12, 37)
    alone = only(summed("coo", values, library)).tobytes()
    assert alone == only(summed("csr", values, library)).tobytes()
    assert alone == only(summed("bsr", values, library)).tobytes()
    lib = _arrays.library(library)
    more = lib.from_numpy(np.concatenate([[9.0], values, [7.0]]), "cpu")
    row = lib.from_numpy(np.array([0] * 38 + [1]), "cpu")
    col = lib.from_numpy(np.array([0] + [1] * 37 + [3]), "cpu")
    assert reference.entries(COO(more, row, col, (2, 4)))[0, 1].tobytes() == alone


SPECIAL = ["7ff0000000000001", "fff8000000000123", "7ff0000000000000", "8000000000000000"]
SPECIAL += ["0000000000000001", "800fffffffffffff", "0000000000000000"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bits", SPECIAL)
@pytest.mark.parametrize("format", FORMATS)
def test_single_element_keeps_its_bits(format, bits, library):
    value = np.frombuffer(bytes.fromhex(bits)[::-1], np.float64)
    A = summed(format, value, library, "mask")
    assert only(A).tobytes() == value.tobytes()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bits", SPECIAL)
def test_single_element_keeps_its_bits_beside_a_sum(bits, library):
    lib = _arrays.library(library)
    value = np.frombuffer(bytes.fromhex(bits)[::-1], np.float64)
    data = lib.from_numpy(np.concatenate([[1.0], value, [2.0]]), "cpu")
    index = [lib.from_numpy(np.array(x), "cpu") for x in ([1, 0, 1], [1, 2, 1])]
    found = reference.entries(COO(data, *index, (2, 4)))
    assert found[0, 2].tobytes() == value.tobytes()
    assert float(found[1, 1]) == 3.0


SIGNALLING = {"float16": 0x7C01, "bfloat16": 0x7F81, "float32": 0x7F800001, "float8_e5m2": 0x7D}


@pytest.mark.parametrize("dtype", SIGNALLING)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_single_signalling_nan_beside_a_sum(library, dtype):
    """Widening to the accumulator and back would make it quiet."""
    if dtype not in VALUE_DTYPES[library]:
        return
    lib, kind_ = _arrays.library(library), host_dtype(dtype)
    data = np.array([1.0, 0.0, 2.0], "float32").astype(kind_)
    data.view(f"u{kind_.itemsize}")[1] = SIGNALLING[dtype]
    index = [lib.from_numpy(np.array(x), "cpu") for x in ([1, 0, 1], [1, 2, 1])]
    found = reference.entries(COO(lib.from_numpy(data, "cpu"), *index, (2, 4)))
    assert found[0, 2].tobytes() == data[1].tobytes()
    assert float(found[1, 1]) == 3.0


@pytest.mark.parametrize("library", LIBRARIES)
def test_lone_minus_zero_survives_the_fill_of_an_equal_block(library):
    lib = _arrays.library(library)
    data = np.zeros((2, 2, 2))
    data[0, 0, 0], data[1, 1, 1] = -0.0, 4.0
    mask = np.zeros(data.shape, bool)
    mask[0, 0, 0] = mask[1, 1, 1] = True
    zeros, ends = np.zeros(2, np.int32), np.array([0, 2], np.int32)
    data, mask, zeros, ends = (lib.from_numpy(x, "cpu") for x in (data, mask, zeros, ends))
    B = BSR(data, zeros, ends, (2, 2), stored=mask)
    E = BlockedELL(data[None, ...], zeros[None, ...], (2, 2), stored=mask[None, ...])
    for A in (B, E):
        found = reference.entries(A)
        assert {at: v.tobytes() for at, v in found.items()} == {
            (0, 0): np.float64(-0.0).tobytes(),
            (1, 1): np.float64(4).tobytes(),
        }
        assert A.problems() == []
    assert B.nnzb == 1


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_sums(dtype):
    values = np.array([1 + 2j, -1j, 3], dtype)
    for format in FORMATS:
        assert only(summed(format, values)) == 4 + 1j


def test_threads_of_torch_do_not_change_a_sum():
    values = np.random.default_rng(0).standard_normal(5001).astype(np.float32)
    before = torch.get_num_threads()
    try:
        found = set()
        for threads in (1, 4):
            torch.set_num_threads(threads)
            found.add(only(summed("coo", values, "torch")).tobytes())
        assert len(found) == 1
    finally:
        torch.set_num_threads(before)
