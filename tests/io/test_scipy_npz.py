"""SciPy's own files, both ways."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

import sparseformats as sf
from sparseformats import LossyConversionError
from sparseformats.convert.interop import from_scipy, to_library
from sparseformats.io import load_scipy_npz, save, save_scipy_npz
from sparseformats.testing import check_content_preserved, check_same_buffers, matrices, unchanged

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)


def written(A: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    save_scipy_npz(file, A, **options)
    file.seek(0)
    return file


@given(matrices(("coo", "csr", "csc"), dtypes=DTYPES))
def test_round_trip_keeps_every_bit(A: Any) -> None:
    with unchanged(A):
        file = written(A)
    S = sp.load_npz(file)
    assert (S.format, S.shape) == (A.format, A.shape)
    file.seek(0)
    B = load_scipy_npz(file)
    check_content_preserved(A, B)
    check_same_buffers(A, B)


@given(matrices("bsr", dtypes=DTYPES))
def test_blocks_without_stored_zeros(A: Any) -> None:
    m, n = A.shape
    r, c = A.blocksize
    marked = int(A.nnz - np.count_nonzero(A.lib.nonzero_mask(A.data)))
    if A.zeros is not None and marked:
        with pytest.raises(LossyConversionError, match=f"{marked} of the {A.nnz} stored"):
            written(A)
        return
    if m % r or n % c:
        with pytest.raises(TypeError, match="multiple"):
            written(A)
        return
    B = load_scipy_npz(written(A))
    check_content_preserved(A, B)
    assert B.lib.equal_bits(A.data, B.data)


def test_lossy_names_what_and_how_much() -> None:
    A = sf.BSR([[[1.0, 0.0]]], [0], [0, 1], (1, 2), stored="all")
    with pytest.raises(LossyConversionError, match="1 of the 2 stored") as error:
        written(A)
    assert "sparseformats.io.save" in str(error.value)
    assert "{" not in str(error.value)
    full = sf.BSR([[[1.0, 2.0]]], [0], [0, 1], (1, 2), stored="all")
    assert load_scipy_npz(written(full), stored="all").zeros == "all"


def test_paths_and_options(tmp_path: Path) -> None:
    A = sf.CSR([1.0, 0.0], [0, 1], [0, 2], (1, 2))
    save_scipy_npz(tmp_path / "bare", A, compressed=False)
    assert [p.name for p in tmp_path.iterdir()] == ["bare"]
    with zipfile.ZipFile(tmp_path / "bare") as archive:
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
    check_same_buffers(A, load_scipy_npz(tmp_path / "bare"))
    assert str(load_scipy_npz(tmp_path / "bare", index_dtype="int64").index_dtype) == "int64"


def test_dia_and_unsorted_files_are_read() -> None:
    file = io.BytesIO()
    sp.save_npz(file, sp.dia_array((np.array([[1.0, 0, 2]]), [0]), shape=(3, 3)))
    file.seek(0)
    assert load_scipy_npz(file).nnz == 2
    file = io.BytesIO()
    sp.save_npz(file, sp.csr_array((np.array([1.0, 2, 4]), [1, 0, 1], [0, 3]), shape=(1, 2)))
    file.seek(0)
    assert load_scipy_npz(file).to_dense().tolist() == [[2, 5]]
    file.seek(0)
    assert load_scipy_npz(file, check=False).problems()


def test_torch_matrices_are_written() -> None:
    pytest.importorskip("torch")
    A = sf.CSR([1.0, 0.0], [0, 1], [0, 2], (1, 2))
    check_same_buffers(A, load_scipy_npz(written(to_library(A, "torch"))))


@pytest.mark.parametrize(
    ("A", "text"),
    [
        (sf.BlockedELL(np.ones((1, 1, 2, 2)), [[0]], (2, 2)), "blocked_ell"),
        (sf.CSR(np.ones(1, np.float16), [0], [0, 1], (1, 1)), "float16"),
        (np.eye(2), "matrix of sparseformats, got ndarray"),
    ],
)
def test_what_scipy_cannot_hold(A: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=text):
        save_scipy_npz(tmp_path / "a.npz", A)
    assert not list(tmp_path.iterdir())


def own_file() -> bytes:
    file = io.BytesIO()
    save(file, sf.CSR([1.0], [0], [0, 1], (1, 1)))
    return file.getvalue()


def other_npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.eye(2))
    return file.getvalue()


def of_format(name: bytes) -> bytes:
    file = io.BytesIO()
    np.savez(file, format=name, shape=(1, 1), data=np.eye(1))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"text", own_file(), own_file()[:40], other_npz()),
        *(of_format(b"quux"), of_format(b"lil"), of_format(b"csr")),
    ],
)
def test_what_is_no_such_file(content: bytes) -> None:
    with pytest.raises(ValueError, match="'BytesIO'") as error:
        load_scipy_npz(io.BytesIO(content))
    assert "{" not in str(error.value)


def test_a_damaged_file_and_a_missing_one(tmp_path: Path) -> None:
    content = bytearray(written(sf.CSR([1.0], [0], [0, 1], (1, 1)), compressed=False).getvalue())
    at = content.rindex(np.float64(1.0).tobytes())
    content[at] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        load_scipy_npz(io.BytesIO(bytes(content)))
    with pytest.raises(FileNotFoundError, match="absent"):
        load_scipy_npz(tmp_path / "absent.npz")


def test_broken_structure_is_reported() -> None:
    S = sp.csr_array(np.eye(3))
    S.indices[1] = 9
    file = io.BytesIO()
    sp.save_npz(file, S)
    file.seek(0)
    with pytest.raises((sf.InvalidTensorError, ValueError), match=r"9|indices"):
        load_scipy_npz(file)
    assert from_scipy(sp.csr_array(np.eye(3))).nnz == 3
