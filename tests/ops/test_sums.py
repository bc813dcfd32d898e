"""Products of sums: right values in every dtype, the ways they are added, and what runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import _dtypes, dispatch, reference
from sparseformats.dispatch import KernelRecord
from sparseformats.ops import preparing, product, sum_explaining, sums
from sparseformats.testing import LAYOUTS, check_product, dense_operands, host_dtype, matrices
from sparseformats.testing.bounds import assert_product
from tests.kernels.cpu.products import array, values

LIBRARIES = ("numpy", "torch")
HALF = ("float16", "bfloat16")
OUTS = st.sampled_from([None, *(layout for layout in LAYOUTS if layout != "broadcast")])
SCALARS = st.sampled_from([(1, 0), (2, 0), (1, 1), (-1, 2)])


def law_of_products(library: str, **drawn: Any) -> Callable[[], None]:
    """Any sum, operand, side, layout and scalars: within the bound of one dot product."""

    @given(matrices("sum", library=library, **drawn), st.data(), st.booleans(), OUTS, SCALARS)
    def law(A: Any, data: Any, left: bool, out: str | None, scalars: tuple[int, int]) -> None:
        X = data.draw(dense_operands(A, left=left, values=drawn.get("values", "any")), label="X")
        alpha, beta = (1, 0) if A.dtype_name == "bool" or out is None else scalars
        alpha = abs(alpha) if A.dtype_name.startswith("u") else alpha
        check_product(A, X, alpha=alpha, beta=beta, out=out, left=left)

    return law


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ["any", "moderate"])
def test_against_the_oracle(kind: str, library: str) -> None:
    law_of_products(library, values=kind)()


def halves(dtype: str, library: str = "numpy", shape: tuple[int, int] = (14, 24)) -> Any:
    """A 2:4 part and a rest, dense enough that both have terms in every row."""
    rng = np.random.default_rng(5)
    D = values(rng, dtype, shape) * (rng.random(shape) < 0.8).astype(host_dtype(dtype))
    return sf.split(array(library, D), "2:4")


def operand(dtype: str, library: str = "numpy", shape: tuple[int, ...] = (24, 5)) -> Any:
    return array(library, values(np.random.default_rng(6), dtype, shape))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", *HALF, "int8", "int64"])
@pytest.mark.parametrize("pattern", ["2:4", "bsr"])
def test_larger_ones(pattern: str, dtype: str, library: str) -> None:
    S = halves(dtype, library)
    if pattern == "bsr":
        S = sf.split(S, "bsr", blocksize=(2, 3), min_fill=0.8)
    assert all(part.nnz for part in S.parts)
    for shape in ((24,), (24, 1), (24, 33), (2, 24, 3)):
        check_product(S, operand(dtype, library, shape))
        check_product(S.T, operand(dtype, library, (*shape[:-2], 14, 3)))
        check_product(S, operand(dtype, library, (*shape[:-2], 3, 14)), left=True)
    check_product(S, operand(dtype, library), alpha=3, beta=-2, out="F")


def test_integers_wrap_and_bools_are_united() -> None:
    big = np.array([[2**62, 2**62, 2**62, 2**62]])
    S, X = sf.split(big, "2:4"), np.full((4, 1), 3)
    with np.errstate(over="ignore"):
        assert (S @ X).tolist() == (big @ X).tolist()
    small = sf.split(np.full((1, 4), 100, np.int8), "1:4")
    assert (small @ np.full(4, 100, np.int8)).tolist() == [40_000]
    truth = sf.split(np.array([[True, True, False, True]]), "1:2")
    assert (truth @ np.array([False, True, True, False])).tolist() == [True]
    assert (truth @ np.array([False, False, True, False])).tolist() == [False]


# ---- one rounding


def split_ulp(dtype: str, library: str = "numpy") -> Any:
    """Parts whose products are 1 + u and u, with u half an ulp of 1: together exact, apart not."""
    u = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    D = np.array([[1.0, u, u, 0.0]]).astype(host_dtype(dtype))
    return sf.split(array(library, D), "2:4"), u


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", HALF)
def test_half_types_are_added_before_they_are_rounded(dtype: str, library: str) -> None:
    S, u = split_ulp(dtype, library)
    ones = array(library, np.ones((4, 2), host_dtype(dtype)))
    assert [[float(v) for v in row] for row in S @ ones] == [[1 + 2 * u] * 2]
    assert [float(v) for v in S @ ones[:, 0]] == [1 + 2 * u]
    assert [float(v) for v in sf.plan(S, ones[:, 0])(ones[:, 0])] == [1 + 2 * u]
    out = array(library, np.full((1, 2), -1, host_dtype(dtype)))
    sf.matmul(S, ones, beta=1, out=out)
    assert [float(v) for v in out[0]] == [2 * u] * 2
    assert sf.explain(S, ones).added == f"in float32 and rounded once to {dtype}"
    bias = array(library, np.array([-1.0]).astype(host_dtype(dtype)))
    assert [float(v) for v in sf.linear(ones.T, S, bias)[0]] == [2 * u]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_is_added_in_float32_too(dtype: str) -> None:
    u = {"float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3}[dtype]
    D = torch.tensor([[1.0, u, u, 0.0]]).to(getattr(torch, dtype))
    S = sf.split(D, "2:4")
    assert (S @ torch.ones(4).to(D.dtype)).to(torch.float32).tolist() == [1 + 2 * u]


class Narrow:
    """A sound kernel that can give the operands' dtype only."""

    queries: list[Any] = []  # noqa: RUF012 - looked at by the tests

    def pack(self, A: Any, query: Any) -> Any:
        self.queries.append(query)
        assert query.out_dtype == query.x_dtype
        return reference.slots(A), query.out_dtype

    def run(self, state: Any, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        y = reference.multiply(state[0], x, state[1], alpha, beta, out).rounded()
        if out is None:
            return y
        out[...] = y
        return out


narrow = Narrow()


def narrow_record(*formats: str, name: str = "narrow") -> KernelRecord:
    target = f"{__name__}:narrow"
    return KernelRecord(name, "matmul", formats, target, cost=lambda query: 0.0)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("formats", [("n:m",), ("csr",), ("n:m", "csr")])
def test_a_kernel_that_gives_half_types_only_costs_one_rounding_more(
    formats: tuple[str, ...], dtype: str
) -> None:
    S, X = halves(dtype), operand(dtype)
    with dispatch.temporary(narrow_record(*formats)), sf.tracing() as trace:
        y, told = S @ X, sf.explain(S, X)
        planned = sf.plan(S, X)(X)
    assert "narrow" in trace.kernels
    which = {("n:m",): "part 0", ("csr",): "part 1"}.get(formats, "parts 0 and 1")
    assert f"the best kernel of {which} gives {dtype} only" in told.added
    unit = float(np.finfo("float16").eps if dtype == "float16" else 2.0**-7) / 2
    assert_product(y, reference.matmul(S, X), extra=unit)
    np.testing.assert_array_equal(planned, y)
    ulp, u = split_ulp(dtype)
    ones = np.ones((4, 1), host_dtype(dtype))
    with dispatch.temporary(narrow_record("n:m")):
        assert float((ulp @ ones)[0, 0]) == 1  # 1 + u became 1; the page says so
    assert float((ulp @ ones)[0, 0]) == 1 + 2 * u


def test_a_kernel_is_asked_for_unrounded_results_only_if_it_says_that_it_can() -> None:
    record = narrow_record("csr")
    query = dispatch.Query("matmul", "csr", x_dtype="float16", out_dtype="float32", wide=True)
    assert [str(reason) for reason in record.reasons(query)] == [
        "needs a result in the operands' dtype, has one in that of the sums (float32) [dtype]"
    ]
    assert "unrounded" in query.describe()


def takes(record: KernelRecord, dtype: str) -> bool:
    rules = (check for check in record.checks if isinstance(check, dispatch.checks.Check))
    return all(dtype in rule.allowed for rule in rules if rule.fact == "a_dtype")


WIDE = [r.name for r in dispatch.records("matmul") if r.wide and takes(r, "float16")]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", HALF)
# Those of devices are held to it where they are interpreted, imitated or run.
@pytest.mark.parametrize("kernel", [n for n in WIDE if not n.startswith(("cu", "triton"))])
def test_kernels_that_say_so_leave_sums_unrounded(kernel: str, dtype: str, library: str) -> None:
    served = 0
    for format in ("coo", "csr", "csc", "bsr", "blocked_ell", "2:4", "bsr.T", "2:4.T"):
        A = sf.prune(halves(dtype, library), "2:4")
        base, size = format.removesuffix(".T"), {"blocksize": 2} if "b" in format else {}
        A = (A.T.to("coo").to("csr") if ".T" in format and base != "2:4" else A).to(base, **size)
        A = A.T if format.endswith(".T") else A
        X = operand(dtype, library, (A.shape[1], 5))
        options = preparing.Options(kernel=kernel, assume_finite=True)
        try:
            light = product.lights(options)(A, X, None, 2, 0, True)
        except sf.NoKernelError:
            continue
        y = light.run(X, None, 2, 0)
        assert (light.kernel, A.lib.dtype_name(y)) == (kernel, "float32")
        exact = reference.matmul(A, X, alpha=2)
        wide = replace(exact, dtype="float32")
        assert_product(A.lib.to_numpy(y), wide)
        served += 1
    assert served or {"numpy", "torch"} - {library} == {kernel.partition("-")[0]}


# ---- what runs


def test_each_part_gets_its_best_kernel() -> None:
    S, X = halves("float32"), operand("float32")
    with sf.tracing() as trace:
        S @ X
    best = [sf.explain(part, X).chosen for part in S.parts]
    assert trace.kernels == best
    told = sf.explain(S, X)
    assert told.chosen == " + ".join(str(name) for name in best)
    assert told.names == ("2:4", "csr")
    assert told.added == "in float32, part after part, as one sum of products in another order"
    text = str(told)
    assert text.startswith("matmul: sum (14 x 24, float32) @ (24 x 5, float32, C)")
    assert "part 0, 2:4: chosen: " in text
    assert "part 1, csr: chosen: " in text
    assert json.loads(json.dumps(told.to_dict()))["chosen"] == told.chosen
    assert [part.query.beta_zero for part in told.parts if part] == [True, False]
    assert (told.source, told.forced) == ("cost model + cost model", None)
    assert told.row("reference").status == "eligible"
    assert len(told.rows) == 2 * len(sf.explain(S.parts[0], X).rows)
    with pytest.raises(KeyError, match="nonsense"):
        told.row("nonsense")


@pytest.mark.parametrize(
    ("dtype", "text"),
    [("bool", "by or"), ("int8", "in int32, exactly"), ("complex64", "in complex64, part after")],
)
def test_how_other_dtypes_are_added(dtype: str, text: str) -> None:
    D = np.ones((2, 8)).astype(dtype)
    assert sf.explain(sf.split(D, "2:4"), D.T).added.startswith(text)


def test_empty_parts_are_passed_over() -> None:
    S = sf.split(np.eye(8), "2:4")
    X = np.arange(16.0).reshape(8, 2)
    with sf.tracing() as trace:
        y = S @ X
    assert len(trace) == 1
    np.testing.assert_array_equal(y, X)
    told = sf.explain(S, X)
    assert told.parts[1] is None
    assert "part 1, csr: stores nothing, so no kernel runs" in told.verdict
    assert told.added == "nowhere: one part is the whole"
    none = sf.Sum([sf.CSR([], [], [0, 0], (1, 3)), sf.COO([], [], [], (1, 3))])
    out = np.full((1, 2), np.nan)
    assert sf.matmul(none, np.ones((3, 2)), out=out).tolist() == [[0, 0]]


def test_a_block_without_elements_meets_the_operand_all_the_same() -> None:
    fill = sf.BSR(np.zeros((1, 2, 2)), [0], [0, 1], (2, 4))
    S = sf.Sum([fill, sf.CSR([1.0], [3], [0, 1, 1], (2, 4))])
    y = S @ np.array([np.inf, 1.0, 1.0, 1.0])
    assert np.isnan(y).all()  # 0 x inf within the block, as in a BSR alone


def test_every_part_meets_an_infinity_by_its_own_rule() -> None:
    D = np.array([[5.0, 4.0, 0.0, 3.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]])
    S = sf.split(D, "bsr", blocksize=2)
    assert [part.nnz for part in S.parts] == [3, 1]
    for column, expected in enumerate([[np.inf] * 2, [np.inf, np.nan], [12, 1], [np.inf, 1]]):
        X = np.ones(5)
        X[column] = np.inf
        np.testing.assert_array_equal(S @ X, expected)
    # Within a group of an n:m part it is left open whether a zero meets it.
    X = np.array([1.0, 1.0, 1.0, np.inf])
    assert not np.isfinite(sf.split([[5.0, 4.0, 0.0, 3.0]], "2:4") @ X).any()


def test_a_kernel_asked_for_by_name_serves_every_part_or_none() -> None:
    S, X = halves("float32"), operand("float32")
    with sf.tracing() as trace:
        sf.matmul(S, X, kernel="scipy-csr")
        with sf.use_kernel("reference"):
            S @ X
    assert trace.kernels == ["scipy-csr"] * 2 + ["reference"] * 2
    out = np.full((14, 5), 7, np.float32)
    with pytest.raises(sf.NoKernelError, match=r"needs n:m or n:m\.T, has csr"):
        sf.matmul(S, X, kernel="numpy-nm", out=out)
    assert (out == 7).all()  # nothing was written before all was prepared
    assert sf.explain(S, X, kernel="numpy-nm").chosen is None
    with pytest.raises(ValueError, match="nonsense"):
        sf.matmul(S, X, kernel="nonsense")


def test_promises_and_precision_reach_every_part() -> None:
    S, X = halves("float32"), operand("float32")
    told = sf.explain(S, X, assume_finite=True, precision="tf32")
    assert [(p.query.assume_finite, p.query.precision) for p in told.parts if p] == [
        (True, "tf32"),
        (True, "tf32"),
    ]


def test_a_repeated_product_prepares_nothing() -> None:
    for dtype in ("float32", "float16"):
        S, X = halves(dtype), operand(dtype)
        sf.clear_cache()
        first = S @ X
        packed = sf.cache_info().misses
        np.testing.assert_array_equal(S @ X, first)
        info = sf.cache_info()
        assert (info.hits, info.misses, info.matrices) == (3, packed, 3)


def test_what_is_kept_is_forgotten_with_the_parts() -> None:
    S, X = halves("float32"), operand("float32")
    sf.clear_cache()
    S @ X
    assert sf.cache_info()[:2] == (3, 3)
    sf.clear_cache(S)
    assert sf.cache_info()[:2] == (0, 0)


# ---- operands that overlap, and refusals


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_out_may_overlap_the_operand(dtype: str) -> None:
    S = halves(dtype, shape=(24, 24))
    X = operand(dtype)
    expected = S @ X
    memory = X.copy()
    assert sf.matmul(S, memory, out=memory) is memory
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_out_must_not_lie_in_any_part(dtype: str) -> None:
    D = torch.ones(4, 4).to(getattr(torch, dtype))
    first, rest = sf.split(D, "2:4").parts
    memory = torch.ones(8).to(D.dtype)
    mine = sf.CSR(memory, rest.indices, rest.indptr, (4, 4), copy=False)
    S, X = sf.Sum([first, mine]), D[:, :2].contiguous()
    for call in (sf.plan(S, X), lambda X, out: sf.matmul(S, X, out=out)):
        with pytest.raises(ValueError, match="shares memory with the sparse matrix"):
            call(X, out=memory.view(4, 2))
    assert (memory == 1).all()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda S, X: S @ X[1:], ValueError, "do not match"),
        (lambda S, X: sf.matmul(S, X, beta=1), ValueError, "needs out="),
        (lambda S, X: sf.matmul(S, X, out=np.zeros((3, 3))), ValueError, "shape"),
        (lambda S, X: S @ torch.from_numpy(X), TypeError, "torch array"),
        (lambda S, X: S.to_library("torch") @ torch.ones(24, requires_grad=True), None, "gradient"),
        (lambda S, X: sf.explain("sddmm", S, X, X), TypeError, "each of S.parts"),
    ],
)
def test_refusals(call: Any, error: Any, text: str) -> None:
    S, X = halves("float32"), operand("float32")
    with pytest.raises(error or NotImplementedError, match=text):
        call(S, X)


