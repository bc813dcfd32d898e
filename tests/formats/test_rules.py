"""Every rule of every format broken alone: its name, its place and the value found there."""

import numpy as np
import pytest

from sparseformats import COO, InvalidTensorError, _arrays
from tests.formats.examples import CLASSES, LIBRARIES, SHAPE, changed

# format, arguments replaced, rule, place, value
BROKEN = [
    ("coo", {"row": [0, 0, 1, 2]}, "length", "row", (4,)),
    ("coo", {"col": [0, 3, 4, 1, 4, 4]}, "length", "col", (6,)),
    ("coo", {"row": [0, 0, 1, 2, 3]}, "index-range", "row[4]", 3),
    ("coo", {"row": [-1, 0, 1, 2, 2]}, "index-range", "row[0]", -1),
    ("coo", {"col": [0, 5, 4, 1, 4]}, "index-range", "col[1]", 5),
    ("coo", {"col": [0, 3, -2, 1, 4]}, "index-range", "col[2]", -2),
    ("csr", {"indices": [0, 3, 4, 1]}, "length", "indices", (4,)),
    ("csr", {"indptr": [0, 2, 5]}, "length", "indptr", (3,)),
    ("csr", {"indptr": [1, 2, 3, 5]}, "indptr-start", "indptr[0]", 1),
    ("csr", {"indptr": [0, 2, 3, 4]}, "indptr-end", "indptr[3]", 4),
    ("csr", {"indptr": [0, 3, 2, 5]}, "indptr-ascending", "indptr[2]", 2),
    ("csr", {"indices": [0, 3, 5, 1, 4]}, "index-range", "indices[2]", 5),
    ("csr", {"indices": [0, 3, 4, -1, 4]}, "index-range", "indices[3]", -1),
    ("csc", {"indices": [0, 2, 0, 1]}, "length", "indices", (4,)),
    ("csc", {"indptr": [0, 1, 2, 3, 5]}, "length", "indptr", (5,)),
    ("csc", {"indptr": [-1, 1, 2, 2, 3, 5]}, "indptr-start", "indptr[0]", -1),
    ("csc", {"indptr": [0, 1, 2, 2, 3, 6]}, "indptr-end", "indptr[5]", 6),
    ("csc", {"indptr": [0, 2, 1, 2, 3, 5]}, "indptr-ascending", "indptr[2]", 1),
    ("csc", {"indices": [0, 3, 0, 1, 2]}, "index-range", "indices[1]", 3),
    ("bsr", {"indices": [0, 1, 2, 0]}, "length", "indices", (4,)),
    ("bsr", {"indptr": [0, 2, 4, 5]}, "length", "indptr", (4,)),
    ("bsr", {"indptr": [2, 3, 5]}, "indptr-start", "indptr[0]", 2),
    ("bsr", {"indptr": [0, 3, 9]}, "indptr-end", "indptr[2]", 9),
    ("bsr", {"indices": [0, 1, 3, 0, 2]}, "index-range", "indices[2]", 3),
    ("bsr", {"indices": [-1, 1, 2, 0, 2]}, "index-range", "indices[0]", -1),
    ("blocked_ell", {"col_indices": [[0, 1, 2]]}, "length", "col_indices", (1, 3)),
    ("blocked_ell", {"col_indices": [[0, 1], [0, 2]]}, "length", "data", (2, 3, 2, 2)),
    ("blocked_ell", {"col_indices": [[0, 1, 3], [0, 2, -1]]}, "index-range", "flat[2]", 3),
    ("blocked_ell", {"col_indices": [[0, 1, 2], [0, 2, -2]]}, "index-range", "flat[5]", -2),
    ("2:4", {"indices": np.zeros((3, 1, 2), int)}, "length", "indices", (3, 1, 2)),
    ("2:4", {"shape": (2, 5)}, "length", "data", (3, 2, 2)),
    (
        *("2:4", {"indices": [[[0, 3], [0, 1]], [[0, 4], [0, 1]], [[0, 1], [0, 1]]]}),
        *("position-range", "indices[1, 0, 1]", 4),
    ),
]


def _padded(format, at, value):
    data = np.array(changed(format)["data"])
    data[at] = value
    return data


BROKEN += [
    ("bsr", {"data": _padded("bsr", (2, 0, 1), 7)}, "padding", "data[2, 0, 1]", 7.0),
    ("bsr", {"data": _padded("bsr", (3, 1, 0), np.nan)}, "padding", "data[3, 1, 0]", np.nan),
    (
        *("blocked_ell", {"data": _padded("blocked_ell", (1, 1, 0, 1), -2)}),
        *("padding", "data[1, 1, 0, 1]", -2.0),
    ),
    ("2:4", {"data": _padded("2:4", (1, 1, 1), 5e-324)}, "padding", "data[1, 1, 1]", 5e-324),
]


def _same(a, b):
    return a == b or (a != a and b != b)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("format", "values", "rule", "place", "value"), BROKEN)
def test_constructor_names_the_rule(format, values, rule, place, value, library):
    with pytest.raises(InvalidTensorError) as caught:
        CLASSES[format](**changed(format, library, **values))
    rules = {p.rule for p in caught.value.problems}
    problem = next(p for p in caught.value.problems if p.rule == rule)
    assert place in problem.place
    assert _same(problem.value, value)
    assert problem.rule in str(caught.value)
    assert "{" not in str(caught.value)
    # Nothing else is wrong but what follows from it: a length says that an end cannot fit.
    assert rules <= {rule} | ({"indptr-end", "length"} if rule == "length" else set())


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("format", "values", "rule", "place", "value"), BROKEN)
def test_problems_of_a_trusted_object(format, values, rule, place, value, library):
    given = changed(format, library, **values)
    if format == "2:4":
        given |= {"n": 2, "m": 4}
    A = CLASSES[format].trusted(**given)
    problem = next(p for p in A.problems() if p.rule == rule)
    assert place in problem.place
    assert _same(problem.value, value)
    with pytest.raises(InvalidTensorError, match=rule):
        A.validate()
    if format in ("bsr", "blocked_ell", "2:4"):
        assert str(A.T.problems()) == str(A.problems())  # NaN is not itself


