"""Several broken rules at once: every one is reported, with every place."""

import numpy as np
import pytest

from sparseformats import BSR, COO, CSR, NM, BlockedELL, InvalidTensorError
from sparseformats.formats.checks import PLACES
from tests.formats.examples import LIBRARIES, changed


def _found(make, **given):
    with pytest.raises(InvalidTensorError) as caught:
        make(**given)
    return [(p.rule, p.place, p.value) for p in caught.value.problems]


@pytest.mark.parametrize("library", LIBRARIES)
def test_coo(library):
    given = changed("coo", library, row=[0, 7, 1, -2], col=[0, 3, 9, 1, 4])
    assert _found(COO, **given) == [
        ("length", "row", (4,)),
        ("index-range", "row[1]", 7),
        ("index-range", "row[3]", -2),
        ("index-range", "col[2]", 9),
    ]


@pytest.mark.parametrize("library", LIBRARIES)
def test_csr(library):
    given = changed("csr", library, indices=[0, 5, 4, -1, 4, 1], indptr=[1, 0, 3, 5])
    assert _found(CSR, **given) == [
        ("length", "indices", (6,)),
        ("indptr-start", "indptr[0]", 1),
        ("indptr-end", "indptr[3]", 5),
        ("indptr-ascending", "indptr[1]", 0),
        ("index-range", "indices[1]", 5),
        ("index-range", "indices[3]", -1),
    ]


def test_csr_object_reports_order_beside_range():
    A = CSR.trusted(**changed("csr", indices=[3, 0, 8, 4, 1]))
    assert [p.rule for p in A.problems()] == ["index-range", "sorted", "sorted"]


def test_coo_object_reports_order_beside_range():
    A = COO.trusted(**changed("coo", row=[0, 0, 1, 2, 1], col=[0, 9, 4, 1, 4]))
    assert [p.rule for p in A.problems()] == ["index-range", "sorted"]


def test_bsr():
    given = changed("bsr", indices=[0, 1, 9, 0], indptr=[0, 4, 3], blocksize=(3, 3))
    assert [found[0] for found in _found(BSR, **given)] == [
        "blocksize",
        "length",
        "indptr-end",
        "indptr-ascending",
        "index-range",
    ]


def test_bsr_object():
    A = BSR.trusted(**changed("bsr", indices=[1, 0, 9, 2, 0]))
    assert [p.rule for p in A.problems()] == ["index-range", "sorted", "sorted"]


def test_bsr_padding_in_every_place():
    data = np.ones((5, 2, 2))
    assert _found(BSR, **changed("bsr", data=data)) == [
        ("padding", f"data[{b}, {r}, {c}]", 1.0)
        for b, r, c in [(2, 0, 1), (2, 1, 1), (3, 1, 0), (3, 1, 1), (4, 0, 1), (4, 1, 0), (4, 1, 1)]
    ]


def test_blocked_ell():
    given = changed("blocked_ell", col_indices=[[0, 1, -2], [0, 7, -1], [0, 0, 0]])
    assert [found[:2] for found in _found(BlockedELL, **given)] == [
        ("length", "col_indices"),
        ("index-range", "col_indices.flat[2]"),
        ("index-range", "col_indices.flat[4]"),
    ]


def test_blocked_ell_object():
    A = BlockedELL.trusted(**changed("blocked_ell", col_indices=[[2, 1, 0], [0, 3, -1]]))
    assert [p.rule for p in A.problems()] == ["index-range", "sorted", "sorted"]


def test_nm():
    indices = [[[0, 5], [0, 1]], [[6, 1], [0, 1]], [[0, 1], [0, 1]]]
    side = COO([0.0], [1], [2], (3, 6))
    assert _found(NM, **changed("2:4", indices=indices, side=side)) == [
        ("position-range", "indices[0, 0, 1]", 5),
        ("position-range", "indices[1, 0, 0]", 6),
        ("side-shape", "side", (3, 6)),
    ]


def test_many_places_are_counted():
    count = PLACES + 23
    given = {"data": np.ones(count), "row": np.zeros(count, int), "shape": (1, 2)}
    found = _found(COO, **given, col=np.full(count, 5))
    assert len(found) == PLACES + 1
    assert found[-1] == ("index-range", "more places", 23)


def test_text_shows_the_first_and_counts_the_rest():
    with pytest.raises(InvalidTensorError) as caught:
        COO(np.ones(20), np.zeros(20, int), np.arange(20), (1, 2))
    text = str(caught.value)
    assert text.startswith("COO: 18 problems\n")
    assert "index-range at col[2]: column index 2 is not within 0 … 1" in text
    assert "and 10 more (see .problems)" in text


def test_dimensions_all_named():
    with pytest.raises(InvalidTensorError) as caught:
        COO(np.ones((2, 1)), np.zeros((1, 2), int), [0, 1], (2, 2))
    assert [(p.rule, p.place, p.value) for p in caught.value.problems] == [
        ("ndim", "data", (2, 1)),
        ("ndim", "row", (1, 2)),
    ]
