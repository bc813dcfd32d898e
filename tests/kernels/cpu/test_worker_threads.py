"""Tasks shared by threads: each done once, errors passed on, the user's limit respected."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import sparseformats as sf
from sparseformats_kernels.cpu import blocks_numpy, threads


@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_task_is_done_once(count: int) -> None:
    done: list[int] = []
    threads.share(lambda tasks: done.extend(tasks), range(1000), count)
    assert sorted(done) == list(range(1000))


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_is_passed_on(count: int) -> None:
    def work(tasks: Iterator[int]) -> None:
        for task in tasks:
            if task == 7:
                raise ValueError("seven")

    with pytest.raises(ValueError, match="seven"):
        threads.share(work, range(100), count)


def test_an_error_of_a_helper_is_passed_on() -> None:
    here, started = threading.get_ident(), threading.Event()

    def work(tasks: Iterator[int]) -> None:
        if threading.get_ident() != here:
            started.set()
            raise ValueError("helper")
        started.wait(60)

    with pytest.raises(ValueError, match="helper"):
        threads.share(work, range(2), 2)


@pytest.mark.parametrize(
    ("text", "most"), [("1", 1), ("1,2", 1), ("0", None), ("", None), ("many", None)]
)
def test_the_user_limits_threads_as_for_blas(
    text: str, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in threads._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    free = threads.workers()
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert threads.workers() == (free if most is None else most)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    A = sf.from_dense(rng.standard_normal((130, 150), dtype=np.float32), "bsr", blocksize=(16, 16))
    X = rng.standard_normal((150, 200), dtype=np.float32)
    alone = sf.matmul(A, X, kernel="numpy-blocks")
    monkeypatch.setattr(blocks_numpy, "SHARED", 0)
    monkeypatch.setattr(blocks_numpy, "GATHER", 1)
    monkeypatch.setattr(blocks_numpy, "workers", lambda: 4)
    for _ in range(5):
        np.testing.assert_array_equal(sf.matmul(A, X, kernel="numpy-blocks"), alone)


def test_non_finite_values_raise_no_warning_in_a_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_numpy, "SHARED", 0)
    monkeypatch.setattr(blocks_numpy, "GATHER", 1)
    monkeypatch.setattr(blocks_numpy, "workers", lambda: 4)
    A = sf.from_dense(np.full((64, 64), 1e308), "bsr", blocksize=(8, 8))
    y = sf.matmul(A, np.full((64, 3), 1e308), kernel="numpy-blocks")
    assert np.isinf(y).all()


@pytest.mark.parametrize("height", [1, 3, 16, 64, 100, 256, 5000])
@pytest.mark.parametrize("n", [1, 7, 64, 128, 1000])
def test_products_are_cut_below_what_blas_shares(height: int, n: int) -> None:
    wide, deep = blocks_numpy._cut(height, n)
    assert 1 <= wide <= n
    assert deep >= 16
    assert height * wide * deep <= blocks_numpy.ALONE or deep == 16


@pytest.mark.parametrize("shape", [(3, 16, 832, 64), (2, 64, 500, 130), (1, 100, 333, 70)])
def test_a_cut_product_is_the_product(shape: tuple[int, int, int, int]) -> None:
    g, height, length, n = shape
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (g, height, length)).astype(np.float32)
    x = rng.integers(-4, 5, (g, length, n)).astype(np.float32)
    np.testing.assert_array_equal(blocks_numpy._product(a, x), a @ x)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    done: list[int] = []
    threads.share(lambda tasks: done.extend(tasks), range(100), 3)
    child = os.fork()
    if child == 0:
        done = []
        threads.share(lambda tasks: done.extend(tasks), range(100), 3)
        os._exit(sorted(done) != list(range(100)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
