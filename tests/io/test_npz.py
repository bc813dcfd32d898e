"""Our own files: everything of every format, and no trust in what a file says."""

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import sparseformats as sf
from sparseformats.io import load, save, save_scipy_npz
from sparseformats.testing import (
    FORMATS,
    check_content_preserved,
    check_immutable,
    check_same_buffers,
    check_valid,
    matrices,
    unchanged,
)

EVERY = (*FORMATS, "bsr.T", "blocked_ell.T", "n:m.T")


def saved(A: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    save(file, A, **options)
    return file.getvalue()


def loaded(content: bytes, **options: Any) -> Any:
    return load(io.BytesIO(content), **options)


def test_compressed_and_plain_are_equal() -> None:
    A = sf.CSR(np.zeros(1000), np.arange(1000), [0, 1000], (1, 1000))
    plain, small = saved(A), saved(A, compressed=True)
    assert len(small) < len(plain) // 3
    check_same_buffers(loaded(plain), loaded(small))


@given(matrices(EVERY))
def test_numpy_round_trip_keeps_every_bit(A: Any) -> None:
    with unchanged(A):
        content = saved(A)
    B = loaded(content)
    check_same_buffers(A, B)
    check_content_preserved(A, B)
    check_valid(B)
    check_immutable(B)
    assert B.static() == A.static()
    assert saved(B) == content


@given(matrices(EVERY, library="torch"))
def test_torch_round_trip_keeps_every_bit(A: Any) -> None:
    content = saved(A)
    B = loaded(content, library="torch")
    check_same_buffers(A, B)
    check_content_preserved(A, B)
    if not A.dtype_name.startswith("float8"):
        host = loaded(content)
        assert host.library == "numpy"
        check_content_preserved(A, host)


def test_the_layout_of_version_1() -> None:
    aside = sf.COO([0.0], [0], [3], (1, 4), index_dtype="int32")
    A = sf.NM([[[1.0, 0.0]]], [[[0, 1]]], (1, 4), side=aside)
    with zipfile.ZipFile(io.BytesIO(saved(A.T))) as archive:
        described = json.loads(archive.read("sparseformats.json"))
        names = archive.namelist()
    side = ("side_data", "side_row", "side_col")
    assert names == ["sparseformats.json", *(f"{n}.npy" for n in ("data", "indices", *side))]
    assert described == {
        "version": 1,
        "class": "Transposed",
        "format": "2:4.T",
        "library": "numpy",
        "static": {"base": "NM", "shape": [1, 4], "n": 2, "m": 4},
        "buffers": {
            "data": "float64",
            "indices": "uint8",
            "side_data": "float64",
            "side_row": "int32",
            "side_col": "int32",
        },
    }


def test_fp8_needs_torch_and_wide_unsigned_needs_numpy() -> None:
    torch = pytest.importorskip("torch")
    T = sf.CSR(torch.ones(1).to(torch.float8_e5m2), torch.tensor([0]), torch.tensor([0, 1]), (1, 1))
    with pytest.raises(TypeError, match="float8_e5m2") as error:
        loaded(saved(T))
    assert "library='torch'" in str(error.value)
    A = sf.CSR(np.ones(1, np.uint16), [0], [0, 1], (1, 1))
    with pytest.raises(TypeError, match="uint16") as error:
        loaded(saved(A), library="torch")
    assert "library='numpy'" in str(error.value)


def test_library_and_device() -> None:
    pytest.importorskip("torch")
    content = saved(sf.CSR([1.0], [0], [0, 1], (1, 1)))
    assert loaded(content, device="cpu").library == "numpy"
    assert loaded(content, library="torch", device="cpu").library == "torch"
    with pytest.raises(ValueError, match="'cuda'"):
        loaded(content, device="cuda")
    with pytest.raises(ValueError, match="unknown array library"):
        loaded(content, library="jax", device="cpu")


def test_an_unknown_library_is_refused_without_a_device() -> None:
    with pytest.raises(ValueError, match="unknown array library"):
        loaded(saved(sf.CSR([1.0], [0], [0, 1], (1, 1))), library="jax")


def test_int64_indices_survive() -> None:
    A = sf.CSR([5.0, 7.0], np.array([3, 2**31 + 5]), np.array([0, 2]), (1, 2**32))
    assert loaded(saved(A)).indices.tolist() == [3, 2147483653]


def test_paths_are_taken_as_they_are_and_replaced_whole(tmp_path: Path) -> None:
    A = sf.CSR([1.0], [0], [0, 1], (1, 1))
    for path in (tmp_path / "plain", str(tmp_path / "with.npz")):
        save(path, A)
        check_same_buffers(A, load(path))
        check_same_buffers(A, load(Path(path)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain", "with.npz"]
    os.chmod(tmp_path / "plain", 0o640)
    save(tmp_path / "plain", A.T)
    assert load(tmp_path / "plain").format == "csc"
    assert os.stat(tmp_path / "plain").st_mode & 0o777 == 0o640


def test_a_link_keeps_pointing_and_a_failure_keeps_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    A = sf.CSR([1.0], [0], [0, 1], (1, 1))
    save(tmp_path / "real", A)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save(tmp_path / "link", A.T)
    assert (tmp_path / "link").is_symlink()
    before = (tmp_path / "real").read_bytes()

    def fails(*args: Any, **options: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", fails)
    with pytest.raises(OSError, match="disk full"):
        save(tmp_path / "real", A)
    assert (tmp_path / "real").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_devices_are_written_to_directly() -> None:
    save(os.devnull, sf.CSR([1.0], [0], [0, 1], (1, 1)))
    assert not os.path.isfile(os.devnull)


def test_what_is_no_matrix_or_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="matrix of sparseformats, got ndarray"):
        save(io.BytesIO(), np.eye(2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="binary writing, got list"):
        save([], sf.CSR([1.0], [0], [0, 1], (1, 1)))
    with pytest.raises(TypeError, match="for reading, got list"):
        load([])
    with pytest.raises(FileNotFoundError, match="absent"):
        load(tmp_path / "absent")


@pytest.mark.parametrize("keep", [0, 1, 30, 200, -200, -30, -1])
def test_truncated_files(keep: int) -> None:
    content = saved(sf.CSR([1.0, 2.0], [0, 1], [0, 2], (1, 2)))
    with pytest.raises(ValueError, match="'BytesIO' is no sparseformats file, or is damaged"):
        loaded(content[:keep])


@pytest.mark.parametrize("A", [sf.CSR([1.0, 2.0], [0, 1], [0, 2], (1, 2))])
def test_no_flipped_byte_goes_unnoticed(A: Any) -> None:
    content = bytearray(saved(A))
    for at in range(0, len(content), 3):
        broken = content.copy()
        broken[at] ^= 0x10
        try:
            B = loaded(bytes(broken))
        except (ValueError, NotImplementedError, RuntimeError):
            continue
        check_same_buffers(A, B)  # a byte of the zip's own bookkeeping that nobody reads


def test_foreign_files(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.savez(file, a=np.eye(2))
    with pytest.raises(ValueError, match=r"lacks 'sparseformats.json' and holds a\.npy"):
        loaded(file.getvalue())
    file = io.BytesIO()
    save_scipy_npz(file, sf.CSR([1.0], [0], [0, 1], (1, 1)))
    with pytest.raises(ValueError, match="load_scipy_npz"):
        loaded(file.getvalue())
    file = io.BytesIO()
    np.save(file, np.eye(2))
    with pytest.raises(ValueError, match="no sparseformats file"):
        loaded(file.getvalue())
