"""The order of rows: planted clusters come back, and where there are none nothing is made up."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from sparseformats.ops.reordering import blocks, similarity, strays
from sparseformats.ops.reordering.similarity import Order, Pattern


def pattern_of(D: Any) -> Pattern:
    row, column = np.nonzero(D)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(D)))])
    return Pattern(ptr, column, 1, D.shape[1])


def planted(
    size: int = 2048,
    clusters: int = 64,
    edge: int = 32,
    inner: float = 1.0,
    *,
    even: bool = True,
    seed: int = 0,
) -> tuple[Any, Any]:
    """Rows of clusters one behind the other, and the same rows shuffled."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(clusters), size // clusters)
    if not even:
        label = np.sort(rng.integers(0, clusters, size))
    D = np.zeros((size, size), bool)
    for cluster in range(clusters):
        met = np.zeros(size // edge, bool)
        met[rng.choice(size // edge, size // edge // 16, replace=False)] = True
        mine = label == cluster
        D[mine] = np.repeat(met, edge) & (rng.random((mine.sum(), size)) < inner)
    return D, D[rng.permutation(size)]


def brute(D: Any, places: Any, rows: int, high: int, wide: int) -> int:
    moved = np.zeros((-(-rows // high) * high, -(-D.shape[1] // wide) * wide), bool)
    moved[places, : D.shape[1]] = D
    grid = moved.reshape(moved.shape[0] // high, high, -1, wide)
    return int(grid.any(axis=(1, 3)).sum())


@pytest.mark.parametrize("inner", [1.0, 0.3, 0.1])
@pytest.mark.parametrize("clusters", [64, 16])
@pytest.mark.parametrize("seed", [0, 1])
def test_planted_clusters_are_recovered(clusters: int, inner: float, seed: int) -> None:
    """At least nine tenths of the density of blocks that the planted order has."""
    sorted_, shuffled = planted(clusters=clusters, inner=inner, seed=seed)
    ideal = pattern_of(sorted_)
    for found in blocks._in_blocks(pattern_of(shuffled)):
        if found.size[0] > 2048 // clusters:
            continue  # a block row holds several clusters then
        least = similarity.blocks_of(ideal, Order(None, 2048), *found.size)
        assert found.stored <= least / 0.9
        given_ = similarity.blocks_of(pattern_of(shuffled), Order(None, 2048), *found.size)
        assert given_ > 3 * found.stored


@pytest.mark.parametrize("inner", [1.0, 0.3])
def test_uneven_clusters_begin_with_blocks_of_their_own(inner: float) -> None:
    sorted_, shuffled = planted(clusters=16, inner=inner, even=False)
    for found in blocks._in_blocks(pattern_of(shuffled)):
        straddling = similarity.blocks_of(pattern_of(sorted_), Order(None, 2048), *found.size)
        assert found.stored <= straddling / 0.95
        if found.size[0] == 64:
            assert found.order.rows > 2048
            assert found.stored < 0.9 * straddling


def test_a_second_pattern_hides_no_cluster() -> None:
    """Every row also stores a stretch that all rows share."""
    sorted_, shuffled = planted(clusters=16)
    sorted_[:, :128], shuffled[:, :128] = True, True
    least = similarity.blocks_of(pattern_of(sorted_), Order(None, 2048), 32, 32)
    found = blocks._in_blocks(pattern_of(shuffled))[1]
    assert found.size == (32, 32)
    assert found.stored <= least / 0.9


def test_scattered_rows_gain_nothing() -> None:
    D = np.random.default_rng(0).random((1024, 1024)) < 0.05
    for found in blocks._in_blocks(pattern_of(D)):
        high, wide = found.size
        assert found.stored > 0.97 * (1024 // high) * (1024 // wide)


def test_rows_in_blocks_already_stay() -> None:
    sorted_, _ = planted(clusters=16)
    assert all(found.order.places is None for found in blocks._in_blocks(pattern_of(sorted_)))


def test_the_same_order_each_time() -> None:
    _, shuffled = planted(inner=0.3)
    first, second = (similarity.tree(pattern_of(shuffled)) for _ in range(2))
    assert np.array_equal(first.rows, second.rows)
    assert all(map(np.array_equal, first.starts, second.starts))


def test_strays_go_to_the_cluster_that_they_are_most_like() -> None:
    D = np.zeros((30, 12), bool)
    D[:10, :6] = True
    D[10:20, 6:] = True
    D[20, [0, 1]] = True  # like the first
    D[21, [7, 8, 0]] = True  # more like the second
    D[22:24] = False
    D[24:, 3:9] = True  # like both: to the first of equals, or clusters of their own
    pattern = pattern_of(D)
    rows = np.array([*range(20, 22), *range(20), *range(24, 30)])
    starts = np.array([0, 1, 2, 12, 22])
    (found,) = strays.gathered(pattern, similarity.Tree(rows, np.array([22, 23]), (starts,)))
    assert found.rows[:11].tolist() == [20, *range(10)]
    cut = found.starts[0][1]
    assert set(found.rows[:cut]) == {20, *range(10), *range(24, 30)}
    assert found.rows[cut:].tolist() == [21, *range(10, 20)]
    assert found.empty.tolist() == [22, 23]


def test_strays_like_no_cluster_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    D = np.zeros((12, 8), bool)
    D[:9, :4] = True
    D[9:, 5:] = np.eye(3, dtype=bool)
    rows = np.array([9, *range(9), 10, 11])
    tree = similarity.Tree(rows, np.array([], int), (np.array([0, 1, 10, 11]),))
    (found,) = strays.gathered(pattern_of(D), tree)
    assert found.rows.tolist() == [*range(9), 9, 10, 11]
    assert found.starts[0].tolist() == [0, 9]
    monkeypatch.setattr(strays, "PAIRS", -1)
    assert list(strays.gathered(pattern_of(D), tree)) == []
    monkeypatch.setattr(strays, "MOST", 0.1)
    assert list(strays.gathered(pattern_of(D), tree)) == []


def test_rows_of_few_columns_of_their_cluster_are_found() -> None:
    """A tree alone leaves some of them among strangers."""
    sorted_, shuffled = planted(clusters=16, inner=0.1)
    ideal, pattern = (similarity.coarse(pattern_of(D), 32) for D in (sorted_, shuffled))
    least = similarity.blocks_of(ideal, Order(None, 2048), 128, 32)
    tree = similarity.tree(pattern)

    def fewest(trees: list[Any]) -> int:
        tried = [order for tree in trees for order in similarity.orders(tree, 128)]
        return min(similarity.blocks_of(pattern, order, 128, 32) for order in tried)

    assert fewest([tree]) > least / 0.9
    assert fewest([*strays.gathered(pattern, tree)]) <= least / 0.95


@given(st.data())
def test_orders_are_orders(data: st.DataObject) -> None:
    m, k = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    kinds = rng.random((3, k)) < 0.5
    D = kinds[rng.integers(0, 3, m)] if m else np.zeros((0, k), bool)
    pattern = pattern_of(D)
    width, high = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.integers(1, 5))
    coarse = similarity.coarse(pattern, width)
    tree = similarity.tree(coarse)
    least, strays.LEAST = strays.LEAST, 2
    try:
        trees = [tree, *strays.gathered(coarse, tree)]
    finally:
        strays.LEAST = least
    for order in (order for tree in trees for order in similarity.orders(tree, high)):
        assert order.places is not None
        assert np.unique(order.places).size == m
        assert order.places.max() == order.rows - 1
        assert m <= order.rows <= similarity.ROOM * m + high + m
        found = similarity.blocks_of(coarse, order, high, width)
        assert found == brute(D, order.places, order.rows, high, width)
        monkey = similarity.BITMAP
        try:
            similarity.BITMAP = -1
            sorted_ = similarity.blocks_of(coarse._replace(), order, high, width)
        finally:
            similarity.BITMAP = monkey
        assert sorted_ == found


def test_empty_rows_fill_the_gaps() -> None:
    D = np.zeros((10, 4), bool)
    D[[1, 4, 7], 0] = True
    D[[2, 5], 3] = True
    tree = similarity.tree(pattern_of(D))
    assert tree.rows.tolist() == [1, 4, 7, 2, 5]
    assert tree.empty.tolist() == [0, 3, 6, 8, 9]
    dense, padded = similarity.orders(tree, 4)
    assert dense.rows == padded.rows == 10
    assert dense.places is not None
    assert padded.places is not None
    assert dense.places[tree.rows].tolist() == [0, 1, 2, 3, 4]
    assert padded.places[tree.rows].tolist() == [0, 1, 2, 4, 5]
    assert padded.places[tree.empty].tolist() == [3, 6, 7, 8, 9]


def test_signatures_estimate_similarity() -> None:
    rng = np.random.default_rng(0)
    D = np.zeros((2, 4000), bool)
    D[:, :400] = True
    D[1, 200:600] = True
    D[1, :200] = False
    found = similarity._signatures(pattern_of(D[np.repeat([0, 1], 1)]))
    assert abs((found[0] == found[1]).mean() - 1 / 3) < 0.2
    many = rng.permutation(4000)
    moved = similarity._signatures(pattern_of(D[:, many]))
    assert abs((moved[0] == moved[1]).mean() - 1 / 3) < 0.2


@pytest.mark.parametrize("width", [1, 16])
def test_columns_that_nothing_is_stored_in_take_no_memory(width: int) -> None:
    """Few elements in a huge shape; orders depend on the columns alone, not on the extent."""
    _, D = planted(512, 8, 16, 0.7)
    D[::37] = np.random.default_rng(1).random((len(D[::37]), 512)) < 0.02  # strays
    near = pattern_of(D)
    far = near._replace(extent=2**31 - 1)
    tracemalloc.start()
    for pattern in (near, far):
        found = similarity.coarse(pattern, width)
        tree = similarity.tree(found)
        trees = [tree, *strays.gathered(found, tree)]
        assert len(trees) > 1
        orders = [order for each in trees for order in similarity.orders(each, 16)]
        counts = [similarity.blocks_of(found, order, 16, width) for order in orders]
        if pattern is near:
            tracemalloc.reset_peak()
            expected = counts
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts == expected
    assert peak < 2**27


def test_a_long_row_is_hashed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    D = np.random.default_rng(0).random((20, 50)) < 0.5
    D[:, 0] = True
    whole = similarity._signatures(pattern_of(D))
    for chunk in (1, 30, 60):
        monkeypatch.setattr(similarity, "CHUNK", chunk)
        assert np.array_equal(similarity._signatures(pattern_of(D)), whole)
