import sys

import pytest
from dispatch_fakes import Q, costs, race, record

from sparseformats.dispatch import Reason, explain, find, generation, loading, register, select
from sparseformats.errors import KernelLoadWarning, NoKernelError


def test_target_is_loaded_at_first_selection_only():
    register(record())
    explain(Q)
    assert "sfake_good" not in sys.modules
    assert select(Q).target(1) == ("good", 1)


def test_target_may_be_an_attribute_of_an_attribute():
    assert loading.load(record(target="sfake_good:Holder.inner"))(1) == ("good", 1)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("sfake_broken:kernel", "OSError: libfake.so.1: cannot open shared object {file}"),
        ("sfake_gone:kernel", "ModuleNotFoundError: No module named 'sfake_gone'"),
        ("sfake_good:gone", "AttributeError"),
        ("sfake_good:nothing", "TypeError: 'sfake_good:nothing' is None"),
    ],
)
def test_failing_load_is_one_warning_a_reason_and_the_next_kernel(target, text):
    register(record("fast", target=target, cost=costs(1)))
    register(record("slow", cost=costs(100)))
    assert explain(Q).chosen == "fast"  # nobody has tried yet
    before = generation()
    with pytest.warns(KernelLoadWarning, match="kernel 'fast' of 'matmul' is refused") as caught:
        assert select(Q).name == "slow"
    assert len(caught) == 1
    assert text in str(caught[0].message)
    assert generation() > before
    assert select(Q).name == "slow"  # and no second warning: those are errors here
    explanation = explain(Q)
    assert explanation.chosen == "slow"
    (reason,) = explanation.row("fast").reasons
    assert reason.code == "failed-to-load"
    assert text in reason.message


def test_forced_kernel_that_fails_to_load_raises():
    register(record("fast", target="sfake_broken:kernel"))
    register(record("slow"))
    with pytest.warns(KernelLoadWarning), pytest.raises(NoKernelError, match="failed-to-load"):
        select(Q, kernel="fast")


def test_all_fail():
    register(record("a", target="sfake_broken:kernel"))
    register(record("b", target="sfake_broken:other"))
    with pytest.warns(KernelLoadWarning) as caught:
        assert find(Q) is None
    assert len(caught) == 2
    assert find(Q) is None


def test_warnings_as_errors_do_not_load_again():
    register(record("a", target="sfake_broken:kernel"))
    with pytest.raises(KernelLoadWarning):
        select(Q)
    with pytest.raises(NoKernelError):
        select(Q)


def test_eight_threads_import_a_target_once(monkeypatch):
    monkeypatch.setattr(sys, "sfake_imports", 0, raising=False)
    register(record(target="sfake_slow:kernel"))
    results = race(8, lambda: select(Q).target)
    assert len(results) == 8
    assert {id(target) for target in results} == {id(results[0])}
    assert results[0]() == 1


def test_eight_threads_get_one_warning_of_a_broken_kernel():
    register(record("fast", target="sfake_slow_broken:kernel", cost=costs(1)))
    register(record("slow"))
    with pytest.warns(KernelLoadWarning) as caught:
        results = race(8, lambda: select(Q).name)
    assert results == ["slow"] * 8
    assert len(caught) == 1


def test_load_gives_the_same_reason_again():
    broken = record(target="sfake_broken:kernel")
    with pytest.warns(KernelLoadWarning):
        first = loading.load(broken)
    assert isinstance(first, Reason)
    assert loading.load(broken) is first is loading.load_failure(broken)
