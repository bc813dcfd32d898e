"""The strategies draw what conversions like to get wrong, and draw nothing invalid."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from sparseformats import reference, testing
from sparseformats._dtypes import VALUE_DTYPES
from sparseformats.formats import COO
from sparseformats.reference.decoding import is_nonzero
from sparseformats.testing import LAYOUTS, dense_operands, laid_out, matrices, raw_inputs
from sparseformats.testing.raw import RawInput

# Much fewer than a nightly run; what needs more luck than this is drawn too seldom.
EXAMPLES = settings(
    max_examples=250,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
EVERY = (*testing.FORMATS, "bsr.T", "blocked_ell.T", "n:m.T")


def features(A: Any) -> set[str]:
    """What an example exercises."""
    s = reference.slots(A)
    values, base = s.values[s.stored], A.base if A.format.endswith(".T") else A
    found = {f"index {base.index_dtype}"} if ":" not in base.format else set()
    found |= {"empty shape"} if 0 in A.shape else set()
    found |= {"fill"} if not s.stored.all() else set()
    zero = ~is_nonzero(values)
    found |= {"stored zero"} if zero.any() else set()
    if values.dtype.kind not in "biuc":
        bits = values.view(f"u{values.dtype.itemsize}")
        nan, top = np.isnan(values), 8 * values.dtype.itemsize - 1
        found |= {"-0.0"} if (zero & (bits != 0)).any() else set()
        found |= {"nan"} if nan.any() else set()
        found |= {"inf"} if np.isinf(values).any() else set()
        found |= {"negative nan"} if (nan & (bits >> top != 0)).any() else set()
        found |= {"subnormal"} if (~zero & (bits << 1 >> 1 < 1 << 7)).any() else set()
    found |= slot_features(base)
    return found


def slot_features(A: Any) -> set[str]:
    found = {"all"} if isinstance(getattr(A, "zeros", None), str) else set()
    found |= {"marks"} if isinstance(getattr(A, "zeros", None), np.ndarray) else set()
    found |= {"side"} if getattr(A, "side", None) is not None else set()
    if A.family == "bsr":
        ragged = A.shape[0] % A.blocksize[0] or A.shape[1] % A.blocksize[1]
        found |= {"ragged"} if ragged and A.data.size else set()
        found |= {"rectangular"} if A.blocksize[0] != A.blocksize[1] and A.data.size else set()
        found |= {"block without elements"} if (~A.stored_mask()).all(axis=(1, 2)).any() else set()
    if A.family == "blocked_ell":
        found |= {"width 0"} if A.data.shape[1] == 0 else set()
        found |= {"empty slot"} if (A.col_indices < 0).any() else set()
    if A.family == "n:m" and A.data.size:
        filled = is_nonzero(A.data).sum(axis=2)
        found |= {f"{kind} group" for kind, has in (("empty", filled == 0), ("full", filled == A.n))
                  if has.any()}  # fmt: skip
        found |= {"ragged"} if A.shape[1] % A.m else set()
    return found


VALUES = {"stored zero", "-0.0", "nan", "inf", "negative nan", "subnormal", "empty shape"}
WIDTHS = {"index int32", "index int64"}
EXPECTED = {
    "coo": VALUES | WIDTHS,
    "csr": VALUES | WIDTHS,
    "csc": VALUES | WIDTHS,
    "bsr": VALUES
    | WIDTHS
    | {"fill", "all", "marks", "ragged", "rectangular", "block without elements"},
    "blocked_ell": VALUES | WIDTHS | {"fill", "all", "marks", "width 0", "empty slot"},
    "n:m": VALUES | {"fill", "all", "marks", "side", "empty group", "full group", "ragged"},
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # signalling NaNs
@pytest.mark.parametrize("format", EXPECTED)
def test_every_feature_is_drawn(format: str) -> None:
    seen: Counter[str] = Counter()

    @EXAMPLES
    @given(matrices(format))
    def draw(A: Any) -> None:
        seen.update(features(A))

    draw()
    assert EXPECTED[format] <= set(seen), EXPECTED[format] - set(seen)


@pytest.mark.parametrize("library", ["numpy", "torch", "array_api_strict"])
def test_every_value_type_of_a_library_is_drawn(library: str) -> None:
    testing.register_strict()
    seen = set()

    @EXAMPLES
    @given(matrices("coo", library=library, shapes=(0, 0)))
    def draw(A: Any) -> None:
        assert A.library == library
        seen.add(A.dtype_name)

    draw()
    assert seen == set(VALUE_DTYPES[library])


@pytest.mark.parametrize("format", testing.FORMATS)
def test_raw_input_is_drawn_in_every_style(format: str) -> None:
    seen: Counter[str] = Counter()

    @EXAMPLES
    @given(raw_inputs(format))
    def draw(raw: RawInput) -> None:
        seen["canonical" if raw.canonical else "not canonical"] += 1
        seen["summed"] += bool(raw.summed)

    draw()
    assert min(seen["canonical"], seen["not canonical"], seen["summed"]) >= 5, seen


def test_options_are_respected() -> None:
    @settings(max_examples=30)
    @given(
        matrices(
            ["bsr", "blocked_ell"],
            shapes=(5, 7),
            blocksizes=(3, 3),
            dtypes="int16",
            index_dtypes="int64",
            values=st.integers(-4, 4),
        )
    )
    def draw(A: Any) -> None:
        assert (A.shape, A.blocksize, A.dtype_name) == ((5, 7), (3, 3), "int16")
        assert A.index_dtype == np.int64
        assert np.abs(A.data).max(initial=0) <= 4

    draw()


@pytest.mark.parametrize("format", ["2:4", "1:2", "2:4.T", "bsr.T"])
def test_one_format_may_be_named(format: str) -> None:
    @settings(max_examples=10)
    @given(matrices(format))
    def draw(A: Any) -> None:
        assert A.format == format

    draw()


def raw_duplicates() -> RawInput:
    meaning = reference.Content((1, 2), "float64", {(0, 1): np.float64(3).tobytes()})
    arrays = {"data": np.array([1.0, 2.0]), "row": np.zeros(2, int), "col": np.ones(2, int)}
    where = frozenset({(0, 1)})
    return RawInput("coo", COO, arrays, {"shape": (1, 2)}, meaning, where, False)


def test_raw_input_finds_a_wrong_matrix() -> None:
    raw = raw_duplicates()
    raw.check(raw.build())
    row, col = np.array([0]), np.array([1])
    with pytest.raises(AssertionError, match=r"at \(0, 1\): expected bits"):
        raw.check(COO(np.array([2.0]), row, col, (1, 2)))
    with pytest.raises(AssertionError, match=r"lost \[\(0, 1\)\], invented \[\(0, 0\)\]"):
        raw.check(COO(np.array([3.0]), row, row, (1, 2)))
    with pytest.raises(AssertionError, match=r"expected \(\(1, 2\), 'float64'\), got \(\(2, 2\)"):
        raw.check(COO(np.array([3.0]), row, col, (2, 2)))


def test_the_sign_of_a_zero_is_open_only_where_values_were_summed() -> None:
    zero, minus = np.float64(0).tobytes(), np.float64(-0.0).tobytes()
    for where in (frozenset({(0, 0)}), frozenset()):
        meaning = reference.Content((1, 1), "float64", {(0, 0): zero})
        raw = RawInput("coo", COO, {}, {}, meaning, where)
        A = COO(np.frombuffer(minus), np.array([0]), np.array([0]), (1, 1))
        if where:
            raw.check(A)
        else:
            with pytest.raises(AssertionError, match="expected bits"):
                raw.check(A)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(4,), (0,), (3, 4), (0, 4), (3, 0), (2, 3, 4)])
def test_layouts_hold_the_same_values(library: str, layout: str, shape: Any) -> None:
    from sparseformats import _arrays

    lib = _arrays.library(library)
    X = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    if layout == "broadcast" and X.ndim > 1:
        X[...] = X[..., :1, :]
    Y = laid_out(X, layout, lib)
    assert tuple(Y.shape) == shape
    assert np.array_equal(lib.to_numpy(Y), X)


def test_operands_come_in_every_shape_and_layout() -> None:
    A = COO(np.ones(1), np.array([0]), np.array([0]), (3, 4))
    seen: set[Any] = set()

    @EXAMPLES
    @given(dense_operands(A), dense_operands(A, left=True), st.data())
    def draw(X: Any, Y: Any, data: Any) -> None:
        assert X.shape[max(X.ndim - 2, 0)] == 4
        assert Y.shape[-1] == 3
        assert dense_operands(A, dtypes="int32") is not None
        seen.add(X.ndim)
        seen.add("contiguous" if X.flags.c_contiguous else "not contiguous")
        seen.add("negative" if min(X.strides) < 0 else "-")
        seen.add("broadcast" if X.ndim > 1 and X.size and 0 in X.strides else "-")

    draw()
    assert seen >= {1, 2, 3, "contiguous", "not contiguous", "negative", "broadcast"}


def test_an_operand_may_have_another_type() -> None:
    A = COO(np.ones(1), np.array([0]), np.array([0]), (3, 4))

    @settings(max_examples=10)
    @given(dense_operands(A, dtypes=["int32", "float16"], batched=False))
    def draw(X: Any) -> None:
        assert X.dtype in (np.int32, np.float16)
        assert X.ndim == 2

    draw()
