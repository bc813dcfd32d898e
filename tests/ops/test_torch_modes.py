"""Modes of torch that change what its functions do: products stay what they are, or refuse."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import sparseformats as sf
from sparseformats.ops import explain_sddmm
from tests.cases.support import SPARSE_LINES, name_of

D = torch.randn(12, 12, generator=torch.Generator().manual_seed(0)) * torch.eye(12).roll(1)
X = torch.randn(12, 5, generator=torch.Generator().manual_seed(1))


def _kernels(explanation):
    return [row.kernel for row in explanation.rows if row.status != "refused"]


def _close(y, expected):
    assert y.dtype == torch.float32
    assert y.device.type == "cpu"
    torch.testing.assert_close(y, expected, atol=1e-6, rtol=1e-6)


@pytest.fixture(params=["autocast", "default device", "default dtype"])
def mode(request):
    sf.clear_cache()
    if request.param == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            yield
        return
    device = request.param == "default device"
    (torch.set_default_device if device else torch.set_default_dtype)(
        "meta" if device else torch.float64
    )
    try:
        yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("target", SPARSE_LINES, ids=name_of)
def test_products_of_every_kernel(target, mode):
    A = sf.from_dense(D, target[0], **target[1])
    expected = (D.double()[:, :, None] * X.double()[None]).sum(1).float()
    for kernel in _kernels(sf.explain(A, X, assume_finite=True)):
        for _ in range(2):
            _close(sf.matmul(A, X, kernel=kernel, assume_finite=True), expected)
        out = torch.empty((12, 5), dtype=torch.float32, device="cpu")
        _close(sf.matmul(A, X, kernel=kernel, assume_finite=True, out=out), expected)


@pytest.mark.parametrize("target", SPARSE_LINES, ids=name_of)
def test_sampled_products_of_every_kernel(target, mode):
    A, Y = sf.from_dense(D, target[0], **target[1]), X.mT
    expected = (X.double()[:, None] * X.double()[None]).sum(2).float() * (D != 0)
    for kernel in _kernels(explain_sddmm(A, X, Y)):
        _close(sf.sddmm(A, X, Y, kernel=kernel).to_dense(), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own code
@pytest.mark.parametrize("target", SPARSE_LINES, ids=name_of)
def test_stand_ins_are_refused(target):
    """A tangent must not be lost in silence, and what has no memory cannot be read."""
    A = sf.from_dense(D, target[0], **target[1])
    A @ X  # a warm call must not let one through
    with FakeTensorMode():
        fake = torch.empty(12, 5)
    calls = [
        lambda f: torch.vmap(f)(torch.ones(2, 12, 5)),
        lambda f: torch.func.jvp(f, (X,), (X,)),
        lambda f: torch.func.grad(lambda x: f(x).sum())(X),
        lambda f: f(fake),
    ]
    for call in calls:
        with pytest.raises(NotImplementedError, match="matmul"):
            call(lambda x: A @ x)
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X, X)
        for product in (lambda: A @ x, lambda: sf.plan(A, X)(x), lambda: sf.linear(x.mT, A)):
            with pytest.raises(NotImplementedError, match="tangent"):
                product()
        with pytest.raises(NotImplementedError, match="sddmm"):
            sf.sddmm(A, x, X.mT)
        torch.testing.assert_close(A @ X, D @ X)


def _layer_calls():
    """Everything that a layer or a conversion plan is given beside a sparse matrix."""
    W8 = sf.from_dense(torch.eye(5).to(torch.int8), "csr")
    X8, W = torch.ones(4, 5).to(torch.int8), sf.from_dense(torch.eye(5), "csr")
    plan, wide = sf.plan_conversion(torch.eye(5), "csr", capacity=25), {"out_dtype": "float32"}
    return {
        "bias": (lambda x: sf.linear(torch.ones(4, 5), W, x), torch.ones(5)),
        "residual": (lambda x: sf.linear(torch.ones(4, 5), W, residual=x), torch.ones(4, 5)),
        "scale_a": (lambda x: sf.linear(X8, W8, scale_a=x, **wide), torch.ones(4)),
        "scale_b": (lambda x: sf.linear(X8, W8, scale_b=x, **wide), torch.ones(5)),
        "plan_conversion": (lambda x: plan(x).product(torch.ones(5)), torch.ones(5, 5)),
        "product": (plan.product, torch.ones(5)),
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own code
@pytest.mark.parametrize("name", _layer_calls())
def test_stand_ins_for_what_else_is_given_are_refused(name):
    call, x = _layer_calls()[name]
    call(x)  # a warm call must not let one through
    with FakeTensorMode():
        fake = torch.empty(x.shape)
    for transformed in (
        lambda: torch.vmap(call)(torch.stack([x, x])),
        lambda: torch.func.jvp(call, (x,), (x,)),
        lambda: torch.func.grad(lambda x: call(x).sum())(x),
        lambda: call(fake),
    ):
        with pytest.raises(NotImplementedError, match=f"transformations|{name}"):
            transformed()
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="tangent"):
        call(forward_ad.make_dual(x, x))
    call(x)


@pytest.mark.parametrize("lazy", [torch._neg_view, torch.conj], ids=["negated", "conjugated"])
def test_an_out_whose_memory_holds_other_values_is_refused(lazy):
    """Kernels write to memory; a warm call must not let one through."""
    C, x = D.to(torch.complex64), X.to(torch.complex64)
    A, plan = sf.from_dense(C, "csr"), sf.plan_conversion(C, "csr", capacity=C.numel())
    columns = torch.zeros(C.shape[0], x.shape[1], dtype=x.dtype)
    rows = torch.zeros(x.shape[1], C.shape[0], dtype=x.dtype)
    kept = sf.plan(A, x)
    for call, out in (
        (lambda out: sf.matmul(A, x, out=out), columns),
        (lambda out: kept(x, out=out), columns),
        (lambda out: plan.product(x, out=out), columns),
        (lambda out: sf.linear(x.mT, A, out=out), rows),
        (lambda out: sf.linear(x.mT, A, residual=rows, out=out), rows),
    ):
        call(out)
        with pytest.raises(ValueError, match="torch conjugates or negates when it is read"):
            call(lazy(out))
