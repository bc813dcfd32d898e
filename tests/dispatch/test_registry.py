import time

import pytest
from dispatch_fakes import Q, python, race, record

from sparseformats.dispatch import (
    REGISTRY,
    Registry,
    explain,
    generation,
    kernels,
    records,
    register,
    temporary,
    unregister,
)
from sparseformats.dispatch.reason import Reason
from sparseformats.dispatch.sources import Refusal, Source
from sparseformats.errors import KernelLoadWarning


def test_records_are_ordered_by_operation_and_name():
    for name, op in [("b", "matmul"), ("a", "sddmm"), ("a", "matmul")]:
        register(record(name, op))
    assert [(r.op, r.name) for r in records()] == [
        ("matmul", "a"), ("matmul", "b"), ("sddmm", "a"),
    ]  # fmt: skip
    assert [r.name for r in records("matmul")] == ["a", "b"]
    assert records("nothing") == ()
    assert records("matmul") is records("matmul")  # a lookup, not a sort


def test_duplicate_names_are_refused_with_both_targets():
    register(record("a", target="first:kernel"))
    with pytest.raises(ValueError, match="kernel 'a' of 'matmul'") as caught:
        register(record("a", target="second:kernel"))
    assert "first:kernel" in str(caught.value)
    assert "second:kernel" in str(caught.value)
    assert "{" not in str(caught.value)
    assert records("matmul")[0].target == "first:kernel"
    register(record("a", "sddmm"))  # another operation is another kernel


def test_only_records_can_be_registered():
    with pytest.raises(TypeError, match="expected a KernelRecord, got str"):
        register("a")


def test_unregister():
    for op in ("matmul", "sddmm"):
        register(record("a", op))
    unregister("a", "sddmm")
    assert [r.op for r in records()] == ["matmul"]
    with pytest.raises(KeyError, match="no kernel 'a' of 'sddmm'"):
        unregister("a", "sddmm")
    register(record("a", "sddmm"))
    unregister("a")
    assert records() == ()
    with pytest.raises(KeyError, match="no kernel 'a'"):
        unregister("a")


def test_every_change_bumps_the_generation():
    seen = [generation()]
    register(record("a"))
    seen.append(generation())
    with temporary(record("b")):
        seen.append(generation())
    seen.append(generation())
    unregister("a")
    seen.append(generation())
    assert seen == sorted(set(seen))
    records()
    explain(Q)
    assert generation() == seen[-1]


def test_temporary_restores_even_after_an_error():
    register(record("a"))
    with pytest.raises(ValueError), temporary(record("b"), record("a")):
        pass  # pragma: no cover
    assert [r.name for r in records()] == ["a"]
    with temporary(record("c"), only=True):
        assert [r.name for r in records()] == ["c"]
        register(record("d"))
    assert [r.name for r in records()] == ["a"]


def sources(monkeypatch, own=(), third=()):
    calls = []
    for name, found in (("own_sources", own), ("third_party_sources", third)):
        monkeypatch.setattr(
            f"sparseformats.dispatch.registry.{name}",
            lambda name=name, found=found: (calls.append(name), list(found))[1],
        )
    return calls


def test_sources_are_read_once_at_the_first_question(monkeypatch):
    calls = sources(monkeypatch, [Source("own", (record("a"),))], [Source("x", (record("b"),))])
    registry = Registry()
    assert calls == []
    registry.register(record("c"))
    assert calls == ["own_sources"]  # entry points may be what calls `register`
    assert [r.name for r in registry.records()] == ["a", "b", "c"]
    registry.records()
    assert calls == ["own_sources", "third_party_sources"]


def test_a_broken_backend_is_one_warning_and_a_refusal_everywhere(monkeypatch):
    refusal = Refusal("acme.gpu", Reason("backend-failed", "it raised ImportError: no driver"))
    sources(monkeypatch, [Source("acme.gpu", refusal=refusal), Source("own", (record("a"),))])
    registry = Registry()
    with pytest.warns(KernelLoadWarning, match=r"acme\.gpu.*no driver") as caught:
        registry.records()
    assert len(caught) == 1
    assert registry.refusals() == registry.refusals("matmul") == (refusal,)
    assert [r.name for r in registry.records()] == ["a"]


