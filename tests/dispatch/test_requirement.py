import sys
import types

import pytest
from dispatch_fakes import Q, install, python, record

from sparseformats.dispatch import Requirement, loading, select
from sparseformats.dispatch.requirement import version_key
from sparseformats.errors import KernelLoadWarning, NoKernelError


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_met(site):
    install(site, "sfake-dep", "2.1", "raise SystemExit('must not be imported to be judged')")
    assert Requirement("sfake-dep", "2.0").reason() is None
    assert Requirement("sfake-dep", "2.1").reason() is None
    assert Requirement("sfake-dep").reason() is None
    assert "sfake_dep" not in sys.modules


def test_missing():
    reason = Requirement("sfake-dep", "2.0").reason()
    assert reason.code == "missing-package"
    assert reason.message == "needs sfake-dep >= 2.0, which is not installed"
    assert reason.hint == "install sfake-dep"


def test_too_old(site):
    install(site, "sfake-dep", "1.9", "")
    reason = Requirement("sfake-dep", "2.0").reason()
    assert reason.code == "package-too-old"
    assert reason.message == "needs sfake-dep >= 2.0, has sfake-dep 1.9"
    assert "2.0" in reason.hint


def test_broken_shows_at_load_and_is_remembered(site):
    install(site, "sfake-dep", "2.0", "raise OSError('libfake.so: {gone}')")
    need = Requirement("sfake-dep", "1.0")
    assert need.reason() is None
    assert need.load().code == "package-broken"
    (site / "sfake_dep.py").write_text("")  # repaired, but this process has made up its mind
    reason = need.reason()
    assert reason.code == "package-broken"
    assert "installed (version 2.0), but importing it raised OSError: libfake.so" in reason.message
    assert Requirement("sfake-dep").reason().code == "package-broken"  # for every kernel


def test_metadata_without_module_is_broken(site):
    install(site, "sfake-dep", "2.0", None)
    reason = Requirement("sfake-dep").reason()
    assert reason.code == "package-broken"
    assert "module 'sfake_dep' cannot be found" in reason.message
    assert Requirement("sfake-dep").load() == reason


def test_blocked_module_is_missing_or_broken(site, monkeypatch):
    monkeypatch.setitem(sys.modules, "sfake_dep", None)
    assert Requirement("sfake-dep").reason().code == "missing-package"


def test_other_import_name_and_several_distributions(site):
    install(site, "sfake-dep-cuda12x", "14.0", "", module="sfake_dep")
    need = Requirement("sfake_dep", "13", distributions=("sfake-dep-cuda13x", "sfake-dep-cuda12x"))
    assert need.reason() is None
    old = Requirement("sfake_dep", "15", distributions=need.distributions)
    assert old.reason().message == "needs sfake_dep >= 15, has sfake_dep 14.0"
    assert Requirement("sfake-dep-cuda12x", import_name="sfake_dep").reason() is None
    none = Requirement("sfake_other", distributions=("a-12", "a-13")).reason()
    assert none.hint == "install a-12 or a-13"


def test_source_tree_without_metadata_is_judged_by_its_import(site):
    (site / "sfake_dep.py").write_text("__version__ = '1.5'")
    need = Requirement("sfake_dep", "2.0")
    assert need.reason() is None
    reason = need.load()
    assert reason.code == "package-too-old"
    assert "has sfake_dep 1.5" in reason.message


def test_imported_module_wins_over_metadata(site, monkeypatch):
    install(site, "sfake-dep", "1.0", "")
    module = types.ModuleType("sfake_dep")
    module.__version__ = "3.0"
    monkeypatch.setitem(sys.modules, "sfake_dep", module)
    assert Requirement("sfake-dep", "2.0").reason() is None


def test_a_kernel_with_a_broken_package(site):
    from sparseformats.dispatch import register

    install(site, "sfake-dep", "2.0", "import sfake_not_there")
    for name in ("a", "b"):
        register(record(name, requires=(Requirement("sfake-dep"),)))
    with (
        pytest.warns(KernelLoadWarning, match="kernel 'a' .*sfake-dep"),
        pytest.raises(NoKernelError) as caught,
    ):
        select(Q)
    rows = {row.kernel: row for row in caught.value.explanation.rows}
    assert [r.code for r in rows["a"].reasons] == ["package-broken"]  # once, not twice
    assert [r.code for r in rows["b"].reasons] == ["package-broken"]  # without another warning
    assert loading.load_failure(record("a")) is not None


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("1.9", "1.10"),
        ("2.0rc1", "2.0"),
        ("2.0.dev3", "2.0"),
        ("2.11.0a0+git1", "2.11"),
        ("1", "1.1"),
        ("2.0", "2.0.1"),
        ("9", "2024.1"),
    ],
)
def test_version_order(low, high):
    assert version_key(low) < version_key(high)


@pytest.mark.parametrize(
    ("a", "b"), [("2", "2.0.0"), ("2.13.0+cu130", "2.13"), ("v1.2", "1.2"), ("1.2.post1", "1.2")]
)
def test_equal_versions(a, b):
    assert version_key(a) == version_key(b)


def test_unreadable_version_counts_as_oldest():
    assert version_key("unknown") < version_key("0.0.1")


def test_listing_imports_no_package():
    out = python(
        "import sys\n"
        "from sparseformats.dispatch import *\n"
        "r = KernelRecord('a', 'matmul', ('csr',), 'x:y', cost=lambda q: 1,\n"
        "                 requires=(Requirement('scipy', '1.0'), Requirement('torch', '2.0')))\n"
        "with temporary(r, only=True):\n"
        "    kernels(); explain(Query('matmul', 'csr'))\n"
        "print('heavy:', sorted({'scipy', 'torch'} & set(sys.modules)))\n"
    )
    assert "heavy: []" in out
