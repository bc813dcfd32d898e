"""``linear``: a product with a sparse weight, bias and activation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch, reference
from sparseformats.dispatch import KernelRecord, checks
from sparseformats.ops import explain_linear
from tests.kernels.cpu.products import FORMATS, array, matrix, values

LIBRARIES = ("numpy", "torch")
ACTIVATIONS = (None, "relu", "gelu", "silu")
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def operands(format: str, library: str, dtype: str, lead: tuple[int, ...] = (5,)) -> Any:
    rng = np.random.default_rng(3)
    W = matrix(format, (14, 11), library, dtype)
    X = array(library, values(rng, dtype, (*lead, 11)))
    return X, W, array(library, values(rng, dtype, 14))


def exact(X: Any, W: Any, bias: Any = None, activation: str | None = None) -> Any:
    """In float64, by the plain formulas."""
    lib = W.lib
    y = lib.to_numpy(X).astype(np.float64) @ lib.to_numpy(W.to_dense()).astype(np.float64).T
    y = y if bias is None else y + lib.to_numpy(bias).astype(np.float64)
    if activation == "relu":
        y = np.maximum(y, 0)
    elif activation == "gelu":
        y = y * 0.5 * (1 + np.vectorize(math.erf)(y / math.sqrt(2)))
    elif activation == "silu":
        y = y / (1 + np.exp(-y))
    return y


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("format", FORMATS)
def test_against_the_formulas(
    library: str, activation: str | None, dtype: str, format: str
) -> None:
    X, W, bias = operands(format, library, dtype)
    for given in (None, bias):
        y = sf.linear(X, W, given, activation=activation)
        assert W.lib.dtype_name(y) == dtype
        assert W.lib.is_contiguous(y)
        expected = exact(X, W, given, activation)
        # One rounding to the result's type; the sums are those of a wider or of the same one.
        sums = 40 * (2.0**-53 if dtype == "float64" else 2.0**-24) * 40
        error = np.abs(W.lib.to_numpy(y).astype(np.float64) - expected)
        assert (error <= sums + EPS[dtype] * np.abs(expected)).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_half_types_are_rounded_once(library: str) -> None:
    """1 + 2**-11 + 2**-11 is 1 if each sum is rounded to float16, and 1 + 2**-10 if none is."""
    one, small = array(library, np.ones((1, 1), np.float16)), np.float16(2.0**-11)
    X = array(library, np.asarray([[1, small]], np.float16))
    W = sf.from_dense(array(library, np.ones((1, 2), np.float16)), "csr")
    y = sf.linear(X, W, array(library, np.asarray([small])))
    assert float(y[0, 0]) == 1 + 2.0**-10
    assert float((one + small + small)[0, 0]) == 1


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (2, 3, 4), (0,), (2, 0, 3)])
def test_shapes(library: str, lead: tuple[int, ...]) -> None:
    X, W, bias = operands("csr", library, "float32", lead)
    for given in (None, bias):
        y = sf.linear(X, W, given)
        assert tuple(y.shape) == (*lead, 14)
        np.testing.assert_allclose(W.lib.to_numpy(y), exact(X, W, given), rtol=1e-5, atol=1e-5)
        out = W.lib.full((*lead, 14), float("nan"), "float32")
        assert sf.linear(X, W, given, out=out) is out
        assert W.lib.equal_bits(out, y)


@pytest.mark.parametrize("library", LIBRARIES)
def test_strided_out_that_overlaps_its_operand(library: str) -> None:
    X, W, bias = operands("bsr", library, "float32", (2, 3))
    memory = W.lib.full((2, 3, 28), float("nan"), "float32")
    for given in (None, bias):
        out = memory[..., ::2]
        assert sf.linear(X, W, given, out=out) is out
        np.testing.assert_allclose(W.lib.to_numpy(out), exact(X, W, given), rtol=1e-5, atol=1e-5)
    square = sf.from_dense(array(library, np.eye(3, k=1, dtype=np.float32)), "csr")
    x = array(library, np.arange(6, dtype=np.float32).reshape(2, 3))
    for given in (None, array(library, np.zeros(3, np.float32))):
        shared = W.lib.copy(x)
        sf.linear(shared, square, given, out=shared)
        assert W.lib.to_numpy(shared).tolist() == [[1, 2, 0], [4, 5, 0]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_other_dtypes(library: str) -> None:
    for dtype, out in (("int8", "int32"), ("int64", "int64"), ("complex64", "complex64")):
        X, W, bias = operands("csr", library, dtype)
        y = sf.linear(X, W, bias)
        assert W.lib.dtype_name(y) == out
        D = W.lib.to_numpy(W.to_dense()).astype(out)
        expected = W.lib.to_numpy(X).astype(out) @ D.T + W.lib.to_numpy(bias)
        np.testing.assert_allclose(W.lib.to_numpy(y), expected, rtol=1e-4, atol=1e-4)
    X, W, bias = operands("csr", library, "int32")
    assert int(W.lib.to_numpy(sf.linear(X, W, bias, activation="relu")).min()) == 0
    X, W, bias = operands("csr", library, "bool")
    y = sf.linear(X, W, bias)
    D = W.lib.to_numpy(W.to_dense())
    assert (W.lib.to_numpy(y) == (W.lib.to_numpy(X) @ D.T) | W.lib.to_numpy(bias)).all()
    X, W, _ = operands("csr", library, "float32")
    wide = array(library, np.ones(14))
    assert W.lib.dtype_name(sf.linear(X, W, wide)) == "float64"


def test_fp8_rounds_the_product_as_well() -> None:
    X, W, bias = operands("csr", "torch", "float32")
    x, w, b = (t.to(torch.float8_e5m2) for t in (X, W.to_dense(), bias))
    y = sf.linear(x, sf.from_dense(w, "csr"), b, activation="relu")
    assert y.dtype == torch.float8_e5m2
    expected = torch.relu(x.double() @ w.double().T + b.double())
    assert ((y.double() - expected).abs() <= 0.25 * expected.abs() + 1).all()
    with pytest.raises(TypeError, match="no common dtype for a product of float8_e5m2 and a bias"):
        sf.linear(x, sf.from_dense(w, "csr"), bias)


@pytest.mark.parametrize("library", LIBRARIES)
def test_non_finite_results(library: str) -> None:
    W = sf.from_dense(array(library, np.ones((1, 1), np.float32)), "csr")
    x = array(library, np.asarray([[np.nan], [np.inf], [-np.inf], [-0.0]], np.float32))
    found = {a: W.lib.to_numpy(sf.linear(x, W, activation=a))[:, 0] for a in ACTIVATIONS}
    assert np.array_equal(found["relu"], [np.nan, np.inf, 0, 0], equal_nan=True)
    for name in ("gelu", "silu"):  # -inf times 0 is NaN, as in torch
        assert np.array_equal(found[name], [np.nan, np.inf, np.nan, 0], equal_nan=True)


def test_torch_functional_is_the_same_call() -> None:
    X, W, bias = operands("n:m", "torch", "float16", (2, 3))
    y = torch.nn.functional.linear(X, W, bias)
    assert torch.equal(y, sf.linear(X, W, bias))
    with sf.tracing() as trace:
        torch.nn.functional.linear(X, W)
    assert [run.op for run in trace] == ["matmul"]


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (TypeError, "sparse weight, got ndarray", lambda x, W, b: sf.linear(x, x)),
        (TypeError, "dense NumPy, torch or CuPy X, got list", lambda x, W, b: sf.linear([1.0], W)),
        (TypeError, "X, got CSR", lambda x, W, b: sf.linear(W, W)),
        (ValueError, r"shape \(..., 11\) .* has \(5, 10\)", lambda x, W, b: sf.linear(x[:, 1:], W)),
        (ValueError, r"has \(\)", lambda x, W, b: sf.linear(np.float32(1)[...], W)),
        (ValueError, r"bias must have shape \(14,\)", lambda x, W, b: sf.linear(x, W, b[1:])),
        (TypeError, "bias must be a numpy array, got list", lambda x, W, b: sf.linear(x, W, [1.0])),
        (TypeError, "bias must be a numpy", lambda x, W, b: sf.linear(x, W, torch.ones(14))),
        (TypeError, r"to_library\('torch'\)", lambda x, W, b: sf.linear(torch.ones(11), W)),
        (ValueError, "'silu', got 'tanh'", lambda x, W, b: sf.linear(x, W, activation="tanh")),
        (ValueError, "out must have shape", lambda x, W, b: sf.linear(x, W, b, out=b)),
        (ValueError, "out must have shape", lambda x, W, b: sf.linear(x, W, out=b)),
        (ValueError, "precision must be", lambda x, W, b: sf.linear(x, W, b, precision="fp4")),
        (ValueError, "precision must be", lambda x, W, b: explain_linear(x, W, precision="fp4")),
        (ValueError, "no-such", lambda x, W, b: sf.linear(x, W, b, kernel="no-such")),
    ],
)
def test_refusals(error: type[Exception], text: str, call: Any) -> None:
    X, W, bias = operands("csr", "numpy", "float32")
    with sf.tracing() as trace, pytest.raises(error, match=text) as caught:
        call(X, W, bias)
    assert not len(trace)
    assert "{" not in str(caught.value)


def test_refusals_of_dtypes_devices_and_gradients() -> None:
    X, W, bias = operands("csr", "torch", "int32")
    with pytest.raises(TypeError, match="'gelu' has no meaning for a result of int32"):
        sf.linear(X, W, activation="gelu")
    X, W, bias = operands("csr", "torch", "complex64")
    with pytest.raises(TypeError, match="'relu' has no meaning for a result of complex64"):
        sf.linear(X, W, activation="relu")
    with pytest.raises(sf.DeviceMismatchError, match="bias is on 'meta'"):
        sf.linear(X, W, bias.to("meta"))
    with pytest.raises(NotImplementedError, match="bias requires grad"):
        sf.linear(X, W, bias.requires_grad_())
    with torch.no_grad():
        assert sf.linear(X, W, bias).shape == (5, 14)
    data = torch.ones(14)
    diagonal = sf.CSR(data, torch.arange(14), torch.arange(15), (14, 14), copy=False)
    with pytest.raises(ValueError, match="shares memory with the sparse matrix"):
        sf.linear(torch.ones(14), diagonal, torch.ones(14), out=data)


# ---- kernels that fuse


class Fuses:
    """Plain arithmetic, all of it."""

    calls: list[Any] = []  # noqa: RUF012 - looked at by the tests

    def pack(self, A: Any, query: Any) -> Any:
        D = reference.dense(A)
        return D.T if query.transposed else D

    def run(self, D: Any, x: Any, out: Any, alpha: Any, beta: Any, **epilogue: Any) -> Any:
        bias, activation = epilogue.get("bias"), epilogue.get("activation")
        self.calls.append(activation)
        y = D @ x if bias is None else D @ x + bias[:, None]
        y = np.maximum(y, 0) if activation == "relu" else y
        if out is None:
            return y
        out[...] = y
        return out


fuses = Fuses()


def fusing(cost: float = 0.0, *more: Any) -> KernelRecord:
    named = checks.epilogue_in(None, "bias", "relu", "bias+relu")
    target = f"{__name__}:fuses"
    found = (checks.library_is("numpy"), named, *more)
    formats = ("csr", "bsr", "bsr.T")
    return KernelRecord("fusing", "matmul", formats, target, cost=lambda query: cost, checks=found)


@pytest.mark.parametrize("format", ["csr", "bsr", "bsr.T"])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_a_kernel_that_fuses_computes_all_of_it(format: str, lead: tuple[int, ...]) -> None:
    X, W, bias = operands(format, "numpy", "float32", lead)
    with dispatch.temporary(fusing()), sf.tracing() as trace:
        y = sf.linear(X, W, bias, activation="relu")
        assert explain_linear(X, W, bias, activation="relu").chosen == "fusing"
    assert trace.kernels == ["fusing"]
    assert trace[0].query is not None
    assert trace[0].query.epilogue == "bias+relu"
    assert fuses.calls.pop() == "relu"
    np.testing.assert_allclose(y, exact(X, W, bias, "relu"), rtol=1e-5, atol=1e-5)


def test_what_it_does_not_fuse_follows_its_product() -> None:
    X, W, bias = operands("csr", "numpy", "float32")
    with dispatch.temporary(fusing()), sf.tracing() as trace:
        y = sf.linear(X, W, bias, activation="silu")
        assert explain_linear(X, W, bias, activation="silu").chosen == "fusing"
        sf.linear(X, W, array("numpy", np.ones(14)))  # the bias widens the result
    assert [run.query.epilogue for run in trace if run.query] == [None, None]
    np.testing.assert_allclose(y, exact(X, W, bias, "silu"), rtol=1e-5, atol=1e-5)


def test_another_kernel_asked_for_by_name_is_not_passed_over() -> None:
    X, W, bias = operands("csr", "numpy", "float32")
    with dispatch.temporary(fusing()), sf.tracing() as trace:
        sf.linear(X, W, bias, kernel="scipy-csr")
        assert explain_linear(X, W, bias, kernel="scipy-csr").chosen == "scipy-csr"
        with sf.use_kernel("scipy-csr"):
            sf.linear(X, W, bias)
        sf.linear(X, W, bias, kernel="fusing")
    assert trace.kernels == ["scipy-csr", "scipy-csr", "fusing"]


def test_a_fusing_kernel_that_refuses() -> None:
    X, W, bias = operands("csr", "numpy", "float32")
    with dispatch.temporary(fusing(0.0, checks.divides("k", 16))):
        with sf.tracing() as trace:
            sf.linear(X, W, bias)
        assert trace.kernels != ["fusing"]
        with pytest.raises(sf.NoKernelError, match="K % 16"):
            sf.linear(X, W, bias, kernel="fusing")
        assert explain_linear(X, W, bias, kernel="fusing").chosen is None
        assert explain_linear(X, W, bias).chosen == trace.kernels[0]


def test_the_weight_is_packed_once() -> None:
    X, W, bias = operands("csr", "numpy", "float32")
    sf.clear_cache()
    for _ in range(3):
        sf.linear(X, W, bias)
    info = sf.cache_info()
    assert (info.matrices, info.hits, info.misses) == (1, 2, 1)
