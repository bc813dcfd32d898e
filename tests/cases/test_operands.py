"""Dense operands and outputs: strides (C21), `out=` (C22), devices and libraries (C25)."""

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats.testing import unchanged
from tests.cases.support import LIBRARIES, array, host, in_every_format, kernels_for, products

D21 = np.array([[2.0, 0], [1, 5]])


def _layouts(X):
    """Equal operands of other strides, NaN around them where there is room."""
    wide = np.full((2 * X.shape[0] + 1, 3 * X.shape[1] + 2), np.nan)
    wide[1::2, 1::3][:, : X.shape[1]] = X
    yield "C", X.copy()
    yield "F", np.asfortranarray(X)
    yield "transposed", X.T.copy().T
    yield "slice", wide[1::2, 1::3][:, : X.shape[1]]
    yield "backwards", X[::-1, ::-1].copy()[::-1, ::-1]


# C21: any strides are read right, and nothing is written to the operand.
def test_the_case_itself():
    X = np.array([[1.0, 7], [3, 2]]).T
    Xt = np.arange(12.0).reshape(2, 6)[:, ::2]
    for name, A in in_every_format(sf.from_dense(D21)):
        for kernel, y in products(A, X):
            assert y.tolist() == [[2, 6], [36, 13]], (name, kernel)
        for kernel, y in products(A, Xt):
            assert np.array_equal(y, D21 @ Xt.copy()), (name, kernel)
        for kernel, y in products(A, X[:, 0]):
            assert y.tolist() == [2, 36], (name, kernel)


RNG = np.random.default_rng(5)
WIDE = RNG.integers(-4, 5, (7, 9)) * (RNG.random((7, 9)) < 0.5).astype(float)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("columns", [1, 4])
def test_every_layout_in_every_kernel(library, columns):
    X = RNG.integers(-4, 5, (9, columns)).astype(float)
    for layout, view in _layouts(X):
        if library == "torch":
            if min(view.strides) < 0:
                continue  # torch has no negative strides
            view = torch.from_numpy(view)
        with unchanged(view):
            for name, A in in_every_format(sf.from_dense(array(WIDE, library))):
                for kernel, y in products(A, view):
                    assert np.array_equal(y, WIDE @ X), (layout, name, kernel)


@pytest.mark.parametrize("library", LIBRARIES)
def test_vectors_rows_and_batches(library):
    X = RNG.integers(-4, 5, (9, 6)).astype(float)
    L = RNG.integers(-4, 5, (5, 7)).astype(float)
    batch = RNG.integers(-4, 5, (2, 3, 9, 4)).astype(float)
    x, left, stack = (array(v, library) for v in (X, L, batch))
    for name, A in in_every_format(sf.from_dense(array(WIDE, library))):
        assert np.array_equal(host(A @ x[:, 1]), WIDE @ X[:, 1]), name
        assert np.array_equal(host(A @ x[:, ::2]), WIDE @ X[:, ::2]), name
        assert np.array_equal(host(left @ A), L @ WIDE), name
        assert np.array_equal(host(left[1] @ A), L[1] @ WIDE), name
        assert np.array_equal(host(left[:, :] @ A), L @ WIDE), name
        assert np.array_equal(host(A @ stack), WIDE @ batch), name
        assert np.array_equal(host(sf.matmul(A, x)), WIDE @ X), name


def test_broadcast_operand_of_stride_zero():
    for library in LIBRARIES:
        one = array([[3.0]], library)
        x = np.broadcast_to(one, (9, 4)) if library == "numpy" else one.expand(9, 4)
        for name, A in in_every_format(sf.from_dense(array(WIDE, library))):
            for kernel, y in products(A, x):
                assert np.array_equal(y, WIDE @ np.full((9, 4), 3.0)), (name, kernel)


@pytest.mark.parametrize("bad", [np.ones((8, 2)), np.ones(8), np.ones((2, 9)), np.float64(3)])
def test_shapes_that_do_not_match(bad):
    A = sf.from_dense(WIDE)
    with pytest.raises((ValueError, TypeError)) as caught:
        A @ bad
    assert "{" not in str(caught.value)
    if bad.ndim:
        assert "9" in str(caught.value)
        assert "8" in str(caught.value) or "2" in str(caught.value)


# C22: what lies in `out` before is not read when beta is 0, and every element is written.
D22 = np.kron(np.eye(2), np.ones((2, 2))) * np.array([[1.0], [1], [0], [0]])
EXPECTED = np.array([[2.0] * 3] * 2 + [[0.0] * 3] * 2)


