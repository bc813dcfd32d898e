"""The packed 2:4 layout against torch's own conversions and a golden order, bit for bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import _arrays
from sparseformats.convert.interop.cutlass24 import PACKINGS, pack, unpack
from sparseformats.errors import InvalidTensorError, LossyConversionError, PatternError
from sparseformats.testing import check_valid
from sparseformats.testing.strict import register_strict

from . import packed24 as cases

torch = pytest.importorskip("torch")
oracle = pytest.importorskip("torch.sparse._semi_structured_conversions")
register_strict()

LIBRARIES = ("numpy", "torch", "array_api_strict")
DTYPES = cases.DTYPES


def combinations() -> list[tuple[str, str]]:
    halves = ("float16", "bfloat16")
    return [(d, x) for d in DTYPES for x in LIBRARIES if "strict" not in x or d not in halves]


def moved(x: Any, library: str) -> Any:
    """A torch tensor as an array of another library."""
    if library == "torch":
        return x
    lib = _arrays.library(library)
    bits = _arrays.library("torch").bits(x).numpy()
    return lib.from_bits(lib.from_numpy(bits), str(x.dtype).removeprefix("torch."))


def packed_by_torch(raw: Any, dtype: str) -> tuple[Any, Any]:
    """torch's own packing of a dense matrix given by its bits."""
    convert = oracle.sparse_semi_structured_from_dense_cutlass
    values = cases.by_bytes(lambda D: convert(D)[0], raw, dtype)
    return cases.array(values, dtype), convert(cases.array(raw, dtype))[1]


def dense_by_torch(packed: Any, meta: Any, dtype: str) -> Any:
    """Bits of torch's own unpacking."""
    words = torch.from_numpy(cases.bits_of(meta)).view(getattr(torch, PACKINGS[dtype].meta))
    convert = oracle.sparse_semi_structured_to_dense_cutlass
    return cases.by_bytes(lambda values: convert(values, words), cases.bits_of(packed), dtype)


def read(packed: Any, meta: Any, **options: Any) -> sf.NM:
    lib = _arrays.of(packed)
    shape = (packed.shape[0], 2 * packed.shape[1])
    return sf.NM(*unpack("test", lib, packed, meta), shape, **options)


@pytest.mark.parametrize(("dtype", "library"), combinations())
def test_what_torch_packs_is_read_with_every_bit(dtype: str, library: str) -> None:
    raw = cases.bits(dtype)
    packed, meta = packed_by_torch(raw, dtype)
    A = read(moved(packed, library), moved(meta, library))
    check_valid(A)
    np.testing.assert_array_equal(cases.bits_of(A.to_dense()), raw)
    assert A.library == library
    assert A.zeros is None
    assert sf.same(A, cases.matrix(dtype, library), level="buffers")


@pytest.mark.parametrize(("dtype", "library"), combinations())
def test_what_is_packed_is_read_by_torch_with_every_bit(dtype: str, library: str) -> None:
    A = cases.matrix(dtype, library)
    np.testing.assert_array_equal(dense_by_torch(*pack(A), dtype), cases.bits(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_full_groups_give_the_very_bytes_that_torch_gives(dtype: str) -> None:
    patterns = cases.FULL_PAIRS if dtype == "float32" else cases.FULL
    raw = cases.bits(dtype, patterns)
    theirs = packed_by_torch(raw, dtype)
    for own, other in zip(pack(cases.matrix(dtype, patterns=patterns)), theirs, strict=True):
        assert own.shape == other.shape
        assert own.dtype == other.dtype
        np.testing.assert_array_equal(cases.bits_of(own), cases.bits_of(other))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "int8"])
def test_stored_all_keeps_the_zeros_that_torch_keeps_with_their_signs(dtype: str) -> None:
    zeros = (0, cases.minus_zero(dtype), cases.minus_zero(dtype), 0, 0)
    D = cases.array(cases.bits(dtype, zeros=zeros), dtype)
    packed, meta = oracle.sparse_semi_structured_from_dense_cutlass(D)
    expected = cases.bits_of(oracle.sparse_semi_structured_to_dense_cutlass(packed, meta))
    assert (expected == cases.minus_zero(dtype)).any()
    A = read(packed, meta, stored="all")
    check_valid(A)
    assert A.nnz == packed.numel()
    np.testing.assert_array_equal(cases.bits_of(A.to_dense()), expected)
    again = read(*pack(A), stored="all")
    np.testing.assert_array_equal(cases.bits_of(again.to_dense()), expected)
    fill = cases.bits_of(read(packed, meta).to_dense())
    np.testing.assert_array_equal(fill, np.where(expected == cases.minus_zero(dtype), 0, expected))


