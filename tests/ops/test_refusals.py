"""What cannot be multiplied is refused before anything runs, in words that help."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats.ops.scalars import as_scalar, result_dtype


@pytest.fixture(name="A")
def numpy_matrix() -> Any:
    return sf.CSR([2.0, 1.0, 5.0], [0, 0, 1], [0, 1, 3], (2, 2))


@pytest.fixture(name="T")
def torch_matrix() -> Any:
    return sf.CSR(torch.tensor([2.0, 1, 5]), [0, 0, 1], [0, 1, 3], (2, 2))


def refused(error: type[Exception], text: str, *operands: Any, **options: Any) -> None:
    with sf.tracing() as trace, pytest.raises(error, match=text) as caught:
        sf.matmul(*operands, **options)
    assert len(trace) == 0
    assert "{" not in str(caught.value)


def test_shapes_that_do_not_match(A: Any) -> None:
    refused(ValueError, r"\(2, 2\) and \(3, 4\)", A, np.ones((3, 4)))
    refused(ValueError, r"\(3,\) and \(2, 2\)", np.ones(3), A)
    refused(ValueError, r"\(4, 3\) and \(2, 2\)", np.ones((4, 3)), A)
    refused(ValueError, "0-dimensional", A, np.array(1.0))
    refused(ValueError, r"\(2, 2\) and \(3, 1\)", A, sf.CSR([], [], [0, 0, 0, 0], (3, 1)))


def test_operands_that_are_no_arrays(A: Any) -> None:
    refused(TypeError, "got list", A, [1.0, 2.0])
    refused(TypeError, "got float", A, 2.0)
    refused(TypeError, "masked", A, np.ma.masked_array([1.0, 2], mask=[0, 1]))
    refused(TypeError, "needs a sparse matrix", np.ones((2, 2)), np.ones(2))
    with pytest.raises(TypeError, match="unsupported operand"):
        A @ [1.0, 2.0]
    with pytest.raises(TypeError, match="unsupported operand"):
        "x" @ A
    with pytest.raises(TypeError, match="masked"):
        A @ np.ma.masked_array([1.0, 2], mask=[0, 1])


def test_operands_of_strange_dtypes(A: Any, T: Any) -> None:
    refused(TypeError, "dtype object", A, np.array([1, 2], object))
    refused(TypeError, "dtype float128|dtype longdouble", A, np.ones(2, np.longdouble))
    refused(TypeError, "dtype torch.uint16", T, torch.ones(2, dtype=torch.uint16))


def test_libraries_and_devices(A: Any, T: Any) -> None:
    refused(TypeError, r"to_library\('torch'\)", A, torch.ones(2))
    refused(TypeError, r"to_library\('numpy'\)", T, np.ones(2))
    refused(sf.DeviceMismatchError, "'cpu' and an array on 'meta'", T, torch.ones(2, device="meta"))
    refused(TypeError, "to_library", A, T)
    refused(TypeError, "out must be a torch", T, torch.ones(2), out=np.ones(2))
    refused(TypeError, "got list", T, torch.ones(2), out=[0.0, 0.0])
    refused(
        sf.DeviceMismatchError,
        "out is on 'meta'",
        T,
        torch.ones(2),
        out=torch.ones(2, device="meta"),
    )


def test_gradients(T: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    refused(NotImplementedError, "^matmul", T, x)
    refused(NotImplementedError, "^matmul", x, T)
    out = torch.ones(2, requires_grad=True)
    refused(NotImplementedError, "out requires grad", T, torch.ones(2), out=out)
    with torch.no_grad():
        assert (T @ x).tolist() == [2, 6]
    with torch.inference_mode():
        assert (T @ torch.ones(2)).tolist() == [2, 6]


def test_out(A: Any, T: Any) -> None:
    x = np.ones((2, 3))
    refused(ValueError, r"shape \(2, 3\), got \(3, 2\)", A, x, out=np.ones((3, 2)))
    refused(ValueError, "dtype float64, got float32", A, x, out=np.ones((2, 3), np.float32))
    refused(ValueError, "dtype float64, got >f8", A, x, out=np.ones((2, 3), ">f8"))
    refused(ValueError, "beta=1 needs out", A, x, beta=1)
    frozen = np.ones((2, 3))
    frozen.flags.writeable = False
    refused(ValueError, "read-only", A, x, out=frozen)
    refused(ValueError, "share memory", T, torch.ones(2, 3), out=torch.ones(2, 1).expand(2, 3))
    data = torch.tensor([2.0, 5.0])
    D = sf.CSR(data, [0, 1], [0, 1, 2], (2, 2), copy=False)
    refused(ValueError, "whose values never change", D, torch.ones(2), out=data)


def test_options(A: Any) -> None:
    refused(ValueError, "precision", A, np.ones(2), precision="bf16")
    refused(ValueError, "expected the name of a kernel", A, np.ones(2), kernel="no-such")
    refused(sf.NoKernelError, "torch-csr", A, np.ones(2), kernel="torch-csr")
    with pytest.raises(ValueError, match="beta=1 needs out"):
        sf.explain(A, np.ones(2), beta=1)


def test_scalars(A: Any) -> None:
    refused(TypeError, "alpha must be a Python number, got str", A, np.ones(2), alpha="2")
    refused(TypeError, "beta must be a Python number", A, np.ones(2), beta=np.ones(1))
    refused(TypeError, "complex", A, np.ones(2), alpha=2j)
    E = sf.from_dense(np.eye(2, dtype=np.int8), "csr")
    refused(
        TypeError,
        r"alpha=0.5 is no integer, but the result is int32",
        E,
        np.ones(2, "i1"),
        alpha=0.5,
    )
    refused(ValueError, "range of int32", E, np.ones(2, np.int8), alpha=2**31)
    assert sf.matmul(E, np.ones(2, np.int8), alpha=2.0).tolist() == [2, 2]
    assert sf.matmul(A, np.ones(2), alpha=np.float32(2)).tolist() == [4, 12]
    B = sf.from_dense(np.eye(2, dtype=bool), "csr")
    refused(ValueError, "range of bool", B, np.ones(2, bool), alpha=2)
    assert sf.matmul(B, np.ones(2, bool), alpha=0).tolist() == [False, False]
    assert as_scalar(True, "alpha", "complex64") == 1.0
    assert as_scalar(1j, "alpha", "complex64") == 1j


@pytest.mark.parametrize(
    ("library", "a", "x", "expected"),
    [
        ("numpy", "int8", "int16", "int32"),
        ("numpy", "uint8", "uint16", "uint32"),
        ("numpy", "uint8", "int8", "int64"),
        ("numpy", "uint32", "int8", "int64"),
        ("numpy", "bool", "uint8", "uint32"),
        ("numpy", "bool", "bool", "bool"),
        ("numpy", "int64", "int8", "int64"),
        ("numpy", "float16", "int8", "float16"),
        ("numpy", "float16", "float32", "float32"),
        ("numpy", "bfloat16", "float32", "float32"),
        ("numpy", "complex64", "float64", "complex128"),
        ("torch", "uint8", "uint8", "int64"),
        ("torch", "int8", "int8", "int32"),
        ("torch", "int64", "float16", "float16"),
        ("torch", "float16", "bfloat16", "float32"),
        ("torch", "float8_e5m2", "float8_e5m2", "float8_e5m2"),
    ],
)
def test_result_dtypes(library: str, a: str, x: str, expected: str) -> None:
    from sparseformats import _arrays

    lib = _arrays.library(library)
    assert result_dtype(lib, a, x) == expected
    assert result_dtype(lib, x, a) == expected


def test_dtypes_without_promotion() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    B = sf.from_dense(np.eye(2).astype(ml_dtypes.bfloat16), "csr")
    refused(TypeError, "no common dtype for a product of bfloat16 and float16", B, np.ones(2, "f2"))
    F = sf.CSR(torch.ones(1).to(torch.float8_e5m2), [0], [0, 1, 1], (2, 2))
    refused(TypeError, "no common dtype", F, torch.ones(2))
