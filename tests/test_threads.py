"""Eight threads convert and multiply the same matrix: equal results, no errors."""

import pickle
import threading

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import reference
from tests.cases.support import SPARSE_LINES, array, content, fits, host

THREADS, ROUNDS = 8, 3
TARGETS = [target for target in SPARSE_LINES if target[0] != "2:4"]


def _matrix(library):
    rng = np.random.default_rng(0)
    D = rng.integers(1, 5, (40, 56)).astype(float) * (rng.random((40, 56)) < 0.1)
    D[3, 3], D[5, 7] = np.nan, 1e300
    return D, sf.from_dense(array(D, library))


def _together(work):
    """Run `work(number)` in all threads at once and raise the first error."""
    gate, errors = threading.Barrier(THREADS), []

    def body(number):
        try:
            gate.wait()
            for _ in range(ROUNDS):
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
def test_convert_the_same_matrix(library):
    _, A = _matrix(library)
    expected = content(A)

    def work(number):
        for i in range(len(TARGETS)):
            format, options = TARGETS[(i + number) % len(TARGETS)]
            B = A.to(format, **options)
            assert B.problems() == []
            assert B.nnz == len(expected)
            assert sf.same(B.to("csr"), A)

    _together(work)
    assert content(A) == expected


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_multiply_the_same_matrix(library):
    D, A = _matrix(library)
    X = np.random.default_rng(1).integers(-3, 4, (56, 9)).astype(float)
    x = array(X, library)
    shared = [A.to(f, **o) for f, o in TARGETS if fits(np.nan_to_num(D), (f,))]
    expected = [reference.matmul(B, x).value for B in shared]

    def work(number):
        for i in range(len(shared)):
            at = (i + number) % len(shared)
            y = host(shared[at] @ x)
            assert np.allclose(y, expected[at], equal_nan=True, rtol=1e-12)
            out = array(np.full(y.shape, np.nan), library)
            sf.matmul(shared[at], x, out=out)
            assert np.array_equal(host(out), y, equal_nan=True)

    _together(work)


def test_count_print_and_pickle_the_same_matrix():
    _, A = _matrix("numpy")
    B = A.to("bsr", blocksize=(4, 8))
    nnz = len(content(A))

    def work(number):
        assert B.nnz == nnz
        assert repr(B).count("\n") == 0
        assert pickle.loads(pickle.dumps(B)).nnz == nnz
        assert B.T.T is B
        assert B.density == nnz / (40 * 56)
        assert number < THREADS

    _together(work)


def test_the_harness_notices_an_error():
    def work(number):
        assert number != 5

    with pytest.raises(AssertionError):
        _together(work)


def test_kernels_forced_in_one_thread_stay_there():
    _, A = _matrix("numpy")
    x = np.ones(56)
    names = [row.kernel for row in sf.explain(A, x).rows if row.status != "refused"]
    assert len(names) >= 2

    def work(number):
        name = names[number % len(names)]
        with sf.use_kernel(name), sf.tracing() as trace:
            A @ x
            A @ x
        assert [run.kernel for run in trace] == [name, name]

    _together(work)
