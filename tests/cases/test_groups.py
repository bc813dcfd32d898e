"""n:m: violations (C12), positions (C13), the axis (C14), sizes and padding (C15)."""

import itertools

import numpy as np
import pytest

import sparseformats as sf
from tests.cases.support import LIBRARIES, STRICT, array, content, dense, host, products

# C12: never pruned without a word.
W12 = np.tile(np.array([1, 2, 3, 0, 4, 5, 0, 0], np.float16), (32, 8))
V12 = np.tile(np.array([1, 2, 0, 0], np.float16), (32, 16))
V12[7, 12:16] = 1


def _float(D, library):
    return D.astype("float32") if library == "array_api_strict" else D


@pytest.mark.parametrize("library", STRICT)
@pytest.mark.parametrize(
    ("D", "text"),
    [
        (W12, "row 0, group 0 has 3 (256 groups violate in all)"),
        (V12, "row 7, group 3 has 4 (1 group violate in all)"),
    ],
)
def test_violations_are_named_on_every_route(D, text, library):
    X = array(_float(D, library), library)
    A = sf.from_dense(X)
    routes = [
        lambda: sf.from_dense(X, "2:4"),
        lambda: A.to("2:4"),
        lambda: A.to("csc").to("2:4"),
        lambda: A.to("coo").to("2:4"),
        lambda: A.to("bsr", blocksize=(4, 8)).to("2:4"),
        lambda: A.to("blocked_ell", blocksize=4).to("2:4"),
        lambda: A.to("4:4").to("2:4"),
    ]
    for route in routes:
        with pytest.raises(sf.PatternError) as caught:
            route()
        assert text in str(caught.value)
        assert isinstance(caught.value, ValueError)
        assert "prune" in str(caught.value)


def test_duplicates_are_judged_after_summing():
    row, col = [0, 0, 0, 0], [0, 1, 2, 2]
    A = sf.COO([1.0, 2.0, 3.0, -3.0], row, col, (1, 4))
    assert (A.nnz, A.to("2:4").nnz) == (3, 3)  # the sum is a stored zero
    with pytest.raises(sf.PatternError, match="has 3"):
        sf.COO([1.0, 2.0, 3.0, 3.0], row, col, (1, 4)).to("2:4")


@pytest.mark.parametrize("library", STRICT)
def test_zeros_never_cause_a_refusal(library):
    """Four stored elements in a group, two of them zeros of either sign: nothing is lost."""
    data = array([1.0, 0.0, -0.0, 2.0], library)
    A = sf.CSR(data, array([0, 1, 2, 3], library), array([0, 4], library), (1, 4))
    B = A.to("2:4")
    assert (B.nnz, B.side.nnz) == (4, 2)
    assert content(B) == content(A)
    assert content(B.to("csr")) == content(A)
    C = sf.CSR(data * 0, A.indices, A.indptr, (1, 4)).to("1:4")
    assert (C.nnz, C.side.nnz) == (4, 3)


# C13: every legal pattern, bit for bit.
PATTERNS = [p for r in (0, 1, 2) for p in itertools.combinations(range(4), r)]


def _all_patterns(dtype):
    W = np.zeros((32, 64), dtype)
    for i in range(32):
        for g in range(16):
            W[i, [4 * g + j for j in PATTERNS[(i + g) % 11]]] = 1 + g + 16 * (i % 2)
    return W


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "complex64"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_pattern_comes_back(library, dtype):
    assert len(PATTERNS) == 11
    W = _all_patterns(dtype)
    A = sf.from_dense(array(W, library), "2:4")
    assert A.problems() == []
    assert host(A.to_dense()).tobytes() == W.tobytes()
    for route in (A.to("csr"), A.to("coo"), A.to("csc"), A.to("bsr", blocksize=4)):
        assert route.nnz == np.count_nonzero(W)
        assert all(np.frombuffer(bits, dtype)[0] != 0 for bits in content(route).values())
        assert content(route.to("2:4")) == content(A)
        assert route.to("2:4").lib.equal_bits(route.to("2:4").indices, A.indices)


