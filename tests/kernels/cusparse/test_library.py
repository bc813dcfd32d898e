"""Finding the library, the three ways in which it cannot be used, and its numbers."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from sparseformats.dispatch.record import Requirement
from sparseformats_kernels.cusparse import api, finding
from sparseformats_kernels.cusparse.api import Api, Scalar
from sparseformats_kernels.cusparse.finding import CuSparse, installed, mapped, the_api
from tests.kernels.cusparse.fake import Fake

NEEDS = CuSparse(minimum="12.3")


@pytest.fixture(autouse=True)
def _nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_state", {})
    monkeypatch.setattr(finding, "mapped", lambda: None)
    monkeypatch.setattr(finding, "installed", lambda: None)


def test_what_the_process_has_loaded_is_taken_first() -> None:
    maps = """\
7f0000000000-7f0000001000 r-xp 00000000 08:01 1 /site/nvidia/cusparselt/lib/libcusparseLt.so.0
7f0000002000-7f0000003000 r-xp 00000000 08:01 2 /site/nvidia/cu13/lib/libcusparse.so.12
7f0000004000-7f0000005000 rw-p 00000000 00:00 0
"""
    assert mapped(maps) == "/site/nvidia/cu13/lib/libcusparse.so.12"
    assert mapped(maps.replace("libcusparse.so.12", "libcublas.so.13")) is None


def test_packages_are_searched(tmp_path: Path) -> None:
    for folder in ("cusparse", "cu13"):
        (tmp_path / folder).mkdir()
    (tmp_path / "cu13" / "libcusparse.so.12").touch()
    folders = ["", str(tmp_path / "none"), str(tmp_path / "cusparse"), str(tmp_path / "cu13")]
    assert installed(folders) == str(tmp_path / "cu13" / "libcusparse.so.12")
    assert installed(folders[:3]) is None


def test_folders_of_packages_are_among_those_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", "/made-up/cuda")
    found = list(finding._folders())
    assert str(tmp_path / "nvidia" / "cu13" / "lib") in found
    assert str(tmp_path / "nvidia" / "cusparse" / "lib") in found
    assert "/made-up/cuda/lib64" in found


def test_missing() -> None:
    for found in (NEEDS.reason(), NEEDS.load()):
        assert found is not None
        assert found.code == "missing-package"
        assert found.message == "needs cuSPARSE >= 12.3, which is not installed"
        assert "install nvidia-cusparse" in (found.hint or "")
    with pytest.raises(RuntimeError, match="cuSPARSE cannot be used: it is not installed"):
        the_api()


def test_a_search_in_vain_is_believed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now, searches = [100.0], []
    monkeypatch.setattr(finding, "monotonic", lambda: now[0])
    monkeypatch.setattr(finding, "installed", lambda: searches.append(now[0]))
    for now[0] in (100.0, 100.5, 100.9, 101.5):
        assert NEEDS.reason() is not None
    assert searches == [100.0, 101.5]
    monkeypatch.setattr(finding, "installed", lambda: "libcusparse.so.12")
    now[0] = 103
    assert NEEDS.reason() is None


def test_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libcusparse.so.12"
    path.write_bytes(b"no library at all")
    monkeypatch.setattr(finding, "installed", lambda: str(path))
    assert NEEDS.reason() is None  # nothing is loaded to ask
    for found in (NEEDS.load(), NEEDS.reason()):
        assert found is not None
        assert found.code == "package-broken"
        assert f"loading {path} raised OSError" in found.message
    with pytest.raises(RuntimeError, match=r"cannot be used: loading .* raised OSError"):
        the_api()


def test_a_library_that_lacks_a_function_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "installed", lambda: "libc.so.6")
    found = NEEDS.load()
    assert found is not None
    assert found.code == "package-broken"
    assert "AttributeError" in found.message


@pytest.mark.parametrize(
    ("version", "code"),
    [((12, 2, 9), "package-too-old"), ((12, 3, 0), None), ((13, 0, 0), None)],
)
def test_too_old(version: Any, code: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Fake(version).api()
    monkeypatch.setattr(finding, "_state", {"api": library})
    for found in (NEEDS.reason(), NEEDS.load()):
        assert (None if found is None else found.code) == code
    if code:
        message = "needs cuSPARSE >= 12.3, has cuSPARSE 12.2.9 from fake"
        assert found is not None
        assert found.message == message
    assert the_api() is library


def test_it_is_a_requirement_like_others() -> None:
    assert isinstance(NEEDS, Requirement)
    assert str(NEEDS) == "cuSPARSE >= 12.3"
    assert hash(NEEDS) == hash(CuSparse(minimum="12.3"))
    assert len({NEEDS, CuSparse(minimum="12.5.1")}) == 2


def test_numbers_are_those_of_the_header() -> None:
    """``cusparse.h`` and ``library_types.h`` of CUDA 12 and 13."""
    assert (api.NON_TRANSPOSE, api.TRANSPOSE) == (0, 1)
    assert (api.ORDER_COL, api.ORDER_ROW) == (1, 2)
    assert (api.INDEX_32I, api.BASE_ZERO, api.POINTER_MODE_HOST) == (2, 0, 0)
    assert api.SPMV_CSR_ALG2 == 3
    assert (api.SPMM_CSR_ALG1, api.SPMM_CSR_ALG2, api.SPMM_CSR_ALG3) == (4, 6, 12)
    assert (api.SPMM_BLOCKED_ELL_ALG1, api.SPMM_BSR_ALG1) == (13, 14)
    assert (api.SPGEMM_DEFAULT, api.SPGEMM_ALG3) == (0, 5)
    assert api.VALUES == {
        "float32": 0,
        "float64": 1,
        "float16": 2,
        "int8": 3,
        "complex64": 4,
        "complex128": 5,
        "int32": 10,
        "bfloat16": 14,
    }


def test_numbers_of_arguments_are_those_of_the_header() -> None:
    counts = {name.removeprefix("cusparse"): len(x) for name, x in api.SIGNATURES.items()}
    expected = {"CreateCsr": 11, "CreateBsr": 14, "CreateBlockedEll": 10, "CreateDnMat": 7}
    expected |= {"SpMM": 11, "SpMM_bufferSize": 11, "SpMM_preprocess": 11}
    expected |= {"SpMV": 10, "SpMV_bufferSize": 10, "SpMV_preprocess": 10}
    expected |= {"SpGEMM_workEstimation": 13, "SpGEMM_compute": 13, "SpGEMM_copy": 11}
    expected |= {"SpGEMM_estimateMemory": 15}
    assert expected.items() <= counts.items()


@pytest.mark.parametrize(
    ("value", "compute", "expected"),
    [
        (2, "float32", [2.0]),
        (0.1, "float64", [0.1]),
        (1 - 2j, "complex64", [1.0, -2.0]),
        (3, "complex128", [3.0, 0.0]),
        (-7, "int32", [-7]),
    ],
)
def test_scalars_lie_in_memory_as_c_reads_them(value: Any, compute: str, expected: Any) -> None:
    scalar = Scalar(value, compute)
    kind = {"float32": ctypes.c_float, "complex64": ctypes.c_float, "int32": ctypes.c_int32}
    read = (kind.get(compute, ctypes.c_double) * len(expected)).from_address(scalar.address)
    assert list(read) == expected


def test_a_null_pointer_is_no_descriptor() -> None:
    fake = Fake()
    library = fake.api()
    library._functions["cusparseCreate"] = lambda pointer: 0
    with pytest.raises(RuntimeError, match="cusparseCreate of cuSPARSE gave a null pointer"):
        library.made("cusparseCreate")


def test_unknown_statuses_are_told_by_number() -> None:
    fake = Fake()
    fake.fails["cusparseCreate"] = 99
    library: Api = fake.api()
    with pytest.raises(RuntimeError, match=r"CUSPARSE_STATUS_UNKNOWN \(99\)"):
        library.made("cusparseCreate")
