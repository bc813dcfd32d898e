"""The warm path of layers: what is found again, what has a plan of its own, where results go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch, reference
from sparseformats.dispatch import KernelRecord, checks
from sparseformats.ops import layer

COUNTS: Counter[str] = Counter()
LAST: dict[str, Any] = {}
LIBRARIES = ("numpy", "torch")
M, K = 12, 8


class Fuses:
    """All of a layer in plain arithmetic; counts, and keeps what it was given."""

    @staticmethod
    def pack(A: Any, query: Any) -> Any:
        COUNTS["pack"] += 1
        D = reference.dense(A)
        return A.lib, D.T if query.transposed else D

    @staticmethod
    def run(
        state: Any,
        x: Any,
        out: Any,
        alpha: Any,
        beta: Any,
        *,
        bias: Any = None,
        activation: Any = None,
    ) -> Any:
        COUNTS["run"] += 1
        lib, D = state
        LAST.update(out=out, bias=bias, x=x)
        y = alpha * (D @ lib.to_numpy(x))
        y = y if bias is None else y + lib.to_numpy(bias)[:, None]
        y = np.maximum(y, 0) if activation == "relu" else y
        assert beta == 0
        if out is None:
            return lib.from_numpy(y)
        out[...] = lib.from_numpy(y.astype(lib.dtype_name(out)))
        return out


class ThreadFuses(Fuses):
    """The same with states that threads must not share."""

    per_thread = True


class BoundFuses(Fuses):
    """The same, bound once to the facts of its calls."""

    @staticmethod
    def bind_epilogue(state: Any, query: Any) -> Any:
        COUNTS["bind"] += 1
        names = (query.epilogue or "").split("+")
        activation = "relu" if "relu" in names else None

        def run(x: Any, out: Any, alpha: Any, beta: Any, bias: Any) -> Any:
            assert (bias is not None) == ("bias" in names)
            return Fuses.run(state, x, out, alpha, beta, bias=bias, activation=activation)

        return run


def fusing(target: type = Fuses, *more: Any) -> KernelRecord:
    named = checks.epilogue_in(None, "bias", "relu", "bias+relu")
    return KernelRecord(
        "fusing",
        "matmul",
        dispatch.ANY,
        f"{__name__}:{target.__name__}",
        cost=lambda query: 0.0,
        checks=(named, *more),
    )


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    COUNTS.clear()
    LAST.clear()
    sf.clear_cache()
    yield
    sf.clear_cache()


def whole(library: str, *shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    """Small whole numbers, whose sums are exact in any order."""
    x = np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)
    return torch.from_numpy(x) if library == "torch" else x


def weight(library: str, format: str = "csr", dtype: str = "float32") -> Any:
    D = whole("numpy", M, K, dtype=dtype, seed=1)
    D[:, 2::4] = D[:, 3::4] = 0
    options = {"bsr": {"blocksize": (3, 2)}}.get(format, {})
    return sf.from_dense(D, format, **options).to_library(library)


def expected(X: Any, W: Any, bias: Any = None, activation: str | None = None) -> Any:
    y = np.asarray(X).astype("float64") @ np.asarray(W.to_dense()).astype("float64").T
    y = y if bias is None else y + np.asarray(bias)
    return np.maximum(y, 0) if activation == "relu" else y


def forbid_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("the warm path does not come here")

    monkeypatch.setattr(layer, "_anew", fail)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("epilogue", [(False, None), (True, None), (False, "relu"), (True, "relu")])
def test_a_repeated_layer_prepares_nothing(
    library: str, lead: tuple[int, ...], fused: bool, epilogue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    W, X = weight(library, "bsr"), whole(library, *lead, K)
    bias, activation = whole(library, M, seed=3) if epilogue[0] else None, epilogue[1]
    out = W.lib.full((*lead, M), float("nan"), "float32")
    with dispatch.temporary(*([fusing()] if fused else [])):
        sf.linear(X, W, bias, activation=activation)
        sf.linear(X, W, bias, activation=activation, out=out)
        forbid_cold(monkeypatch)
        for seed in range(3):
            X2 = whole(library, *lead, K, seed=seed)
            y = sf.linear(X2, W, bias, activation=activation)
            np.testing.assert_array_equal(y, expected(X2, W, bias, activation))
            assert W.lib.is_contiguous(y)
            assert tuple(y.shape) == (*lead, M)
            assert sf.linear(X2, W, bias, activation=activation, out=out) is out
            np.testing.assert_array_equal(out, y)
    assert COUNTS["pack"] == fused


def promoted(library: str, dtypes: list[Any]) -> Any:
    return reduce(torch.promote_types if library == "torch" else np.promote_types, dtypes)


@pytest.mark.parametrize("target", [Fuses, BoundFuses])
@pytest.mark.parametrize("library", LIBRARIES)
def test_whatever_changes_has_a_plan_of_its_own(library: str, target: type) -> None:
    W, other = weight(library), weight(library, dtype="float64")
    rows = whole(library, 6, 2 * K)
    bias = whole(library, M, seed=3)
    long = whole(library, 2 * M, seed=4)
    operands = [
        whole(library, 6, K),
        whole(library, 6, K, seed=5),
        whole(library, 3, K),
        whole(library, 2, 3, K),
        whole(library, K),
        rows[:, :K],
        rows[:, ::2],
        whole(library, K, 6).T,
        whole(library, 6, K, dtype="float64"),
        whole(library, 6, K, dtype="int32"),
    ]
    biases = [None, bias, whole(library, M, seed=6), long[::2], whole(library, M, dtype="float64")]
    with dispatch.temporary(fusing(target)):
        for _ in range(2):
            for A in (W, other, W.T.T):
                for X in operands:
                    for b in biases:
                        for activation in (None, "relu"):
                            y = sf.linear(X, A, b, activation=activation)
                            np.testing.assert_array_equal(y, expected(X, A, b, activation))
                            parts = [z.dtype for z in (X, A, b) if z is not None]
                            assert y.dtype == promoted(library, parts)
        with sf.use_kernel("reference"), sf.tracing() as trace:
            sf.linear(operands[0], W, bias)
        assert trace.kernels == ["reference"]
        with sf.tracing() as trace:
            sf.linear(operands[0], W, bias)
            sf.linear(operands[0], W, bias, kernel="reference")
        assert trace.kernels == ["fusing", "reference"]
    with sf.tracing() as trace:
        y = sf.linear(operands[0], W, bias)
    assert trace.kernels != ["fusing"]
    np.testing.assert_array_equal(y, expected(operands[0], W, bias))


def test_a_bound_kernel_is_bound_once() -> None:
    W, X, bias = weight("numpy"), whole("numpy", 5, K), whole("numpy", M)
    with dispatch.temporary(fusing(BoundFuses)):
        for _ in range(4):
            sf.linear(X, W, bias, activation="relu")
        assert COUNTS == {"pack": 1, "bind": 1, "run": 4}
        sf.linear(X, W, bias)
        sf.linear(X[:2], W, bias)
        assert COUNTS == {"pack": 1, "bind": 3, "run": 6}


def test_a_transposed_weight_is_kept_with_its_base() -> None:
    W, X = weight("numpy", "bsr"), whole("numpy", 5, M)
    with dispatch.temporary(fusing()):
        for _ in range(3):
            np.testing.assert_array_equal(
                sf.linear(X, W.T, activation="relu"), expected(X, W.T, None, "relu")
            )
        assert COUNTS == {"pack": 1, "run": 3}
    assert sf.cache_info().matrices == 1


def test_threads_keep_their_workspaces() -> None:
    W, X, bias = weight("numpy"), whole("numpy", 5, K), whole("numpy", M)
    with dispatch.temporary(fusing(ThreadFuses)), ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            sf.linear(X, W, bias)
            pool.submit(sf.linear, X, W, bias).result()
        assert COUNTS == {"pack": 2, "run": 6}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_a_fusing_kernel_writes_straight_into_out(library: str, lead: tuple[int, ...]) -> None:
    W, X, bias = weight(library), whole(library, *lead, K), whole(library, M, seed=3)
    lib = W.lib
    outs = [lib.full((*lead, M), float("nan"), "float32")]
    if len(lead) < 2:
        outs.append(lib.full((*lead, 2 * M), float("nan"), "float32")[..., ::2])
    with dispatch.temporary(fusing()):
        sf.linear(X, W, bias, activation="relu")
        for _ in range(2):
            for out in outs:
                assert sf.linear(X, W, bias, activation="relu", out=out) is out
                assert lib.address(LAST["out"]) == lib.address(out)
                np.testing.assert_array_equal(out, expected(X, W, bias, "relu"))


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_out_that_is_no_matrix_is_copied_to(library: str) -> None:
    W, X, bias = weight(library), whole(library, 2, 3, K), whole(library, M, seed=3)
    out = W.lib.full((2, 3, 2 * M), float("nan"), "float32")[..., ::2]
    with dispatch.temporary(fusing()):
        for _ in range(2):
            assert sf.linear(X, W, bias, out=out) is out
            np.testing.assert_array_equal(out, expected(X, W, bias))


@pytest.mark.parametrize("library", LIBRARIES)
def test_out_may_overlap_the_operand_and_the_bias_but_not_the_weight(library: str) -> None:
    D = whole("numpy", K, K, seed=1)
    W = sf.from_dense(torch.from_numpy(D) if library == "torch" else D, "csr")
    with dispatch.temporary(fusing()):
        for _ in range(2):
            memory = whole(library, 6, K)
            X, bias = memory[:4] + 0, memory[5] + 0
            y = sf.linear(memory[:4], W, memory[5], out=memory[2:])
            np.testing.assert_array_equal(y, expected(X, W, bias))
            with pytest.raises(ValueError, match="shares memory"):
                sf.linear(X[:1], shared(library), out=shared.out)  # type: ignore[attr-defined]


def shared(library: str) -> Any:
    """A weight whose values lie in `shared.out`."""
    data = whole(library, K)
    index, pointers = np.arange(K), np.arange(K + 1)
    if library == "torch":
        index, pointers = torch.from_numpy(index), torch.from_numpy(pointers)
    shared.out = data.reshape(1, K)  # type: ignore[attr-defined]
    return sf.CSR(data, index, pointers, (K, K), copy=False)


def test_refusals_stay_refusals() -> None:
    W, X, bias = weight("torch"), whole("torch", 5, K), whole("torch", M)
    out, learnt = torch.empty(5, M), torch.nn.Parameter(bias)
    with dispatch.temporary(fusing()):
        for _ in range(2):
            sf.linear(X, W, bias, out=out)
            with torch.no_grad():
                y = sf.linear(X, W, learnt)
                assert torch.equal(y, out)
            with pytest.raises(NotImplementedError, match="bias requires grad"):
                sf.linear(X, W, learnt)
            with pytest.raises(NotImplementedError, match="requires grad"):
                sf.linear(X.clone().requires_grad_(), W, bias)
            with pytest.raises(TypeError, match="'gelu' has no meaning"):
                sf.linear(X.to(torch.complex64), W, bias, activation="gelu")
            with pytest.raises(ValueError, match="activation must be"):
                sf.linear(X, W, bias, activation="tanh")
            with pytest.raises(TypeError, match="torch array"):
                sf.linear(X, W, bias.numpy())
            with pytest.raises(ValueError, match="out must have shape"):
                sf.linear(X, W, bias, out=out[1:])


def test_a_parameter_is_read_where_it_lies() -> None:
    W, X = weight("torch"), whole("torch", 5, K)
    bias = torch.nn.Parameter(whole("torch", M))
    with dispatch.temporary(fusing()), torch.no_grad():
        for _ in range(2):
            sf.linear(X, W, bias)
            assert LAST["bias"].data_ptr() == bias.data_ptr()
        bias.copy_(whole("torch", M, seed=9))  # another value is not another fact
        np.testing.assert_array_equal(sf.linear(X, W, bias), expected(X, W, bias.detach()))


def test_lazy_views_are_resolved() -> None:
    z = torch.tensor([[1 + 2j, 3 - 1j]])
    W = sf.CSR(torch.ones(2, dtype=torch.complex64), [0, 1], [0, 1, 2], (2, 2))
    bias = torch.tensor([1j, 2j])
    for _ in range(2):
        assert torch.equal(sf.linear(z.conj(), W, bias.conj()), z.conj().resolve_conj() - bias)
        assert torch.equal(sf.linear(z, W, bias), z + bias)


def test_new_values_of_a_weight_are_used() -> None:
    data = whole("torch", 8)
    W = sf.CSR(data, torch.arange(8), torch.arange(9), (8, 8), copy=False)
    X, bias = whole("torch", 3, 8), whole("torch", 8, seed=2)
    with dispatch.temporary(fusing()):
        sf.linear(X, W, bias)
        data.add_(1)
        np.testing.assert_array_equal(sf.linear(X, W, bias), X * data + bias)


def test_a_foreign_weight_leaves_nothing_behind() -> None:
    W, X = weight("numpy").to_scipy(), whole("numpy", 5, K)
    for _ in range(2):
        np.testing.assert_array_equal(sf.linear(X, W), X @ W.toarray().T)
    assert sf.cache_info().matrices == 0


def test_the_facts_are_those_of_the_call_and_of_its_explanation() -> None:
    W, X, bias = weight("torch", "bsr"), whole("torch", 5, K), whole("torch", M)
    with dispatch.temporary(fusing()):
        for _ in range(2):
            for x in (X, X[0], X[:1], whole("torch", 2, 3, K)):
                for given, activation in ((bias, "relu"), (None, None), (bias, None)):
                    with sf.tracing() as trace:
                        sf.linear(x, W, given, activation=activation)
                    told = sf.explain("linear", x, W, given, activation=activation)
                    assert trace[0].query == told.query
                    assert trace[0].kernel == told.chosen
        with sf.tracing() as trace:
            sf.linear(X, W, bias, out=torch.empty(5, M + 1)[:, :M])
        assert trace[0].query is not None
        assert (trace[0].query.out_layout, trace[0].query.out_aligned) == ("strided", False)
    assert told.query.out_layout == "F"
    assert told.query.out_aligned is True


def test_plans_of_layers_and_products_share_the_packed_weight() -> None:
    W, X = weight("numpy"), whole("numpy", 5, K)
    with dispatch.temporary(fusing()):
        sf.linear(X, W)
        W @ X.T
        sf.linear(X, W, activation="relu")
        assert COUNTS["pack"] == 1
    assert sf.cache_info().plans == 3