@pytest.mark.parametrize(("n", "m"), [(1, 2), (1, 4), (3, 4), (2, 8), (3, 5), (1, 1)])
def test_other_patterns(n, m):
    rng = np.random.default_rng(0)
    D = np.zeros((9, 23))
    for i, g in itertools.product(range(9), range(-(-23 // m))):
        width = min(m, 23 - g * m)
        used = rng.permutation(width)[: rng.integers(0, min(n, width) + 1)]
        D[i, g * m + used] = rng.standard_normal(len(used))
    A = sf.from_dense(D, f"{n}:{m}")
    assert (A.format, A.nnz, A.problems()) == (f"{n}:{m}", np.count_nonzero(D), [])
    assert host(A.to_dense()).tobytes() == D.tobytes()
    assert content(A.to("csr").to(f"{n}:{m}")) == content(A)


# C14: groups run along the last logical axis, whatever the memory looks like.
P = np.tile(np.array([1, 0, 1, 0], np.float16), (8, 2))


@pytest.mark.parametrize("library", LIBRARIES)
def test_groups_run_along_the_rows(library):
    for D in (P, np.asfortranarray(P), np.repeat(P, 2, axis=1)[:, ::2]):
        given = array(D, library) if library == "torch" else D
        assert sf.from_dense(given, "2:4").nnz == P.sum()
    turned = array(P, library).T
    with pytest.raises(sf.PatternError, match="row 0, group 0 has 4"):
        sf.from_dense(turned, "2:4")
    A = sf.from_dense(array(P, library), "2:4")
    with pytest.raises(sf.PatternError, match="row 0, group 0 has 4"):
        A.T.to("2:4")
    assert content(A.T.to("csr")) == {(j, i): bits for (i, j), bits in content(A).items()}
    assert A.T.T.to("2:4") is A


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_transposed_view_multiplies_from_both_sides(library):
    A = sf.from_dense(array(P, library), "2:4")
    X = np.arange(24).reshape(8, 3).astype(np.float16)
    D = P.astype(float)
    assert np.array_equal(host(A @ array(X, library)), D @ X)
    assert np.array_equal(host(A.T @ array(X, library)), D.T @ X)
    assert np.array_equal(host(array(X.T, library) @ A), X.T @ D)
    assert np.array_equal(host(array(X.T, library) @ A.T), X.T @ D.T)


# C15: one-row activations, sizes off the tile, ragged K.
@pytest.mark.parametrize("library", LIBRARIES)
def test_linear_layer_of_one_row(library):
    W = np.tile(np.array([0, 1, 0, 2], np.float16), (32, 16))
    A = sf.from_dense(array(W, library), "2:4")
    x = array(np.ones((1, 64), np.float16), library)
    y = host(x @ A.T)
    assert y.shape == (1, 32)
    assert (y == 48).all()
    for kernel, y in products(A, array(np.ones(64, np.float16), library)):
        assert (y == 48).all(), kernel


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 6, 7, 9])
def test_ragged_groups_keep_the_logical_shape(k, library):
    D = np.zeros((3, k), np.float32)
    D[0, 0] = D[1, -1] = 1
    D[2, [0, -1]] = [2, 3]
    A = sf.from_dense(array(D, library), "2:4")
    assert (A.shape, A.problems()) == ((3, k), [])
    assert np.array_equal(dense(A), D)
    assert np.array_equal(host(A.to_dense()), D)
    assert content(A.to("csr").to("2:4")) == content(A)
    guarded = np.full((k + 4, 2), np.nan, np.float32)
    guarded[:k] = 1
    for kernel, y in products(A, array(guarded, library)[:k]):
        assert np.array_equal(y, D @ np.ones((k, 2))), kernel


def test_the_case_itself():
    K6 = np.array([[1, 0, 0, 0, 2, 3]], np.float16)
    A = sf.from_dense(K6, "2:4")
    assert (A.shape, A.nnz) == ((1, 6), 3)
    assert A.to_dense().tolist() == K6.tolist()
    assert (A @ np.ones(6, np.float16)).tolist() == [6]
