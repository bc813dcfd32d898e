"""Index widths: counts beyond int32 (C06), no silent narrowing (C07), 64-bit offsets (C29)."""

import contextlib
import copy
import pickle

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import _arrays
from sparseformats.testing import register_strict
from tests.cases.support import LIBRARIES, array, content, dense, host, products

register_strict()


# C06: stored slots are counted in Python's integers and nothing is copied by force.
def test_stored_count_beyond_int32():
    data = np.broadcast_to(np.float32(1), (2**15, 256, 256))
    indices, indptr = np.arange(2**15, dtype=np.int32), np.array([0, 2**15], np.int32)
    A = sf.BSR(data, indices, indptr, (256, 256 * 2**15), copy=False, stored="all")
    assert (A.nnz, A.density, A.nnzb) == (2147483648, 1.0, 32768)
    assert np.shares_memory(A.data, data)
    assert A.nbytes == 4 * 2**31 + 4 * (2**15 + 2)
    E = sf.BlockedELL(data[None], indices[None], (256, 256 * 2**15), copy=False, stored="all")
    assert (E.nnz, E.density) == (2147483648, 1.0)


# C07: an index beyond int32 stays what it is.
WIDE = {"data": [5.0, 7.0], "indices": [3, 2**31 + 5], "indptr": [0, 2]}
SHAPE = (1, 2**32)


def _wide(library="numpy"):
    return sf.CSR(
        array(WIDE["data"], library),
        array(WIDE["indices"], library),
        array(WIDE["indptr"], library),
        SHAPE,
    )


@pytest.mark.parametrize("library", ["numpy", "torch", "array_api_strict"])
def test_wide_indices_stay(library, tmp_path):
    A = _wide(library)
    ways = [
        A,
        A.to("csr"),
        A.to("coo"),
        A.to("coo").to("csr"),
        copy.deepcopy(A),
        A.T.T,
        A.T.to("coo").T,
    ]
    ways += [A.to("bsr", blocksize=(1, 2)), A.to("blocked_ell", blocksize=2)]
    if library != "array_api_strict":
        ways += [pickle.loads(pickle.dumps(A)), A.to_library("numpy")]
        sf.io.save(tmp_path / "wide.npz", A)
        ways.append(sf.io.load(tmp_path / "wide.npz"))
    for B in ways:
        assert content(B) == content(A), B
        assert B.problems() == []
        assert B.lib.dtype_name(B.index_dtype) == "int64"
    assert host(A.indices).tolist() == [3, 2147483653]


@pytest.mark.parametrize("library", LIBRARIES)
def test_narrowing_is_asked_for_and_refused_where_it_cannot_be(library):
    A = _wide(library)
    for format in ("csr", "coo"):
        with pytest.raises(OverflowError, match="int32"):
            A.to(format, index_dtype="int32")
    with pytest.raises(OverflowError, match="2147483653"):
        sf.CSR(*A.buffers().values(), SHAPE, index_dtype="int32")


@pytest.mark.parametrize("library", LIBRARIES)
def test_int64_of_small_extent_is_kept_and_narrows_on_request(library):
    D = array(np.eye(4), library)
    A = sf.from_dense(D, index_dtype="int64")
    for format, options in (
        ("coo", {}),
        ("csr", {}),
        ("csc", {}),
        ("bsr", {"blocksize": 2}),
        ("blocked_ell", {"blocksize": 2}),
    ):
        B = A.to(format, **options)
        assert B.lib.dtype_name(B.index_dtype) == "int64", format
        C = B.to(format, index_dtype="int32")
        assert C.lib.dtype_name(C.index_dtype) == "int32", format
        assert content(C) == content(A)
        assert np.array_equal(dense(C), np.eye(4))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_block_index_that_fits_int32_widens_when_multiplied(library):
    """Block column 2**30 of width 4 begins at column 2**32."""
    shape = (2, 2**32 + 8)
    A = sf.BSR(
        array(np.arange(1.0, 17).reshape(2, 2, 4), library),
        array([3, 2**30], library, "int32"),
        array([0, 2], library, "int32"),
        shape,
    )
    assert A.lib.dtype_name(A.index_dtype) == "int32"
    expected = {
        (r, c0 * 4 + c): v
        for b, c0 in enumerate((3, 2**30))
        for r in range(2)
        for c, v in enumerate(np.arange(1.0, 17).reshape(2, 2, 4)[b, r])
    }
    for format, options in (("coo", {}), ("csr", {}), ("bsr", {"blocksize": (2, 2)})):
        B = A.to(format, **options)
        assert B.problems() == []
        found = {at: np.frombuffer(bits)[0] for at, bits in content(B).items()}
        assert found == expected, format
        if format != "bsr":
            assert B.lib.dtype_name(B.index_dtype) == "int64"
        assert content(B.to("bsr", blocksize=(2, 4))) == content(A)


