"""Checks that a forced kernel is not held to, epilogues, and what a promise would gain."""

from dataclasses import replace

import pytest
from dispatch_fakes import Q, costs, record

from sparseformats.dispatch import checks, explain, kernels, register, select, tuning, use_kernel
from sparseformats.errors import NoKernelError

FLOATS = replace(Q, x_dtype="float32")


def test_soft_checks_hold_only_who_is_not_asked_for_by_name():
    register(record("large", cost=costs(1), soft_checks=(checks.at_most("k", 10),)))
    register(record("small", cost=costs(9)))
    assert select(Q).name == "small"
    (reason,) = explain(Q).row("large").reasons
    assert (reason.code, reason.message) == ("size", "needs K <= 10, has K = 50")
    assert select(Q, "large").name == "large"
    with use_kernel("large"):
        assert select(Q).name == "large"
    with use_kernel("small"):
        assert explain(Q).row("large").reasons
    assert select(Q).name == "small"


def test_other_checks_hold_a_forced_kernel_too():
    soft, hard = (checks.at_most("k", 10),), (checks.divides("k", 16),)
    register(record("large", checks=hard, soft_checks=soft))
    assert [r.code for r in explain(Q).row("large").reasons] == ["divisibility", "size"]
    with pytest.raises(NoKernelError, match="K % 16") as caught:
        select(Q, "large")
    assert "K <= 10" not in str(caught.value)


def test_soft_checks_are_listed_and_must_be_a_tuple():
    register(record("large", soft_checks=(checks.at_most("k", 10),)))
    assert kernels("matmul")[0].needs == ("K <= 10",)
    with pytest.raises(TypeError, match="soft_checks must be a tuple, is list"):
        record("wrong", soft_checks=[])


def test_an_epilogue_is_served_only_where_it_is_named():
    query = replace(Q, epilogue="bias+relu")
    register(record("forgets"))
    register(record("names", cost=costs(99), checks=(checks.epilogue_in(None, "bias+relu"),)))
    register(record("others", checks=(checks.epilogue_in(None, "bias"),)))
    assert select(query).name == "names"
    assert select(Q).name == "forgets"
    for name in ("forgets", "others"):
        assert [r.code for r in explain(query).row(name).reasons] == ["epilogue"]
    assert "names none), has bias+relu" in explain(query).row("forgets").reasons[0].message
    assert record(checks=(checks.epilogue_in("bias"),)).fuses("bias")
    assert record().fuses(None)
    assert not record().fuses("bias")


def test_the_gain_of_a_promise_is_predicted():
    finite = (checks.finite_operand(),)
    register(record("quick", cost=costs(12), checks=finite))
    register(record("slow", cost=costs(340)))
    (reason,) = explain(FLOATS).row("quick").reasons
    assert reason.code == "needs-finite-operand"
    assert reason.hint is not None
    assert reason.hint.startswith("pass assume_finite=True")
    assert reason.hint.endswith("predicted: about 12 us a call, 340 us by slow")
    assert select(replace(FLOATS, assume_finite=True)).name == "quick"

    class Table:
        def lookup(self, query):
            return {"quick": 7.0, "slow": 300.0}

    with tuning.temporary(Table()):
        assert "about 7 us a call, 300 us by slow" in str(
            explain(FLOATS).row("quick").reasons[0].hint
        )


def test_no_gain_is_promised_where_more_stands_against_it_or_nothing_is_known():
    finite = checks.finite_operand()
    register(record("two", checks=(finite, checks.divides("k", 16))))
    register(record("faulty", cost=lambda query: 1 / 0, checks=(finite,)))
    register(record("slow", cost=costs(340)))
    for name in ("two", "faulty"):
        assert all("predicted" not in str(r.hint) for r in explain(FLOATS).row(name).reasons)