# ---- other operations


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_linear(activation: str | None, lead: tuple[int, ...], dtype: str, library: str) -> None:
    from tests.ops.test_linear import EPS, exact

    S, X = halves(dtype, library), operand(dtype, library, (*lead, 24))
    bias = operand(dtype, library, (14,))
    for b in (None, bias):
        y = sf.linear(X, S, b, activation=activation)
        assert (S.lib.dtype_name(y), tuple(y.shape)) == (dtype, (*lead, 14))
        assert S.lib.is_contiguous(y)
        expected = exact(X, S, b, activation)
        small = 24 * 24 * (2.0**-53 if dtype == "float64" else 2.0**-24)
        error = np.abs(S.lib.to_numpy(y).astype(np.float64) - expected)
        assert (error <= small * 4 + EPS[dtype] * np.abs(expected)).all()
        out = S.lib.zeros((*lead, 14), dtype)
        assert sf.linear(X, S, b, activation=activation, out=out) is out
        assert S.lib.equal_bits(out, y)


def test_linear_of_one_part_may_be_fused_and_of_more_is_explained() -> None:
    S, X = halves("float16"), operand("float16", shape=(3, 24))
    told = sf.explain("linear", X, S, np.ones(14, np.float16), activation="relu")
    assert told.added == "in float32; then bias+relu in float32, and rounded once to float16"
    plain = sf.explain("linear", X, S)
    assert plain.added == "in float32 and rounded once to float16"
    lone = sf.split(np.eye(8), "2:4")
    np.testing.assert_array_equal(sf.linear(np.ones(8), lone, activation="relu"), np.ones(8))
    alone = sf.explain("linear", np.ones(8), lone, activation="relu")
    assert alone.query.format == "n:m"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float64", "complex64", "float16"])
