"""Values in products: non-finite (C17), half types (C19), mixed dtypes (C20), complex (C23)."""

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse as sp

import sparseformats as sf
from tests.cases.support import (
    LIBRARIES,
    SPARSE_LINES,
    TARGETS,
    array,
    convert,
    dense,
    fits,
    host,
    in_every_format,
    kernels_for,
    name_of,
    products,
)

INF, NAN = np.inf, np.nan
PLAIN = ("coo", "csr", "csc")


# C17: what a zero times infinity is depends on the format, never on the kernel.
@pytest.mark.parametrize("library", LIBRARIES)
def test_structural_zero_times_infinity(library):
    X, B = np.eye(2), np.array([[1.0], [INF]])
    for target in TARGETS:
        A = sf.from_dense(array(X, library), target[0], **target[1])
        outside = target[0] in PLAIN or target[1]["blocksize"] in ((1, 1), 1)
        expected = [1, INF] if outside else [NAN, INF]
        for kernel, y in products(A, array(B, library)):
            assert np.array_equal(y[:, 0], expected, equal_nan=True), (name_of(target), kernel)
        for kernel, y in products(A, array(B[:, 0], library)):
            assert np.array_equal(y, expected, equal_nan=True), (name_of(target), kernel)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("library", LIBRARIES)
def test_stored_nonfinite_value_always_propagates(library, value):
    D, C = np.array([[5, value], [1, 2.0]]), np.array([[0.0, 1], [0, 0]])
    expected = np.array([[NAN, NAN], [0, 1]])  # 0 x inf is NaN, so is 0 x NaN
    for name, A in in_every_format(sf.from_dense(array(D, library))):
        for kernel, y in products(A, array(C, library)):
            assert np.array_equal(y, expected, equal_nan=True), (name, kernel)


@pytest.mark.parametrize("library", LIBRARIES)
def test_stored_zero_meets_infinity(library):
    """An explicit zero is an element: 0 x inf = NaN, in the formats that multiply elements."""
    A = sf.CSR(*(array(x, library) for x in ([0.0, 2.0], [1, 0], [0, 1, 2])), (2, 2))
    x = array([1.0, INF], library)
    for format in PLAIN:
        for kernel, y in products(A.to(format), x):
            assert np.array_equal(y, [NAN, 2], equal_nan=True), (format, kernel)


@pytest.mark.parametrize("library", LIBRARIES)
def test_nonfinite_operand_at_a_nonzero_of_a_group(library):
    A = sf.from_dense(array([[1.0, 0, 0, 2, 0, 0, 0, 3]], library), "2:4")
    for kernel, y in products(A, array([1.0, 1, 1, INF, 1, 1, 1, 1], library)):
        assert y.tolist() == [INF], kernel
    for kernel, y in products(A, array([1.0, 1, 1, 1, 1, 1, 1, NAN], library)):
        assert np.isnan(y).all(), kernel


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_without_blocks_stay_zero_for_any_operand(library):
    D = np.zeros((6, 6))
    D[:2, :2] = 1
    X = np.full((6, 2), INF)
    X[:2] = 1
    for target in TARGETS:
        if target[1].get("blocksize") in ((5, 4), 7, (2, 3)):
            continue  # their blocks reach into rows of infinity
        A = sf.from_dense(array(D, library), target[0], **target[1])
        for kernel, y in products(A, array(X, library)):
            assert np.array_equal(y, [[2, 2]] * 2 + [[0, 0]] * 4), (name_of(target), kernel)


# C19: half types are summed in float32 and rounded once.
HALF = [("numpy", "float16"), ("torch", "float16"), ("numpy", "bfloat16"), ("torch", "bfloat16")]
FULL = (*TARGETS[:4], ("bsr", {"blocksize": (1, 64)}), ("blocked_ell", {"blocksize": 16}))


@pytest.mark.parametrize("target", [*FULL, ("4:4", {})], ids=name_of)
@pytest.mark.parametrize(("library", "dtype"), HALF)
def test_half_sums_do_not_saturate(target, library, dtype):
    unit = 2.0 ** -(9 if dtype == "float16" else 8)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    width = 4096
    A = sf.from_dense(array(np.ones((1, width)).astype(kind), library), target[0], **target[1])
    small = np.full((width, 1), 1e-3).astype(kind)
    expected = float(small.astype("float64").sum())
    for x, total in ((np.ones((width, 1)).astype(kind), width), (small, expected)):
        for kernel, y in products(A, array(x, library)):
            assert y.dtype == kind, kernel
            assert abs(float(y[0, 0]) - total) <= total * unit, kernel
        for kernel, y in products(A, array(x[:, 0], library)):
            assert abs(float(y[0]) - total) <= total * unit, kernel


@pytest.mark.parametrize("library", LIBRARIES)
def test_half_sum_that_fits_float32_only_on_the_way(library):
    A = sf.from_dense(array(np.array([[60000, 60000, -60000]], np.float16), library))
    for name, B in in_every_format(A):
        for kernel, y in products(B, array(np.ones(3, np.float16), library)):
            assert y.tolist() == [60000], (name, kernel)


# C20: promotion as the library's own, narrow integers in wider ones.
@pytest.mark.parametrize("library", LIBRARIES)
def test_float32_by_float64_is_float64_and_exact(library):
    x = np.array([[1e-40], [1 + 2.0**-40]])
    A = sf.from_dense(array(np.eye(2, dtype=np.float32), library))
    for name, B in in_every_format(A):
        for kernel, y in products(B, array(x, library)):
            assert y.dtype == np.float64, (name, kernel)
            assert y.tobytes() == x.tobytes(), (name, kernel)


