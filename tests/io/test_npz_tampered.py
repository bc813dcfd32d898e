"""Files whose description or members say what no file of `save` says, checksums right."""

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import InvalidTensorError
from sparseformats.io import load, load_scipy_npz, save, save_scipy_npz
from sparseformats.testing import check_same_buffers


def saved(A: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    save(file, A, **options)
    return file.getvalue()


def loaded(content: bytes, **options: Any) -> Any:
    return load(io.BytesIO(content), **options)


def tampered(
    A: Any,
    change: Callable[[dict[str, Any]], Any] | None = None,
    members: dict[str, Any] | None = None,
    drop: str = "",
) -> bytes:
    """The file of `A` with its description changed and members replaced, checksums right."""
    with zipfile.ZipFile(io.BytesIO(saved(A))) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    described = json.loads(parts["sparseformats.json"])
    if change is not None:
        described = change(described) or described
    parts["sparseformats.json"] = json.dumps(described).encode()
    for name, value in (members or {}).items():
        file = io.BytesIO()
        if isinstance(value, bytes):
            file.write(value)
        else:
            np.save(file, value)
        parts[name] = file.getvalue()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, value in parts.items():
            if name != drop:
                archive.writestr(name, value)
    return out.getvalue()


CSR = sf.CSR([1.0, 2.0], [0, 1], [0, 2], (1, 2), index_dtype="int32")
BOOL = sf.CSR([True], [0], [0, 1], (1, 1))
BSR = sf.BSR([[[1.0, 0.0]]], [0], [0, 1], (1, 2), stored="all")
SIDE = sf.COO([0.0], [0], [3], (1, 4), index_dtype="int32")
NM = sf.NM([[[1.0, 0.0]]], [[[0, 1]]], (1, 4), side=SIDE)
SUM = sf.Sum([NM, sf.CSR([2.0], [2], [0, 1], (1, 4))])


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(described: dict[str, Any]) -> None:
        inner = described
        for key in path[:-1]:
            inner = inner[key]
        if value is None:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value

    return change


DESCRIPTIONS = [
    (CSR, lambda d: [d], "the description is a list"),
    (CSR, put("version", value=None), "version must be a positive integer, got None"),
    (CSR, put("version", value="1"), "got '1'"),
    (CSR, put("version", value=True), "got True"),
    (CSR, put("version", value=0), "got 0"),
    (CSR, put("version", value=2), "version 2 of the layout, this sparseformats reads up to 1"),
    (CSR, put("static", value=None), "lacks 'static' or 'buffers'"),
    (CSR, put("buffers", value=[]), "lacks 'static' or 'buffers'"),
    (CSR, put("class", value="object"), "unknown class 'object'"),
    (CSR, put("class", value=["CSR"]), "unknown class"),
    (CSR, put("class", value="Transposed"), "a transpose of None"),
    (BSR.T, put("static", "base", value="CSR"), "a transpose of 'CSR'"),
    (CSR, put("static", "shape", value=None), r"described by \['shape'\]"),
    (CSR, put("static", "n", value=2), r"described by \['shape'\], got \['n', 'shape'\]"),
    (CSR, put("static", "shape", value=[1, -2]), "shape must be within"),
    (CSR, put("static", "shape", value=3), "shape must be two integers"),
    (NM, put("static", "m", value=1), "1 <= n <= m"),
    (NM, put("static", "n", value="2"), "two integers"),
    (BSR, put("static", "zeros", value="some"), "'some', expected 'all'"),
    (CSR, put("buffers", "indptr", value=None), "a CSR holds"),
    (CSR, put("buffers", "zeros", value="int64"), "a CSR holds"),
    (NM, put("buffers", "side_col", value=None), "a NM holds"),
    (CSR, put("buffers", "data", value="object"), "data has dtype 'object'"),
    (CSR, put("buffers", "data", value=["float64"]), "data has dtype"),
    (CSR, put("buffers", "indptr", value="int64"), "indptr has dtype 'int64'"),
    (CSR, put("buffers", "indices", value="uint8"), "indices has dtype 'uint8'"),
    (NM, put("buffers", "indices", value="int32"), "indices has dtype 'int32'"),
    (NM, put("buffers", "side_data", value="float32"), "side_data has dtype 'float32'"),
    (CSR, put("buffers", "data", value="float32"), "expected float32"),
    (SUM, put("static", "parts", value=None), "a Sum is described by a list of 'parts', got"),
    (SUM, put("static", "parts", value=[]), "a list of 'parts'"),
    (SUM, put("static", "shape", value=[1, 4]), r"got \['parts', 'shape'\]"),
    (SUM, put("static", "parts", value=[{}, 3]), "unknown class 'None'"),
    (SUM, put("static", "parts", value=[3]), "part 0 is described by a int"),
    (SUM, put("static", "parts", value=[{"class": "Sum", "parts": []}]), "unknown class 'Sum'"),
    (SUM, put("static", "parts", value=SUM.static()["parts"][:1]), "holds other arrays too"),
    (SUM, put("buffers", "part1_indptr", value=None), "a CSR holds"),
    (SUM, put("buffers", "data", value="float64"), "holds other arrays too"),
    (SUM, put("buffers", "part1_data", value="object"), "data has dtype 'object'"),
]


@pytest.mark.parametrize(("A", "change", "text"), DESCRIPTIONS)
def test_tampered_descriptions(A: Any, change: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text) as error:
        loaded(tampered(A, change))
    assert str(error.value).startswith("'BytesIO'")
    assert "{" not in str(error.value)


def test_a_description_that_is_not_json() -> None:
    for bad in (b"{", b"\xff\xfe", b"[" * 100_000):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("sparseformats.json", bad)
        with pytest.raises(ValueError, match="not JSON"):
            loaded(out.getvalue())


def header(**fields: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f8", "fortran_order": False, "shape": (2,)} | fields
    )
    return file.getvalue()


MEMBERS = [
    (CSR, {"data.npy": np.zeros((1, 2))}, "data must be 1-D"),
    (BSR, {"data.npy": np.zeros((1, 0, 2))}, "at least one row and column"),
    (CSR, {"data.npy": np.zeros(2, np.float32)}, "float32"),
    (CSR, {"data.npy": b""}, "member 'data.npy'"),
    (CSR, {"data.npy": b"\x93NUMPY\x01\x00\x10\x00garbage"}, "member 'data.npy'"),
    (CSR, {"data.npy": b"\x93NUMPY\x07\x00" + b"\0" * 20}, "member 'data.npy'"),
    (CSR, {"data.npy": header(shape=(10**12,))}, "in 0 bytes"),
    (CSR, {"data.npy": header(descr="|O") + b"\0" * 16}, "object"),
    (BOOL, {"data.npy": header(descr="|b1", shape=(1,)) + b"\2"}, "no bool"),
]


@pytest.mark.parametrize(("A", "members", "text"), MEMBERS)
def test_tampered_members(A: Any, members: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text) as error:
        loaded(tampered(A, members=members))
    assert "is damaged" in str(error.value)


def test_a_missing_member() -> None:
    with pytest.raises(ValueError, match=r"lacks the member 'indptr\.npy'"):
        loaded(tampered(CSR, drop="indptr.npy"))


INVALID = [
    (CSR, {"indices.npy": np.array([0, 9], np.int32)}, "index-range"),
    (CSR, {"indices.npy": np.array([1, 0], np.int32)}, "sorted"),
    (CSR, {"indptr.npy": np.array([0, 7], np.int32)}, "indptr-end"),
    (CSR, {"indptr.npy": np.array([2], np.int32)}, "length"),
    (NM, {"indices.npy": np.array([[[0, 9]]], np.uint8)}, "position-range"),
    (NM, {"side_data.npy": np.array([3.0])}, "side-value"),
    (NM, {"side_col.npy": np.array([0], np.int32)}, "side-slot"),
]


@pytest.mark.parametrize(("A", "members", "rule"), INVALID)
def test_arrays_that_form_no_matrix(A: Any, members: Any, rule: str) -> None:
    content = tampered(A, members=members)
    with pytest.raises(InvalidTensorError) as error:
        loaded(content)
    assert rule in {p.rule for p in error.value.problems}
    assert "'BytesIO'" in str(error.value)
    assert loaded(content, check=False).problems()


def test_fortran_order_and_other_byte_order_are_read() -> None:
    A = sf.BSR(np.arange(1.0, 7).reshape(1, 2, 3), [0], [0, 1], (2, 3))
    members = {"data.npy": np.asfortranarray(A.data).astype(">f8")}
    check_same_buffers(A, loaded(tampered(A, members=members)))


def test_nothing_is_unpickled() -> None:
    file = io.BytesIO()
    np.save(file, np.array([object], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="damaged"):
        loaded(tampered(CSR, members={"data.npy": file.getvalue()}))


def damaged(content: bytes) -> list[bytes]:
    """Every byte changed in three ways, and every length cut."""
    found = [content[:size] for size in range(len(content))]
    for at in range(len(content)):
        for bits in (0x01, 0x80, 0xFF):
            changed = bytearray(content)
            changed[at] ^= bits
            found.append(bytes(changed))
    return found


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["own", "scipy"])
def test_no_damage_escapes_as_another_error_or_another_matrix(kind: str, compressed: bool) -> None:
    read, write = (load, save) if kind == "own" else (load_scipy_npz, save_scipy_npz)
    file = io.BytesIO()
    write(file, CSR, compressed=compressed)
    for content in damaged(file.getvalue()):
        try:
            found = read(io.BytesIO(content))
        except ValueError as error:
            assert "'BytesIO'" in str(error)  # noqa: PT017 - most damage is an error, not all
        else:
            check_same_buffers(found, CSR)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_packing_that_is_never_written(method: int) -> None:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(saved(CSR))) as archive,
        zipfile.ZipFile(out, "w", method) as packed,
    ):
        for name in archive.namelist():
            packed.writestr(name, archive.read(name))
    with pytest.raises(ValueError, match=f"method {method}"):
        loaded(out.getvalue())


def test_parts_that_are_no_sum_together() -> None:
    twice = tampered(SUM, members={"part1_indices.npy": np.array([0])})
    with pytest.raises(InvalidTensorError, match=r"disjoint at \(0, 0\)"):
        loaded(twice)
    assert loaded(twice, check=False).nnz == 3
    wide = tampered(
        SUM,
        lambda d: d["buffers"].update(part1_data="float32"),
        {"part1_data.npy": np.ones(1, np.float32)},
    )
    with pytest.raises(InvalidTensorError, match=r"dtype at parts\[1\]"):
        loaded(wide)


def test_a_sum_whose_dtype_the_library_lacks() -> None:
    torch = pytest.importorskip("torch")
    eighth = sf.split(torch.ones(2, 4).to(torch.float8_e5m2), "2:4")
    with pytest.raises(TypeError, match=r"float8_e5m2.*library='torch'"):
        loaded(saved(eighth))
    check_same_buffers(eighth, loaded(saved(eighth), library="torch"))