@pytest.mark.parametrize(("tokens", "turned"), [(0, False), (1, False), (64, False), (64, True)])
def test_a_layer_runs_what_its_explanation_names(
    tokens: int, turned: bool, dtype: str, library: str
) -> None:
    S = halves(dtype, library, (64, 8))
    X = operand(dtype, library, (tokens, 8) if tokens else (8,))
    if turned:
        X = operand(dtype, library, (8, tokens)).T
    with sf.tracing() as ran:
        sf.linear(X, S)
    names = [run.kernel for run in ran if run.op == "matmul"]
    assert " + ".join(names) == sf.explain("linear", X, S).chosen


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_bias_of_a_wider_dtype_is_added_in_it(library: str) -> None:
    S, X = halves("int8", library), operand("int8", library, (3, 24))
    bias = array(library, np.arange(14) / 8)
    y = sf.linear(X, S, bias)
    exact = np.asarray(X, np.float64) @ np.asarray(S.to_dense(), np.float64).T + np.arange(14) / 8
    np.testing.assert_array_equal(np.asarray(y), exact)
    assert y.dtype == bias.dtype


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", HALF)
def test_beta_scales_before_anything_is_rounded(dtype: str, library: str) -> None:
    S = sf.split(array(library, np.full((2, 4), -1, host_dtype(dtype))), "2:4")
    x = array(library, np.array([1, 1, 1, 0], host_dtype(dtype)))
    one = np.array([1], host_dtype(dtype))
    above = (one.view(np.int16) + 1).view(one.dtype)  # three times this lies between two numbers
    expected = 3 * (float(above[0]) - 1)
    for multiply in (partial(sf.matmul, S, beta=3), sf.plan(S, x, beta=3)):
        y = multiply(x, out=array(library, np.repeat(above, 2)))
        assert [float(each) for each in y] == [expected] * 2


