"""torch.compile calls our products and does not look into them."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import sparseformats as sf
from tests.cases.support import SPARSE_LINES, name_of

SHAPES = [(8, 2), (8, 3), (8, 7), (8,), (2, 8, 3), (8, 1), (8, 0)]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _compiled(function):
    return torch.compile(function, backend="eager")


@pytest.mark.parametrize("target", SPARSE_LINES, ids=name_of)
def test_operator_and_function(target):
    A = sf.from_dense(torch.eye(8), target[0], **target[1])
    calls = [
        _compiled(lambda x: A @ x + 1),
        _compiled(lambda x: A.T @ x + 1),
        _compiled(lambda x: sf.matmul(A, x, alpha=2) - x + 1),
    ]
    for call in calls:
        for shape in SHAPES:
            x = torch.randn(shape)
            assert torch.equal(call(x), x + 1), shape
        x = torch.randn(8, 2, dtype=torch.float64)
        assert torch.equal(call(x), x + 1)


def test_every_other_entry_point():
    A = sf.from_dense(torch.eye(8), "bsr", blocksize=(2, 3))
    plan, out, bias = sf.plan(A, torch.ones(8, 2)), torch.empty(8, 2), torch.ones(8)
    calls = [
        _compiled(lambda x: (x.mT @ A).mT + 1),
        _compiled(lambda x: torch.matmul(x.mT, A).mT + 1),
        _compiled(lambda x: torch.nn.functional.linear(x.mT, A).mT + 1),
        _compiled(lambda x: sf.linear(x.mT, A, bias).mT),
        _compiled(lambda x: plan(x) + 1),
        _compiled(lambda x: plan(x, out=out) + 1),
        _compiled(lambda x: sf.plan(A, x)(x) + 1),
        _compiled(lambda x: sf.sddmm(A, x, x.mT).data.sum() * 0 + x + 1),
    ]
    for i, call in enumerate(calls):
        for _ in range(2):
            x = torch.randn(8, 2)
            assert torch.equal(call(x), x + 1), i


def test_numpy_operands():
    A = sf.eye(8)
    call = _compiled(lambda x: A @ x + 1)
    for _ in range(2):
        assert np.array_equal(call(np.ones((8, 2))), np.full((8, 2), 2.0))


def test_nothing_of_ours_is_compiled_again_for_each_shape():
    """Dynamo gives up on a function after eight; all matrices and shapes share ours."""
    A, B = sf.from_dense(torch.eye(8)), sf.from_dense(torch.eye(8), "bsr", blocksize=(2, 3))
    plan = sf.plan(B, torch.ones(8, 2))
    calls = [
        _compiled(lambda x: A @ x),
        _compiled(lambda x: sf.matmul(B, x)),
        _compiled(lambda x: sf.linear(x.mT, B)),
        _compiled(lambda x: plan(x[:, :2].contiguous())),
    ]
    for call in calls:
        call(torch.ones(8, 2))
    torch._dynamo.utils.clear_compilation_metrics()
    for call in calls:
        for n in range(2, 14):
            call(torch.ones(8, n))
            call(torch.ones(3, 8, n)[0])
    compiled = {m.co_filename for m in torch._dynamo.utils.get_compilation_metrics()}
    assert compiled == {__file__}


def test_errors_come_through():
    A = sf.from_dense(torch.eye(8))
    for call in (_compiled(lambda x: A @ x), _compiled(lambda x: sf.matmul(A, x))):
        with pytest.raises(ValueError, match="do not match"):
            call(torch.ones(7, 2))


def test_eager_calls_load_no_compiler():
    code = (
        "import sys, torch, sparseformats as sf\n"
        "A, x = sf.from_dense(torch.eye(8)), torch.ones(8, 2)\n"
        "for _ in range(3): A @ x; sf.matmul(A, x); torch.matmul(x.T, A)\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
