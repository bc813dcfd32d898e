"""Finding the library, the ways in which it cannot be used, and its numbers by version."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sparseformats.dispatch.record import CODES, Requirement
from sparseformats_kernels.cusparselt import api, finding
from sparseformats_kernels.cusparselt.api import SIGNATURES, Api, Opaque, UnknownVersion
from sparseformats_kernels.cusparselt.finding import CuSparseLt, installed, mapped, the_api
from sparseformats_kernels.cusparselt.versions import KNOWN, Layout, known_versions
from tests.kernels.cusparselt.fake import Fake

NEEDS = CuSparseLt()


@pytest.fixture(autouse=True)
def _nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_state", {})
    monkeypatch.setattr(finding, "mapped", lambda: None)
    monkeypatch.setattr(finding, "installed", lambda: None)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Make a shared library that tells a version and has the functions, which all succeed."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("libraries")

    def build(version: tuple[int, int, int], *, lacks: str = "", fails: int = 0) -> str:
        names = [*SIGNATURES, "cusparseLtMatmulAlgSelectionDestroy"]
        functions = "".join(
            f"int {name}(void) {{ return 0; }}\n" for name in names if name != lacks
        )
        source = folder / "source.c"
        numbers = ", ".join(map(str, version))
        source.write_text(
            f"{functions}static int v[3] = {{{numbers}}};\n"
            f"int cusparseLtGetProperty(int kind, int *x) {{ *x = v[kind]; return {fails}; }}\n"
        )
        path = folder / f"lib{version[0]}{version[1]}{version[2]}{lacks}{fails}.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", path, source], check=True)
        return str(path)

    return build


def test_what_the_process_has_loaded_is_taken_first() -> None:
    maps = """\