@pytest.mark.parametrize("library", LIBRARIES)
def test_pointers_that_memory_cannot_hold(library):
    """2**50 columns of two elements: fine as CSR, 8 PiB of pointers as CSC."""
    parts = (array(x, library) for x in ([5.0, 7.0], [3, 2**40], [0, 2]))
    A = sf.CSR(*parts, (1, 2**50))
    for format, options in (("csc", {}), ("2:4", {})):
        with pytest.raises(MemoryError, match=r"bytes on 'cpu', .* bytes are free"):
            A.to(format, **options)
    with pytest.raises(MemoryError, match=r"bytes on 'cpu', .* bytes are free"):
        A.T.to("bsr", blocksize=(1, 1))
    assert content(A.to("coo")) == content(A)
    with pytest.raises(MemoryError, match=r"dense form of a 1 x 1125899906842624 matrix needs"):
        A.to_dense()


def test_a_product_of_wide_indices_is_right():
    """int64 arrays whose numbers are small multiply like int32 ones."""
    D = np.arange(12.0).reshape(3, 4)
    A = sf.from_dense(D, index_dtype="int64")
    for kernel, y in products(A, np.eye(4)):
        assert np.array_equal(y, D), kernel


def test_rows_beyond_int32_are_multiplied_or_refused_never_wrapped():
    A = sf.COO([2.0, 3.0], [0, 2**31 + 7], [1, 0], (2**31 + 8, 2))
    with contextlib.suppress(sf.NoKernelError, MemoryError):
        y = A.T @ np.broadcast_to(1.0, 2**31 + 8)  # no memory behind it
        assert y.tolist() == [3.0, 2.0]


# C29: on the CPU only the arithmetic: a position times a stride takes 64 bits.
def test_offsets_take_64_bits():
    rows, columns = 2**16 + 64, 2**15 + 64
    assert rows * columns > 2**31
    for name in ("numpy", "torch", "array_api_strict"):
        lib = _arrays.library(name)
        # Rows of int32 at the largest place that a flat position is computed for.
        from sparseformats.formats.ell_slots import slots_in_rows

        row = lib.from_numpy(np.array([0, rows - 1], np.int32), "cpu")
        slot = host(slots_in_rows(lib, row, rows, columns))
        assert slot.tolist() == [0, (rows - 1) * columns], name


@pytest.mark.parametrize("library", LIBRARIES)
def test_blocks_at_the_far_end_of_a_large_output(library):
    """Block rows of 64 below 2**16 + 64 rows: the first, the last and one between are exact."""
    M, b = 2**16 + 64, 64
    block_rows = M // b
    values = np.arange(block_rows, dtype=np.float32) % 7
    data = np.broadcast_to(values[:, None, None], (block_rows, b, b))
    A = sf.BSR(
        array(data, library),
        array(np.zeros(block_rows), library, "int32"),
        array(np.arange(block_rows + 1), library, "int32"),
        (M, b),
    )
    y = host(A @ array(np.ones((b, 3), np.float32), library))
    assert y.shape == (M, 3)
    assert np.array_equal(y, np.repeat(b * values, b)[:, None] * np.ones((1, 3)))
