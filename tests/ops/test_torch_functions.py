"""torch's own functions on our matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf

FORMATS = ("coo", "csr", "csc", "bsr", "blocked_ell", "2:4")
W = torch.kron(torch.eye(2), torch.tensor([[1.0, 2], [3, 4]]))[:3]


@pytest.fixture(name="A", params=FORMATS)
def in_each_format(request: pytest.FixtureRequest) -> Any:
    blocked = request.param in ("bsr", "blocked_ell")
    return sf.from_dense(W, request.param, blocksize=2 if blocked else None)


def test_products(A: Any) -> None:
    X, Z = torch.arange(8.0).reshape(4, 2), torch.arange(6.0).reshape(2, 3)
    for y in (A @ X, torch.matmul(A, X), torch.mm(A, X)):
        assert torch.equal(y, W @ X)
    for y in (Z @ A, torch.matmul(Z, A), torch.mm(Z, A), Z.matmul(A), Z.mm(A)):
        assert torch.equal(y, Z @ W)
    out = torch.full((3, 2), float("nan"))
    assert torch.matmul(A, X, out=out) is out
    assert torch.equal(out, W @ X)


def test_linear(A: Any) -> None:
    linear, bias = torch.nn.functional.linear, torch.arange(3.0)
    for shape in ((4,), (5, 4), (2, 3, 4)):
        x = torch.arange(float(np.prod(shape))).reshape(shape)
        assert torch.equal(linear(x, A), linear(x, W))
        assert torch.equal(linear(x, A, bias), linear(x, W, bias))
        assert torch.equal(linear(x, A, bias=bias), linear(x, W, bias))


def test_other_functions_are_refused_by_name() -> None:
    A, x = sf.from_dense(torch.eye(2), "csr"), torch.ones(2)
    for name, call in {
        "add": lambda: torch.add(A, x),
        "relu": lambda: torch.relu(A),
        "bmm": lambda: torch.bmm(A, x),
    }.items():
        with pytest.raises(TypeError, match=f"torch's {name} "):
            call()
    with pytest.raises(TypeError, match="sparse weight"):
        torch.nn.functional.linear(A, torch.eye(2))
    with pytest.raises(ValueError, match=r"two matrices, got shape \(2,\)"):
        torch.mm(A, x)


def test_lazy_conjugates_and_negatives() -> None:
    x = torch.tensor([1 + 2j, 3 - 1j])
    A = sf.from_dense(torch.tensor([[1j, 0], [2, 3]], dtype=torch.complex64), "csr")
    y = A @ x.conj()
    assert torch.equal(y, A.to_dense() @ x.conj().resolve_conj())
    R = sf.from_dense(torch.eye(2), "csr")
    assert torch.equal(R @ x.conj().imag, torch.tensor([-2.0, 1.0]))


def test_parameters_and_subclasses() -> None:
    A = sf.from_dense(torch.eye(2), "csr")
    with torch.no_grad():
        assert (A @ torch.nn.Parameter(torch.ones(2))).tolist() == [1, 1]
