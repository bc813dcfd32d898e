"""n:m: where values go, which slots are free, the side record, the pattern."""

import itertools

import numpy as np
import pytest

from sparseformats import COO, NM, PatternError, _arrays, reference
from sparseformats.formats import group_checks, groups, slots
from tests.formats.examples import LIBRARIES, host


def _in(library, x, dtype=None):
    return _arrays.library(library).from_numpy(np.array(x, dtype), "cpu")


def _nm(library, data, indices, shape, **options):
    for name in ("stored",):
        if isinstance(options.get(name), list):
            options[name] = _in(library, options[name], bool)
    return NM(_in(library, data, "float32"), _in(library, indices, "uint8"), shape, **options)


def _values(A):
    assert A.problems() == []
    return {at: float(v) for at, v in reference.entries(A).items()}


@pytest.mark.parametrize("library", LIBRARIES)
def test_positions_in_any_order(library):
    A = _nm(library, [[[1, 2], [3, 4]]], [[[3, 1], [2, 0]]], (1, 8))
    assert host(A, "indices").tolist() == [[[1, 3], [0, 2]]]
    assert host(A, "data").tolist() == [[[2, 1], [4, 3]]]
    assert _values(A) == {(0, 1): 2, (0, 3): 1, (0, 4): 4, (0, 6): 3}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("free", [0, 1, 2, 3])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_unstored_slots_may_hold_any_position(library, at, free):
    A = _nm(library, [[[0, 5]]], [[[free, at]]], (1, 4))
    assert _values(A) == {(0, at): 5}
    assert host(A, "indices").tolist() == [[[0, at]]] if at else [[[0, 1]]]


