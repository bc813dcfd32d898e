"""Sums, differences and element-wise products against dictionaries."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

import sparseformats as sf
from sparseformats import reference
from sparseformats.algebra import arithmetic
from sparseformats.testing import holds, matrices, unchanged
from tests.algebra.support import (
    EXAMPLES,
    LIBRARIES,
    PLANTED,
    array,
    expect,
    half_aware,
    moved,
    pairs,
)

OPS = {"+": operator.add, "-": operator.sub}


def union(A: Any, B: Any, op: Any, dtype: str) -> dict[tuple[int, int], Any]:
    a, b = reference.entries(A), reference.entries(B)
    if op is operator.sub:
        dtypes = dtype
        b = {at: half_aware(lambda _, y: -y, 0, v, dtypes) for at, v in b.items()}
    plus = operator.or_ if dtype == "bool" else operator.add
    both = {at: half_aware(plus, a[at], b[at], dtype) for at in a.keys() & b.keys()}
    return {**a, **b, **both}


def format_of(A: Any, B: Any) -> str:
    return A.format if (A.format, A.blocksize) == (B.format, B.blocksize) else "csr"


@pytest.mark.parametrize("symbol", OPS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_sums(library: str, symbol: str) -> None:
    @given(pairs(library))
    def law(two: Any) -> None:
        A, B = two
        try:
            dtype = A.lib.result_dtype(A.dtype_name, B.dtype_name)
        except (TypeError, RuntimeError):
            dtype = A.dtype_name if A.dtype_name == B.dtype_name else None
        if dtype is None or (dtype == "bool" and symbol == "-"):
            with pytest.raises(TypeError, match=r"common dtype|bool"):
                OPS[symbol](A, B)
            return
        expected = union(A, B, OPS[symbol], dtype)
        format = format_of(A, B)
        with unchanged(A), unchanged(B):
            try:
                C = OPS[symbol](A, B)
            except sf.PatternError:
                assert ":" in format
                C = OPS[symbol](A.to("csr"), B)
                assert not holds(C.T if format.endswith(".T") else C, format.removesuffix(".T"))
                format = "csr"
        assert C.format == format
        expect(C, expected, A.shape, dtype)

    law()


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_one_stores_alone_keeps_its_bits(library: str) -> None:
    @given(matrices(library=library))
    def law(A: Any) -> None:
        none = A.lib.zeros(0, A.dtype_name)
        nothing = sf.COO(none, [], [], A.shape)
        moved(A + nothing, reference.entries(A), A.shape)
        moved(nothing + A, reference.entries(A), A.shape)
        if A.dtype_name != "bool":
            moved(A - nothing, reference.entries(A), A.shape)

    law()


def test_a_sum_that_is_zero_stays_stored_and_a_block_mark_stays() -> None:
    A = sf.BSR(np.ones((1, 2, 2)), [0], [0, 1], (2, 2), stored="all")
    B = A - A
    assert (B.format, B.nnz, B.zeros) == ("bsr", 4, "all")
    assert (A + A).zeros == "all"
    assert (A.T - A.T).base.zeros == "all"
    C = sf.CSR([1.0, 2.0], [0, 1], [0, 2], (1, 2))
    assert (C - C).nnz == 2


def test_integers_wrap_and_bools_meet() -> None:
    A = sf.CSR(np.array([127, 5], np.int8), [0, 1], [0, 2], (1, 2))
    assert (A + A).to_dense().tolist() == [[-2, 10]]
    B = sf.CSR(np.array([True, False]), [0, 1], [0, 2], (1, 2))
    assert (B + B).to_dense().tolist() == [[True, False]]
    assert (B + A).dtype == np.int8
    U = sf.CSR(np.array([1], np.uint8), [0], [0, 1], (1, 2))
    none = sf.CSR(np.array([], np.uint8), [], [0, 0], (1, 2))
    assert (none - U).to_dense().tolist() == [[255, 0]]


def test_index_widths_meet_at_the_wider() -> None:
    A = sf.CSR([1.0], [0], [0, 1], (1, 2), index_dtype="int32")
    B = sf.CSR([1.0], [0], [0, 1], (1, 2), index_dtype="int64")
    assert (A + B).index_dtype == (B + A).index_dtype == np.int64
    assert (A + A).index_dtype == np.int32


def test_python_sum_and_zero() -> None:
    A = sf.eye(2)
    assert sum([A, A]).to_dense().tolist() == [[2, 0], [0, 2]]
    assert (A + 0) is A
    assert (A - 0.0) is A
    assert (0 - A).to_dense().tolist() == [[-1, 0], [0, -1]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_multiply_stores_what_both_store(library: str) -> None:
    @given(pairs(library, dtypes="float32", values="moderate"))
    def law(two: Any) -> None:
        A, B = two
        C = A.multiply(B)
        assert C.format == format_of(A, B)
        a, b = reference.entries(A), reference.entries(B)
        both = {at: half_aware(operator.mul, a[at], b[at], "float32") for at in a.keys() & b}
        expect(C, both, A.shape, "float32")

    law()


@pytest.mark.parametrize("sizes", [(3, 4), (1, 4), (3, 1), (4,), (1,), (), (1, 1)])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("format", "options"), EXAMPLES)
def test_multiply_by_a_dense_array(
    format: str, options: Any, library: str, sizes: tuple[int, ...]
) -> None:
    D = np.arange(12.0).reshape(3, 4) * (np.arange(12).reshape(3, 4) % 3 == 0)
    A = sf.from_dense(array(D, library), "csr").to(format, **options)
    X = np.arange(1.0, 1 + np.prod(sizes, dtype=int)).reshape(sizes)
    B = A.multiply(array(X, library))
    assert B.format == format
    expected = {
        (i, j): v * np.broadcast_to(X, (3, 4))[i, j] for (i, j), v in reference.entries(A).items()
    }
    expect(B, expected, (3, 4), "float64")


def test_multiply_of_bools_and_strided_operands() -> None:
    B = sf.CSR(np.array([True, True]), [0, 1], [0, 2], (1, 2))
    assert B.multiply(B).to_dense().tolist() == [[True, True]]
    assert B.multiply(np.array([True, False])).nnz == 2
    A = sf.from_dense(np.ones((3, 2)), "csr")
    X = np.arange(12.0).reshape(2, 6)[:, ::2].T
    assert np.array_equal(A.multiply(X).to_dense(), X)


A, T = sf.eye(2), sf.eye(2, library="torch")
REFUSED = [
    (lambda: A + np.ones((2, 2)), TypeError, r"A \+ B with a dense ndarray.*to_dense\(\)"),
    (lambda: np.ones((2, 2)) + A, TypeError, "to_dense"),
    (lambda: A - np.ones((2, 2)), TypeError, "to_dense"),
    (lambda: np.ones((2, 2)) - A, TypeError, "to_dense"),
    (lambda: A + 1, TypeError, r"number 1 .*to_dense"),
    (lambda: 2.5 - A, TypeError, "to_dense"),
    (lambda: A + np.float64(2), TypeError, "to_dense"),
    (lambda: T + torch.ones(2, 2), TypeError, "to_dense"),
    (lambda: torch.ones(2, 2) + T, TypeError, r"torch's add|to_dense"),
    (lambda: A + "x", TypeError, "unsupported operand"),
    (lambda: "x" - A, TypeError, "unsupported operand"),
    (lambda: A + T, TypeError, r"to_library\('numpy'\)"),
    (lambda: A + sf.eye(3), ValueError, r"\(2, 2\) and \(3, 3\)"),
    (lambda: sf.eye(2, dtype="bool") - sf.eye(2, dtype="bool"), TypeError, "bool"),
    (lambda: A.multiply(2), TypeError, r"A \* number"),
    (lambda: A.multiply([1.0, 2.0]), TypeError, "got list"),
    (lambda: A.multiply(torch.ones(2)), TypeError, "numpy array, got torch array"),
    (lambda: A.multiply(np.ones(3)), ValueError, r"\(3,\) does not spread"),
    (lambda: A.multiply(np.ones((1, 2, 2))), ValueError, "does not spread"),
    (lambda: A.multiply(np.ones(2, object)), TypeError, "dtype object"),
    (lambda: T.multiply(torch.ones(2, device="meta")), sf.DeviceMismatchError, "'meta'"),
    (lambda: T.multiply(torch.ones(2, requires_grad=True)), NotImplementedError, "^multiply"),
    (
        lambda: sf.from_dense([[1.0, 2, 0, 0]], "2:4") + sf.from_dense([[0.0, 0, 3, 4]], "2:4"),
        sf.PatternError,
        r"A \+ B of two 2:4 .* row 0, group 0 .*'csr' first",
    ),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals(number: int) -> None:
    what, error, text = REFUSED[number]
    with pytest.raises(error, match=text) as caught:
        what()
    assert "{" not in str(caught.value)


def test_devices_and_gradients() -> None:
    M = T.from_parts({name: x.to("meta") for name, x in T.buffers().items()}, T.static())
    with pytest.raises(sf.DeviceMismatchError, match="'cpu', the other on 'meta'"):
        T + M
    data = torch.ones(2)
    G = sf.CSR(data, [0, 1], [0, 1, 2], (2, 2), copy=False, check=False)
    G.data.requires_grad_()
    for what in (
        lambda: G + T,
        lambda: T - G,
        lambda: G * 2,
        lambda: G / 2,
        lambda: -G,
        lambda: abs(G),
        lambda: G[:1],
        lambda: G.sum(),
        lambda: G.diagonal(),
        lambda: G.astype("float64"),
        G.eliminate_zeros,
        lambda: sf.vstack([G, G]),
        lambda: G.multiply(T),
        lambda: sf.prune(G),
        lambda: sf.check_pattern(G),
    ):
        with pytest.raises(NotImplementedError, match="gradients are not supported yet"):
            what()
        with torch.no_grad():
            what()


# ---- planted bugs: the checks above reject them


def adds_to_zero(A: Any, B: Any) -> Any:
    """Sums through dense arrays, as many libraries do: -0.0 becomes 0.0."""
    return sf.from_dense(A.to_dense() + B.to_dense(), "csr")


def drops_zero_sums(A: Any, B: Any) -> Any:
    return arithmetic.add(A, B).eliminate_zeros()


def forgets_the_second(A: Any, B: Any) -> Any:
    return arithmetic.add(A, sf.COO(np.zeros(0, B.dtype), [], [], B.shape))


@pytest.mark.parametrize("planted", [adds_to_zero, drops_zero_sums, forgets_the_second])
def test_planted(planted: Any) -> None:
    @PLANTED
    @given(pairs("numpy", dtypes="float32"))
    def law(two: Any) -> None:
        with np.errstate(all="ignore"):
            C = planted(*two)
        expect(C, union(*two, operator.add, "float32"), two[0].shape, "float32")

    with pytest.raises((AssertionError, sf.PatternError)):
        law()


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_infinite_part_of_a_sum_leaves_the_other_alone(library: str) -> None:
    """torch adds ``a + (1 + 0j) * b``: its sum of 1 and inf + 1j is inf + NaN j."""
    a, b = (
        sf.CSR(np.array([x], np.complex64), [0], [0, 1], (1, 1)).to_library(library)
        for x in (1 + 0j, complex(np.inf, 1))
    )
    for symbol, sign in (("+", 1), ("-", -1)):
        found = OPS[symbol](a, b).to_library("numpy").data[0]
        assert (found.real, found.imag) == (sign * np.inf, sign * 1.0)
