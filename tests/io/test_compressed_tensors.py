"""Checkpoints of sparse weights: every pattern and dtype, a file made by hand, and faulty ones."""

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import _arrays
from sparseformats.io import read_compressed_tensors
from sparseformats.testing import check_no_shared_memory, check_valid, register_strict, unchanged

torch = pytest.importorskip("torch")
register_strict()

LIBRARIES = ("numpy", "torch", "array_api_strict")
PAIRS = list(itertools.combinations(range(4), 2))
HALVES = ("float16", "bfloat16")
FP8 = ("float8_e4m3fn", "float8_e5m2")


def as_array(x: np.ndarray[Any, Any], library: str, dtype: str | None = None) -> Any:
    lib = _arrays.library(library)
    made = lib.from_numpy(x.copy())
    return made if dtype is None else lib.from_bits(made, dtype)


def host_bits(x: Any) -> np.ndarray[Any, Any]:
    lib = _arrays.of(x)
    return np.asarray(lib.to_numpy(lib.bits(x)))


def kept_of(rows: int, k: int) -> np.ndarray[Any, Any]:
    """Mask that keeps two of each four columns, every pair of positions in turn."""
    mask = np.zeros((rows, k // 4, 4), bool)
    for i, g in itertools.product(range(rows), range(k // 4)):
        mask[i, g, list(PAIRS[(i + g) % 6])] = True
    return mask.reshape(rows, k)


def values_of(mask: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """Bits for the kept elements: all there are of one byte, of wider types every 7th."""
    count = int(mask.sum())
    bits = np.arange(count, dtype=np.int64) * (1 if width == 1 else 7919)
    return (bits % 2 ** (8 * width)).astype(f"u{width}").view(f"i{width}")


def parts_of(
    name: str, mask: np.ndarray[Any, Any], values: Any, library: str = "numpy"
) -> dict[str, Any]:
    """The arrays of sparse-24-bitmask."""
    packed = np.packbits(mask, axis=-1, bitorder="little")
    return {
        f"{name}.shape": as_array(np.array(mask.shape).reshape(-1, 1), library),
        f"{name}.bitmask": as_array(packed, library),
        f"{name}.compressed": values,
    }


def with_offsets(
    name: str, mask: np.ndarray[Any, Any], values: Any, library: str = "numpy"
) -> dict[str, Any]:
    """The arrays of sparse-bitmask."""
    counts = mask.sum(axis=1)
    return {
        **parts_of(name, mask, values, library),
        f"{name}.row_offsets": as_array(np.cumsum(counts) - counts, library),
    }


def small() -> dict[str, Any]:
    """A good 2 x 12 weight of NumPy arrays, to be damaged."""
    return parts_of("a.b", kept_of(2, 12), np.arange(1.0, 13.0, dtype=np.float32).reshape(2, 6))


# ---- what is read


@pytest.mark.parametrize("k", [8, 12, 64, 0])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["int8", *HALVES, *FP8, "float32"])
def test_two_of_four(library: str, dtype: str, k: int) -> None:
    if (dtype in FP8 and library != "torch") or (dtype in HALVES and "strict" in library):
        return
    mask = kept_of(24, k)
    width = {"int8": 1, "float32": 4}.get(dtype, 1 if dtype in FP8 else 2)
    raw = values_of(mask, width).reshape(24, k // 2)
    parts = parts_of("up", mask, as_array(raw, library, dtype), library)
    with unchanged(list(parts.values())):
        made = read_compressed_tensors(parts, stored="all")
        fill = read_compressed_tensors(parts)["up"]
    assert list(made) == ["up"]
    A = made["up"]
    check_valid(A)
    check_valid(fill)
    check_no_shared_memory(A, list(parts.values()))
    assert (A.format, A.shape, A.library, A.dtype_name) == ("2:4", (24, k), library, dtype)
    assert A.nnz == 24 * k // 2
    expected = np.zeros((24, k), raw.dtype)
    expected[mask] = raw.reshape(-1)
    np.testing.assert_array_equal(host_bits(A.to_dense()), expected)
    np.testing.assert_array_equal(
        host_bits(A.indices), mask.reshape(24, -1, 4).nonzero()[2].reshape(24, k // 4, 2)
    )
    minus = 0 if dtype == "int8" else np.array(1 << (8 * width - 1)).astype(f"u{width}")
    plain = np.where(expected.view(f"u{width}") == minus, 0, expected)
    np.testing.assert_array_equal(host_bits(fill.to_dense()), plain)
    assert fill.nnz == np.count_nonzero(plain)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("shape", [(5, 8), (3, 13), (0, 8), (4, 0), (1, 1)])
@pytest.mark.parametrize("column", [False, True])
def test_any_pattern(library: str, shape: tuple[int, int], column: bool) -> None:
    rng = np.random.default_rng(7)
    mask = rng.random(shape) < 0.4
    mask[1:2] = False
    values = values_of(mask, 4).reshape((-1, 1) if column else -1)
    parts = with_offsets("w", mask, as_array(values, library, "float32"), library)
    if column:
        parts["w.row_offsets"] = (
            parts["w.row_offsets"].reshape(-1, 1)
            if library != ("array_api_strict")
            else _arrays.library(library).reshape(parts["w.row_offsets"], (shape[0], 1))
        )
    with unchanged(list(parts.values())):
        A = read_compressed_tensors(parts)["w"]
    check_valid(A)
    check_no_shared_memory(A, list(parts.values()))
    assert (A.format, A.shape, A.library) == ("csr", shape, library)
    assert A.nnz == mask.sum()
    expected = np.zeros(shape, np.int32)
    expected[mask] = values.reshape(-1)
    np.testing.assert_array_equal(host_bits(A.to_dense()), expected)


def test_shape_may_be_a_list_and_other_entries_are_left_alone() -> None:
    parts = {**small(), "a.b.shape": [2, 12], "a.b.weight_scale": np.ones(2), 3: None}
    parts |= {f"c{n[3:]}": x for n, x in small().items()}
    assert list(read_compressed_tensors(parts)) == ["a.b", "c"]
    assert list(read_compressed_tensors(parts, "c")) == ["c"]
    assert list(read_compressed_tensors(parts, iter(["c", "a.b"]))) == ["c", "a.b"]


def test_the_library_may_be_chosen() -> None:
    A = read_compressed_tensors(small(), library="torch")["a.b"]
    assert (A.library, A.device) == ("torch", "cpu")
    assert read_compressed_tensors(small(), device="cpu")["a.b"].library == "numpy"
    with pytest.raises(ValueError, match="unknown array library"):
        read_compressed_tensors(small(), library="jax")


# ---- files


def file_of(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> Path:
    """A safetensors file, byte by byte: length of the header, header, values."""
    header, body = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        ends = [len(body), len(body) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": ends}
        body += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def golden(path: Path) -> Path:
    """A 2 x 8 weight of bfloat16: [[1, 0, 0, 2, 0, 3, 4, 0], [0, 0, -0, nan, 5, 6, 0, 0]]."""
    return file_of(
        path,
        {
            "up.shape": ("I64", [2, 1], struct.pack("<2q", 2, 8)),
            "up.bitmask": ("U8", [2, 1], bytes([0b0110_1001, 0b0011_1100])),
            "up.compressed": (
                "BF16",
                [2, 4],
                struct.pack("<8H", 0x3F80, 0x4000, 0x4040, 0x4080, 0x8000, 0x7FC1, 0x40A0, 0x40C0),
            ),
            "up.bias": ("F32", [2], struct.pack("<2f", 1, 2)),
        },
    )


GOLDEN = [
    [0x3F80, 0, 0, 0x4000, 0, 0x4040, 0x4080, 0],
    [0, 0, 0x8000, 0x7FC1, 0x40A0, 0x40C0, 0, 0],
]


@pytest.mark.parametrize("library", [None, "torch", "numpy"])
def test_golden_file(tmp_path: Path, library: str | None) -> None:
    path = golden(tmp_path / "model.safetensors")
    made = read_compressed_tensors(path, library=library, stored="all")
    assert list(made) == ["up"]
    A = made["up"]
    check_valid(A)
    assert (A.library, A.dtype_name, A.nnz) == (library or "torch", "bfloat16", 8)
    assert host_bits(A.to_dense()).view(np.uint16).tolist() == GOLDEN
    assert A.indices.tolist() == [[[0, 3], [1, 2]], [[2, 3], [0, 1]]]
    (B,) = read_compressed_tensors(str(path)).values()
    assert (B.nnz, B.indices[1, 0].tolist()) == (7, [0, 3])


def test_fp8_files_are_torch_only(tmp_path: Path) -> None:
    path = file_of(
        tmp_path / "a.safetensors",
        {
            "up.shape": ("I64", [2, 1], struct.pack("<2q", 1, 4)),
            "up.bitmask": ("U8", [1, 1], b"\x0a"),
            "up.compressed": ("F8_E4M3", [1, 2], b"\x7f\x01"),
        },
    )
    A = read_compressed_tensors(path)["up"]
    assert A.dtype_name == "float8_e4m3fn"
    assert host_bits(A.to_dense()).tolist() == [[0, 0x7F, 0, 0x01]]
    with pytest.raises(TypeError, match=r"up\.compressed holds fp8 .*library='torch'"):
        read_compressed_tensors(path, library="numpy")


def test_shards_of_one_checkpoint(tmp_path: Path) -> None:
    whole = golden(tmp_path / "whole")
    kept = json.loads(whole.read_bytes()[8:].split(b"}}")[0] + b"}}")
    body = whole.read_bytes()[-(16 + 2 + 16 + 8) :]
    (tmp_path / "model").mkdir()
    for i, names in enumerate([("up.shape", "up.compressed"), ("up.bitmask",)]):
        file_of(
            tmp_path / f"model/{i}.safetensors",
            {
                n: (kept[n]["dtype"], kept[n]["shape"], body[slice(*kept[n]["data_offsets"])])
                for n in names
            },
        )
    shards = sorted((tmp_path / "model").iterdir())
    for source in (shards, tuple(map(str, shards)), tmp_path / "model"):
        A = read_compressed_tensors(source, stored="all")["up"]
        assert host_bits(A.to_dense()).view(np.uint16).tolist() == GOLDEN
    with pytest.raises(ValueError, match=r"0\.safetensors.*up lacks up\.bitmask; a shard"):
        read_compressed_tensors(shards[0])
    with pytest.raises(ValueError, match=r"up\.\w+ is in another file already"):
        read_compressed_tensors([*shards, whole])


def test_files_that_are_none(tmp_path: Path) -> None:
    path = golden(tmp_path / "a.safetensors")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"a\.safetensors.* is no safetensors file, or is damaged"):
        read_compressed_tensors(path)
    with pytest.raises(FileNotFoundError):
        read_compressed_tensors(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty' holds no files \*\.safetensors"):
        read_compressed_tensors(tmp_path / "empty")
    for bad in (3, [3], b"a.safetensors"):
        with pytest.raises(TypeError, match="expected a path"):
            read_compressed_tensors(bad)


def test_files_need_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    assert read_compressed_tensors(small())
    with pytest.raises(ImportError, match=r"sparseformats\[safetensors\].*a mapping"):
        read_compressed_tensors(golden(tmp_path / "a.safetensors"))


# ---- faults


def damaged(**parts: Any) -> dict[str, Any]:
    """The good weight with parts replaced; None leaves one out."""
    made = small() | {f"a.b.{name}": x for name, x in parts.items()}
    return {name: x for name, x in made.items() if x is not None}


def flipped(row: int, byte: int, bits: int) -> Any:
    mask = small()["a.b.bitmask"].copy()
    mask[row, byte] ^= bits
    return mask


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ({"shape": None}, ("a.b lacks a.b.shape",)),
        ({"bitmask": None}, ("a.b lacks a.b.bitmask", "shard")),
        ({"compressed": None, "shape": None}, ("lacks a.b.shape and a.b.compressed",)),
        ({"shape": np.array([2, 12, 1])}, ("a.b.shape", "two dimensions", "[2, 12, 1]")),
        ({"shape": np.array([2, -12])}, ("a.b.shape", "not negative", "[2, -12]")),
        ({"shape": np.array([2.0, 12.0])}, ("a.b.shape", "integers", "float64")),
        ({"shape": [2.5, 12]}, ("a.b.shape", "integers", "[2.5, 12]")),
        ({"shape": [True, 12]}, ("a.b.shape", "integers", "[True, 12]")),
        ({"shape": 12}, ("a.b.shape", "integers", "got 12")),
        ({"shape": "21"}, ("a.b.shape", "integers", "got '21'")),
        ({"shape": [2, 16]}, ("a.b.compressed", "(2, 8)", "(2, 16)", "(2, 6)")),
        ({"shape": [3, 12]}, ("a.b.bitmask", "(3, 2)", "got (2, 2)")),
        ({"shape": [2, 10]}, ("a.b.bitmask", "row 0", "past column 9")),
        ({"shape": [2, 14]}, ("a.b.shape", "multiple of 4", "got 14")),
        ({"compressed": np.ones((2, 5), np.float32)}, ("a.b.compressed", "(2, 6)", "(2, 5)")),
        ({"compressed": np.ones(12, np.float32)}, ("a.b.compressed", "(2, 6)", "(12,)")),
        ({"bitmask": np.zeros((2, 3), np.uint8)}, ("a.b.bitmask", "(2, 2)", "got (2, 3)")),
        ({"bitmask": np.zeros((2, 2), np.int32)}, ("a.b.bitmask", "uint8", "int32")),
        ({"bitmask": flipped(1, 1, 0x40)}, ("a.b.bitmask", "row 1", "past column 11")),
        (
            {"bitmask": flipped(1, 0, 0x40)},
            ("a.b.bitmask", "keeps 3 of 4", "row 1, group 1", "1 such group;", "13 kept in all"),
        ),
        (
            {"bitmask": np.zeros((2, 2), np.uint8)},
            ("keeps 0 of 4", "row 0, group 0", "6 such groups", "compressed holds 12"),
        ),
        (
            {"row_offsets": np.array([0, 6])},
            ("a.b.bitmask", "keeps 12 elements", "compressed has shape (2, 6)"),
        ),
    ],
)
def test_faults_name_the_array_and_the_place(parts: Any, texts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as error:
        read_compressed_tensors(damaged(**parts))
    for text in ("mapping", *texts):
        assert text in str(error.value)
    assert "{" not in str(error.value)


@pytest.mark.parametrize(
    ("offsets", "texts"),
    [
        (np.array([0, 3, 4]), ("row 1 begins at 3, by the mask it is 2",)),
        (np.array([0, 2]), ("(3,) or (3, 1)", "(3, 8)", "got (2,)")),
        (np.array([0.0, 2.0, 4.0]), ("int32 or int64", "float64")),
    ],
)
def test_faulty_offsets(offsets: Any, texts: tuple[str, ...]) -> None:
    mask = np.zeros((3, 8), bool)
    mask[:, [1, 6]] = True
    parts = with_offsets("w", mask, np.ones(6, np.float32))
    assert read_compressed_tensors(parts)["w"].nnz == 6
    with pytest.raises(ValueError) as error:
        read_compressed_tensors({**parts, "w.row_offsets": offsets})
    for text in ("w.row_offsets", *texts):
        assert text in str(error.value)
    with pytest.raises(ValueError, match=r"w\.bitmask: keeps 6 elements, .* shape \(5,\)"):
        read_compressed_tensors({**parts, "w.compressed": np.ones(5, np.float32)})


def test_gradients_are_refused_in_grad_mode_only() -> None:
    parts = {name: torch.from_numpy(x) for name, x in small().items()}
    parts["a.b.compressed"].requires_grad_()
    with pytest.raises(NotImplementedError, match=r"a\.b\.compressed: gradients"):
        read_compressed_tensors(parts)
    with torch.no_grad():
        assert read_compressed_tensors(parts)["a.b"].nnz


def test_nothing_to_read() -> None:
    with pytest.raises(ValueError, match="holds no weights of sparse-24-bitmask"):
        read_compressed_tensors({"a.weight": np.ones(3)})
    with pytest.raises(ValueError, match=r"holds no sparse weight 'x'; it has a\.b"):
        read_compressed_tensors(small(), ["x"])
    with pytest.raises(ValueError, match="'nonzero' or 'all', got 'some'"):
        read_compressed_tensors(small(), stored="some")


def test_wrong_kinds_of_array() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(TypeError, match=r"a\.b\.bitmask: expected a NumPy, .* got list"):
        read_compressed_tensors(damaged(bitmask=[[1]]))
    with pytest.raises(TypeError, match="compressed is a numpy array but bitmask is one of torch"):
        read_compressed_tensors(damaged(bitmask=torch.zeros(2, 2, dtype=torch.uint8)))
    small_floats = np.ones((2, 6), ml_dtypes.float8_e4m3fn)
    with pytest.raises(TypeError, match=r"a\.b\.compressed: .* float8_e4m3fn .*use torch tensors"):
        read_compressed_tensors(damaged(compressed=small_floats))
    parts = {name: torch.from_numpy(x) for name, x in small().items()}
    parts["a.b.bitmask"] = parts["a.b.bitmask"].to("meta")
    with pytest.raises(sf.DeviceMismatchError, match="on 'cpu' but bitmask is on 'meta'"):
        read_compressed_tensors(parts)