# What constructors repair is still a broken rule of an object.
DISORDER = [
    ("coo", {"row": [0, 0, 1, 2, 1]}, "sorted", "row[4], col[4]", 4),
    ("coo", {"col": [3, 3, 4, 1, 4]}, "sorted", "row[1], col[1]", 3),
    ("csr", {"indices": [3, 0, 4, 1, 4]}, "sorted", "indices[1]", 0),
    ("csr", {"indices": [0, 3, 4, 4, 4]}, "sorted", "indices[4]", 4),
    ("csc", {"indices": [2, 0, 0, 2, 1]}, "sorted", "indices[4]", 1),
    ("bsr", {"indices": [1, 0, 2, 0, 2]}, "sorted", "indices[1]", 0),
    ("blocked_ell", {"col_indices": [[1, 0, 2], [0, 2, -1]]}, "sorted", "col_indices[0, 1]", 0),
    ("blocked_ell", {"col_indices": [[0, 1, 2], [-1, 0, 2]]}, "sorted", "col_indices[1, 1]", 0),
    (
        *("2:4", {"indices": [[[3, 0], [0, 1]], [[0, 1], [0, 1]], [[0, 1], [0, 1]]]}),
        *("sorted", "indices[0, 0, 1]", 0),
    ),
    (
        *("2:4", {"indices": [[[0, 3], [0, 1]], [[0, 2], [0, 1]], [[0, 1], [0, 1]]]}),
        *("free-position", "indices[1, 0, 1]", 2),
    ),
    ("2:4", {"data": _padded("2:4", (1, 0, 0), -0.0)}, "free-position", "indices[1, 0, 0]", 0),
]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("format", "values", "rule", "place", "value"), DISORDER)
def test_disorder_is_a_problem_and_is_repaired(format, values, rule, place, value, library):
    given = changed(format, library, **values)
    pattern = {"n": 2, "m": 4} if format == "2:4" else {}
    found = CLASSES[format].trusted(**given, **pattern).problems()
    found = [p for p in found if p.rule != "padding"]  # values that an empty slot keeps
    assert [(p.rule, p.place, p.value) for p in found] == [(rule, place, value)]
    assert CLASSES[format](**given).problems() == []


ZEROS = [
    ([0.0], "zeros-type", "zeros"),
    ([[1]], "zeros-type", "zeros"),
    ([-1], "index-range", "zeros[0]"),
    ([1000], "index-range", "zeros[0]"),
    ([0], "zeros-value", "zeros[0]"),
]
INSIDE, BEYOND = {"bsr": 1, "blocked_ell": 1, "2:4": 4}, {"bsr": 9, "blocked_ell": 9, "2:4": 3}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("zeros", "rule", "place"), ZEROS)
@pytest.mark.parametrize("format", ["bsr", "blocked_ell", "2:4"])
def test_marks(format, zeros, rule, place, library):
    (problem,) = _marked(format, library, zeros).problems()
    assert (problem.rule, problem.place) == (rule, place)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ["bsr", "blocked_ell", "2:4"])
def test_marks_in_order_and_inside(format, library):
    fine = INSIDE[format]
    assert _marked(format, library, [fine]).problems() == []
    found = _marked(format, library, [fine, fine]).problems()
    assert [(p.rule, p.place, p.value) for p in found] == [("zeros-sorted", "zeros[1]", fine)]
    found = _marked(format, library, [BEYOND[format]]).problems()
    assert ("zeros-slot", "zeros[0]", BEYOND[format]) in [tuple(p)[:3] for p in found]


def _marked(format, library, zeros):
    kind = "float64" if isinstance(zeros[0], float) else "int64"
    marks = _arrays.library(library).from_numpy(np.array(zeros, kind), "cpu")
    pattern = {"n": 2, "m": 4} if format == "2:4" else {}
    return CLASSES[format].trusted(**changed(format, library), zeros=marks, **pattern)


def _side(library="numpy", dtype="float64", value=0.0, shape=SHAPE, at=(1, 2)):
    lib = _arrays.library(library)
    data = lib.astype(lib.from_numpy(np.array([value]), "cpu"), dtype)
    row, col = (lib.from_numpy(np.array([i]), "cpu") for i in at)
    return COO.trusted(data=data, row=row, col=col, shape=shape)


SIDES = [
    (_side(shape=(3, 6)), "side-shape", (3, 6)),
    (_side("torch"), "side-library", "torch"),
    (_side(dtype="float32"), "side-dtype", "float32"),
    (_side(value=1.5), "side-value", 1.5),
    (_side(at=(1, 7)), "side-coo", 7),
    ([0.0], "side-type", "list"),
]


@pytest.mark.parametrize(("side", "rule", "value"), SIDES)
def test_side_record(side, rule, value):
    with pytest.raises(InvalidTensorError) as caught:
        CLASSES["2:4"](**changed("2:4"), side=side)
    (problem,) = caught.value.problems
    assert (problem.rule, problem.value) == (rule, value)
    assert "side" in problem.place


def test_side_record_must_not_repeat_a_slot():
    A = CLASSES["2:4"].trusted(**changed("2:4"), n=2, m=4, side=_side(at=(0, 3)))
    (problem,) = A.problems()
    assert (problem.rule, problem.value) == ("side-slot", 3)
