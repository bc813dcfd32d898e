"""How long things are kept, and how many of them."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import ops
from sparseformats.dispatch.plan_cache import PLANS, Packed, PlanCache
from sparseformats.ops import cache
from tests.plans.support import operand, sample, spying


def blocks(number: int, size: int = 64) -> Any:
    """A matrix whose packed states take memory of their own."""
    rng = np.random.default_rng(number)
    return sf.from_dense(rng.standard_normal((size, size)), "bsr", blocksize=(16, 16))


def multiply_and_drop(count: int) -> None:
    x = np.ones(4)
    indices, indptr = np.array([0, 3]), np.array([0, 1, 2])
    for i in range(count):
        A = sf.CSR([float(i), 1.0], indices, indptr, (2, 4), check=False)
        assert (A @ x)[0] == i


def test_ten_thousand_matrices_leave_nothing_behind() -> None:
    multiply_and_drop(100)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    multiply_and_drop(10_000)
    gc.collect()
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    info = sf.cache_info()
    assert (info.matrices, info.plans, info.packed_bytes) == (0, 0, 0)
    assert after - before < 200_000
    assert peak - before < 2_000_000


def test_a_matrix_goes_without_the_collector() -> None:
    A, x = blocks(0), np.ones((64, 8))
    gone = weakref.ref(A)
    gc.disable()
    try:
        for kernel in ("numpy-blocks", "scipy-csr", "scipy-bsr", "reference", None):
            sf.matmul(A, x, kernel=kernel)
            sf.matmul(x.T, A, kernel=kernel)
        assert sf.cache_info().packed_bytes > 0
        del A
        assert gone() is None
        assert sf.cache_info().packed_bytes == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("format", ["coo", "csr", "csc", "bsr", "blocked_ell", "2:4"])
def test_no_kernel_keeps_the_matrix(library: str, format: str) -> None:
    A = sample(library, format)
    x, gone = operand(library, (8, 3)), weakref.ref(A)
    for row in sf.explain(A, x, assume_finite=True).rows:
        if row.status != "refused":
            sf.matmul(A, x, kernel=row.kernel, assume_finite=True)
    assert sf.cache_info().plans > 1
    del A
    gc.collect()
    assert gone() is None


def test_plans_of_a_matrix_are_bounded_and_the_used_ones_stay() -> None:
    A, often = sample(), operand("numpy", (8, 1))
    with spying() as counts:
        for n in range(1, 3 * PLANS):
            A @ operand("numpy", (8, n))
            A @ often
        assert sf.cache_info().plans == PLANS
        assert counts["bind"] == 3 * PLANS - 1  # `often` is n = 1 and was bound once
        assert counts["pack"] == 1


def test_states_beyond_the_limit_go_least_recently_used_first() -> None:
    x = np.ones((64, 8))
    many = [blocks(i) for i in range(8)]
    sf.matmul(many[0], x, kernel="numpy-blocks")
    each = sf.cache_info().packed_bytes
    assert each >= 64 * 64 * 8
    ops.set_cache_limit(4 * each + each // 2)
    for A in many:
        sf.matmul(A, x, kernel="numpy-blocks")
        sf.matmul(many[0], x, kernel="numpy-blocks")  # used all the time
        assert sf.cache_info().packed_bytes <= 4 * each + each // 2
    misses = sf.cache_info().misses
    sf.matmul(many[0], x, kernel="numpy-blocks")
    sf.matmul(many[-1], x, kernel="numpy-blocks")
    assert sf.cache_info().misses == misses
    y = sf.matmul(many[1], x, kernel="numpy-blocks")
    assert sf.cache_info().misses == misses + 1
    np.testing.assert_allclose(y, many[1].to_dense() @ x)


def test_a_smaller_limit_makes_room_at_once() -> None:
    A, x = blocks(0), np.ones((64, 8))
    y = sf.matmul(A, x, kernel="numpy-blocks")
    ops.set_cache_limit(0)
    assert sf.cache_info().packed_bytes == 0
    assert sf.cache_info().plans == 0
    for _ in range(2):  # works, and keeps nothing
        np.testing.assert_array_equal(sf.matmul(A, x, kernel="numpy-blocks"), y)
    assert sf.cache_info().plans == 0
    assert sf.cache_info().limit == {"cpu": 0}


def test_what_shares_the_matrixs_memory_counts_nothing() -> None:
    A, x = sample(), operand("numpy", (8, 2))
    A @ x
    assert sf.cache_info().packed_bytes == 0
    A @ operand("numpy", (8, 2), "complex128")
    assert sf.cache_info().packed_bytes == 16 * A.nnz


def test_the_environment_sets_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT, "12345")
    ops.set_cache_limit(None)
    sample() @ operand("numpy", (8, 2))
    assert sf.cache_info().limit["cpu"] == 12345
    monkeypatch.setenv(cache.ENVIRONMENT, "much")
    with pytest.raises(ValueError, match=r"SPARSEFORMATS_CACHE_BYTES must be .* 'much'"):
        ops.set_cache_limit(None)
    monkeypatch.delenv(cache.ENVIRONMENT)


@pytest.mark.parametrize(
    ("limit", "error", "text"),
    [(-1, ValueError, "got -1"), (1.5, TypeError, "got float"), (True, TypeError, "got bool")],
)
def test_a_limit_is_a_number_of_bytes(limit: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ops.set_cache_limit(limit)


def test_clear_one_or_all() -> None:
    A, B, x = sample(), sample(format="bsr"), operand("numpy", (8, 2))
    A @ x
    B @ x
    sf.clear_cache(B.T)
    assert sf.cache_info().matrices == 1
    sf.clear_cache(B)
    assert sf.cache_info().matrices == 1
    sf.clear_cache()
    assert sf.cache_info() == (0, 0, 0, sf.cache_info().limit, 0, 0)
    with pytest.raises(TypeError, match="clear_cache takes a matrix of this library, got list"):
        sf.clear_cache([])  # type: ignore[arg-type]


class Thing:
    """Can be referred to weakly."""


def test_an_id_that_is_used_again_finds_nothing() -> None:
    plans, old, new = PlanCache(lambda place: 100), Thing(), Thing()
    entry = plans.entry(old, "cpu", None)
    plans.keep(entry, "k", Packed("state", 10, None))
    plans._entries[id(new)] = entry  # as if `new` lay where `old` was
    assert plans.find(new) is None
    fresh = plans.entry(new, "cpu", None)
    assert fresh is not entry
    assert fresh.packed == {}
    assert plans.find(new) is fresh
    del old
    assert plans.find(new) is fresh


def test_a_late_death_does_not_take_a_successors_entry() -> None:
    plans, thing = PlanCache(lambda place: 100), Thing()
    first = plans.entry(thing, "cpu", None)
    plans.clear(thing)
    second = plans.entry(thing, "cpu", None)
    assert second is not first
    callback = first.ref.__callback__
    assert callback is not None
    callback(first.ref)
    assert plans.find(thing) is second


def test_the_first_of_two_racing_builds_is_kept() -> None:
    plans, thing = PlanCache(lambda place: 100), Thing()
    entry = plans.entry(thing, "cpu", None)
    mine, theirs = Packed(1, 10, None), Packed(2, 10, None)
    assert plans.keep(entry, "k", mine) is mine
    assert plans.keep(entry, "k", theirs) is mine
    assert plans.info().packed_bytes == 10


def test_a_build_that_ends_after_clear_is_not_counted() -> None:
    plans, thing = PlanCache(lambda place: 100), Thing()
    entry = plans.entry(thing, "cpu", None)
    plans.clear()
    late = Packed(1, 10, None)
    assert plans.keep(entry, "k", late) is late
    assert plans.info().packed_bytes == 0


def test_changed_values_drop_what_was_packed() -> None:
    plans, thing, current = PlanCache(lambda place: 100), Thing(), [True]
    entry = plans.entry(thing, "cpu", lambda: current[0])
    plans.keep(entry, "k", Packed(1, 10, None))
    current[0] = False
    assert plans.find(thing) is None
    assert plans.entry(thing, "cpu", None).packed == {}
    assert plans.info().packed_bytes == 0


def test_states_of_two_devices_have_a_limit_each() -> None:
    limits = {"cpu": 10, "cuda:0": 100}
    plans, a, b = PlanCache(limits.__getitem__), Thing(), Thing()
    host, device = plans.entry(a, "cpu", None), plans.entry(b, "cuda:0", None)
    for key in "xyz":
        plans.keep(host, key, Packed(key, 4, None))
        plans.keep(device, key, Packed(key, 40, None))
    assert list(host.packed) == ["y", "z"]
    assert list(device.packed) == ["y", "z"]
    assert plans.info().limit == limits


def test_a_state_that_just_fits_stays() -> None:
    """Making room for it must not throw it out as well, or it would be packed on every call."""
    small, large = sf.eye(5), sf.eye(11)
    ops.set_cache_limit(1000)
    try:
        for A in (small, large):
            for _ in range(3):
                sf.matmul(A, np.ones((A.shape[1], 2)), kernel="dense", assume_finite=True)
        info = sf.cache_info()
        assert (info.packed_bytes, info.plans) == (11 * 11 * 8, 1)
        assert info.hits == 4
    finally:
        ops.set_cache_limit(None)