def test_torch_functions() -> None:
    S, X = halves("float32", "torch"), operand("float32", "torch", (3, 24))
    expected = X @ S.to_dense().T
    torch.testing.assert_close(torch.nn.functional.linear(X, S), expected)
    torch.testing.assert_close(torch.matmul(S, X.T), expected.T)
    torch.testing.assert_close(X @ S.T, expected)


def test_products_of_sparse_operands_and_samples() -> None:
    S, E = halves("float64"), sf.eye(24)
    assert sf.same(S @ E, S.to("csr"), level="values")
    assert sf.same(sf.eye(14) @ S, S.to("csr"), level="values")
    assert sf.same(S.T @ S, S.to("csr").T @ S.to("csr"), level="values")
    assert sf.explain(S, E).chosen is not None
    X, Y = operand("float64", shape=(14, 3)), operand("float64", shape=(3, 24))
    P = sf.sddmm(S, X, Y)
    assert [part.format for part in P.parts] == ["2:4", "csr"]
    for i, j in ((0, 0), (3, 5), (13, 23)):
        assert P[i, j] == pytest.approx((X @ Y)[i, j] if S[i, j] else 0)
    assert P.nnz == S.nnz


# ---- planted bugs: each makes the ordinary tests above fail


def forgets_a_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sums, "working", lambda A: [*A.parts[:1]])


