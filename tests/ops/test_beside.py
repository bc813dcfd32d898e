"""Layers with scales, a residual and a dtype of their own, on every kernel of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.dispatch import KernelRecord, checks
from sparseformats.ops import explain_linear, layer
from tests.kernels.cpu.products import array
from tests.kernels.triton.layers import assert_layer

LIBRARIES = ("numpy", "torch")
NARROW = (
    ("numpy", "int8"),
    ("torch", "int8"),
    ("torch", "float8_e4m3fn"),
    ("torch", "float8_e5m2"),
)
FORMATS = ("csr", "coo", "bsr", "blocked_ell", "2:4", "bsr.T")
M, K, LEAD = 12, 16, (2, 5)


def draw(library: str, *shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    if dtype == "int8":
        x = np.clip(np.round(40 * x), -128, 127)
    if library == "numpy":
        import ml_dtypes

        return x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return torch.from_numpy(x).to(getattr(torch, dtype))


def weight(library: str, dtype: str, format: str = "csr") -> Any:
    D = draw(library, M, K, dtype="int8" if dtype == "int8" else "float32", seed=1)
    D[:, 2::4] = D[:, 3::4] = 0
    D = D if library == "numpy" else D.to(getattr(torch, dtype))
    options = {"bsr": {"blocksize": (3, 2)}, "blocked_ell": {"blocksize": 4}}
    if format == "bsr.T":
        return sf.from_dense(D.T, "bsr", blocksize=(2, 3)).T
    return sf.from_dense(D, format, **options.get(format, {}))


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    sf.clear_cache()
    yield
    sf.clear_cache()


@pytest.mark.parametrize(("library", "dtype"), NARROW)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("gives", ["float16", "bfloat16", "float32"])
def test_scaled_layers(library: str, dtype: str, format: str, gives: str) -> None:
    W, X = weight(library, dtype, format), draw(library, *LEAD, K, dtype=dtype, seed=2)
    tokens, rows = draw(library, *LEAD, seed=3), draw(library, M, seed=4)
    one = draw(library, 1, seed=5)
    bias, residual = draw(library, M, seed=6), draw(library, *LEAD, M, dtype=gives, seed=7)
    for a, b in ((None, None), (0.5, one), (tokens, None), (tokens[..., None], rows[:, None])):
        for options in ({}, {"bias": bias, "activation": "gelu", "residual": residual}):
            given = {"scale_a": a, "scale_b": b, **options}
            Y = sf.linear(X, W, out_dtype=gives, **given)
            out = W.lib.full((*LEAD, M), float("nan"), gives)
            for _ in range(2):
                assert sf.linear(X, W, out_dtype=gives, out=out, **given) is out
            assert W.lib.equal_bits(out, Y)
            bias_, activation = given.pop("bias", None), given.pop("activation", None)
            assert_layer(Y, X, W, bias_, activation, dtype=gives, **given)


@pytest.mark.parametrize("lead", [(), (1,), (4,), (0,), (2, 0, 3), (2, 1, 3)])
@pytest.mark.parametrize(("library", "dtype"), NARROW[:3])
def test_shapes_of_scales(library: str, dtype: str, lead: tuple[int, ...]) -> None:
    W, X = weight(library, dtype, "bsr"), draw(library, *lead, K, dtype=dtype, seed=2)
    tokens = draw(library, *lead, seed=3)
    tokens = array(library, np.asarray(tokens)) if library == "numpy" else tokens
    rows = draw(library, M, seed=4)
    for a in (tokens, tokens[..., None]):
        for b in (rows, rows[:, None], rows[None, :]):
            Y = sf.linear(X, W, scale_a=a, scale_b=b, out_dtype="float32")
            assert tuple(Y.shape) == (*lead, M)
            assert_layer(Y, X, W, None, None, scale_a=a, scale_b=b, dtype="float32")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_residuals(library: str, dtype: str, activation: str | None) -> None:
    kind = "float32" if dtype.startswith("b") and library == "numpy" else dtype
    W = weight(library, "int8" if dtype == "int32" else "float32", "bsr").astype(kind)
    integer = dtype == "int32"
    parts = {"X": (*LEAD, K), "bias": (M,), "residual": (*LEAD, M)}
    made = {}
    for seed, (name, shape) in enumerate(parts.items()):
        x = draw(library, *shape, dtype="int8" if integer else kind, seed=seed)
        made[name] = W.lib.astype(x, kind)
    X, bias, residual = made.values()
    for given in (None, bias):
        Y = sf.linear(X, W, given, activation=activation, residual=residual)
        if integer:
            y = sf.linear(X, W, given, activation=activation)
            assert W.lib.equal_bits(Y, y + residual)
            continue
        assert_layer(Y, X, W, given, activation, residual=residual)
        strided = W.lib.full((*LEAD, 2 * M), 0, kind)[..., ::2]
        strided[...] = residual
        kept = W.lib.copy(strided)
        assert (
            sf.linear(X, W, given, activation=activation, residual=strided, out=strided) is strided
        )
        assert_layer(strided, X, W, given, activation, residual=kept)


def test_half_types_are_rounded_once_behind_a_residual() -> None:
    """1 + 2**-11 + 2**-11 is 1 if each sum is rounded to float16."""
    W = sf.from_dense(torch.ones(1, 2, dtype=torch.float16), "csr")
    small = torch.full((1, 1), 2.0**-11, dtype=torch.float16)
    X = torch.tensor([[1.0, 2.0**-11]], dtype=torch.float16)
    assert float(sf.linear(X, W, residual=small)) == 1 + 2.0**-10


def test_scaled_sums_are_rounded_once() -> None:
    """448 + 1 is 448 in e4m3, and so is half of it twice; int8 sums that float16 cannot hold."""
    X = torch.tensor([[448.0, 1.0]]).to(torch.float8_e4m3fn)
    W = sf.from_dense(torch.ones(1, 2).to(torch.float8_e4m3fn), "csr")
    assert float(sf.linear(X, W, out_dtype=torch.float32)) == 449
    assert float(sf.linear(X, W, scale_a=2.0**-9, out_dtype="float16")) == 449 / 512
    X8, W8 = torch.full((1, 64), 127, dtype=torch.int8), torch.full((1, 64), 127, dtype=torch.int8)
    y = sf.linear(X8, sf.from_dense(W8, "csr"), scale_b=2.0**-12, out_dtype="float16")
    assert float(y) == float(torch.tensor(64 * 127 * 127 / 4096).half())


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_repeated_call_prepares_nothing(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    W, X = weight(library, "int8", "bsr"), draw(library, 5, K, dtype="int8", seed=2)
    vectors = [draw(library, 5, seed=seed) for seed in range(3)]
    sf.linear(X, W, scale_a=0.5, scale_b=vectors[0][:1], out_dtype="float32")
    sf.linear(X, W, scale_a=vectors[0], out_dtype="float32")

    def fail(*_: Any) -> Any:
        raise AssertionError("the warm path does not come here")

    monkeypatch.setattr(layer, "_anew", fail)
    for number, scale in enumerate(vectors):  # other values are no other facts
        a, b = 0.25 * number + 0.1, scale[:1]
        y = sf.linear(X, W, scale_a=a, scale_b=b, out_dtype="float32")
        assert_layer(y, X, W, None, None, scale_a=a, scale_b=b, dtype="float32")
        y = sf.linear(X, W, scale_a=scale, out_dtype="float32")
        assert_layer(y, X, W, None, None, scale_a=scale, dtype="float32")
    for other in ({"out_dtype": "float16"}, {"out_dtype": "float32", "residual": vectors[0]}):
        with pytest.raises(AssertionError, match="warm path"):
            sf.linear(X, W, scale_a=0.5, scale_b=vectors[0][:1], **other)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_option_has_a_plan_of_its_own(library: str) -> None:
    W, X = weight(library, "int8", "bsr"), draw(library, 5, K, dtype="int8", seed=2)
    tokens, rows, R = (
        draw(library, 5, seed=3),
        draw(library, M, seed=4),
        draw(library, 5, M, seed=5),
    )
    choices: list[dict[str, Any]] = [
        {"residual": W.lib.astype(R, "int32")},
        {"out_dtype": "float32"},
        {"out_dtype": "float16"},
        {"out_dtype": "float32", "residual": R},
        {"out_dtype": "float32", "scale_a": 0.5},
        {"out_dtype": "float32", "scale_b": 0.25},
        {"out_dtype": "float32", "scale_a": 0.125, "scale_b": rows},
        {"out_dtype": "float32", "scale_a": tokens},
        {"out_dtype": "float32", "scale_a": tokens[:1], "residual": R},
    ]
    for _ in range(2):
        for given in choices:
            options = dict(given)
            Y = sf.linear(X, W, **options)
            dtype = options.pop("out_dtype", "int32")
            if dtype == "int32":
                assert W.lib.equal_bits(Y, sf.linear(X, W) + options["residual"])
            else:
                assert_layer(Y, X, W, None, None, dtype=dtype, **options)


@pytest.mark.parametrize(("library", "dtype"), NARROW[:3])
def test_sums_of_parts(library: str, dtype: str) -> None:
    W = weight(library, dtype)
    S = sf.split(W, "2:4")[0] if isinstance(sf.split(W, "2:4"), tuple) else sf.split(W, "2:4")
    X, R = draw(library, 5, K, dtype=dtype, seed=2), draw(library, 5, M, seed=3)
    a, b = draw(library, 5, seed=4), draw(library, M, seed=5)
    options: dict[str, Any] = {"scale_a": a, "scale_b": b, "residual": R, "out_dtype": "float32"}
    Y = sf.linear(X, S, activation="relu", **options)
    options.pop("out_dtype")
    assert_layer(Y, X, W, None, "relu", dtype="float32", **options)


class Partial:
    """A kernel that fuses a bias, and a residual where its record says so."""

    @staticmethod
    def pack(A: Any, query: Any) -> Any:
        return A.lib, A.lib.to_numpy(A.to_dense()).T if query.transposed else A.to_dense()

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
        residual: Any = None,
    ) -> Any:
        y = state[1] @ x
        y = y if bias is None else y + bias[:, None]
        out[...] = y if residual is None else y + residual
        return out


def test_all_but_the_residual_may_be_fused() -> None:
    record = KernelRecord(
        "partial",
        "matmul",
        dispatch.ANY,
        f"{__name__}:Partial",
        cost=lambda query: 0.0,
        checks=(checks.epilogue_in(None, "bias"),),
    )
    W, X = weight("numpy", "float32", "bsr"), draw("numpy", 5, K)
    bias, R = draw("numpy", M, seed=3), draw("numpy", 5, M, seed=4)
    with dispatch.temporary(record), sf.tracing() as trace:
        for options in ({}, {"activation": "relu"}):
            Y = sf.linear(X, W, bias, residual=R, **options)
            assert_layer(Y, X, W, bias, options.get("activation"), residual=R)
    runs = [run for run in trace if run.op == "matmul"]
    assert [run.query.epilogue for run in runs if run.query is not None] == ["bias", None]
    assert {run.kernel for run in runs} == {"partial"}


def test_a_kernel_that_names_scales_is_given_them_as_vectors() -> None:
    seen: dict[str, Any] = {}

    class Scaling:
        @staticmethod
        def pack(A: Any, query: Any) -> Any:
            return A.to_dense()

        @staticmethod
        def bind_epilogue(state: Any, query: Any) -> Any:
            def run(x: Any, out: Any, alpha: Any, beta: Any, bias: Any, **beside: Any) -> Any:
                seen.update(beside, alpha=alpha, query=query, bias=bias)
                out[...] = 1
                return out

            return run

    Partial.scaling = Scaling  # type: ignore[attr-defined]
    record = KernelRecord(
        "scaling",
        "matmul",
        dispatch.ANY,
        f"{__name__}:Partial.scaling",
        cost=lambda query: 0.0,
        checks=(checks.epilogue_of("scale", "bias", "activation", "residual"),),
    )
    W, X = weight("torch", "int8", "bsr"), draw("torch", 2, 5, K, dtype="int8")
    bias, R = draw("torch", M).half(), draw("torch", 2, 5, M).half()
    options: dict[str, Any] = {
        "scale_a": draw("torch", 2, 5),
        "scale_b": 3.0,
        "out_dtype": "float16",
    }
    with dispatch.temporary(record):
        sf.linear(X, W, bias, residual=R, activation="relu", **options)
        told = explain_linear(X, W, bias, residual=R, activation="relu", **options)
    assert seen["query"].epilogue == "scale+bias+relu+residual"
    assert (seen["query"].out_dtype, seen["query"].alpha_one, seen["alpha"]) == (
        "float16",
        False,
        3,
    )
    assert tuple(seen["column_scale"].shape) == (10,)
    assert "row_scale" not in seen
    assert seen["bias"].dtype == torch.float32
    assert tuple(seen["residual"].shape) == (M, 10)
    assert told.query == seen["query"]


class Spoiling:
    """A kernel that fuses all, and spoils `out` before it reads anything: its order is its own."""

    @staticmethod
    def pack(A: Any, query: Any) -> Any:
        return A.to_dense()

    @staticmethod
    def bind_epilogue(state: Any, query: Any) -> Any:
        def run(x: Any, out: Any, alpha: Any, beta: Any, bias: Any, **beside: Any) -> Any:
            out[...] = float("nan")
            y = alpha * (state.astype("float32") @ x.astype("float32"))
            y = y * beside["row_scale"][:, None] * beside["column_scale"] + bias[:, None]
            out[...] = y + beside["residual"]
            return out

        return run


Partial.spoiling = Spoiling  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["x", "bias", "residual", "scale_a", "scale_b"])
def test_out_may_overlap_whatever_a_kernel_that_fuses_reads(name: str) -> None:
    record = KernelRecord(
        "spoiling",
        "matmul",
        dispatch.ANY,
        f"{__name__}:Partial.spoiling",
        cost=lambda query: 0.0,
        checks=(checks.epilogue_of("scale", "bias", "activation", "residual"),),
    )
    W, memory = weight("numpy", "int8", "bsr"), np.zeros(400, np.float32)
    sizes = {"bias": (M,), "residual": (5, M), "scale_a": (5,), "scale_b": (M,)}
    with dispatch.temporary(record), sf.tracing() as trace:
        for first in (200, 0):  # the second call finds the plan of the first
            given = {n: draw("numpy", *size, seed=len(n)) for n, size in sizes.items()}
            X, out = draw("numpy", 5, K, dtype="int8", seed=9), memory[3 : 3 + 5 * M].reshape(5, M)
            expected = sf.linear(X, W, kernel="spoiling", out_dtype="float32", **given)
            old = X if name == "x" else given[name]
            place = memory[first : first + old.nbytes // 4]
            place = (place.view(np.int8) if name == "x" else place).reshape(old.shape)
            place[...] = old
            X, given = (place, given) if name == "x" else (X, {**given, name: place})
            assert sf.linear(X, W, out_dtype="float32", out=out, **given) is out
            assert np.array_equal(out, expected)
    assert {run.kernel for run in trace if run.op == "matmul"} == {"spoiling"}


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"scale_a": 1.0}, ValueError, "scaled product of int8 is no int32; give out_dtype=float16"),
    ({"out_dtype": "float64"}, TypeError, "must be int32 or float16 or bfloat16 or float32, got"),
    ({"out_dtype": [1]}, TypeError, "out_dtype of X of int8 and W of int8 must be"),
    ({"scale_a": torch.ones(3), "out_dtype": "float16"}, ValueError,
     r"one scale, or of shape \(5,\) or \(5, 1\), has \(3,\)"),
    ({"scale_b": torch.ones(5), "out_dtype": "float16"}, ValueError,
     r"of shape \(12,\) or \(12, 1\) or \(1, 12\), has \(5,\)"),
    ({"scale_b": torch.ones(12).double(), "out_dtype": "float16"}, TypeError,
     "scale_b must be of float32"),
    ({"scale_b": np.ones(12, np.float32), "out_dtype": "float16"}, TypeError,
     "scale_b must be a number or a torch array, got ndarray"),
    ({"scale_a": True, "out_dtype": "float16"}, TypeError, "scale_a must be a number or"),
    ({"scale_a": 1j, "out_dtype": "float16"}, TypeError, "scale_a must be a number or"),
    ({"scale_a": np.complex64(1), "out_dtype": "float16"}, TypeError,
     "scale_a must be a real number"),
    ({"residual": torch.ones(5, 11)}, ValueError,
     r"residual must have the result's shape \(5, 12\)"),
    ({"residual": 3}, TypeError, "residual must be a torch array, got int"),
    ({"residual": torch.ones(5, 12), "out_dtype": "float16"}, ValueError,
     "residual of float32 does not fit into the result of float16"),
    ({"bias": torch.ones(12).double(), "out_dtype": "float16"}, ValueError,
     "bias of float64 does not fit"),
    ({"bias": torch.ones(12), "out_dtype": "int32"}, ValueError, "bias of float32 does not fit"),
    ({"scale_a": torch.ones(1, device="meta"), "out_dtype": "float16"}, sf.DeviceMismatchError,
     "scale_a is on 'meta'"),
    ({"residual": torch.ones(5, 12, requires_grad=True)}, NotImplementedError,
     "residual requires grad"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals(number: int) -> None:
    options, kind, text = REFUSED[number]
    W, X = weight("torch", "int8"), draw("torch", 5, K, dtype="int8")
    for _ in range(2):
        with pytest.raises(kind, match=text):
            sf.linear(X, W, **options)
    with pytest.raises(kind, match=text):
        sf.explain("linear", X, W, **options)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("wrong", [np.complex64(2 + 1j), np.complex128(2), 2 + 1j, True, "2"])
def test_a_repeated_call_refuses_the_same_scales(library: str, wrong: Any) -> None:
    """Plans do not depend on the numbers, but a number of another kind has none."""
    W, X = weight(library, "int8"), draw(library, 5, K, dtype="int8")
    for name in ("scale_a", "scale_b"):
        sf.linear(X, W, **{name: 0.5}, out_dtype="float32")
        with pytest.raises(TypeError, match=f"{name} must be a (real )?number"):
            sf.linear(X, W, **{name: wrong}, out_dtype="float32")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("gives", ["float16", "bfloat16", "float32"])
def test_every_spelling_of_a_dtype(library: str, gives: str) -> None:
    import ml_dtypes

    W, X = weight(library, "int8"), draw(library, 5, K, dtype="int8")
    of_numpy = ml_dtypes.bfloat16 if gives == "bfloat16" else getattr(np, gives)
    for spelling in (gives, of_numpy, np.dtype(of_numpy), getattr(torch, gives)):
        y = sf.linear(X, W, scale_a=0.5, out_dtype=spelling)
        assert W.lib.dtype_name(y) == gives
    for wrong in (float, np.float64, torch.float64, np.int8, object()):
        with pytest.raises(TypeError, match="must be int32 or float16 or bfloat16 or float32"):
            sf.linear(X, W, scale_a=0.5, out_dtype=wrong)
    y = sf.linear(X, W, out_dtype=np.int32)
    assert W.lib.dtype_name(y) == "int32"


def test_scales_are_for_narrow_operands() -> None:
    W, X = weight("torch", "float32"), draw("torch", 5, K)
    with pytest.raises(
        TypeError, match="scales are for X and W both of one of int8, float8_e4m3fn"
    ):
        sf.linear(X, W, scale_a=1.0)
    with pytest.raises(
        TypeError, match="out_dtype of X of float32 and W of float32 must be float32"
    ):
        sf.linear(X, W, out_dtype="float16")
    assert sf.linear(X, W, out_dtype=torch.float32).dtype == torch.float32
    mixed = draw("torch", 5, K, dtype="int8").to(torch.uint8)
    with pytest.raises(TypeError, match="got X of uint8 and W of int8"):
        sf.linear(mixed, weight("torch", "int8"), scale_a=1.0, out_dtype="float32")


def test_sums_of_int8_that_may_not_fit_are_refused() -> None:
    X = torch.ones(1, 2**17, dtype=torch.int8)
    W = sf.CSR(torch.ones(1, dtype=torch.int8), torch.tensor([5]), torch.tensor([0, 1]), (1, 2**17))
    for options in ({"out_dtype": "float32"}, {"scale_a": 2.0, "out_dtype": "float16"}):
        with pytest.raises(ValueError, match="more than 131,071 columns may leave int32"):
            sf.linear(X, W, **options)
    assert int(sf.linear(X, W)) == 1
    W = sf.CSR(W.data, W.indices, W.indptr, (1, 2**17 - 1))
    assert float(sf.linear(X[:, 1:], W, out_dtype="float32")) == 1


class Batching(Partial):
    """A kernel that takes batches of four columns and more as they are."""

    SEEN: list[Any] = []  # noqa: RUF012

    @staticmethod
    def bind_batch(state: Any, query: Any) -> Any:
        def run(x: Any, out: Any, alpha: Any, beta: Any, *bias: Any, **beside: Any) -> Any:
            Batching.SEEN.append((x, query, beside))
            y = state[1] @ x if not bias else state[1] @ x + bias[0][:, None]
            out[...] = y + beside["residual"] if beside else y
            return out

        return run


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("parts", [(), ("bias",), ("bias", "residual")])
def test_batches_of_tokens_that_are_no_matrix(library: str, parts: tuple[str, ...]) -> None:
    record = KernelRecord(
        "batching",
        "matmul",
        dispatch.ANY,
        f"{__name__}:Batching",
        cost=lambda query: 0.0,
        batches=4,
        checks=(checks.epilogue_of("bias", "residual"),),
    )
    W, wide = weight(library, "float32", "bsr"), draw(library, 3, 9, K + 4, seed=2)
    bias, R = draw(library, M, seed=3), draw(library, 3, 9, M, seed=4)
    with dispatch.temporary(record):
        for tokens, taken in ((wide[:, 1:8, :K], True), (wide[:, :3, :K], False)):
            Batching.SEEN.clear()
            r = R[:, : tokens.shape[1]] if "residual" in parts else None
            given: dict[str, Any] = {"residual": r}
            for out in (None, W.lib.full((3, tokens.shape[1], 2 * M), 0, "float32")[..., ::2]):
                y = sf.linear(tokens, W, bias if parts else None, out=out, **given)
                assert out is None or y is out
                assert_layer(y, tokens, W, bias if parts else None, None, residual=r)
            assert len(Batching.SEEN) == 2 * taken
            for x, query, _ in Batching.SEEN:
                assert W.lib.address(x) == W.lib.address(tokens)  # nothing was copied
                assert (query.batch, query.n) == (3, 7)


def test_whole_results_by_name() -> None:
    W, X = weight("torch", "int8"), draw("torch", 5, K, dtype="int8")
    bias = torch.arange(M, dtype=torch.int32)
    y = sf.linear(X, W, bias, out_dtype="int32")
    assert torch.equal(y, sf.linear(X, W, bias))
    y8 = sf.linear(X.to(torch.float8_e5m2), weight("torch", "float8_e5m2"), scale_a=0.5)
    assert y8.dtype == torch.float8_e5m2


def test_the_quicker_way_to_add_a_residual_is_taken() -> None:
    """A slow kernel that fuses it against a quick one and a pass of its own."""
    names = (("bias",), ("bias", "residual"))
    for cost, expected in ((100.0, "bias"), (10.0, "bias+residual")):
        records = [
            KernelRecord(
                f"adds-{number}",
                "matmul",
                dispatch.ANY,
                f"{__name__}:Partial",
                cost=lambda query, time=time: time,  # type: ignore[misc]
                checks=(checks.epilogue_of(*parts),),
            )
            for number, (time, parts) in enumerate(zip((5.0, cost), names, strict=True))
        ]
        W, X = weight("numpy", "float32", "bsr"), draw("numpy", 5, K)
        bias, R = draw("numpy", M, seed=3), draw("numpy", 5, M, seed=4)
        with dispatch.temporary(*records):
            told = explain_linear(X, W, bias, residual=R)
        assert told.query.epilogue == expected


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_half_type_residual_behind_a_fused_layer_is_rounded_once(library: str) -> None:
    record = KernelRecord(
        "partial",
        "matmul",
        dispatch.ANY,
        f"{__name__}:Partial",
        cost=lambda query: 0.0,
        checks=(checks.epilogue_in(None, "bias"),),
    )
    W = weight(library, "float32", "bsr").astype("float16")
    X, bias = (W.lib.astype(draw(library, *s, seed=9), "float16") for s in ((5, K), (M,)))
    R = W.lib.astype(draw(library, 5, M, seed=4), "float16")
    with dispatch.temporary(record):
        y, z = sf.linear(X, W, bias), sf.linear(X, W, bias, residual=R)
    wide = W.lib.to_numpy(y).astype(np.float32) + W.lib.to_numpy(R).astype(np.float32)
    assert (W.lib.to_numpy(z) == wide.astype(np.float16)).all()


PLANTED = {
    "scales of the other side": lambda p, a, b, r: torch.relu(p * a[:, None] * a.mean()) + r,
    "no scale of the weight": lambda p, a, b, r: torch.relu(p * a[:, None]) + r,
    "scaled behind the activation": lambda p, a, b, r: torch.relu(p) * a[:, None] * b + r,
    "residual before the activation": lambda p, a, b, r: torch.relu(p * a[:, None] * b + r),
    "no residual": lambda p, a, b, r: torch.relu(p * a[:, None] * b),
    "sums rounded before they are scaled": (
        lambda p, a, b, r: torch.relu(p.bfloat16() * a[:, None] * b) + r
    ),
    "sums of half precision": lambda p, a, b, r: torch.relu(p.half() * a[:, None] * b) + r,
    "wrapped sums": lambda p, a, b, r: torch.relu(p.to(torch.int8) * a[:, None] * b) + r,
}


@pytest.mark.parametrize("bug", [None, *PLANTED])
def test_the_checker_rejects(bug: str | None) -> None:
    W, X = weight("torch", "int8"), draw("torch", 5, K, dtype="int8")
    a, b, R = draw("torch", 5, seed=3), draw("torch", M, seed=4), draw("torch", 5, M, seed=5)
    product = (X.int() @ W.to_dense().int().T).float()
    right = torch.relu(product * a[:, None] * b) + R
    made = right if bug is None else PLANTED[bug](product, a, b, R)
    about = {"residual": R, "scale_a": a, "scale_b": b, "dtype": "float32"}
    if bug is None:
        assert_layer(made, X, W, None, "relu", **about)
        return
    with pytest.raises(AssertionError, match="elements are wrong"):
        assert_layer(made.float(), X, W, None, "relu", **about)