def _outs():
    yield "C", np.full((4, 3), np.nan), None
    yield "F", np.full((4, 3), np.nan, order="F"), None
    rows = np.full((8, 3), np.nan)
    yield "every second row", rows[::2], lambda: np.isnan(rows[1::2]).all()
    cols = np.full((4, 7), np.nan)
    yield "every second column", cols[:, 1::2], lambda: np.isnan(cols[:, ::2]).all()
    big = np.full((6, 5), np.nan)
    yield "inside", big[1:5, 1:4], lambda: np.isnan(big).sum() == 30 - 12


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("fill", [np.nan, np.inf, 7.0])
@pytest.mark.parametrize("library", LIBRARIES)
def test_out_of_any_layout(which, fill, library):
    A = sf.from_dense(array(D22, library), "bsr", blocksize=(2, 2))
    x = array(np.ones((4, 3)), library)
    for name, B in in_every_format(A):
        for kernel in kernels_for(B, x):
            _, out, rest = list(_outs())[which]
            out[...] = fill
            given = torch.from_numpy(out) if library == "torch" else out
            y = sf.matmul(B, x, out=given, kernel=kernel)
            assert y is given, (name, kernel)
            assert np.array_equal(out, EXPECTED), (name, kernel)
            assert rest is None or rest(), (name, kernel)


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_without_blocks_are_written(library):
    S = sf.BSR(
        array(np.ones((1, 2, 2)), library), array([0], library), array([0, 1, 1], library), (4, 4)
    )
    for name, A in in_every_format(S):
        for kernel in kernels_for(A, array(np.ones((4, 3)), library)):
            out = array(np.full((4, 3), np.nan), library)
            sf.matmul(A, array(np.ones((4, 3)), library), out=out, kernel=kernel)
            assert np.array_equal(host(out), EXPECTED), (name, kernel)


@pytest.mark.parametrize("library", LIBRARIES)
def test_alpha_and_beta(library):
    x = array(np.ones((4, 3)), library)
    for name, A in in_every_format(sf.from_dense(array(D22, library))):
        for kernel in kernels_for(A, x):
            out = array(np.full((4, 3), 10.0), library)
            sf.matmul(A, x, alpha=3, beta=0.5, out=out, kernel=kernel)
            assert np.array_equal(host(out), 3 * EXPECTED + 5), (name, kernel)
            out = array(np.full((4, 3), np.nan), library)
            sf.matmul(A, x, alpha=2, out=out, kernel=kernel)
            assert np.array_equal(host(out), 2 * EXPECTED), (name, kernel)


def test_beta_without_out():
    with pytest.raises(ValueError, match="out"):
        sf.matmul(sf.from_dense(D22), np.ones(4), beta=1)


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((3, 4)),
        np.zeros((4, 2)),
        np.zeros(4),
        np.zeros((4, 3), np.float32),
        np.zeros((4, 3), int),
        np.zeros((1, 4, 3)),
    ],
)
def test_out_of_wrong_shape_or_dtype(out):
    before = out.copy()
    with pytest.raises(ValueError, match="out") as caught:
        sf.matmul(sf.from_dense(D22), np.ones((4, 3)), out=out)
    assert "{" not in str(caught.value)
    assert np.array_equal(out, before)


def test_out_of_another_kind():
    A, x = sf.from_dense(D22), np.ones((4, 3))
    with pytest.raises(TypeError):
        sf.matmul(A, x, out=torch.zeros((4, 3), dtype=torch.float64))
    with pytest.raises(TypeError):
        sf.matmul(A, x, out=[[0.0] * 3] * 4)
    frozen = np.zeros((4, 3))
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match=r"read-only|written"):
        sf.matmul(A, x, out=frozen)


def test_out_that_overlaps_the_operand():
    for library in LIBRARIES:
        for name, A in in_every_format(sf.from_dense(array(WIDE[:, :7], library))):
            X = RNG.integers(-4, 5, (7, 7)).astype(float)
            x = array(X, library)
            sf.matmul(A, x, out=x)
            assert np.array_equal(host(x), WIDE[:, :7] @ X), name


# C25: parts and operands on two devices or of two libraries.
def test_parts_on_two_devices():
    values, indices = torch.tensor([1.0, 2.0]), torch.tensor([0, 1], device="meta")
    with pytest.raises(ValueError, match="data is on 'cpu' but indices is on 'meta'") as caught:
        sf.CSR(values, indices, torch.tensor([0, 1, 2]), (2, 2))
    assert isinstance(caught.value, sf.DeviceMismatchError)


def test_operand_on_another_device():
    ran = []
    for name, A in in_every_format(sf.from_dense(torch.eye(2))):
        for call in (
            lambda A=A: A @ torch.ones(2, 2, device="meta"),
            lambda A=A: torch.ones(2, 2, device="meta") @ A,
            lambda A=A: A @ torch.ones(2, device="meta"),
            lambda A=A: sf.matmul(A, torch.ones(2, 2), out=torch.ones(2, 2, device="meta")),
        ):
            with sf.tracing() as trace, pytest.raises(sf.DeviceMismatchError) as caught:
                call()
            assert "cpu" in str(caught.value), name
            assert "meta" in str(caught.value), name
            ran += list(trace)
    assert ran == []


def test_operand_of_another_library():
    for library, other in (("numpy", "torch"), ("torch", "numpy")):
        for name, A in in_every_format(sf.from_dense(array(np.eye(2), library))):
            x = array(np.ones((2, 2)), other)
            with sf.tracing() as trace, pytest.raises(TypeError) as caught:
                sf.matmul(A, x)
            assert "numpy" in str(caught.value), name
            assert "torch" in str(caught.value), name
            assert list(trace) == []
            with pytest.raises(TypeError):
                A @ x
            with pytest.raises(TypeError):
                x @ A


def test_lists_are_no_operands():
    with pytest.raises(TypeError):
        sf.matmul(sf.from_dense(np.eye(2)), [1.0, 2.0])


def test_sparse_by_sparse_of_two_libraries():
    A = sf.from_dense(np.eye(2))
    with pytest.raises(TypeError):
        A @ A.to_library("torch")