@pytest.mark.parametrize(
    ("dtype", "rows", "start"),
    [
        # Of the first tile: row 0, the row 8 below, each with two words; then the next pair of
        # rows that share a remainder of 8; then remainder 1.
        (
            "float16",
            32,
            [(0, 0), (8, 0), (0, 1), (8, 1), (16, 0), (24, 0), (16, 1), (24, 1), (1, 0)],
        ),
        (
            "float32",
            32,
            [(0, 0), (8, 0), (0, 1), (8, 1), (16, 0), (24, 0), (16, 1), (24, 1), (1, 0)],
        ),
        ("int8", 16, [(0, 0), (8, 0), (0, 1), (8, 1), (1, 0), (9, 0), (1, 1), (9, 1), (2, 0)]),
    ],
)
def test_golden_order_of_words(dtype: str, rows: int, start: list[tuple[int, int]]) -> None:
    packing = PACKINGS[dtype]
    k = packing.columns
    first = packing.group // 2  # of the codes: in the first group the last columns, else the first
    for place, (i, w) in enumerate(start):
        raw = np.zeros((rows, k), cases.bits(dtype).dtype)
        raw[:, 0 :: packing.group] = 1
        if dtype != "float32":
            raw[:, 1 :: packing.group] = 1
        group = slice(w * packing.width, w * packing.width + packing.group)
        raw[i, group] = [0] * first + [1] * (packing.group - first)
        _, meta = pack(sf.from_dense(cases.array(raw, dtype), "2:4"))
        base = sum(0b0100 << (4 * j) for j in range(packing.codes))
        flat = cases.bits_of(meta).reshape(-1)
        assert set(flat.tolist()) == {base, base + 0b1010}
        assert flat.tolist().index(base + 0b1010) == place


def test_the_numbers_are_those_of_torch() -> None:
    constraints = torch.sparse.SparseSemiStructuredTensorCUTLASS._DTYPE_SHAPE_CONSTRAINTS
    theirs = {
        str(dtype).removeprefix("torch."): (each.sparse_min_rows, each.sparse_min_cols)
        for dtype, each in constraints.items()
    }
    assert {name: (p.rows, p.columns) for name, p in PACKINGS.items()} == theirs


@given(
    dtype=st.sampled_from(DTYPES),
    tiles=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    density=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 2**16),
)
def test_round_trips(dtype: str, tiles: tuple[int, int], density: float, seed: int) -> None:
    packing = PACKINGS[dtype]
    shape = (tiles[0] * packing.rows, tiles[1] * packing.columns)
    pattern = "1:2" if dtype == "float32" else "2:4"
    rng = np.random.default_rng(seed)
    raw = (rng.random(shape) < density) * rng.integers(1, 256, shape)
    raw = raw.astype(cases.bits(dtype).dtype)
    A = sf.prune(cases.array(raw, dtype), pattern).to("2:4")
    B = read(*pack(A))
    check_valid(B)
    assert sf.same(A, B, level="buffers")


# ---- what has no place there


def test_float32_that_is_not_one_of_two() -> None:
    raw = cases.bits("float32")
    raw[:, 8:12] = 0
    raw[[3, 50], 10:12] = 0x3F800000
    A = sf.from_dense(cases.array(raw, "float32"), "2:4")
    with pytest.raises(PatternError) as error:
        pack(A)
    for text in ("float32", "1:2", "row 3, columns 10 and 11", "(2 pairs violate in all)"):
        assert text in str(error.value)
    raw[50, 10:12] = 0
    with pytest.raises(PatternError, match=r"\(1 pair violates in all\)"):
        pack(sf.from_dense(cases.array(raw, "float32"), "2:4"))


def test_a_stored_minus_zero_without_a_place_is_refused() -> None:
    data, indices = [[[1.0, 2.0]]], [[[0, 1]]]
    side = sf.COO(np.array([-0.0, 0.0], np.float16), [0, 0], [2, 3], (1, 4))
    A = sf.NM(np.array(data, np.float16), indices, (1, 4), side=side)
    with pytest.raises(LossyConversionError, match=r"1 stored -0.0 in the side record"):
        pack(A)


def test_a_minus_zero_in_a_slot_stays_and_shares_no_pair_of_float32() -> None:
    D = np.zeros((32, 64), np.float16)
    D[0, :2] = (5.0, -0.0)
    A = sf.from_dense(D, "2:4", mask=np.abs(D) + np.signbit(D) > 0)
    assert A.nnz == 2
    back = read(*pack(A), stored="all")
    np.testing.assert_array_equal(cases.bits_of(back.to_dense()), D.view(np.uint16))
    wide = D.astype(np.float32)
    A = sf.from_dense(wide, "2:4", mask=np.abs(wide) + np.signbit(wide) > 0)
    with pytest.raises(LossyConversionError, match=r"1 stored -0.0 in the slots") as error:
        pack(A)
    assert "eliminate_zeros" in str(error.value)
    D[0, :4] = (5.0, 0.0, -0.0, 0.0)
    wide = D.astype(np.float32)
    A = sf.from_dense(wide, "2:4", mask=np.abs(wide) + np.signbit(wide) > 0)
    back = read(*pack(A), stored="all")
    np.testing.assert_array_equal(cases.bits_of(back.to_dense()), wide.view(np.uint32))


@pytest.mark.parametrize(
    ("dtype", "code", "says"),
    [
        ("float16", 0b0000, "two ascending positions"),
        ("float16", 0b0001, "two ascending positions"),
        ("int8", 0b0110, "two ascending positions"),
        ("int8", 0b1111, "two ascending positions"),
        ("float32", 0b1000, "0b0100 or 0b1110 for float32"),
    ],
)
def test_codes_that_no_hardware_defines(dtype: str, code: int, says: str) -> None:
    packed, meta = pack(cases.matrix(dtype))
    meta[...] = sum(0b0100 << (4 * j) for j in range(PACKINGS[dtype].codes))
    meta[0, 0] += code - 0b0100
    with pytest.raises(InvalidTensorError) as error:
        read(packed, meta)
    (problem,) = error.value.problems
    assert (problem.rule, problem.place, problem.value) == (
        "meta-code",
        "meta (row 0, group 0)",
        code,
    )
    assert f"code {code:#06b} must be {says}" in problem.message