def writes_instead_of_adding(patch: pytest.MonkeyPatch) -> None:
    whole = sums.execute

    def execute(light: Any, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        return whole(light, x, out, alpha, 0)

    patch.setattr(sums, "execute", execute)


def scales_out_twice(patch: pytest.MonkeyPatch) -> None:
    whole = sums.execute

    def execute(light: Any, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        return whole(light, x, out, alpha, 2 if beta == 1 else beta)

    patch.setattr(sums, "execute", execute)


@pytest.mark.parametrize("plant", [forgets_a_part, writes_instead_of_adding, scales_out_twice])
def test_planted(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        test_larger_ones("2:4", "float32", "numpy")


def test_rounding_each_part_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow_only(o: Any, out: Any, alpha: Any, beta: Any, options: Any) -> Any:
        return o, preparing.query_of(o, out, alpha, beta, options)

    monkeypatch.setattr(product, "judged", narrow_only)
    monkeypatch.setattr(sum_explaining, "judged", narrow_only)
    with pytest.raises(AssertionError):
        test_half_types_are_added_before_they_are_rounded("float16", "numpy")


def test_kinds_of_the_strategy_have_parts() -> None:
    """The law above is worth something: sums of several parts, some of which have slots."""
    seen: set[tuple[int, bool]] = set()

    @given(matrices("sum"))
    def look(A: Any) -> None:
        seen.add((len(A.parts), any(part.family in ("n:m", "bsr") for part in A.parts)))

    look()
    assert {(1, True), (2, True), (3, True)} <= seen
    assert _dtypes.accumulator("float16") == "float32"
