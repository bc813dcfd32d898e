"""eye and random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import _dtypes, reference
from sparseformats.reference.decoding import is_nonzero
from sparseformats.testing import check_valid, shapes
from tests.algebra.support import EXAMPLES, LIBRARIES, host

EVERY = pytest.mark.parametrize("library", LIBRARIES)


@EVERY
@pytest.mark.parametrize(("format", "options"), EXAMPLES)
def test_eye(format: str, options: dict[str, Any], library: str) -> None:
    for m, n, k in ((5, 5, 0), (3, 6, 2), (6, 3, -4), (2, 2, 9), (0, 3, 0)):
        A = sf.eye(m, n, k=k, format=format, library=library, dtype="int32", **options)
        check_valid(A)
        assert (A.format, A.library, A.dtype_name) == (format, library, "int32")
        assert np.array_equal(host(A.to_dense()), np.eye(m, n, k, dtype=np.int32))


def test_eye_of_every_dtype_and_width() -> None:
    for library in LIBRARIES:
        for dtype in _dtypes.VALUE_DTYPES[library]:
            A = sf.eye(2, dtype=dtype, library=library)
            assert A.dtype_name == dtype
            assert host(A.to_dense()).astype(np.complex64).tolist() == [[1, 0], [0, 1]]
    assert sf.eye(2).index_dtype == np.int32
    assert sf.eye(2, index_dtype="int64").index_dtype == np.int64
    assert sf.eye(1, 2**32, k=2**31, format="coo").col.tolist() == [2**31]


@EVERY
@pytest.mark.parametrize("format", ["coo", "csr", "csc"])
def test_random_has_the_exact_count(format: str, library: str) -> None:
    @given(shapes(), st.floats(0, 1), st.integers(0, 99))
    def law(shape: Any, density: float, seed: int) -> None:
        A = sf.random(*shape, density, format=format, library=library, seed=seed, dtype="float32")
        check_valid(A)
        assert (A.format, A.shape, A.dtype_name) == (format, shape, "float32")
        assert A.nnz == int(density * shape[0] * shape[1] + 0.5)
        assert is_nonzero(host(A.data)).all()
        again = sf.random(*shape, density, seed=seed, dtype="float32")
        assert reference.same_content(A, again)

    law()


@pytest.mark.parametrize("format", ["bsr", "blocked_ell", "bsr.T"])
def test_random_blocks_are_whole(format: str) -> None:
    @given(shapes(), st.floats(0, 1), st.integers(1, 4))
    def law(shape: Any, density: float, b: int) -> None:
        A = sf.random(*shape, density, format=format, blocksize=b, seed=1)
        check_valid(A)
        assert (A.format, A.shape, A.blocksize) == (format, shape, (b, b))
        grid = -(-shape[0] // b) * -(-shape[1] // b)
        blocks = {(i // b, j // b) for i, j in reference.entries(A)}
        assert len(blocks) == int(density * grid + 0.5)
        full = sum(min(b, shape[0] - i * b) * min(b, shape[1] - j * b) for i, j in blocks)
        assert A.nnz == full

    law()


def test_random_rectangular_blocks() -> None:
    A = sf.random(7, 9, 0.5, format="bsr", blocksize=(2, 3), seed=0)
    assert (A.blocksize, A.nnzb) == ((2, 3), 6)
    T = sf.random(9, 7, 0.5, format="bsr.T", blocksize=(3, 2), seed=0)
    assert (T.shape, T.blocksize, T.format) == ((9, 7), (3, 2), "bsr.T")


@EVERY
@pytest.mark.parametrize("format", ["2:4", "1:3", "2:4.T"])
def test_random_groups_keep_the_pattern(format: str, library: str) -> None:
    @given(shapes(), st.floats(0, 1))
    def law(shape: Any, share: float) -> None:
        n, m = (int(x) for x in format.removesuffix(".T").split(":"))
        rows, k = shape[::-1] if format.endswith(".T") else shape
        most = rows * (k // m * n + min(n, k % m))
        wanted = int(share * most)
        density = wanted / max(1, rows * k)
        A = sf.random(*shape, density, format=format, seed=3, library=library, dtype="float32")
        check_valid(A)
        assert (A.format, A.shape, A.nnz) == (format, shape, wanted)

    law()


def test_random_full_groups_and_every_dtype() -> None:
    assert sf.random(4, 8, 0.5, format="2:4", seed=0).nnz == 16
    for library in LIBRARIES:
        for dtype in _dtypes.VALUE_DTYPES[library]:
            A = sf.random(9, 9, 0.5, dtype=dtype, library=library, seed=5)
            assert (A.dtype_name, A.nnz) == (dtype, 41)
            assert is_nonzero(host(A.data)).all()


def test_seeds() -> None:
    A, B, C = (sf.random(20, 20, 0.1, seed=seed) for seed in (1, 1, 2))
    assert sf.same(A, B)
    assert not sf.same(A, C)
    rng = np.random.default_rng(1)
    assert sf.same(sf.random(20, 20, 0.1, seed=rng), A)
    assert not sf.same(sf.random(20, 20, 0.1, seed=rng), A)
    assert sf.random(20, 20, 0.1).nnz == 40
    wide = sf.random(2**31 - 1, 2**31 - 1, 1e-18, seed=0, format="coo")
    assert (wide.nnz, wide.index_dtype) == (5, np.int32)
    assert sf.random(3, 3, 1, index_dtype="int64").index_dtype == np.int64


WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: sf.eye(2, k=0.5), TypeError, "k must be an integer, got 0.5"),
    (lambda: sf.eye(-1), ValueError, "shape"),
    (lambda: sf.eye(2, dtype="float8_e5m2"), TypeError, "^eye: dtype 'float8_e5m2'"),
    (lambda: sf.eye(2, library="jax"), ValueError, "unknown array library 'jax'"),
    (lambda: sf.eye(2, format="bsr"), ValueError, r"blocksize=\(R, C\)"),
    (lambda: sf.eye(2, device="cuda:0", library="numpy", format="dense"), ValueError, "dense"),
    (lambda: sf.random(2, 2, 1.5), ValueError, "within 0 … 1, got 1.5"),
    (lambda: sf.random(2, 2, np.nan), ValueError, "within 0 … 1, got nan"),
    (lambda: sf.random(2, 2, "x"), TypeError, "density must be a number, got 'x'"),
    (lambda: sf.random(2, 2, True), TypeError, "density must be a number"),
    (lambda: sf.random(4, 4, 0.75, format="2:4"), ValueError, "density of 0.5 at most, got 0.75"),
    (lambda: sf.random(2, 2, 0.5, format="bsr"), ValueError, r"random\('bsr'\) needs a block size"),
    (lambda: sf.random(2, 2, 0.5, format="cst"), ValueError, "unknown format 'cst'"),
    (lambda: sf.random(2, 2, 0.5, dtype="text"), TypeError, "^random: dtype 'text'"),
    (lambda: sf.random(2**32, 2**32, 0), ValueError, "2\\*\\*63"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_refusals(number: int) -> None:
    what, error, text = WRONG[number]
    with pytest.raises(error, match=text) as caught:
        what()
    assert "{" not in str(caught.value)
