"""``python -m sparseformats info``, in a process of its own, also where packages are broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sparseformats as sf
from sparseformats.cli import info, main
from sparseformats.dispatch import places
from sparseformats.dispatch.measurements import installed_tables

ROOT = Path(__file__).parents[2]


def command(
    *arguments: str, path: Any = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([*map(str, path), str(ROOT), str(ROOT / "kernels")])
    return subprocess.run(
        [sys.executable, "-m", "sparseformats", *arguments],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_for_people() -> None:
    done = command("info", SPARSEFORMATS_KERNEL="scipy-csr")
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    assert f"sparseformats {sf.__version__}" in words
    assert "SPARSEFORMATS_KERNEL scipy-csr" in words
    assert f"cache {places.user_directory()}" in words
    assert "cpu:" in words
    for kernel in sf.kernels():
        assert f"{kernel.op} {kernel.name} {'yes' if kernel.available else 'no'}" in words
    assert "{" not in done.stdout


def broken(folder: Path, name: str, body: str) -> None:
    (folder / f"{name}.py").write_text(body)


def test_for_programs_with_packages_that_fail_in_every_way(tmp_path: Path) -> None:
    broken(tmp_path, "torch", "raise OSError('libcudart.so: cannot open\\nshared object {file}')")
    broken(tmp_path, "triton", "raise SystemExit(3)")
    broken(tmp_path, "cupy", "__version__ = '14.0'\nclass cuda: pass")
    broken(tmp_path, "ml_dtypes", "import nowhere")
    done = command("info", "--json", path=[tmp_path], SPARSEFORMATS_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    packages = found["packages"]
    assert packages["numpy"] == {"version": __import__("numpy").__version__, "problem": None}
    assert "OSError: libcudart.so: cannot open shared object" in packages["torch"]["problem"]
    assert "SystemExit: 3" in packages["triton"]["problem"]
    assert "No module named 'nowhere'" in packages["ml_dtypes"]["problem"]
    assert packages["cupy"]["version"] == "14.0"
    assert any("asking for devices raised AttributeError" in d for d in found["devices"])
    kernels = {(k["op"], k["name"]): k for k in found["kernels"]}
    assert len(kernels) == len(found["kernels"])
    torch_csr = kernels["matmul", "torch-csr"]
    assert torch_csr["available"] is False
    assert [reason["code"] for reason in torch_csr["reasons"]] == ["package-broken"]
    assert kernels["matmul", "scipy-csr"]["available"] is True
    assert found["files"]["cache"] == {"path": str(tmp_path), "exists": True}


def test_one_operation_only() -> None:
    done = command("info", "--json", "--op", "sddmm")
    found = {k["op"] for k in json.loads(done.stdout)["kernels"]}
    assert found == {"sddmm"}


def test_mistakes_on_the_command_line() -> None:
    for arguments in ((), ("inform",), ("info", "--jason")):
        done = command(*arguments)
        assert done.returncode == 2
        assert "usage: python -m sparseformats" in done.stderr
    assert command("--help").returncode == 0


def test_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--op", "spgemm"]) == 0
    assert "scipy-spgemm" in capsys.readouterr().out


def test_devices_as_libraries_tell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        class cuda:
            is_available = staticmethod(lambda: True)
            device_count = staticmethod(lambda: 1)
            get_device_name = staticmethod(lambda i: "H200")
            get_device_capability = staticmethod(lambda i: (9, 0))

    class Cupy:
        class cuda:
            class runtime:
                getDeviceCount = staticmethod(lambda: 1)
                getDeviceProperties = staticmethod(lambda i: {"name": b"H200"})

    for name, module in (("torch", Torch), ("cupy", Cupy)):
        monkeypatch.setitem(sys.modules, name, module)
    found = info._devices([info.Package("torch", "2"), info.Package("cupy", "14")])
    assert found[1:] == ["torch cuda:0: H200, compute capability 9.0", "cupy cuda:0: H200"]
    monkeypatch.setattr(Cupy.cuda.runtime, "getDeviceCount", lambda: 0)
    monkeypatch.setattr(Torch.cuda, "is_available", lambda: False)
    found = info._devices([info.Package("torch", "2"), info.Package("cupy", "14")])
    assert found[1:] == ["torch: no CUDA device", "cupy: no device"]


def test_where_files_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(places.ENVIRONMENT, "~/mine")
    assert places.user_directory() == Path.home() / "mine"
    monkeypatch.delenv(places.ENVIRONMENT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert places.user_directory() == tmp_path / "sparseformats"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert places.user_directory() == Path.home() / ".cache" / "sparseformats"
    assert places.shipped_tables().name == "tables"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def home(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(places.ENVIRONMENT, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", home)
    folder = places.user_directory()
    assert not (folder / "tables").is_dir()
    with pytest.raises(OSError, match="Not a directory"):
        folder.mkdir(parents=True, exist_ok=True)
    assert installed_tables() is None or len(installed_tables()) >= 0
