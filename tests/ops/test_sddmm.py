"""``sddmm``: a dense product sampled at the stored elements of a pattern."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import _arrays, _dtypes, reference
from sparseformats.dispatch import records
from sparseformats.ops import explain_sddmm
from sparseformats.testing import check_sampled
from tests.kernels.cpu.products import FORMATS, allows, array, matrix, values

LIBRARIES = ("numpy", "torch")
SHAPES = [(14, 11), (9, 6), (1, 1), (2, 13), (0, 4), (4, 0)]
CASES = [
    (record.name, library, format)
    for record in records("sddmm")
    for library in LIBRARIES
    for format in FORMATS
    if allows(record, "library", library)
    and allows(record, "device", "cpu")
    and (record.formats == ("*",) or format.removesuffix(".T") in record.formats)
]
EACH = pytest.mark.parametrize(("kernel", "library", "format"), CASES)


def operands(P: Any, n: int, dtype: str = "float32", seed: int = 5) -> Any:
    rng, (m, k) = np.random.default_rng(seed), P.shape
    return (array(P.library, values(rng, dtype, shape)) for shape in ((m, n), (n, k)))


def checked(kernel: str, P: Any, X: Any, Y: Any, **options: Any) -> None:
    with sf.tracing() as trace:
        check_sampled(P, X, Y, kernel=kernel, **options)
    assert [run.kernel for run in trace if run.op == "sddmm"] == [kernel]


@EACH
@pytest.mark.parametrize("shape", SHAPES)
def test_every_kernel_on_ragged_shapes(
    kernel: str, library: str, format: str, shape: tuple[int, int]
) -> None:
    P = matrix(format, shape, library)
    for n in (0, 1, 7):
        X, Y = operands(P, n)
        checked(kernel, P, X, Y)
        checked(kernel, P, X, Y, alpha=-2)


@EACH
def test_every_dtype(kernel: str, library: str, format: str) -> None:
    record = next(r for r in records("sddmm") if r.name == kernel)
    lib, tried = _arrays.library(library), 0
    for dtype in _dtypes.VALUE_DTYPES[library]:
        P = matrix(format, (14, 11), library)
        X, Y = operands(P, 6, dtype)
        out = reference.product_dtype(sf.CSR(X[0], *_full_row(lib, 6), (1, 6)), Y)
        if allows(record, "out_dtype", out):
            checked(kernel, P, X, Y)
            tried += 1
        else:
            with pytest.raises(sf.NoKernelError, match="OUT of dtype"):
                sf.sddmm(P, X, Y, kernel=kernel)
    assert tried >= 6


def _full_row(lib: Any, n: int) -> Any:
    return lib.arange(n), lib.asarray([0, n], "int64")


@EACH
def test_chunks(kernel: str, library: str, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparseformats_kernels.cpu import sddmm

    P = matrix(format, (14, 11), library)
    X, Y = operands(P, 5)
    for size in (1, 100, 300):
        monkeypatch.setattr(sddmm, "CHUNK", size)
        checked(kernel, P, X, Y)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", FORMATS)
def test_non_finite_rows_reach_their_elements_only(library: str, format: str) -> None:
    P = matrix(format, (14, 11), library)
    X, Y = (P.lib.copy(x) for x in operands(P, 4))
    X[2, 1], Y[3, 5] = float("nan"), float("inf")
    check_sampled(P, X, Y)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", FORMATS)
def test_zeros_that_come_out_stay_stored(library: str, format: str) -> None:
    P = matrix(format, (14, 11), library)
    X, Y = operands(P, 4)
    S = sf.sddmm(P, X * 0, Y)
    assert S.nnz == P.nnz
    assert S.problems() == []
    assert not P.lib.to_numpy(S.to_dense()).any()
    again = sf.sddmm(S, X, Y)
    assert reference.same_content(again, sf.sddmm(P, X, Y))


def test_all_slots_stored() -> None:
    data = np.zeros((2, 2, 2), np.float32)
    P = sf.BSR(data, [0, 1], [0, 1, 2], (3, 3), stored="all")
    S = sf.sddmm(P, np.eye(3), np.eye(3))
    assert S.zeros == "all"
    assert S.nnz == P.nnz == 5
    assert S.to_dense().tolist() == np.eye(3).tolist()


def test_stored_zeros_beside_the_slots_of_n_m() -> None:
    """Three stored elements in a group of 2:4: it depends on what comes out of them."""
    side = sf.COO([0.0], [0], [3], (1, 4))
    P = sf.NM([[[1.0, 2.0]]], [[[0, 1]]], (1, 4), 2, 4, side=side)
    assert P.nnz == 3
    Y = np.asarray([[5.0, 6.0, 7.0, 0.0]])
    for kernel in ("numpy-gather", "numpy-panels", "reference"):
        S = sf.sddmm(P, np.ones((1, 1)), Y, kernel=kernel)
        assert (S.format, S.nnz, S.to_dense().tolist()) == ("2:4", 3, [[5, 6, 0, 0]])
    S = sf.sddmm(P, np.ones((1, 1)), np.asarray([[0.0, 6.0, 7.0, 8.0]]))
    assert (S.nnz, S.to_dense().tolist()) == (3, [[0, 6, 0, 8]])
    with pytest.raises(sf.PatternError, match="row 0"):
        sf.sddmm(P, np.ones((1, 1)), np.asarray([[5.0, 6.0, 7.0, 8.0]]))
    T = sf.sddmm(P.T, Y.T, np.ones((1, 1)))
    assert (T.format, T.to_dense().tolist()) == ("2:4.T", [[5], [6], [0], [0]])


def test_the_values_of_the_pattern_do_not_matter() -> None:
    P = matrix("csr", (14, 11), dtype="int8")
    X, Y = operands(P, 3)
    S, other = sf.sddmm(P, X, Y), sf.CSR(P.data * 0, P.indices, P.indptr, P.shape)
    assert S.dtype == np.float32
    assert reference.same_content(S, sf.sddmm(other, X, Y))


def test_as_torch_has_it() -> None:
    P = matrix("csr", (14, 11), "torch")
    X, Y = operands(P, 3)
    expected = torch.sparse.sampled_addmm(P.to_torch(), X, Y, beta=0, alpha=2)
    S = sf.sddmm(P.to_torch(), X, Y, alpha=2)
    torch.testing.assert_close(S.data, expected.values())


def test_mixed_dtypes_and_strides() -> None:
    P = matrix("bsr", (14, 11))
    X, Y = operands(P, 6)
    check_sampled(P, X.astype(np.float16)[:, ::2], np.asfortranarray(Y)[::-2])
    check_sampled(P, (X * 20).astype(np.int8), (abs(Y) * 20).astype(np.uint8))
    assert sf.sddmm(P, X.astype(np.int8), Y.astype(np.uint8)).dtype == np.int64


def test_explanation_and_the_choice_by_density() -> None:
    X = np.ones((300, 64), np.float32)
    chosen = []
    for density in (0.01, 0.6):
        D = np.random.default_rng(0).random((300, 300)) < density
        chosen.append(explain_sddmm(sf.from_dense(D, "csr"), X, X.T).chosen)
    assert chosen == ["numpy-gather", "numpy-panels"]
    assert "sddmm: csr" in str(explain_sddmm(sf.eye(3), np.eye(3), np.eye(3)))


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (TypeError, "sparse pattern, got ndarray", lambda P, X, Y: sf.sddmm(X, X, Y)),
        (TypeError, "Y is list", lambda P, X, Y: sf.sddmm(P, X, [1.0])),
        (TypeError, "X is CSR", lambda P, X, Y: sf.sddmm(P, P, Y)),
        (TypeError, "X is MaskedArray", lambda P, X, Y: sf.sddmm(P, np.ma.masked_array(X), Y)),
        (TypeError, "Y is a torch array", lambda P, X, Y: sf.sddmm(P, X, torch.ones(3, 11))),
        (TypeError, "dtype object, as X", lambda P, X, Y: sf.sddmm(P, X.astype(object), Y)),
        (ValueError, r"X has shape \(14,\)", lambda P, X, Y: sf.sddmm(P, X[:, 0], Y)),
        (ValueError, r"\(14, 3\) @ Y \(3, 10\)", lambda P, X, Y: sf.sddmm(P, X, Y[:, 1:])),
        (ValueError, r"\(14, 2\) @ Y \(3, 11\)", lambda P, X, Y: sf.sddmm(P, X[:, 1:], Y)),
        (TypeError, "complex", lambda P, X, Y: sf.sddmm(P, X, Y, alpha=1j)),
        (ValueError, "precision must be", lambda P, X, Y: sf.sddmm(P, X, Y, precision="x")),
        (sf.NoKernelError, "bsr", lambda P, X, Y: sf.sddmm(P, X, Y, kernel="numpy-blocks")),
    ],
)
def test_refusals(error: type[Exception], text: str, call: Any) -> None:
    P = matrix("csr", (14, 11))
    with sf.tracing() as trace, pytest.raises(error, match=text) as caught:
        call(P, *operands(P, 3))
    assert not len(trace)
    assert "{" not in str(caught.value)


def test_refusals_of_torch() -> None:
    P = matrix("csr", (14, 11), "torch")
    X, Y = operands(P, 3)
    with pytest.raises(sf.DeviceMismatchError, match="Y is on 'meta'"):
        sf.sddmm(P, X, Y.to("meta"))
    with pytest.raises(NotImplementedError, match="X requires grad"):
        sf.sddmm(P, X.requires_grad_(), Y)
    with torch.no_grad():
        check_sampled(P, X.detach(), Y)
    with pytest.raises(TypeError, match="no common dtype"):
        sf.sddmm(P, X.detach(), Y.to(torch.float8_e5m2))


def test_kernels_refuse_formats_that_are_not_theirs() -> None:
    from sparseformats.dispatch import Query
    from sparseformats_kernels.cpu import sddmm

    P, B = matrix("csr", (4, 4)), matrix("bsr", (4, 4))
    query = Query("sddmm", out_dtype="float32")
    with pytest.raises(TypeError, match="a format of single elements, got bsr"):
        sddmm.gather(B, np.eye(4), np.eye(4), 1, query)
    with pytest.raises(TypeError, match="a block format, got csr"):
        sddmm.block_gemm(P, np.eye(4), np.eye(4), 1, query)
