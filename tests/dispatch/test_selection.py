import pickle
from dataclasses import replace

import pytest
from dispatch_fakes import Q, costs, record

from sparseformats.dispatch import (
    Selection,
    checks,
    explain,
    find,
    register,
    select,
    selection,
    tuning,
    unregister,
)
from sparseformats.errors import NoKernelError


def test_the_cheapest_eligible_kernel_is_chosen():
    register(record("dear", cost=costs(100)))
    register(record("cheap", cost=costs(1)))
    register(record("refused", cost=costs(0), checks=(checks.device_is("cuda"),)))
    found = select(Q)
    assert isinstance(found, Selection)
    assert found.name == found.record.name == found.explanation.chosen == "cheap"
    assert found.explanation.source == "cost model"
    assert found.target(3) == ("good", 3)


def test_ties_go_by_name():
    for name in ("c", "a", "b"):
        register(record(name))
    assert select(Q).name == "a"


def test_cost_depends_on_the_query():
    register(record("flat", cost=costs(50)))
    register(record("linear", cost=lambda query: query.n))
    assert select(replace(Q, n=49)).name == "linear"
    assert select(replace(Q, n=51)).name == "flat"


def test_a_kernel_without_a_cost_is_refused():
    register(record("a", cost=costs(float("nan"))))
    register(record("b", cost=lambda query: 1 / 0))
    register(record("c"))
    explanation = select(Q).explanation
    assert explanation.chosen == "c"
    assert [r.code for r in explanation.row("a").reasons] == ["cost-failed"]
    assert "ZeroDivisionError" in explanation.row("b").reasons[0].message


def test_no_kernel_is_eligible():
    register(record("a", checks=(checks.device_is("cuda"), checks.divides("k", 16))))
    assert find(Q) is None
    with pytest.raises(NoKernelError) as caught:
        select(Q)
    assert isinstance(caught.value, NotImplementedError)
    text = str(caught.value)
    assert "no kernel is eligible" in text
    assert "needs device cuda, has cpu [device]" in text
    assert "needs K % 16 == 0, has K = 50 [divisibility]" in text
    assert "hint: A.to_device('cuda')" in text
    assert "{" not in text
    assert caught.value.explanation.chosen is None
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == text
    assert again.explanation == caught.value.explanation


def test_no_kernel_at_all():
    assert find(Q) is None
    with pytest.raises(NoKernelError, match="no kernel is registered for matmul"):
        select(Q)
    assert explain(Q).chosen is None


def test_a_forced_kernel_wins_and_must_not_be_overruled():
    register(record("cheap", cost=costs(1)))
    register(record("dear", cost=costs(9)))
    register(record("cuda", checks=(checks.device_is("cuda"),)))
    found = select(Q, kernel="dear")
    assert (found.name, found.explanation.source) == ("dear", "kernel=")
    for call in (select, find):
        with pytest.raises(NoKernelError) as caught:
            call(Q, kernel="cuda")
        assert "no kernel: cuda (forced by kernel=) must refuse this call" in str(caught.value)
        assert "needs device cuda, has cpu" in str(caught.value)
    explanation = explain(Q, kernel="cuda")  # explains instead of raising
    assert (explanation.chosen, explanation.forced) == (None, "cuda")
    assert explanation.row("cheap").status == "eligible"


class Table:
    def __init__(self, **times):
        self.times = times

    def lookup(self, query):
        return self.times if query.n == 3 else None


def test_measured_tables_win_over_the_cost_model():
    register(record("a", cost=costs(1)))
    register(record("b", cost=costs(50)))
    register(record("cuda", checks=(checks.device_is("cuda"),)))
    assert select(Q).name == "a"
    with tuning.temporary(Table(b=7.5, cuda=0.1)):
        explanation = select(Q).explanation
        assert (explanation.chosen, explanation.source) == ("b", "measured table")
        assert explanation.row("b").measured
        assert explanation.row("b").time == "7.5"
        assert explanation.row("a").time == "~1.0"
        assert select(Q, kernel="a").name == "a"
        assert select(replace(Q, n=4)).name == "a"  # nothing measured there
    with tuning.temporary(Table(cuda=0.1)):  # nothing measured of what is eligible
        assert select(Q).explanation.source == "cost model"
    assert select(Q).name == "a"
    assert tuning.measured(Q) == {}


def test_decisions_are_cached_until_something_changes(monkeypatch):
    asked = []
    register(record("a", checks=(asked.append,)))
    first = select(Q)
    assert select(Q) is first
    assert len(asked) == 1
    select(replace(Q))  # an equal query is the same query
    assert len(asked) == 1
    register(record("b", cost=costs(1)))
    assert select(Q).name == "b"
    unregister("b")
    assert select(Q).name == "a"
    find(replace(Q, format="bsr"))
    count = len(asked)
    assert find(replace(Q, format="bsr")) is None
    assert len(asked) == count  # so is "none"


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(selection, "CACHED", 8)
    register(record())
    for n in range(50):
        select(replace(Q, n=n))
    assert len(selection._cache) == 8
    selection.clear()
    assert not selection._cache
