"""The errors: what they are, what they carry, how they read and travel."""

import pickle

import pytest

import sparseformats as sf
from sparseformats import errors
from sparseformats.errors import SHOWN, InvalidTensorError, NoKernelError, Problem

PARENTS = {
    "InvalidTensorError": ValueError,
    "PatternError": ValueError,
    "LossyConversionError": ValueError,
    "DeviceMismatchError": ValueError,
    "CapacityError": ValueError,
    "NoKernelError": NotImplementedError,
}


@pytest.mark.parametrize("name", PARENTS)
def test_each_is_ours_and_what_a_caller_expects(name):
    error = getattr(sf, name)
    assert issubclass(error, sf.SparseFormatsError)
    assert issubclass(error, PARENTS[name])


def test_all_are_public():
    assert set(errors.__all__) <= set(sf.__all__)


def test_the_warning_is_no_error():
    assert issubclass(sf.KernelLoadWarning, UserWarning)
    assert not issubclass(sf.KernelLoadWarning, sf.SparseFormatsError)


PROBLEM = Problem("index-range", "indices[3]", 9, "column index 9 is not within 0 … 3")


def test_problem():
    assert str(PROBLEM) == "index-range at indices[3]: column index 9 is not within 0 … 3"
    assert (PROBLEM.rule, PROBLEM.place, PROBLEM.value) == ("index-range", "indices[3]", 9)
    assert Problem(*PROBLEM) == PROBLEM
    with pytest.raises(AttributeError):
        PROBLEM.rule = "other"


@pytest.mark.parametrize("count", [0, 1, 2, SHOWN, SHOWN + 1, 100])
def test_invalid_tensor_error_carries_all_and_shows_some(count):
    error = InvalidTensorError("CSR", [PROBLEM] * count)
    text = str(error)
    assert error.problems == (PROBLEM,) * count
    assert text.startswith(f"CSR: {count} problem{'' if count == 1 else 's'}")
    assert text.count("index-range") == min(count, SHOWN)
    assert ("more (see .problems)" in text) is (count > SHOWN)
    assert count <= SHOWN or f"and {count - SHOWN} more" in text


def test_errors_pickle():
    for error in (
        InvalidTensorError("BSR", [PROBLEM]),
        sf.PatternError("row 3"),
        sf.LossyConversionError("two"),
        sf.DeviceMismatchError("cpu, cuda:0"),
        NoKernelError("none", explanation="why"),
        sf.CapacityError("too many", 3, 2),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert getattr(again, "problems", None) == getattr(error, "problems", None)
        assert getattr(again, "needed", None) == getattr(error, "needed", None)
        assert getattr(again, "capacity", None) == getattr(error, "capacity", None)
        assert getattr(again, "explanation", None) == getattr(error, "explanation", None)


def test_no_kernel_error_holds_the_explanation():
    assert NoKernelError("text").explanation is None
    error = NoKernelError("text", {"any": "thing"})
    assert error.explanation == {"any": "thing"}
    assert str(error) == "text"