def test_a_source_with_a_taken_name_loses_that_kernel_only(monkeypatch):
    sources(
        monkeypatch,
        [Source("own", (record("a", target="own:a"),))],
        [Source("acme", (record("a", target="acme:a"), record("b", target="acme:b")))],
    )
    registry = Registry()
    with pytest.warns(KernelLoadWarning, match="acme:a"):
        found = {r.name: r.target for r in registry.records()}
    assert found == {"a": "own:a", "b": "acme:b"}
    (refusal,) = registry.refusals("matmul")
    assert (refusal.reason.code, refusal.op) == ("duplicate-name", "matmul")
    assert registry.refusals("sddmm") == ()


def test_warnings_as_errors_leave_a_complete_registry(monkeypatch):
    refusal = Refusal("acme.gpu", Reason("backend-failed", "no driver"))
    sources(monkeypatch, [Source("acme.gpu", refusal=refusal), Source("own", (record("a"),))])
    registry = Registry()
    with pytest.raises(KernelLoadWarning):
        registry.records()
    assert [r.name for r in registry.records()] == ["a"]


def test_a_source_may_ask_about_kernels_while_it_is_read(monkeypatch):
    registry = Registry()
    seen = []

    def asking():
        registry.register(record("early"))
        seen.extend(r.name for r in registry.records())
        return [Source("acme", (record("late"),))]

    sources(monkeypatch, [Source("own", (record("a"),))])
    monkeypatch.setattr("sparseformats.dispatch.registry.third_party_sources", asking)
    assert [r.name for r in registry.records()] == ["a", "early", "late"]
    assert seen == ["a", "early"]


def test_eight_threads_read_the_sources_into_one_complete_registry(monkeypatch):
    refusal = Refusal("acme.gpu", Reason("backend-failed", "no driver"))
    found = [Source("own", (record("a"), record("b"))), Source("acme.gpu", refusal=refusal)]

    def slow():
        time.sleep(0.05)
        return found

    sources(monkeypatch)
    monkeypatch.setattr("sparseformats.dispatch.registry.own_sources", slow)
    registry = Registry()
    with pytest.warns(KernelLoadWarning) as caught:
        seen = race(8, lambda: [r.name for r in registry.records()])
    assert seen == [["a", "b"]] * 8
    assert registry.refusals() == (refusal,)
    assert len(caught) == 1


def test_refusals_show_in_explanations_and_lists():
    refusal = Refusal("acme.gpu", Reason("backend-failed", "no driver", "reinstall"))
    REGISTRY._refusals.append(refusal)  # of the test's own, temporary, registry
    register(record("a"))
    explanation = explain(Q)
    assert explanation.row("acme.gpu").status == "refused"
    assert "no driver [backend-failed]" in str(explanation)
    info = kernels()[-1]
    assert (info.name, info.available) == ("acme.gpu", False)


def test_own_backends_in_a_new_process():
    out = python(
        "import warnings\n"
        "import sparseformats_kernels as k\n"
        "k.BACKENDS = ('sfake_broken', 'sfake_backend')\n"
        "from sparseformats.dispatch import *\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    print(explain(Query('matmul', 'csr')))\n"
        "    print(kernels())\n"
        "print('warned', [w.category.__name__ for w in caught])\n"
    )
    assert "chosen: fake-backend-kernel (cost model)" in out
    assert "sfake_broken" in out
    assert "OSError: libfake.so.1" in " ".join(out.split())
    assert "warned ['KernelLoadWarning']" in out


@pytest.mark.parametrize(
    ("backends", "text"),
    [
        ("('sfake_good',)", "AttributeError"),
        ("None", "TypeError"),
        ("('sfake_gone',)", "sfake_gone"),
    ],
)
def test_a_list_that_is_wrong_is_a_refusal_too(backends, text):
    out = python(
        f"import sparseformats_kernels as k\nk.BACKENDS = {backends}\n"
        "from sparseformats.dispatch import *\n"
        "print(explain(Query('matmul', 'csr')))\n"
    )
    assert "KernelLoadWarning" in out
    assert "[backend-failed]" in out
    assert text in out