7f0000000000-7f0000001000 r-xp 00000000 08:01 1 /site/nvidia/cu13/lib/libcusparse.so.12
7f0000002000-7f0000003000 r-xp 00000000 08:01 2 /site/nvidia/cusparselt/lib/libcusparseLt.so.0
7f0000004000-7f0000005000 rw-p 00000000 00:00 0
"""
    assert mapped(maps) == "/site/nvidia/cusparselt/lib/libcusparseLt.so.0"
    assert mapped(maps.replace("cusparseLt.so.0", "cusparseLt-f8b4a9fb.so.0.7.1")) == (
        "/site/nvidia/cusparselt/lib/libcusparseLt-f8b4a9fb.so.0.7.1"
    )
    assert mapped(maps.replace("libcusparseLt.so.0", "libcublas.so.13")) is None


def test_packages_are_searched(tmp_path: Path) -> None:
    for folder in ("cusparselt", "torch"):
        (tmp_path / folder).mkdir()
    (tmp_path / "torch" / "libcusparseLt-f8b4a9fb.so.0").touch()
    folders = ["", str(tmp_path / "none"), str(tmp_path / "cusparselt"), str(tmp_path / "torch")]
    assert installed(folders) == str(tmp_path / "torch" / "libcusparseLt-f8b4a9fb.so.0")
    assert installed(folders[:3]) is None
    (tmp_path / "cusparselt" / "libcusparseLt.so.0").touch()
    assert installed(folders) == str(tmp_path / "cusparselt" / "libcusparseLt.so.0")


def test_folders_of_packages_are_among_those_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", "/made-up/cuda")
    found = list(finding._folders())
    for parts in (("nvidia", "cusparselt", "lib"), ("nvidia", "cu13", "lib"), ("torch", "lib")):
        assert str(tmp_path.joinpath(*parts)) in found
    assert "/made-up/cuda/lib64" in found


def test_missing() -> None:
    for found in (NEEDS.reason(), NEEDS.load()):
        assert found is not None
        assert found.code == "missing-package"
        assert found.message == "needs cuSPARSELt, which is not installed"
        assert "install nvidia-cusparselt" in (found.hint or "")
    with pytest.raises(RuntimeError, match=r"cuSPARSELt cannot be used: .*is not installed"):
        the_api()


def test_a_search_in_vain_is_believed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now, searches = [100.0], []
    monkeypatch.setattr(finding, "monotonic", lambda: now[0])
    monkeypatch.setattr(finding, "installed", lambda: searches.append(now[0]))
    for now[0] in (100.0, 100.5, 100.9, 101.5):
        assert NEEDS.reason() is not None
    assert searches == [100.0, 101.5]
    monkeypatch.setattr(finding, "installed", lambda: "libcusparseLt.so.0")
    now[0] = 103
    assert NEEDS.reason() is None


def test_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libcusparseLt.so.0"
    path.write_bytes(b"no library at all")
    monkeypatch.setattr(finding, "installed", lambda: str(path))
    assert NEEDS.reason() is None  # nothing is loaded to ask
    for found in (NEEDS.load(), NEEDS.reason()):
        assert found is not None
        assert found.code == "package-broken"
        assert f"loading {path} raised OSError" in found.message
    with pytest.raises(RuntimeError, match=r"cannot be used: .*loading .* raised OSError"):
        the_api()


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ((0, 4, 0), "package-too-old"),
        ((0, 6, 3), "package-too-old"),
        ((0, 7, 1), None),
        ((0, 8, 0), None),
        ((0, 8, 1), None),
        ((0, 9, 0), "package-unknown"),
        ((1, 0, 0), "package-unknown"),
    ],
)
def test_versions_that_are_not_known_are_refused(
    version: Any, code: str | None, built: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = built(version)
    monkeypatch.setattr(finding, "installed", lambda: path)
    found = NEEDS.load()
    assert (None if found is None else found.code) == code
    if found is None:
        assert the_api().version == version
        assert the_api().layout is KNOWN[version[:2]]
        return
    assert found.code in CODES
    numbers = ".".join(map(str, version))
    assert found.message == f"needs cuSPARSELt 0.7.x or 0.8.x, has {numbers} from {path}"
    with pytest.raises(UnknownVersion, match=f"cuSPARSELt {numbers} from .* is not a version"):
        Api(path)


def test_a_library_that_lacks_a_function_is_broken(
    built: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = built((0, 8, 0), lacks="cusparseLtMatmulPlanInit")
    monkeypatch.setattr(finding, "installed", lambda: path)
    found = NEEDS.load()
    assert found is not None
    assert found.code == "package-broken"
    assert "AttributeError" in found.message


def test_a_function_of_later_versions_is_not_missed(built: Any) -> None:
    assert Api(built((0, 7, 1), lacks="cusparseLtMatmulAlgSelectionDestroy")).version == (0, 7, 1)
    with pytest.raises(AttributeError):
        Api(built((0, 8, 1), lacks="cusparseLtMatmulAlgSelectionDestroy"))


def test_a_library_that_does_not_tell_its_version_is_broken(
    built: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = built((0, 8, 0), fails=3)
    monkeypatch.setattr(finding, "installed", lambda: path)
    found = NEEDS.load()
    assert found is not None
    assert found.code == "package-broken"
    text = r"cusparseLtGetProperty of cuSPARSELt \? failed: CUSPARSE_STATUS_INVALID_VALUE \(3\)"
    with pytest.raises(RuntimeError, match=text):
        Api(path)


def test_it_is_a_requirement_like_others() -> None:
    assert isinstance(NEEDS, Requirement)
    assert str(NEEDS) == "cuSPARSELt"
    assert hash(NEEDS) == hash(CuSparseLt())
    assert known_versions() == "0.7.x or 0.8.x"


def test_sizes_are_those_of_the_headers() -> None:
    """``uint8_t data[1024]`` in 0.7.1, ``alignas(16) uint8_t data[512]`` in 0.8.0 and 0.8.1."""
    assert {(0, 7): Layout(1024, 16, False), (0, 8): Layout(512, 16, True)} == KNOWN


@pytest.mark.parametrize("layout", KNOWN.values())
def test_structs_lie_in_memory_that_is_large_enough(layout: Layout) -> None:
    for _ in range(50):
        made = Opaque(layout)
        assert made.address % layout.alignment == 0
        start = ctypes.addressof(made._memory)
        assert start <= made.address
        assert made.address + layout.size <= start + ctypes.sizeof(made._memory)


def test_numbers_are_those_of_the_headers() -> None:
    """``cusparseLt.h`` of 0.7.1 and 0.8.0, ``cusparse.h`` and ``library_types.h``."""
    assert (api.NON_TRANSPOSE, api.TRANSPOSE) == (0, 1)
    assert (api.ORDER_COL, api.ORDER_ROW) == (1, 2)
    assert (api.HALF_OF_ALL, api.ALG_DEFAULT) == (0, 0)
    assert (api.COMPUTE_32I, api.COMPUTE_32F) == (0, 2)
    assert (api.ACTIVATION_RELU, api.BIAS_POINTER) == (0, 8)
    assert (api.CONFIG_ID, api.CONFIG_MAX_ID, api.SPLIT_K, api.SPLIT_K_MODE) == (0, 1, 3, 4)
    assert (api.ONE_KERNEL, api.TWO_KERNELS) == (1, 2)
    assert api.VALUES == {
        "float32": 0,
        "float16": 2,
        "int8": 3,
        "int32": 10,
        "bfloat16": 14,
        "float8_e4m3fn": 28,
    }


def test_arguments_are_those_of_the_headers() -> None:
    found = {name.removeprefix("cusparseLt"): codes for name, codes in SIGNATURES.items()}
    assert found["DenseDescriptorInit"] == "ppqqquii"
    assert found["StructuredDescriptorInit"] == "ppqqquiii"
    assert found["MatmulDescriptorInit"] == "ppiippppi"
    assert found["MatmulPlanInit"] == "pppp"
    assert found["MatmulAlgSetAttribute"] == found["MatmulDescSetAttribute"] == "ppipz"
    assert found["Matmul"] == "ppppppppppi"
    assert found["SpMMACompress2"] == "ppiipppp"


@pytest.mark.parametrize("version", [(0, 7, 1), (0, 8, 0)])
def test_plans_of_every_version_free_what_they_made(version: Any) -> None:
    import gc

    from sparseformats_kernels.cusparselt.handles import Handle
    from sparseformats_kernels.cusparselt.packing import Blob
    from sparseformats_kernels.cusparselt.plans import DEFAULT, Plan, Problem
    from tests.kernels.cusparse.fake import FakeDevice
    from tests.kernels.cusparselt.support import dense

    fake = Fake(version)
    made, device = fake.api(), FakeDevice()
    context = Handle(made)
    blob = Blob(made, context, device, dense((32, 32)), "float16", "float16")
    plan = Plan(made, context, blob, Problem(8, 2, 8, 2, 8), 0, DEFAULT)
    assert plan.workspace == fake.workspace
    assert plan.most == fake.most
    del plan, context
    gc.collect()
    left = {facts["kind"] for facts in fake.objects.values()}
    assert left <= ({"product"} if version[1] == 8 else {"product", "selection"})