def test_integers_by_floats_are_floats():
    A, x = np.array([[2, 0], [0, 3]], np.int32), np.array([[0.5], [0.5]])
    for library, dtype in (("numpy", "float64"), ("torch", "float64")):
        for name, B in in_every_format(sf.from_dense(array(A, library))):
            for kernel, y in products(B, array(x, library)):
                assert (y.dtype, y.reshape(-1).tolist()) == (dtype, [1.0, 1.5]), (name, kernel)


def test_duplicate_integers_that_do_not_fit():
    u = {"data": np.array([255, 1], np.uint8), "row": [0, 0], "col": [1, 1], "shape": (1, 2)}
    with pytest.raises(OverflowError, match="uint8"):
        sf.COO(**u)
    with pytest.raises(OverflowError, match="uint8"):
        sf.from_scipy(sp.coo_array((u["data"], (u["row"], u["col"])), shape=(1, 2)))


NARROW = [
    ("numpy", "int8", "int32", 100),
    ("numpy", "int16", "int32", 20000),
    ("numpy", "uint8", "uint32", 200),
    ("numpy", "uint16", "uint32", 40000),
    ("torch", "int8", "int32", 100),
    ("torch", "int16", "int32", 20000),
    ("torch", "uint8", "int64", 200),
]


@pytest.mark.parametrize(("library", "dtype", "result", "value"), NARROW)
def test_narrow_integers_widen(library, dtype, result, value):
    D = np.array([[value, value]], dtype)
    for name, A in in_every_format(sf.from_dense(array(D, library))):
        for kernel, y in products(A, array(D.T, library)):
            assert (y.dtype, y.tolist()) == (result, [[2 * value * value]]), (name, kernel)


@pytest.mark.parametrize("library", LIBRARIES)
def test_wide_integers_wrap_alike_in_every_kernel(library):
    D = np.array([[2**31 - 1, 2]], np.int32)
    expected = (D.astype("int64") @ np.array([2, 1])).astype(np.int32)
    for name, A in in_every_format(sf.from_dense(array(D, library))):
        for kernel, y in products(A, array(np.array([2, 1], np.int32), library)):
            assert (y.dtype, y.tolist()) == ("int32", expected.tolist()), (name, kernel)


@pytest.mark.parametrize("library", LIBRARIES)
def test_bool_is_or_of_and(library):
    D = np.array([[True, True, False], [False, False, False]])
    for name, A in in_every_format(sf.from_dense(array(D, library))):
        for kernel, y in products(A, array(np.array([True, True, False]), library)):
            assert (y.dtype, y.tolist()) == (np.dtype(bool), [True, False]), (name, kernel)


@pytest.mark.parametrize("a", ["int8", "uint8", "int32", "int64", "float32", "complex64", "bool"])
@pytest.mark.parametrize("b", ["int16", "int64", "float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_kernel_agrees_on_the_result_dtype(a, b, library):
    A = sf.from_dense(array(np.eye(4).astype(a), library))
    x = array(np.ones((4, 2)).astype(b), library)
    found = {}
    for name, B in in_every_format(A):
        for kernel, y in products(B, x):
            found.setdefault(str(y.dtype), []).append((name, kernel))
            assert np.array_equal(y, np.ones((4, 2))), (name, kernel)
    assert len(found) == 1, found
    if library == "numpy" and np.result_type(a, b).kind in "fc":
        assert set(found) == {str(np.result_type(a, b))}


# C23: the adjoint conjugates.
Z = np.array([[1j, 2], [0, 3 - 1j]])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_adjoint(library, dtype):
    x = array(np.ones((2, 1)), library, dtype)
    for name, A in in_every_format(sf.from_dense(array(Z.astype(dtype), library))):
        for B in (A.conj().T, A.T.conj()):
            assert B.problems() == []
            for kernel, y in products(B, x):
                assert y.reshape(-1).tolist() == [-1j, 5 + 1j], (name, kernel)
        for kernel, y in products(A.T, x):
            assert y.reshape(-1).tolist() == [1j, 5 - 1j], (name, kernel)
        assert np.array_equal(dense(A.conj().conj()), Z)
        assert np.array_equal(host(x.T @ A).reshape(-1), Z.sum(0)), name


@pytest.mark.parametrize("target", SPARSE_LINES, ids=name_of)
def test_adjoint_of_a_lazily_conjugated_operand(target):
    torch = pytest.importorskip("torch")
    A = convert(sf.from_dense(torch.from_numpy(Z)), target)
    x = torch.tensor([[1j], [2.0]], dtype=torch.complex128)
    for operand in (x.conj(), x.mH.T, x.conj().resolve_conj()):
        for kernel, y in products(A, operand):
            assert np.array_equal(y, Z @ np.array([[-1j], [2]])), kernel


def test_every_format_has_a_kernel_of_its_own_beside_the_reference():
    """The comparisons above are between kernels: there must be two."""
    for library in LIBRARIES:
        A = sf.from_dense(array(np.eye(4), library))
        for target in SPARSE_LINES:
            if fits(np.eye(4), target):
                found = kernels_for(convert(A, target), array(np.ones((4, 2)), library))
                assert len(found) >= 2, (target, found)
