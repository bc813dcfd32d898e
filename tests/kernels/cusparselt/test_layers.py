"""Layers of fp8 with scales: what the library is given, trusted with, and what follows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.dispatch import Query
from sparseformats_kernels.cusparselt import results, searching
from sparseformats_kernels.cusparselt.layers import Layer
from sparseformats_kernels.cusparselt.results import Features
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
from tests.kernels.cusparse.fake import FakeDevice
from tests.kernels.cusparselt.fake import Fake
from tests.kernels.cusparselt.support import matrix, operand, query_for
from tests.kernels.cusparselt.test_certified import here

FP8 = "float8_e4m3fn"
M, K, N = 96, 128, 48
ROWS = torch.linspace(0.5, 2, M)
FULL, HALF = 0, {"bfloat16": 14, "float16": 2}  # numbers of types


class Case:
    """A layer's call by the bound kernel, and its exact result."""

    def __init__(self, m: int = M, k: int = K, n: int = N, gives: str = "bfloat16") -> None:
        self.A, self.X, self.gives = matrix((m, k), FP8), operand(k, n, FP8, "F"), gives
        self.m, self.n = m, n

    def query(self, epilogue: str, **facts: Any) -> Query:
        facts = {"out_layout": "F", "x_layout": "F", "bias_dtype": "float32"} | facts
        return query_for(self.A, self.X, epilogue=epilogue, out_dtype=self.gives, **facts)

    def bound(self, epilogue: str, **facts: Any) -> Any:
        query = self.query(epilogue, **facts)
        return CuSparseLtProduct.bind_epilogue(CuSparseLtProduct.pack(self.A, query), query)

    def out(self) -> Any:
        dtype = getattr(torch, self.gives)
        return torch.full((self.n, self.m), torch.nan, dtype=dtype).T

    def exact(self, alpha: float = 1.0, bias: Any = None, relu: bool = False, **scales: Any) -> Any:
        y = self.A.to_dense().double() @ self.X.double() * alpha
        for name, scale in scales.items():
            y = y * (scale.double()[:, None] if name == "row_scale" else scale.double())
        y = y if bias is None else y + bias.double()[:, None]
        return y.relu() if relu else y


def right(y: Any, exact: Any) -> bool:
    """Within one rounding, and what float32 scales leave."""
    eps = torch.finfo(y.dtype).eps / 2
    bound = eps * exact.abs() * 1.001 + 2e-4
    return bool(((y.double() - exact).abs() <= bound).all())


def types_of_results(library: Fake) -> int:
    """Type of the last product's result."""
    return int(library.named("DenseDescriptorInit")[-1][6])


@pytest.mark.parametrize("size", [(M, K, N), (33, 50, 13), (1, 4, 1)])
@pytest.mark.parametrize("gives", ["bfloat16", "float32"])
@pytest.mark.parametrize("epilogue", ["scale", "scale+bias+relu"])
@pytest.mark.parametrize("scales", [None, "one", "one+rows"])
def test_the_library_writes_the_result(
    scales: str | None, epilogue: str, gives: str, size: tuple[int, int, int], library: Fake
) -> None:
    case = Case(*size, gives=gives)
    given: dict[str, Any] = {}
    if "rows" in (scales or ""):
        given["row_scale"] = torch.linspace(0.5, 2, case.m)
    if "one" in (scales or ""):
        given["column_scale"] = torch.tensor([0.75])
    bias = torch.linspace(-3, 3, case.m) if "bias" in epilogue else None
    run = case.bound(epilogue, scales=scales, alpha_one=False)
    assert isinstance(run, Layer)
    assert run.is_direct
    for alpha in (0.5, 1.0, 3.0):
        out = case.out()
        assert run(case.X, out, alpha, 0, bias, **given) is out
        assert right(out, case.exact(alpha, bias, "relu" in epilogue, **given))
    assert types_of_results(library) == (HALF | {"float32": FULL})[gives]
    if size == (M, K, N):  # nothing is copied
        arguments = library.named("Matmul")[-1]
        assert (arguments[4], arguments[7]) == (case.X.data_ptr(), out.data_ptr())


def test_a_scale_is_rounded_with_the_result_and_not_before(library: Fake) -> None:
    case = Case()
    y = case.bound("scale", alpha_one=False)(case.X, case.out(), 1 / 3, 0)
    sums = (case.A.to_dense().double() @ case.X.double()).float()
    assert torch.equal(y, (sums * torch.tensor(1 / 3)).bfloat16())


