"""Matrix Market: right numbers or an error with line and reason, nothing in between."""

import bz2
import gzip
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import sparseformats as sf
from sparseformats.io import MatrixMarketError, read_matrix_market, write_matrix_market
from sparseformats.testing import check_content_preserved, check_valid, matrices, unchanged

HEAD = "%%MatrixMarket matrix "


def read(text: str, format: str = "csr", **options: Any) -> Any:
    return read_matrix_market(io.BytesIO(text.encode()), format, **options)


def written(A: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    write_matrix_market(file, A, **options)
    return file.getvalue()


def test_symmetric_diagonal_is_counted_once() -> None:
    A = read(HEAD + "coordinate real symmetric\n3 3 4\n1 1 2\n2 1 -1\n2 2 5\n3 3 1\n")
    assert A.to_dense().tolist() == [[2, -1, 0], [-1, 5, 0], [0, 0, 1]]
    assert A.nnz == 5
    check_valid(A)


def test_pattern_reads_as_ones() -> None:
    A = read(HEAD + "coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n")
    assert A.to_dense().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert (A.nnz, A.dtype_name) == (3, "float64")


def test_skew_symmetric_negates_and_hermitian_conjugates() -> None:
    A = read(HEAD + "coordinate integer skew-symmetric\n3 3 2\n2 1 0\n3 1 4\n", "coo")
    assert (A.nnz, A.dtype_name) == (4, "int64")
    assert A.to_dense().tolist() == [[0, 0, -4], [0, 0, 0], [4, 0, 0]]
    A = read(HEAD + "coordinate complex hermitian\n2 2 2\n2 1 1 2\n1 1 3 0\n")
    assert A.to_dense().tolist() == [[3, 1 - 2j], [1 + 2j, 0]]


def test_fields_give_their_dtypes() -> None:
    largest = 2**63 - 1
    A = read(HEAD + f"coordinate integer general\n1 2 2\n1 1 {largest}\n1 2 {-largest - 1}\n")
    assert (A.dtype_name, A.data.tolist()) == ("int64", [largest, -largest - 1])
    A = read(HEAD + f"coordinate unsigned-integer general\n1 1 1\n1 1 {2**64 - 1}\n")
    assert (A.dtype_name, A.data.tolist()) == ("uint64", [2**64 - 1])
    assert read(HEAD + "coordinate double general\n1 1 1\n1 1 .5\n").dtype_name == "float64"
    assert read(HEAD + "coordinate complex general\n1 1 1\n1 1 1 -2.\n").data.tolist() == [1 - 2j]


def test_special_values_and_signs_of_zero() -> None:
    text = HEAD + "coordinate real general\n1 6 6\n"
    values = ["-0.0", "0", "nan", "-inf", "Infinity", "5e-324"]
    A = read(text + "".join(f"1 {j} {v}\n" for j, v in enumerate(values, 1)))
    assert A.nnz == 6
    assert np.signbit(A.data).tolist()[:2] == [True, False]
    assert np.isnan(A.data[2])
    assert A.data[3:].tolist() == [-np.inf, np.inf, 5e-324]


def test_layout_of_text() -> None:
    body = "% a comment\n\n2\t2\t2\r\n\n 1 \t1 1E+2 \r\n\n2 2 -.5e-3"
    A = read(HEAD.replace("matrix", "Matrix") + "COORDINATE Real General\n" + body)
    assert A.to_dense().tolist() == [[100, 0], [0, -0.0005]]


def test_equal_positions_are_summed() -> None:
    A = read(HEAD + "coordinate real symmetric\n2 2 3\n2 1 1\n2 1 2\n1 1 4\n")
    assert A.to_dense().tolist() == [[4, 3], [3, 0]]


def test_array_files() -> None:
    A = read(HEAD + "array real general\n2 2\n1\n0\n-0.0\n4\n")
    assert A.to_dense().tolist() == [[1, 0], [0, 4]]
    assert A.nnz == 2
    A = read(HEAD + "array integer symmetric\n2 2\n1\n2\n3\n", "coo")
    assert A.to_dense().tolist() == [[1, 2], [2, 3]]
    A = read(HEAD + "array real skew-symmetric\n2 2\n7\n")
    assert A.to_dense().tolist() == [[0, -7], [7, 0]]


def test_format_options() -> None:
    text = HEAD + "coordinate real general\n2 4 1\n1 1 5\n"
    assert read(text, "bsr", blocksize=(2, 2)).blocksize == (2, 2)
    assert read(text, "2:4").format == "2:4"
    assert str(read(text, index_dtype="int64").index_dtype) == "int64"
    wide = read(HEAD + f"coordinate real general\n{2**33} 2 1\n{2**33} 1 5\n", "coo")
    assert wide.row.tolist() == [2**33 - 1]


@pytest.mark.parametrize(
    ("dtype", "back"),
    [("float16", "float64"), ("complex64", "complex128"), ("uint8", "uint64"), ("bool", "int64")],
)
def test_a_file_without_entries_keeps_its_field(dtype: str, back: str) -> None:
    A = sf.CSR(np.zeros(0, dtype), [], [0, 0], (1, 3))
    B = read_matrix_market(io.BytesIO(written(A, comment="a\nb")))
    assert (B.dtype_name, B.shape, B.nnz) == (back, (1, 3), 0)


def test_empty_shapes() -> None:
    for m, n in [(0, 0), (0, 3), (2, 0), (2, 2)]:
        assert read(HEAD + f"coordinate real general\n{m} {n} 0\n").shape == (m, n)


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
@pytest.mark.parametrize(
    ("field", "dtype"), [("real", "float64"), ("complex", "complex128"), ("integer", "int64")]
)
def test_dense_files_of_empty_shapes(symmetry: str, field: str, dtype: str) -> None:
    shapes = [(0, 0)] + [(0, 3), (2, 0)] * (symmetry == "general")
    for m, n in shapes:
        A = read(HEAD + f"array {field} {symmetry}\n{m} {n}\n")
        assert (A.shape, A.dtype_name, A.nnz) == ((m, n), dtype, 0)
    with pytest.raises(MatrixMarketError, match="after the 0 entries"):
        read(HEAD + f"array {field} {symmetry}\n0 0\n{'1 1' if field == 'complex' else 1}\n")


@pytest.mark.parametrize("body", ["coordinate {}\n2 2 1\n2 1 {}\n", "array {}\n2 2\n{}\n"])
def test_a_mirror_image_that_does_not_fit(body: str) -> None:
    with pytest.raises(MatrixMarketError, match="does not fit int64"):
        read(HEAD + body.format("integer skew-symmetric", -(2**63)))
    A = read(HEAD + body.format("integer skew-symmetric", 1 - 2**63))
    assert A.to_dense().tolist() == [[0, 2**63 - 1], [1 - 2**63, 0]]
    B = read(HEAD + body.format("integer symmetric", f"{-(2**63)}") + "5\n6\n" * ("array" in body))
    assert B.to_dense().min() == -(2**63)


BAD = {
    "empty file": ("", 1, "%%MatrixMarket"),
    "no banner": ("2 2 1\n1 1 1\n", 1, "got '2'"),
    "short banner": (HEAD + "coordinate real\n1 1 0\n", 1, "object, format, field and symmetry"),
    "object": ("%%MatrixMarket vector coordinate real general\n3 1\n", 1, "got 'vector'"),
    "format": (HEAD + "quux real general\n1 1 0\n", 1, "got 'quux'"),
    "field": (HEAD + "coordinate quux general\n1 1 0\n", 1, "got 'quux'"),
    "symmetry": (HEAD + "coordinate real quux\n1 1 0\n", 1, "got 'quux'"),
    "pattern array": (HEAD + "array pattern general\n1 1\n", 1, "cannot be 'pattern'"),
    "no size": (HEAD + "coordinate real general\n% only this\n", 3, "the end of the file"),
    "short size": (HEAD + "coordinate real general\n2 2\n", 2, "rows, columns and entries"),
    "long size": (HEAD + "array real general\n2 2 4\n", 2, "rows and columns"),
    "negative size": (HEAD + "coordinate real general\n-2 2 1\n", 2, "got '-2 2 1'"),
    "huge size": (HEAD + f"coordinate real general\n{10**20} 2 0\n", 2, "does not fit int64"),
    "oblong": (HEAD + "coordinate real symmetric\n2 3 0\n", 2, "square, got 2 x 3"),
    "too few": (HEAD + "coordinate real general\n2 2 3\n1 1 1\n", 3, "ends after 1 of the 3"),
    "promise": (HEAD + "coordinate real general\n2 2 99999999999\n1 1 1\n", 3, "99999999999"),
    "too many": (HEAD + "coordinate real general\n2 2 1\n1 1 1\n\n2 2 1\n", 5, "after the 1"),
    "array short": (HEAD + "array real general\n2 2\n1\n2\n", 4, "ends after 2 of the 4"),
    "word": (HEAD + "coordinate real general\n2 2 2\n1 1 1\n2 x 1\n", 4, "got '2 x 1'"),
    "no value": (HEAD + "coordinate real general\n2 2 1\n1 1\n", 3, "row, column and a number"),
    "two values": (HEAD + "coordinate real general\n2 2 1\n1 1 2 3\n", 3, "got '1 1 2 3'"),
    "fortran": (HEAD + "coordinate real general\n2 2 1\n1 1 1.5D+02\n", 3, "1.5D+02"),
    "half": (HEAD + "coordinate real general\n2 2 1\n1 1 1e\n", 3, "got '1 1 1e'"),
    "hex": (HEAD + "coordinate real general\n2 2 1\n1 1 0x10\n", 3, "0x10"),
    "payload": (HEAD + "coordinate real general\n2 2 1\n1 1 nan(1)\n", 3, "nan(1)"),
    "fraction": (HEAD + "coordinate integer general\n2 2 1\n1 1 1.5\n", 3, "an integer"),
    "sign": (HEAD + "coordinate unsigned-integer general\n2 2 1\n1 1 -1\n", 3, "not negative"),
    "valued": (HEAD + "coordinate pattern general\n2 2 1\n1 1 5\n", 3, "no value"),
    "real part": (HEAD + "coordinate complex general\n2 2 1\n1 1 5\n", 3, "two numbers"),
    "comment": (HEAD + "coordinate real general\n2 2 1\n% late\n1 1 5\n", 3, "'% late'"),
    "old ends": (HEAD + "coordinate real general\n2 2 1\n1 1 5\r", 3, "a number"),
    "row": (HEAD + "coordinate real general\n2 2 1\n3 1 1\n", 3, "Row index out of bounds"),
    "zero": (HEAD + "coordinate real general\n2 2 1\n1 0 1\n", 3, "out of bounds"),
    "int64": (HEAD + f"coordinate integer general\n2 2 1\n1 1 {2**63}\n", 3, "out of range"),
    "both": (
        HEAD + "coordinate real symmetric\n2 2 2\n2 1 1\n1 2 1\n",
        4,
        "mirror image of line 3",
    ),
    "skew both": (
        HEAD + "coordinate real skew-symmetric\n2 2 2\n2 1 1\n1 2 -1\n",
        4,
        "one triangle",
    ),
    "skew diagonal": (
        HEAD + "coordinate real skew-symmetric\n3 3 2\n2 2 5\n3 1 4\n",
        3,
        "is zero, got 5 at (2, 2)",
    ),
    "skew unsigned": (
        HEAD + "coordinate unsigned-integer skew-symmetric\n2 2 1\n2 1 5\n",
        1,
        "cannot be unsigned",
    ),
    "skew pattern": (HEAD + "coordinate pattern skew-symmetric\n1 1 1\n1 1\n", 3, "is zero"),
    "hermitian": (
        HEAD + "coordinate complex hermitian\n2 2 1\n\n2 2 5 1\n",
        4,
        "is real, got 5 1 at (2, 2)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_files_are_refused_with_line_and_reason(name: str) -> None:
    text, line, reason = BAD[name]
    with pytest.raises(MatrixMarketError) as caught:
        read(text)
    error = caught.value
    assert error.line == line
    assert reason in error.reason
    assert str(error) == f"'BytesIO', line {line}: {error.reason}"
    assert "{" not in str(error)
    assert isinstance(error, ValueError)
    assert isinstance(error, sf.SparseFormatsError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.reason) == (str(error), line, error.reason)


def test_an_error_without_a_line() -> None:
    assert str(MatrixMarketError("f", None, "r")) == "f: r"


def test_errors_far_into_a_file_have_the_right_line() -> None:
    lines = [f"{i} 1 {i}" for i in range(1, 200_001)]
    lines[150_000] = "150001 1 1.5x"
    text = HEAD + "coordinate real general\n200000 1 200000\n" + "\n".join(lines)
    with pytest.raises(MatrixMarketError, match=r"150001 1 1\.5x") as caught:
        read(text)
    assert caught.value.line == 150_003
    lines[150_000] = ""
    assert len(HEAD + "\n".join(lines)) > 1 << 20
    with pytest.raises(MatrixMarketError, match="ends after 199999"):
        read(HEAD + "coordinate real general\n200000 1 200000\n" + "\n".join(lines))
    with pytest.raises(MatrixMarketError, match="after the 180000") as caught:
        read(HEAD + "coordinate real general\n200000 1 180000\n" + "\n".join(lines))
    assert caught.value.line == 180_004


def test_a_sum_that_does_not_fit() -> None:
    text = HEAD + f"coordinate integer general\n1 1 2\n1 1 {2**63 - 1}\n1 1 1\n"
    with pytest.raises(OverflowError, match="int64"):
        read(text)


@given(matrices(dtypes=("float64", "complex128", "int64", "uint64"), values="moderate"))
def test_round_trip_keeps_finite_content(A: Any) -> None:
    with unchanged(A):
        text = written(A)
    check_content_preserved(A, read_matrix_market(io.BytesIO(text), "coo"))


@given(matrices("csr", dtypes=("float64",)))
def test_round_trip_keeps_all_but_the_bits_of_nan(A: Any) -> None:
    B = read_matrix_market(io.BytesIO(written(A)))
    ours, back = A.data, B.data
    assert A.indices.tolist() == B.indices.tolist()
    nan = np.isnan(ours)
    assert np.isnan(back).tolist() == nan.tolist()
    assert ours[~nan].tobytes() == back[~nan].tobytes()


@given(matrices("csr", dtypes=("float16", "bfloat16", "float32", "complex64", "int8", "bool")))
def test_narrow_types_read_back_to_the_same_values(A: Any) -> None:
    B = read_matrix_market(io.BytesIO(written(A)))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(B.data, A.data.astype(B.data.dtype))
    assert B.nnz == A.nnz


def test_float32_decimals_hold_nine_digits() -> None:
    values = np.array([0.1, 1 / 3, 16777217, 3.4028235e38, 1e-45], np.float32)
    A = sf.CSR(values, np.arange(5), [0, 5], (1, 5))
    B = read_matrix_market(io.BytesIO(written(A)))
    assert B.data.astype(np.float32).tobytes() == values.tobytes()
    assert B.data.tolist() == values.astype(np.float64).tolist()


def test_any_library_is_written(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    values = torch.tensor([1.5, 0.0]).to(torch.float8_e5m2)
    A = sf.CSR(values, torch.tensor([0, 1]), torch.tensor([0, 2]), (1, 2))
    write_matrix_market(tmp_path / "a", A)
    assert read_matrix_market(tmp_path / "a").data.tolist() == [1.5, 0.0]


@pytest.mark.parametrize("suffix", ["", ".mtx", ".mtx.gz", ".mtx.bz2"])
def test_paths_are_taken_as_they_are(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"matrix{suffix}"
    A = sf.CSR([2.0, 0.0], [1, 0], [0, 2], (1, 2))
    write_matrix_market(path, A, comment="two lines\nof comment")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    first = path.read_bytes()
    opened = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    with opened(path, "rb") as stream:
        assert stream.read().startswith(b"%%MatrixMarket matrix coordinate real general\n%two")
    check_content_preserved(A, read_matrix_market(path))
    check_content_preserved(A, read_matrix_market(str(path)))
    write_matrix_market(str(path), A, comment="two lines\nof comment")
    assert path.read_bytes() == first


def test_file_objects_are_read_from_where_they_are() -> None:
    text = HEAD + "coordinate real general\n1 1 1\n1 1 5\n"
    file = io.BytesIO(b"before\n" + text.encode())
    file.readline()
    assert read_matrix_market(file).data.tolist() == [5.0]
    assert read_matrix_market(io.StringIO(text)).data.tolist() == [5.0]
    assert read_matrix_market(io.BufferedReader(Pipe(text.encode()))).data.tolist() == [5.0]


class Pipe(io.RawIOBase):
    """A stream that cannot seek."""

    def __init__(self, content: bytes) -> None:
        self._rest = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._rest.readinto(buffer)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        read_matrix_market(tmp_path / "absent.mtx")
    with pytest.raises(TypeError, match="for reading, got int"):
        read_matrix_market(3)
    A = sf.CSR([2.0], [1], [0, 1], (1, 2))
    with pytest.raises(TypeError, match="binary writing, got StringIO"):
        write_matrix_market(io.StringIO(), A)
    with pytest.raises(TypeError, match="matrix of sparseformats, got ndarray"):
        write_matrix_market(io.BytesIO(), np.eye(2))  # type: ignore[arg-type]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    import scipy.io

    path = tmp_path / "a.mtx"
    path.write_text("old")

    def fails(stream: Any, *args: Any, **options: Any) -> None:
        stream.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(scipy.io, "mmwrite", fails)
    with pytest.raises(OSError, match="disk full"):
        write_matrix_market(path, sf.CSR([2.0], [1], [0, 1], (1, 2)))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_damaged_compression_names_the_file(suffix: str, tmp_path: Path) -> None:
    whole = {".gz": gzip.compress, ".bz2": bz2.compress}[suffix]
    content = whole((HEAD + "coordinate real general\n2 2 1\n1 1 1\n").encode())
    path = tmp_path / f"a.mtx{suffix}"
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(MatrixMarketError, match=f"a.mtx{suffix}"):
            read_matrix_market(path)
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 0x55
        path.write_bytes(changed)
        try:
            A = read_matrix_market(path)
        except MatrixMarketError as error:
            assert f"a.mtx{suffix}" in str(error)  # noqa: PT017 - nearly every change is an error
        else:
            assert A.to_dense().tolist() == [[1, 0], [0, 0]]
    with pytest.raises(FileNotFoundError):
        read_matrix_market(tmp_path / f"absent{suffix}")
