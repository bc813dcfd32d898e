"""Gradients (C26): until they exist, one clear error that names the operation, never silence."""

import pytest
import torch

import sparseformats as sf
from tests.cases.support import SPARSE_LINES, in_every_format, name_of


def _values():
    return torch.tensor([1.0, 2, 3], requires_grad=True)


PARTS = (torch.tensor([0, 1, 1]), torch.tensor([0, 2, 3]), (2, 2))


def test_values_at_the_constructor():
    for make in (sf.CSR, sf.CSC):
        with pytest.raises(NotImplementedError, match=make.__name__):
            make(_values(), *PARTS)
        with torch.no_grad():
            assert not make(_values(), *PARTS).data.requires_grad
    with pytest.raises(NotImplementedError, match="from_dense"):
        sf.from_dense(torch.eye(2, requires_grad=True))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_values_of_sparse_tensors():
    coo = torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2), requires_grad=True)
    csr = torch.sparse_csr_tensor([0, 1, 1], [1], [1.0], (2, 2), requires_grad=True)
    for T in (coo, csr):
        with pytest.raises(NotImplementedError, match="grad"):
            sf.from_torch(T)


@pytest.mark.parametrize("grad", [True, False])
def test_operands_in_every_format(grad):
    X = torch.tensor([[1.0], [10.0]], requires_grad=True)
    out = torch.zeros((2, 1), requires_grad=True)
    for name, A in in_every_format(sf.from_dense(torch.tensor([[1.0, 2], [0, 3]]))):
        calls = [
            lambda A=A: A @ X,
            lambda A=A: A @ X[:, 0],
            lambda A=A: X.T @ A,
            lambda A=A: sf.matmul(A, X),
            lambda A=A: torch.matmul(X.T, A),
            lambda A=A: sf.matmul(A, X.detach(), out=out),
        ]
        for call in calls:
            if grad:
                with pytest.raises(NotImplementedError, match=r"matmul|@"):
                    call()
            else:
                with torch.no_grad():
                    y = call()
                assert not y.requires_grad or y is out, name
        if not grad:
            with torch.no_grad():
                assert (A @ X).tolist() == [[21.0], [30.0]], name


def test_inference_mode_needs_no_gradients():
    X = torch.tensor([[1.0], [10.0]], requires_grad=True)
    A = sf.from_dense(torch.tensor([[1.0, 2], [0, 3]]))
    with torch.inference_mode():
        assert (A @ X).tolist() == [[21.0], [30.0]]


@pytest.mark.parametrize("target", SPARSE_LINES, ids=name_of)
def test_results_are_leaves_without_history(target):
    A = sf.from_dense(torch.eye(4), target[0], **target[1])
    y = A @ torch.ones(4, 2)
    assert y.grad_fn is None
    assert A.to_dense().grad_fn is None


@pytest.mark.parametrize("format", ["csr", "bsr"])
def test_under_compile_the_same_numbers(format):
    """Tracing one format takes seconds, so two stand for all."""
    options = {"blocksize": (2, 3)} if format == "bsr" else {}
    A = sf.from_dense(torch.eye(4), format, **options)
    x = torch.arange(8.0).reshape(4, 2)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: A @ x + 1, backend="eager")
    assert torch.equal(compiled(x), x + 1)
