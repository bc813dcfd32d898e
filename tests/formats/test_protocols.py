"""Protocols that would guess wrong are refused by name; repr is one line and never synchronises."""

import numpy as np
import pytest
import scipy.sparse
import torch

from sparseformats import _arrays
from tests.formats.examples import ALL_FORMATS, LIBRARIES, build

REFUSED = [
    (lambda A: A == A, r"same\(A, B\)"),
    (lambda A: A != A, r"same\(A, B\)"),
    (lambda A: A == 3, r"same\(A, B\)"),
    (lambda A: None == A, r"same\(A, B\)"),  # noqa: E711, SIM300
    (len, r"\.shape or \.nnz"),
    (bool, r"\.nnz or"),
    (lambda A: not A, r"\.nnz or"),
    (iter, r"to\('coo'\)"),
    (list, r"to\('coo'\)|\.shape or \.nnz"),
    (lambda A: 3 in A, r"to\('coo'\)"),
    (np.asarray, r"to_dense\(\)"),
    (np.array, r"to_dense\(\)"),
    (lambda A: np.asarray(A, dtype="float32"), r"to_dense\(\)"),
    (lambda A: np.array(A, copy=True), r"to_dense\(\)"),
    (lambda A: np.asanyarray(A), r"to_dense\(\)"),
    (lambda A: np.add(A, A), None),
    (lambda A: np.ones((3, 3)) * A, None),
    (lambda A: A + 2, r"to_dense\(\)"),
    (lambda A: A * A, r"multiply"),
    (lambda A: A < A, None),
    (lambda A: A[0], r"slice 0:1"),
]


@pytest.mark.parametrize(("what", "match"), REFUSED)
@pytest.mark.parametrize("format", ALL_FORMATS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_refused(format, library, what, match):
    with pytest.raises(TypeError, match=match):
        what(build(format, library))


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_refusals_name_the_class_and_no_template(format):
    A = build(format)
    for what, match in REFUSED[:15]:
        with pytest.raises(TypeError, match=match) as caught:
            what(A)
        assert type(A).__name__ in str(caught.value)
        assert "{" not in str(caught.value)


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_scipy_on_the_left_is_told_what_to_do(format):
    A = build(format)
    S = scipy.sparse.csr_array(np.ones((2, A.shape[0])))
    with pytest.raises(TypeError, match=r"sf.from_scipy\(S\) @ A or sf.matmul\(S, A\)"):
        S @ A


REPR = {
    "coo": "<COO 3x5, float64, nnz=5, numpy on cpu>",
    "csr": "<CSR 3x5, float64, nnz=5, numpy on cpu>",
    "csc": "<CSC 3x5, float64, nnz=5, numpy on cpu>",
    "bsr": "<BSR 3x5, float64, blocksize=(2, 2), numpy on cpu>",
    "blocked_ell": "<BlockedELL 3x5, float64, blocksize=(2, 2), numpy on cpu>",
    "2:4": "<NM 2:4 3x5, float64, numpy on cpu>",
    "bsr.T": "<Transposed bsr.T 5x3, float64, blocksize=(2, 2), numpy on cpu>",
    "blocked_ell.T": "<Transposed blocked_ell.T 5x3, float64, blocksize=(2, 2), numpy on cpu>",
    "2:4.T": "<Transposed 2:4.T 5x3, float64, numpy on cpu>",
}


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_repr(format):
    A = build(format)
    assert repr(A) == str(A) == REPR[format]
    assert A.nnz == 5
    assert "nnz=5" in repr(A)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ALL_FORMATS)
def test_repr_is_one_line_in_every_library(format, library):
    A = build(format, library, "float32")
    assert repr(A).count("\n") == 0
    assert "float32, " in repr(A)
    assert f"{library} on cpu" in repr(A)


_READS = ("item", "to_numpy", "any", "max_int", "count_nonzero", "flatnonzero", "equal_bits")


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_repr_never_synchronises(format, monkeypatch):
    A = build(format, "torch")
    asked = []
    for name in _READS:
        monkeypatch.setattr(
            _arrays.TorchLibrary, name, lambda self, *args, name=name: asked.append(name)
        )
    with _NoReads():
        repr(A), str(A), f"{A}"
        A.shape, A.dtype, A.index_dtype, A.nbytes, A.device, A.library, A.blocksize, A.format
    assert asked == []


class _NoReads(torch.overrides.TorchFunctionMode):
    """Fails on anything that brings a tensor's values to the host."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", str(func))
        if name in ("item", "tolist", "nonzero", "numpy", "__bool__", "__int__", "cpu", "to"):
            raise AssertionError(f"{name} synchronises")
        return func(*args, **(kwargs or {}))


def test_the_spy_itself_notices():
    with pytest.raises(AssertionError, match="item synchronises"), _NoReads():
        torch.ones(1).item()


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_repr_of_an_object_on_another_device(format):
    A = build(format, "torch")
    B = A.from_parts({name: x.to("meta") for name, x in A.buffers().items()}, A.static())
    assert repr(B).endswith("torch on meta>")