def test_every_pattern_of_a_group():
    for m in (4, 5):
        for n in range(1, m + 1):
            for size in range(n + 1):
                for used in itertools.combinations(range(m), size):
                    indices = [[[*used, *[used[0] if used else 0] * (n - size)]]]
                    data = [[[*range(1, size + 1), *[0] * (n - size)]]]
                    A = _nm("numpy", data, indices, (1, m), n=n, m=m)
                    assert _values(A) == {(0, j): i + 1 for i, j in enumerate(used)}
                    free = [j for j in range(m) if j not in used][: n - size]
                    assert A.indices.tolist() == [[sorted([*used, *free])]]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_ragged_last_group(library, k):
    for used in range(k):
        A = _nm(library, [[[0, 5]]], [[[3, used]]], (1, k))
        assert _values(A) == {(0, used): 5}
        first_free = next(j for j in range(4) if j != used)
        assert host(A, "indices").tolist() == [[sorted([used, first_free])]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_equal_positions_are_summed(library):
    A = _nm(library, [[[1, 2]]], [[[2, 2]]], (1, 4))
    assert _values(A) == {(0, 2): 3}
    B = _nm(library, [[[1, -1]]], [[[2, 2]]], (1, 4))
    assert _values(B) == {(0, 2): 0}
    assert host(B, "zeros").tolist() == [1]


@pytest.mark.parametrize("library", LIBRARIES)
def test_stored_zeros_keep_slots_and_sign(library):
    A = _nm(library, [[[-0.0, 7]]], [[[3, 1]]], (1, 4), stored=[[[True, True]]])
    bits = {at: v.tobytes() for at, v in reference.entries(A).items()}
    assert bits == {(0, 1): np.float32(7).tobytes(), (0, 3): np.float32(-0.0).tobytes()}
    assert A.problems() == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_unstored_minus_zero_becomes_plus_zero(library):
    A = _nm(library, [[[-0.0, 7]]], [[[0, 1]]], (1, 4))
    assert not np.signbit(host(A, "data")).any()
    assert _values(A) == {(0, 1): 7}


@pytest.mark.parametrize("library", LIBRARIES)
def test_stored_all(library):
    A = _nm(library, [[[0, 7]]], [[[0, 1]]], (1, 4), stored="all")
    assert (A.zeros, A.nnz) == ("all", 2)
    assert _values(A) == {(0, 0): 0, (0, 1): 7}
    B = _nm(library, [[[7, 0]]], [[[3, 1]]], (1, 4), stored="all")
    assert (B.zeros, _values(B)) == ("all", {(0, 1): 0, (0, 3): 7})


@pytest.mark.parametrize("library", LIBRARIES)
def test_stored_all_never_invents_an_element(library):
    # The slot at 3 lies beyond the shape, so it is not stored; its place in order is column 1.
    A = _nm(library, [[[7, 0]]], [[[0, 3]]], (1, 3), stored="all")
    assert _values(A) == {(0, 0): 7}
    # Equal positions merge: what is free afterwards is not stored.
    B = _nm(library, [[[7, 1]]], [[[2, 2]]], (1, 4), stored="all")
    assert _values(B) == {(0, 2): 8}
    # With one column there is no second place: every slot inside is stored.
    C = _nm(library, [[[7, 0]]], [[[0, 1]]], (1, 1), stored="all")
    assert (C.zeros, _values(C)) == ("all", {(0, 0): 7})


@pytest.mark.parametrize("library", LIBRARIES)
def test_side_record(library):
    side = COO(
        _in(library, [0, -0.0], "float32"), _in(library, [0, 0]), _in(library, [0, 2]), (1, 4)
    )
    A = _nm(library, [[[1, 2]]], [[[1, 3]]], (1, 4), side=side)
    assert _values(A) == {(0, 0): 0, (0, 1): 1, (0, 2): 0, (0, 3): 2}
    assert A.nnz == 4
    assert A.nbytes == 2 * 4 + 2 + 2 * 4 + 4 * 8
    assert A.T.nnz == 4
    # Out of order: elements of both go where they belong, and a free slot takes a zero.
    B = _nm(library, [[[2, 0]]], [[[3, 1]]], (1, 4), side=side)
    assert _values(B) == {(0, 0): 0, (0, 2): 0, (0, 3): 2}
    assert host(B, "zeros").tolist() == [0]
    assert host(B, "side_col").tolist() == [2]
    assert np.signbit(host(B, "side_data")).tolist() == [True]


@pytest.mark.parametrize("m", [255, 256])
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_widest_groups(library, m):
    A = _nm(library, [[[1, 2]]], [[[m - 1, 0]]], (1, m), n=2, m=m)
    assert _values(A) == {(0, 0): 2, (0, m - 1): 1}
    B = _nm(library, np.ones((1, 1, m)), np.arange(m)[::-1].reshape(1, 1, m), (1, m), n=m, m=m)
    assert (B.nnz, B.problems(), B.format) == (m, [], f"{m}:{m}")


@pytest.mark.parametrize("library", LIBRARIES)
def test_too_many_nonzeros_after_the_side_is_merged(library):
    lib = _arrays.library(library)
    data, row, col = (
        _in(library, x) for x in ([1.0, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1], [0, 1, 2, 4, 5, 7])
    )
    with pytest.raises(PatternError) as caught:
        groups.encode(lib, data, row, col, (2, 8), 2, 4)
    text = str(caught.value)
    assert "row 0, group 0 has 3 (2 groups violate in all)" in text
    assert "sparseformats.prune" in text


@pytest.fixture
def tiny_chunks(monkeypatch):
    monkeypatch.setattr(groups, "CHUNK", 3)
    monkeypatch.setattr(slots, "CHUNK", 8)
    monkeypatch.setattr(group_checks.slots, "CHUNK", 8)


@pytest.mark.parametrize("library", LIBRARIES)
def test_chunks_change_nothing(library, tiny_chunks):
    rng = np.random.default_rng(5)
    data = rng.integers(0, 3, (11, 3, 2)).astype("float32")
    indices = rng.permuted(np.tile(np.arange(4, dtype="u1"), (11, 3, 1)), axis=-1)[..., :2]
    data[:, 2][indices[:, 2] >= 2] = 0
    stored = (data != 0) | (rng.random(data.shape) < 0.3)
    stored[:, 2] &= indices[:, 2] < 2
    expected = {
        (i, g * 4 + int(indices[i, g, s])): float(data[i, g, s])
        for i, g, s in np.argwhere(stored).tolist()
    }
    free = [(i, j) for i in range(11) for j in range(10) if (i, j) not in expected][::5]
    side = COO(
        _in(library, np.zeros(len(free)), "float32"),
        *(_in(library, part) for part in zip(*free, strict=True)),
        (11, 10),
    )
    A = NM(
        *(_in(library, data), _in(library, indices), (11, 10)),
        stored=_in(library, stored),
        side=side,
    )
    assert _values(A) == expected | dict.fromkeys(free, 0.0)


def test_chunks_count_crowded_groups_and_place_problems(tiny_chunks):
    lib = _arrays.library("numpy")
    row, col = np.divmod(np.arange(80), 8)
    with pytest.raises(PatternError, match=r"row 0, group 0 has 4 \(20 groups violate"):
        groups.encode(lib, np.ones(80), row, col, (10, 8), 2, 4)
    data, indices = np.zeros((10, 2, 2)), np.tile(np.array([0, 1], "u1"), (10, 2, 1))
    indices[7, 1] = [3, 2]
    data[9, 0, 1] = -0.0
    found = NM.trusted(data=data, indices=indices, shape=(10, 8), n=2, m=4).problems()
    assert [(p.rule, p.place) for p in found] == [("sorted", "indices[7, 1, 1]")]
    indices[7, 1] = [0, 2]
    found = NM.trusted(data=data, indices=indices, shape=(10, 8), n=2, m=4).problems()
    assert [(p.rule, p.place) for p in found] == [
        ("free-position", "indices[7, 1, 1]"),
        ("free-position", "indices[9, 0, 1]"),
    ]


def test_layout_that_memory_cannot_hold():
    lib = _arrays.library("numpy")
    with pytest.raises(MemoryError, match=r"2:4 form of a 1000000000 x 1000000000 .* bytes"):
        groups.encode(lib, np.ones(1), np.zeros(1, int), np.zeros(1, int), (10**9, 10**9), 2, 4)
