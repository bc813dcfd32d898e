from dataclasses import replace

import pytest
from dispatch_fakes import Q, costs, record

from sparseformats.dispatch import ANY, EXACT, Reason, Requirement, Tolerance, checks


def codes(reasons):
    return [reason.code for reason in reasons]


def test_no_reasons_means_served():
    assert record(checks=(checks.library_is("numpy"),)).reasons(Q) == []


def test_all_reasons_are_collected():
    r = record(
        formats=("bsr",),
        deterministic=False,
        requires=(Requirement("sfake-nowhere"),),
        checks=(checks.divides("k", 16), checks.device_is("cuda"), checks.library_is("numpy")),
    )
    found = r.reasons(replace(Q, deterministic=True))
    assert codes(found) == [
        "format", "nondeterministic", "missing-package", "divisibility", "device",
    ]  # fmt: skip
    assert "needs bsr, has csr" in found[0].message


def test_a_check_that_raises_is_a_reason_and_does_not_hide_the_others():
    def faulty(query):
        return 1 / 0

    r = record(checks=(faulty, checks.divides("k", 16), checks.divides("m", 4)))
    found = r.reasons(Q)
    assert codes(found) == ["check-failed", "divisibility", "divisibility"]
    assert "'faulty'" in found[0].message
    assert "ZeroDivisionError: division by zero" in found[0].message


@pytest.mark.parametrize("answer", [True, False, "no", []])
def test_a_check_that_answers_nonsense_is_a_reason(answer):
    (reason,) = record(checks=(lambda query: answer,)).reasons(Q)
    assert reason.code == "check-failed"
    assert repr(answer) in reason.message


@pytest.mark.parametrize(
    ("formats", "facts", "served"),
    [
        (("csr",), {"format": "csr"}, True),
        (("csr", "bsr"), {"format": "bsr"}, True),
        (("bsr",), {"format": "bsr", "transposed": True}, False),
        (("bsr.T",), {"format": "bsr", "transposed": True}, True),
        (("bsr.T",), {"format": "bsr"}, False),
        (("n:m",), {"format": "n:m", "pattern": (3, 8)}, True),
        (("2:4",), {"format": "n:m", "pattern": (2, 4)}, True),
        (("2:4",), {"format": "n:m", "pattern": (1, 2)}, False),
        (("n:m",), {"format": "n:m", "pattern": (2, 4), "transposed": True}, False),
        (("2:4.T",), {"format": "n:m", "pattern": (2, 4), "transposed": True}, True),
        (("n:m.T",), {"format": "n:m", "pattern": (2, 4), "transposed": True}, True),
        (ANY, {"format": "bsr", "transposed": True}, True),
    ],
)
def test_formats(formats, facts, served):
    query = replace(Q, **facts)
    assert record(formats=formats).serves(query) is served
    assert ("format" in codes(record(formats=formats).reasons(query))) is not served


def test_estimates():
    assert record(cost=costs(3)).estimate(Q) == 3.0
    for bad in (float("nan"), float("inf"), -1.0):
        reason = record(cost=costs(bad)).estimate(Q)
        assert reason.code == "cost-failed"
        assert str(bad) in reason.message
    reason = record(cost=lambda query: query.nonsense).estimate(Q)
    assert reason.code == "cost-failed"
    assert "AttributeError" in reason.message
    assert record(cost=costs("many")).estimate(Q).code == "cost-failed"


@pytest.mark.parametrize("target", ["", "module", ":kernel", "module:"])
def test_target_must_be_a_target(target):
    with pytest.raises(ValueError, match="target must be 'module:attribute'") as caught:
        record(target=target)
    assert "{" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "two words", "a,b", "tab\tbed"])
def test_name_must_be_a_word(name):
    with pytest.raises(ValueError, match="one word") as caught:
        record(name=name)
    assert "{" not in str(caught.value)


@pytest.mark.parametrize("field", ["formats", "requires", "checks"])
def test_a_forgotten_comma_is_found(field):
    with pytest.raises(TypeError, match=f"{field} must be a tuple, is str") as caught:
        record(**{field: "csr"})
    assert "{" not in str(caught.value)


def test_tolerance():
    assert EXACT.factor == 0
    assert Tolerance("float32", 2.0).accumulator == "float32"
    assert record().tolerance == Tolerance()


def test_reason_text():
    reason = Reason("size", "needs N >= 16, has N = 3", "batch more")
    assert str(reason) == "needs N >= 16, has N = 3 [size]"
    assert reason.to_dict()["hint"] == "batch more"
    assert hash(reason) == hash(Reason(*reason))


def test_a_note_says_more_about_a_call():
    def failing(query):
        raise ValueError("no idea")

    plain = record(doc="multiplies")
    assert plain.noted(Q) == ""
    noted = replace(plain, note=lambda query: f"for {query.n} columns")
    assert noted.noted(replace(Q, n=7)) == "for 7 columns"
    assert "no idea" in replace(plain, note=failing).noted(Q)
