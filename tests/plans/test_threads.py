"""Many threads on one matrix, and processes that are forked from them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import ops
from sparseformats.ops.cache import CACHE
from tests.plans.support import host, operand, sample, spying

THREADS = 16


def together(work: Callable[[int], None], rounds: int = 10) -> None:
    """Run `work(number)` in all threads at once and raise the first error."""
    gate, errors = threading.Barrier(THREADS), []

    def body(number: int) -> None:
        try:
            gate.wait()
            for _ in range(rounds):
                work(number)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("format", ["csr", "bsr", "2:4"])
def test_mixed_calls_on_one_matrix(library: str, format: str) -> None:
    A = sample(library, format)
    D = host(A.to_dense())
    calls = [operand(library, (8, n)) for n in (1, 2, 3, 17)] + [operand(library, (8,))]
    p = sf.plan(A, calls[2])

    def work(number: int) -> None:
        for i in range(len(calls)):
            x = calls[(i + number) % len(calls)]
            np.testing.assert_array_equal(host(A @ x), D @ host(x))
            out = (A @ x) * 0
            sf.matmul(A, x, alpha=2, out=out)
            np.testing.assert_array_equal(host(out), 2 * (D @ host(x)))
        np.testing.assert_array_equal(host(p(calls[2])), D @ host(calls[2]))
        if number == 0:
            sf.clear_cache(A)
        if number == 1:
            sf.cache_info()

    together(work)


def test_one_build_is_kept_of_those_that_race() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    with spying():
        together(lambda number: A @ x, rounds=1)
        entry = CACHE.find(A)
        assert entry is not None
        assert len(entry.packed) == 1
        assert len(entry.plans) == 1


def test_threads_under_a_tight_limit() -> None:
    rng = np.random.default_rng(0)
    many = [
        sf.from_dense(rng.integers(0, 3, (32, 32)).astype(float), "bsr", blocksize=(8, 8))
        for _ in range(8)
    ]
    dense, x = [A.to_dense() for A in many], np.ones((32, 4))
    ops.set_cache_limit(3 * 32 * 32 * 8)

    def work(number: int) -> None:
        for i in range(8):
            at = (i + number) % 8
            y = sf.matmul(many[at], x, kernel="numpy-blocks")
            np.testing.assert_array_equal(y, dense[at] @ x)

    together(work, rounds=4)
    assert sf.cache_info().packed_bytes <= 3 * 32 * 32 * 8


def test_matrices_that_come_and_go_in_many_threads() -> None:
    x = np.ones(2)

    def work(number: int) -> None:
        A = sf.CSR([float(number), 1.0], [0, 1], [0, 1, 2], (2, 2))
        assert (A @ x).tolist() == [number, 1]

    together(work, rounds=50)
    assert sf.cache_info().matrices == 0
    assert sf.cache_info().packed_bytes == 0


def test_updates_of_a_plan_are_seen_whole() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    p, y = sf.plan(A, x), A @ x

    def work(number: int) -> None:
        if number < 4:
            p.update(A.data * (number + 1))
        found = p(x)
        assert any(np.array_equal(found, y * scale) for scale in (1, 2, 3, 4))

    together(work)


def test_the_harness_notices_an_error() -> None:
    def work(number: int) -> None:
        assert number != 5

    with pytest.raises(AssertionError):
        together(work)


def in_child(work: Callable[[], Any]) -> int:
    """Run in a forked process; gives its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_build() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    y, p = A @ x, sf.plan(A, x)

    def work() -> None:
        np.testing.assert_array_equal(A @ x, y)  # found
        np.testing.assert_array_equal(p(x), y)
        np.testing.assert_array_equal(A @ x[:, :1], y[:, :1])  # made
        sf.clear_cache()
        np.testing.assert_array_equal(A @ x, y)

    with CACHE._lock:  # as another thread may hold it, who will not exist in the child
        assert in_child(work) == 0
    np.testing.assert_array_equal(A @ x, y)
