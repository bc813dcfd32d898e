"""from_dense, to_dense and asformat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import sparseformats as sf
from sparseformats import _arrays, reference
from sparseformats.testing import check_no_shared_memory, check_valid, unchanged
from tests.convert import samples

TARGETS: list[tuple[str, dict[str, Any]]] = [
    ("coo", {}),
    ("csr", {}),
    ("csc", {}),
    ("bsr", {"blocksize": (2, 3)}),
    ("blocked_ell", {"blocksize": 4}),
    ("bsr.T", {"blocksize": (2, 3)}),
    ("4:4", {}),
]


def bits(x: Any) -> Any:
    return np.ascontiguousarray(x).view(np.uint32)


@pytest.mark.parametrize(("format", "options"), TARGETS)
@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_from_dense_stores_nonzeros(
    format: str, options: dict[str, Any], layout: str, library: str
) -> None:
    lib, D = _arrays.library(library), samples.dense(library)
    if layout == "F":
        D = lib.xp.permute_dims(lib.copy(lib.xp.permute_dims(D, (1, 0))), (1, 0))
    elif layout == "strided":
        wide = lib.xp.concat([D, D], axis=1)
        D = lib.concat([wide, wide])[:5, ::2]
    host = np.ascontiguousarray(lib.to_numpy(D))
    with unchanged(D):
        A = sf.from_dense(D, format, **options)
    assert A.format == format
    check_valid(A)
    check_no_shared_memory(A, D)
    places = np.argwhere(bits(host) << 1 != 0).tolist()
    expected = {(i, j): host[i, j].tobytes() for i, j in places}
    assert dict(reference.content(A).elements) == expected
    back = lib.to_numpy(A.to_dense())
    assert np.array_equal(bits(back), np.where(bits(host) << 1 == 0, 0, bits(host)))


@pytest.mark.parametrize(("format", "options"), TARGETS)
def test_from_dense_with_a_mask(format: str, options: dict[str, Any], library: str) -> None:
    D = samples.dense(library)
    host = _arrays.library(library).to_numpy(D)
    mask = np.arange(35).reshape(5, 7) % 3 == 0
    A = sf.from_dense(D, format, mask=samples.put(library, mask), **options)
    check_valid(A)
    places = np.argwhere(mask).tolist()
    assert dict(reference.content(A).elements) == {(i, j): host[i, j].tobytes() for i, j in places}


def test_lists_are_numpy() -> None:
    A = sf.from_dense([[0, 2], [0, 0]], mask=[[True, False], [False, False]])
    assert (A.library, A.dtype_name, A.data.tolist()) == ("numpy", "int64", [0])


@pytest.mark.parametrize(
    ("D", "error", "text"),
    [
        (np.zeros(3), ValueError, r"2-D array, got shape \(3,\)"),
        (np.zeros((2, 2, 2)), ValueError, r"\(2, 2, 2\)"),
        (np.zeros((2, 2), "U1"), TypeError, "str"),
        (np.zeros((2, 2), object), TypeError, "object"),
        (np.ma.zeros((2, 2)), TypeError, "masked array"),
        (sp.eye_array(2), TypeError, "from_scipy"),
        (torch.eye(2).to_sparse(), TypeError, "from_torch"),
        (torch.zeros(2, 2, device="meta"), ValueError, "meta"),
        (samples.csr("numpy"), TypeError, r"A\.to"),
        (3.0, TypeError, "float"),
        ({"a": 1}, TypeError, "dict"),
    ],
)
def test_from_dense_refuses(D: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        sf.from_dense(D)
    assert "{" not in str(caught.value)


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        (np.ones((2, 2)), TypeError, "float64"),
        (np.ones((2, 3), bool), ValueError, r"\(2, 2\), got \(2, 3\)"),
        (torch.ones(2, 2, dtype=torch.bool), TypeError, "Tensor"),
        ("all", TypeError, "str"),
    ],
)
def test_bad_masks(mask: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        sf.from_dense(np.eye(2), mask=mask)


def test_mask_on_another_device() -> None:
    with pytest.raises(sf.DeviceMismatchError, match="'cpu' but mask is on 'meta'"):
        sf.from_dense(torch.eye(2), mask=torch.ones(2, 2, dtype=torch.bool, device="meta"))


def test_a_mask_is_dense():
    D = torch.eye(3)
    for convert in (
        sf.from_dense,
        lambda D, mask: sf.plan_conversion(D, "csr", capacity=9, mask=mask),
    ):
        for mask, text in (
            ((D > 0).to_sparse(), "got a sparse Tensor"),
            ((D > 0).to_sparse_csr(), "got a sparse Tensor"),
            (D, "got float32"),
            (D.numpy() > 0, "got ndarray"),
        ):
            with pytest.raises(TypeError, match=f"mask must be a bool array of torch, {text}"):
                convert(D, mask=mask)


def test_gradients_are_refused_by_name() -> None:
    D = torch.eye(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="from_dense"):
        sf.from_dense(D)
    with torch.no_grad():
        A = sf.from_dense(D)
    A.data.requires_grad_()
    with pytest.raises(NotImplementedError, match=r"to\('coo'\)"):
        A.to("coo")
    with pytest.raises(NotImplementedError, match="to_dense"):
        A.to_dense()
    with torch.no_grad():
        assert A.to("coo").nnz == 2


def test_what_does_not_fit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    A = sf.CSR([1.0], [5], [0, 1, 1], (2, 10**13))
    for make in (A.to_dense, lambda: A.to("2:4")):
        with pytest.raises(MemoryError, match="bytes"):
            make()
    monkeypatch.setattr(type(A.lib), "free_bytes", lambda self, device: 1000)
    skewed = sf.CSR(np.ones(100), np.arange(100), [0, 100, *[100] * 99], (100, 100))
    with pytest.raises(MemoryError, match="100 block rows, the fullest of 100 blocks"):
        skewed.to("blocked_ell", blocksize=1)


SPARSE = sp.csr_array(np.array([[0, 2.0, 0], [1, 0, 0]]))


@pytest.mark.parametrize(
    ("x", "format"),
    [
        (SPARSE, "csr"),
        (SPARSE.tocoo(), "coo"),
        (sp.csc_matrix(SPARSE), "csc"),
        (torch.tensor(SPARSE.toarray()).to_sparse_csr(), "csr"),
        (torch.tensor(SPARSE.toarray()).to_sparse(), "coo"),
        (torch.tensor(SPARSE.toarray()), "csr"),
        (SPARSE.toarray(), "csr"),
        (SPARSE.toarray().tolist(), "csr"),
        (sf.from_dense(SPARSE.toarray(), "csc"), "csc"),
    ],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_asformat(x: Any, format: str) -> None:
    A = sf.asformat(x)
    assert A.format == format
    assert A.lib.to_numpy(A.to_dense()).tolist() == SPARSE.toarray().tolist()
    B = sf.asformat(x, "bsr", blocksize=2, index_dtype="int64")
    assert (B.format, B.blocksize) == ("bsr", (2, 2))
    assert B.lib.dtype_name(B.index_dtype) == "int64"
    if isinstance(x, sf.SparseMatrix):
        assert A is x


def test_asformat_refuses_what_is_no_matrix() -> None:
    for x in ("csr", 3, None, object()):
        with pytest.raises(TypeError, match=type(x).__name__):
            sf.asformat(x)
    with pytest.raises(TypeError, match="mask"):
        sf.asformat(samples.csr("numpy"), "coo", mask=[[True]])


def test_unknown_attribute_of_the_package() -> None:
    with pytest.raises(AttributeError, match="from_nothing"):
        sf.convert.from_nothing


def test_a_conversion_leaves_its_source_alone(library: str) -> None:
    for A in samples.sources(library):
        with unchanged(A):
            A.to("csr")
            A.to("csc")
            A.to("bsr", blocksize=(3, 3))
            A.to_dense()


def test_masks_select_from_dense_arrays_only() -> None:
    mask = np.ones((2, 2), bool)
    for x in (sf.eye(2), sf.eye(2).to_scipy()):
        with pytest.raises(TypeError, match=r"mask= selects elements of a dense array.*csr"):
            sf.asformat(x, "csr", mask=mask)
    assert sf.asformat(np.zeros((2, 2)), "coo", mask=mask).nnz == 4
