"""Packing without a dense array, where the layout of the library's bytes was learnt.

The stand-in lays out its bytes place by place, as they were learnt, apart from the index arithmetic
of `sparseformats.formats.blob24`, which is held against real bytes in its own tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats.formats.blob24 import LEARNT
from sparseformats_kernels.cusparselt import packing, spmm
from sparseformats_kernels.cusparselt.packing import PACK, Blob
from tests.interop import blobs
from tests.kernels.cusparselt.fake import TYPES, Fake, at
from tests.kernels.cusparselt.support import expected, matrix, operand, packed, product, same

DTYPES = ("float16", "bfloat16", "int8")


def place(row: int, group: int, groups: int, bits: str) -> int:
    """Where a code lies, in half bytes."""
    tile = row // 64 * (groups // 16) + group // 16
    within = 0
    for i, name in enumerate(bits.split()):
        number = row if name[0] == "r" else group
        within |= (number >> int(name[1]) & 1) << i
    return tile * 1024 + within


class Learnt(Fake):
    """A library whose bytes lie as they were learnt."""

    bits = ""
    longer = 0

    def _size(self, A: dict[str, Any]) -> int:
        width = np.dtype(TYPES[A["type"]]).itemsize
        m, k = A["rows"], A["columns"]
        return m * k // 2 * width + -(-m // 64) * (k // 64) * 512

    def _spmmacompressedsize2(self, handle: int, matrix: int, size: int, extra: int) -> None:
        super()._spmmacompressedsize2(handle, matrix, size, extra)
        A = self._get(matrix, "matrix")
        at(size, 1, np.int64)[...] = self._size(A) + self.longer

    def _spmmacompress2(self, handle: int, matrix: int, is_a: int, flip: int, *rest: int) -> None:
        A = self._get(matrix, "matrix")
        m, k, kind = A["rows"], A["columns"], np.dtype(TYPES[A["type"]])
        dense = at(rest[0], m * k, kind).reshape(m, k // 4, 4)
        kept = at(rest[1], m * k // 2, kind).reshape(m, k // 4, 2)
        codes = np.full(-(-m // 64) * (k // 64) * 1024, 0b1110, np.uint8)
        for i, g in np.ndindex(m, k // 4):
            used = [j for j in range(4) if dense[i, g, j].astype(np.float64) != 0]
            free = [j for j in (3, 2) if j not in used]
            first, second = sorted([*used, *free][:2])
            kept[i, g] = dense[i, g, first], dense[i, g, second]
            codes[place(i, g, k // 4, self.bits)] = first | second << 2
        bytes_of = at(rest[1] + kept.nbytes, codes.size // 2, np.uint8)
        bytes_of[...] = codes[::2] | codes[1::2] << 4

    def _expanded(self, blob: int, A: dict[str, Any]) -> Any:
        m, k, kind = A["rows"], A["columns"], np.dtype(TYPES[A["type"]])
        kept = at(blob, m * k // 2, kind).reshape(m, k // 4, 2)
        raw = at(blob + kept.nbytes, self._size(A) - kept.nbytes, np.uint8)
        found = np.zeros((m, k // 4, 4), kind)
        for i, g in np.ndindex(m, k // 4):
            p = place(i, g, k // 4, self.bits)
            code = int(raw[p // 2]) >> 4 * (p % 2) & 15
            found[i, g, code & 3], found[i, g, code >> 2] = kept[i, g]
        return found.reshape(m, k)


@pytest.fixture
def learnt(library: Fake, monkeypatch: pytest.MonkeyPatch) -> Learnt:
    """The stand-in with learnt bytes, and packing without a dense array asked for."""
    made = Learnt(late=library.late)
    api = made.api()
    monkeypatch.setattr(spmm, "the_api", lambda: api)
    monkeypatch.setenv(PACK, "direct")
    return made


def bits_for(dtype: str) -> str:
    return LEARNT[800, (9, 0), dtype].bits


@pytest.mark.parametrize("shape", [(32, 64), (96, 192)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_both_ways_give_the_same_bytes_and_products(
    dtype: str, shape: tuple[int, int], learnt: Learnt, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt.bits = bits_for(dtype)
    A = matrix(shape, dtype)
    X = operand(shape[1], 16, dtype, "F")
    direct, _ = packed(A, X, capability=(9, 0))
    assert not learnt.named("SpMMACompress2")
    assert same(product(A, X, capability=(9, 0)), expected(A, X))
    monkeypatch.delenv(PACK)
    usual, _ = packed(A, X, capability=(9, 0))
    assert len(learnt.named("SpMMACompress2")) == 1
    assert torch.equal(direct.blob.array, usual.blob.array)
    for name in ("m", "k", "dtype", "gives", "computes"):
        assert getattr(direct.blob, name) == getattr(usual.blob, name)


@pytest.mark.parametrize("shape", blobs.SHAPES)
@pytest.mark.parametrize("dtype", blobs.DTYPES)
def test_the_bytes_are_those_of_the_library(dtype: str, shape: tuple[int, int]) -> None:
    A = sf.from_dense(blobs.dense(shape, dtype), "2:4")
    blob = Blob.laid_out(A, LEARNT[800, (9, 0), dtype], dtype)  # type: ignore[arg-type]
    np.testing.assert_array_equal(blob.array.numpy(), blobs.blob(shape, dtype))


@pytest.mark.parametrize(
    ("A", "facts"),
    [
        (matrix((32, 64)), {"capability": (8, 0)}),
        (matrix((32, 64)), {"capability": None}),
        (matrix((48, 64)), {}),
        (matrix((32, 80)), {}),
        (sf.from_dense(torch.eye(64).half(), "1:4"), {}),
    ],
    ids=["another-capability", "no-capability", "rows", "columns", "pattern"],
)
def test_what_was_not_learnt_is_packed_by_the_library(
    A: Any, facts: dict[str, Any], library: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PACK, "direct")
    X = operand(A.shape[1], 8)
    assert same(product(A, X, **{"capability": (9, 0), **facts}), expected(A, X))
    assert len(library.named("SpMMACompress2")) == 1


def test_another_version_is_packed_by_the_library(learnt: Learnt, library: Fake) -> None:
    learnt.bits = bits_for("float16")
    learnt.version = (0, 8, 1)
    A, X = matrix((32, 64)), operand(64, 8)
    spmm.the_api().version = learnt.version
    assert same(product(A, X, capability=(9, 0)), expected(A, X))
    assert len(learnt.named("SpMMACompress2")) == 1


def test_a_blob_of_another_size_is_packed_by_the_library(learnt: Learnt) -> None:
    learnt.bits, learnt.longer = bits_for("float16"), 512
    A, X = matrix((32, 64)), operand(64, 8)
    assert same(product(A, X, capability=(9, 0)), expected(A, X))
    assert len(learnt.named("SpMMACompress2")) == 1


def test_it_is_asked_for_by_one_word_only(learnt: Learnt, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt.bits = bits_for("float16")
    for word, times in (("", 1), ("0", 2), ("direct ", 2)):
        monkeypatch.setenv(packing.PACK, word)
        packed(matrix((32, 64)), operand(64, 8), capability=(9, 0))
        assert len(learnt.named("SpMMACompress2")) == times