def test_a_bias_in_the_results_dtype_is_taken_where_it_was_given_so(library: Fake) -> None:
    """It comes in float32, which the library may not read; a bias of float32 is not rounded."""
    library.bias_of_bytes = None
    case, bias = Case(), torch.linspace(-3, 3, M).bfloat16().float()
    given = case.bound("scale+bias", bias_dtype="bfloat16")
    assert given.is_direct
    for factor in (1.0, 2.0):
        y = given(case.X, case.out(), 1.0, 0, bias * factor)
        assert right(y, case.exact(1.0, bias * factor))
    wide = torch.linspace(-3, 3, M)
    other = case.bound("scale+bias", bias_dtype="float32")
    assert not other.is_direct
    assert right(other(case.X, case.out(), 1.0, 0, wide), case.exact(1.0, wide))


@pytest.mark.parametrize(
    "fault", ["type", "vector", "bias", "saturates", "plan of these sizes", "launch"]
)
def test_sums_remain_where_the_library_refuses_or_is_wrong(
    fault: str, library: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, bias = Case(gives="float16"), torch.linspace(-3, 3, M)
    if fault == "type":
        library.results[28] = {0}
    if fault == "vector":
        library.vectors = False
    if fault == "bias":
        library.bias_of_bytes = 10
    library.saturates = fault == "saturates"
    facts: dict[str, Any] = {"scales": "rows", "alpha_one": False}
    query = case.query("scale+bias+relu", **facts)
    if fault == "plan of these sizes":
        state = CuSparseLtProduct.pack(case.A, query)
        assert results.tried(state, query)
        library.vectors = False
    run = case.bound("scale+bias+relu", **facts)
    assert run.is_direct == (fault == "launch")
    if fault == "launch":
        library.fails["cusparseLtMatmulPlanInit"] = 10
        monkeypatch.setattr(run._direct._state, "plans", {})
        library.results[28] = {0}
        del library.fails["cusparseLtMatmulPlanInit"]
    y = run(case.X, case.out(), 0.5, 0, bias, row_scale=ROWS)
    assert not run.is_direct
    assert right(y, case.exact(0.5, bias, True, row_scale=ROWS))
    told = results.told(query)
    assert ("in a second pass: " in told) == (fault != "launch"), told
    assert {"type": "NOT_SUPPORTED", "saturates": "are wrong"}.get(fault, "") in told


@pytest.mark.parametrize("direct", [True, False])
def test_nan_shows_through_relu(direct: bool, library: Fake) -> None:
    case = Case()
    case.X[:, 3] = torch.nan
    if not direct:
        library.results[28] = {0}
    run = case.bound("scale+relu", alpha_one=False)
    assert run.is_direct == direct
    y = run(case.X, case.out(), 0.5, 0)
    assert y[:, 3].isnan().all()
    assert not y[:, :3].isnan().any()


def test_what_was_found_out_is_asked_once(library: Fake) -> None:
    case = Case()
    query = case.query("scale")
    assert "tells first" in results.told(query)
    assert case.bound("scale").is_direct
    assert results.told(query) == "the library writes bfloat16 itself"
    count = len(library.named("Matmul"))
    assert case.bound("scale").is_direct
    assert len(library.named("Matmul")) == count


@pytest.mark.parametrize("gives", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("bias", [None, "float32"])
def test_a_small_product_is_right_to_the_bit(
    bias: str | None, vector: bool, gives: str, library: Fake
) -> None:
    case = Case()
    state = CuSparseLtProduct.pack(case.A, case.query("scale"))
    for relu in (False, True):
        features = Features(FP8, gives, bias, relu, vector)
        assert results.outcome(state, features) == results.RIGHT


@pytest.mark.parametrize("alike", [True, False])
def test_fp8_is_written_by_the_library_where_it_rounds_as_torch_does(
    alike: bool, library: Fake
) -> None:
    """What is beyond the largest number is that number, or NaN, by version of torch."""
    library.results[28].add(28)
    keeps = not torch.tensor(1000.0).to(torch.float8_e4m3fn).isnan()
    library.saturates = bool(keeps) == alike
    case = Case(gives=FP8)
    query = query_for(case.A, case.X, x_layout="F", out_layout="F", out_dtype=FP8)
    state = CuSparseLtProduct.pack(case.A, query)
    out = torch.zeros(N, M).to(torch.float8_e4m3fn).T
    y = CuSparseLtProduct.bind(state, query)(case.X, out, 1, 0)
    assert torch.equal(y.float(), case.exact().to(y.dtype).float())
    # C, which is not read, is of float16 then.
    assert types_of_results(library) == (HALF["float16"] if alike else FULL)
    assert (library.named("Matmul")[-1][7] == out.data_ptr()) == alike
    assert ("itself" if alike else "are wrong") in results.told(query)


@pytest.mark.parametrize("tried", [False, True])
def test_algorithms_of_results_that_nobody_tried_are_not_searched(
    tried: bool, library: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case()
    if not tried:
        left = {(x, y) for x, y in searching.MEASURED if x != "float8_e4m3fn"}
        monkeypatch.setattr(searching, "MEASURED", frozenset(left))
    query = case.query("scale")
    state = CuSparseLtProduct.pack(case.A, query)
    state.worth = 0
    Layer.made(state, query)
    assert (len({algorithm.id for algorithm in library.ran}) > 1) == tried


def test_a_graph_has_scales_of_its_own(library: Fake, device: FakeDevice) -> None:
    case, out = Case(), None
    run = case.bound("scale", scales="rows")
    for graph in (0, 7, 0):
        device.graph = graph
        for scale in (ROWS, ROWS * 2):
            out = case.out()
            run(case.X, out, 1.0, 0, None, row_scale=scale)
            assert right(out, case.exact(row_scale=scale))
    assert len({call[2] for call in library.named("Matmul")[-6:]}) == 2  # addresses of alphas


@pytest.mark.parametrize("n", [0, 5])
def test_sizes_of_zero(n: int, library: Fake) -> None:
    case = Case(M if n == 0 else 0, K, n)
    y = case.bound("scale")(case.X, None, 2.0, 0)
    assert tuple(y.shape) == (case.m, n)
    assert y.dtype == torch.bfloat16


# ---- by the library's own front door


def layer(X: Any, W: Any, *given: Any, **options: Any) -> tuple[Any, Query]:
    record = here("cusparselt-fp8")
    with dispatch.temporary(record), sf.tracing() as trace:
        y = sf.linear(X, W, *given, kernel=record.name, **options)
    (run,) = trace
    assert run.kernel == record.name
    return y, run.query


@pytest.mark.parametrize("bias_dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_layers(activation: str | None, bias_dtype: str, library: Fake) -> None:
    case = Case()
    bias = torch.linspace(-3, 3, M).to(getattr(torch, bias_dtype))
    options: dict[str, Any] = {"activation": activation, "out_dtype": torch.bfloat16}
    relu = activation is not None
    y, query = layer(case.X.T, case.A, **options)
    assert right(y.T, case.exact(relu=relu))
    assert (query.out_dtype, query.wide, query.scales) == ("bfloat16", False, None)
    y, query = layer(case.X.T, case.A, bias, scale_a=0.5, scale_b=ROWS, **options)
    assert (query.scales, query.bias_dtype) == ("rows", bias_dtype)
    assert right(y.T, case.exact(0.5, bias.float(), relu, row_scale=ROWS))
    one = torch.tensor([[0.25]])
    y, query = layer(case.X.T, case.A, scale_a=one, scale_b=ROWS[:, None], **options)
    assert query.scales == "one+rows"
    assert right(y.T, case.exact(0.25, None, relu, row_scale=ROWS))
    assert types_of_results(library) == HALF["bfloat16"]


def test_scales_of_tokens_gelu_and_residuals_follow_sums_in_float32(library: Fake) -> None:
    case, tokens = Case(), torch.linspace(0.5, 2, N)
    residual = torch.ones(N, M, dtype=torch.bfloat16)
    for options in (
        {"scale_a": tokens, "scale_b": ROWS},
        {"activation": "gelu"},
        {"residual": residual},
    ):
        y, query = layer(case.X.T, case.A, out_dtype="bfloat16", **options)
        assert (query.epilogue, query.out_dtype, query.wide) == (None, "float32", True)
        assert y.dtype == torch.bfloat16
    y, _ = layer(case.X.T, case.A, out_dtype="bfloat16", scale_a=tokens, scale_b=ROWS)
    assert right(y.T, case.exact(row_scale=ROWS, column_scale=tokens))


def test_an_explanation_says_which_way_is_taken(library: Fake) -> None:
    case, record = Case(), here("cusparselt-fp8")
    with dispatch.temporary(record):
        options: dict[str, Any] = {"kernel": record.name, "out_dtype": "bfloat16"}
        told = [sf.explain("linear", case.X.T, case.A, **options).row(record.name).note]
        sf.linear(case.X.T, case.A, **options)
        told.append(sf.explain("linear", case.X.T, case.A, **options).row(record.name).note)
        options["scale_a"] = torch.ones(N)
        told.append(sf.explain("linear", case.X.T, case.A, **options).row(record.name).note)
    assert "a small product tells first" in told[0]
    assert "the library writes bfloat16 itself" in told[1]
    assert "sums left in float32" in told[2]
