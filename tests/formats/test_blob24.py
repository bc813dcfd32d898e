"""cuSPARSELt's compressed bytes by index arithmetic, against bytes that the library made."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import _arrays
from sparseformats.errors import InvalidTensorError
from sparseformats.formats import blob24
from sparseformats.formats.blob24 import LEARNT, decode, elements, encode
from sparseformats.testing import check_valid
from tests.interop import blobs, packed24

torch = pytest.importorskip("torch")

TORCH = _arrays.library("torch")
CASES = [
    (dtype, shape, library)
    for dtype in blobs.DTYPES
    for shape in blobs.SHAPES
    for library in ("numpy", "torch")
    if (dtype, library) != ("float8_e4m3fn", "numpy")  # of which there are no matrices
]


def layout_of(dtype: str) -> Any:
    return LEARNT[blobs.VERSION, blobs.CAPABILITY, dtype]


def read(packed: Any, dtype: str, shape: tuple[int, int]) -> Any:
    found = decode("test", _arrays.of(packed), layout_of(dtype), packed, shape)
    return sf.NM(*found, shape)


def values(bits: Any, dtype: str) -> Any:
    """A dense torch matrix of these bits."""
    wide = np.asarray(bits).astype(np.int16 if blobs.SHIFTS[dtype] else np.int8)
    return TORCH.from_bits(torch.from_numpy(wide), dtype)


@pytest.mark.parametrize(("dtype", "shape", "library"), CASES)
def test_what_the_library_made_is_read(dtype: str, shape: Any, library: str) -> None:
    A = read(blobs.packed(shape, dtype, library), dtype, shape)
    expected = sf.from_dense(blobs.dense(shape, dtype, library), "2:4")
    check_valid(A)
    assert sf.same(A, expected, level="buffers")
    assert A.nnz == np.count_nonzero(blobs.load()[f"in/{shape[0]}x{shape[1]}"]) > 0


@pytest.mark.parametrize(("dtype", "shape", "library"), CASES)
def test_what_the_library_made_is_made(dtype: str, shape: Any, library: str) -> None:
    A = sf.from_dense(blobs.dense(shape, dtype, library), "2:4")
    made = encode(layout_of(dtype), A)
    np.testing.assert_array_equal(A.lib.to_numpy(made), blobs.blob(shape, dtype))
    assert made.shape[0] == elements(dtype, shape) * A.data.itemsize


@pytest.mark.parametrize("dtype", blobs.DTYPES)
def test_a_wrong_order_of_bits_would_be_found(dtype: str) -> None:
    """Each pair of neighbours in the order of bits matters, so the blobs prove all of it."""
    names, shape = layout_of(dtype).bits.split(), blobs.SHAPES[1]
    A = sf.from_dense(blobs.dense(shape, dtype), "2:4")
    for i in range(len(names) - 1):
        swapped = [*names[:i], names[i + 1], names[i], *names[i + 2 :]]
        wrong = blob24.BlobLayout(" ".join(swapped), "swapped")
        assert not np.array_equal(encode(wrong, A).numpy(), blobs.blob(shape, dtype))


@pytest.mark.parametrize("dtype", blobs.DTYPES)
def test_there_and_back(dtype: str) -> None:
    """Every legal pattern at every place of several tiles, values of each sign."""

    @given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**32 - 1))
    def law(rows: int, columns: int, seed: int) -> None:
        shape, rng = (32 * rows, 64 * columns), np.random.default_rng(seed)
        kept = rng.random((shape[0], shape[1] // 4, 4)).argsort(2) < rng.integers(
            0, 3, (shape[0], shape[1] // 4, 1)
        )
        some = rng.integers(-128, 128, kept.shape) << blobs.SHIFTS[dtype]
        A = sf.from_dense(values(np.where(kept, some, 0).reshape(shape), dtype), "2:4")
        made = TORCH.from_bits(encode(layout_of(dtype), A), dtype)
        assert sf.same(read(made, dtype, shape), A.eliminate_zeros(), level="buffers")

    law()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_every_bit_survives(dtype: str) -> None:
    """Subnormals, infinities, NaN with payloads."""
    raw = np.resize(packed24.bits(dtype), (64, 64))
    A = sf.from_dense(packed24.array(raw, dtype), "2:4")
    made = TORCH.from_bits(encode(layout_of(dtype), A), dtype)
    back = read(made, dtype, (64, 64)).to_dense()
    np.testing.assert_array_equal(packed24.bits_of(back), raw)


def test_places_of_few_values() -> None:
    """As the library lays out none, one and two: a lone value is followed by the last column."""
    expected = {
        (): (2, 3, 0, 0),
        (0,): (0, 3, 1, 0),
        (1,): (1, 3, 1, 0),
        (2,): (2, 3, 1, 0),
        (3,): (2, 3, 0, 1),
        **{pair: (*pair, 1, 1) for pair in itertools.combinations(range(4), 2)},
    }
    for columns, (first, second, low, high) in expected.items():
        D = torch.zeros(32, 64, dtype=torch.int8)
        D[:, list(columns)] = 1
        data, at = decode(
            "test",
            TORCH,
            layout_of("int8"),
            encode(layout_of("int8"), nm(D)).view(torch.int8),
            D.shape,
        )
        assert at[:, 0].unique(dim=0).tolist() == [[first, second]]
        assert data[:, 0].unique(dim=0).tolist() == [[low, high]]
        assert at[:, 1:].reshape(-1, 2).unique(dim=0).tolist() == [[2, 3]]


def nm(D: Any) -> Any:
    return sf.from_dense(D, "2:4")


def test_a_stored_minus_zero_keeps_its_place_and_plus_zero_does_not() -> None:
    D = torch.zeros(32, 64, dtype=torch.float16)
    D[0, 1], D[0, 2] = -0.0, 1
    mask = D != 0
    mask[0, 1] = mask[1, 0] = True
    made = encode(layout_of("float16"), sf.from_dense(D, "2:4", mask=mask)).view(torch.float16)
    data, at = decode("test", TORCH, layout_of("float16"), made, (32, 64))
    assert at[:2, 0].tolist() == [[1, 2], [2, 3]]
    assert torch.signbit(data[0, 0]).tolist() == [True, False]
    assert not torch.signbit(data[1:]).any()


# ---- what is not a blob of this layout


def test_codes_that_no_hardware_defines() -> None:
    shape = (96, 192)
    packed = blobs.packed(shape, "float16").reshape(-1)
    last = int(packed.shape[0])
    codes = packed.view(torch.int16)
    codes[96 * 96] &= ~0b11110000  # the second code of the first tile: row 8, group 0
    codes[last - 1] ^= 0b0001  # the last tile, whose upper half are rows that were added
    with pytest.raises(InvalidTensorError) as error:
        read(packed, "float16", shape)
    rules = [(p.rule, p.place) for p in error.value.problems]
    assert rules == [
        ("meta-code", "codes (row 8, group 0)"),
        ("meta-padding", "codes (row 119, group 43)"),
    ]
    assert "0b0000" in str(error.value)
    assert "0b1110" in str(error.value)
    assert "{" not in str(error.value)


@pytest.mark.parametrize("code", [0b0100, 0b1101, 0b1111])
def test_rows_that_were_added_are_empty(code: int) -> None:
    packed = blobs.packed((96, 192), "float16").reshape(-1).clone()
    packed.view(torch.uint8)[-1] = code << 4 | 0b1110
    with pytest.raises(InvalidTensorError, match=f"code {code:#06b} of a row that was added"):
        read(packed, "float16", (96, 192))


@pytest.mark.parametrize("shape", [(48, 64), (32, 96), (0, 64), (32, 0)])
def test_shapes_that_were_not_learnt(shape: tuple[int, int]) -> None:
    text = layout_of("float16").unfit(shape)
    assert "multiple of 32" in text
    assert "one of 64" in text
    assert str(shape) in text
    with pytest.raises(AssertionError):
        encode(layout_of("float16"), nm(np.zeros(shape, np.float16)))


def test_each_layout_names_its_bits_and_its_source() -> None:
    for (version, capability, dtype), layout in LEARNT.items():
        assert (version, capability) == (blobs.VERSION, blobs.CAPABILITY)
        assert sorted(layout.bits.split()) == sorted(
            [f"r{i}" for i in range(6)] + [f"c{i}" for i in range(4)]
        )
        assert sorted(layout.axes) == list(range(12))
        assert "0.8.0" in layout.source
        assert "H200" in layout.source
        assert f"800 on 9.0 ({dtype})" in blob24.learnt()
    assert "float32" not in blob24.learnt()
    assert blob24.as_number((0, 8, 1)) == 801


def test_nothing_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob24, "LEARNT", {})
    assert blob24.learnt() == "none so far"
