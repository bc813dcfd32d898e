"""Every law checker accepts what is right and fails on what is wrong."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from sparseformats import PatternError, formats, testing
from sparseformats.formats import BSR, COO, CSR, NM
from sparseformats.testing import laws


def csr(values: Any = (1.0, 2.0), shape: Any = (2, 3), index: Any = np.int32) -> CSR:
    indices, indptr = np.array([2, 0], index), np.array([0, 1, 2], index)
    return CSR(np.array(values), indices, indptr, shape)


def bsr() -> BSR:
    data = np.array([[[1.0, 0.0], [0.0, -0.0]], [[0.0, 3.0], [0.0, 0.0]]])
    stored = (data < 9) & (np.array([2, 1])[:, None, None] > np.arange(2)[:, None])
    return BSR(data, np.array([0, 1]), np.array([0, 1, 2]), (3, 4), stored=stored)


def bsr_inside() -> BSR:
    data = np.array([[[1.0, 0.0], [0.0, -0.0]]])
    return BSR(data, np.array([0]), np.array([0, 1]), (2, 2), stored="all")


def trusted(A: Any, **fields: Any) -> Any:
    names = [name for name in A.__match_args__ if not name.startswith("_")]
    return type(A).trusted(**{name: getattr(A, name) for name in names} | fields)


def test_valid() -> None:
    testing.check_valid(csr())
    with pytest.raises(AssertionError, match="valid: 1 problems\n  index-range at indices"):
        testing.check_valid(trusted(csr(), indices=np.array([3, 0], np.int32)))


def test_content_preserved() -> None:
    A = csr()
    testing.check_content_preserved(A, A.to("coo"))
    with pytest.raises(AssertionError, match=r"shape and dtype \(\(2, 3\), 'float64'\) became"):
        testing.check_content_preserved(A, csr(shape=(2, 4)))
    with pytest.raises(AssertionError, match=r"became .*float32"):
        testing.check_content_preserved(A, csr(np.array([1, 2], np.float32)))
    fewer = COO(np.array([-1.0]), np.array([0]), np.array([2]), (2, 3))
    with pytest.raises(AssertionError, match=r"1 lost, 0 invented, 1 changed(.|\n)*lost \(1, 0\)"):
        testing.check_content_preserved(A, fewer)
    more = COO(np.ones(3), np.array([0, 0, 1]), np.array([0, 2, 0]), (2, 3))
    with pytest.raises(AssertionError, match=r"invented \(0, 0\)"):
        testing.check_content_preserved(A, more)


def test_content_sees_what_equality_does_not() -> None:
    zero = csr((0.0, 2.0))
    with pytest.raises(AssertionError, match="0000000000000000 -> 0000000000000080"):
        testing.check_content_preserved(zero, csr((-0.0, 2.0)))
    payloads = np.array([0x7FF8000000000001, 0x7FF8000000000002]).view(np.float64)
    with pytest.raises(AssertionError, match="1 changed"):
        testing.check_content_preserved(csr((payloads[0], 2)), csr((payloads[1], 2)))


def test_round_trip() -> None:
    chain: list[Any] = ["csc", ("bsr", {"blocksize": (2, 2)}), "2:4", "coo"]
    testing.check_round_trip(csr(), chain)
    testing.check_round_trip(bsr().T, chain)

    def lossy(A: Any, format: str, **options: Any) -> Any:
        B = A.to(format, **options)
        return trusted(B, data=B.data * 2) if format == "csc" else B

    with pytest.raises(AssertionError, match="on the way csr -> csc: content preserved: 0 lost"):
        testing.check_round_trip(csr(), chain, lossy)


def test_round_trip_sees_another_format() -> None:
    with pytest.raises(AssertionError, match="csr -> csc gave <COO"):
        testing.check_round_trip(csr(), ["csc"], lambda A, format: A.to("coo"))


def test_round_trip_sees_a_source_that_was_written_to() -> None:
    def writes(A: Any, format: str, **options: Any) -> Any:
        B = copy.deepcopy(A).to(format, **options)
        A.data.base[...] = 7
        return B

    data = np.array([1.0, 2.0])
    A = CSR(data, np.array([2, 0]), np.array([0, 1, 2]), (2, 3), copy=False)
    with pytest.raises(AssertionError, match=r"inputs untouched: 0.data was changed"):
        testing.check_round_trip(A, ["coo"], writes)


def test_round_trip_demands_a_refusal() -> None:
    full = CSR(np.ones(3), np.arange(3), np.array([0, 3]), (1, 3))
    testing.check_round_trip(full, ["2:4"])

    def prunes(A: Any, format: str, **options: Any) -> Any:
        try:
            return A.to(format, **options)
        except PatternError:
            return A

    with pytest.raises(AssertionError, match="refusal: 2:4 cannot hold this content"):
        testing.check_round_trip(full, ["2:4"], prunes)


def test_holds() -> None:
    full = CSR(np.array([1.0, 0.0, 2.0]), np.arange(3), np.array([0, 3]), (1, 3))
    assert testing.holds(full, "csr")
    assert testing.holds(full, "2:4")
    assert not testing.holds(full, "1:4")
    assert testing.holds(full, "1:2")


def test_index_width() -> None:
    testing.check_index_width(csr(), csr(index=np.int64))
    with pytest.raises(AssertionError, match="index width: int64 became int32"):
        testing.check_index_width(csr(index=np.int64), csr())


def test_dense_round_trip() -> None:
    testing.check_dense_round_trip(bsr())
    testing.check_dense_round_trip(bsr().T)

    def forgets_mask(D: Any, format: str, *, mask: Any, **options: Any) -> Any:
        from sparseformats import from_dense

        return from_dense(D, format, **options)

    with pytest.raises(AssertionError, match="content preserved"):
        testing.check_dense_round_trip(bsr(), forgets_mask)


def test_dense_sees_a_wrong_element(monkeypatch: pytest.MonkeyPatch) -> None:
    A, D = csr(), csr().to_dense()
    D[1, 1] = -0.0
    monkeypatch.setattr(CSR, "to_dense", lambda self: D)
    with pytest.raises(AssertionError, match="dense: expected"):
        testing.check_dense_round_trip(A)
    monkeypatch.setattr(CSR, "to_dense", lambda self: D[:1])
    with pytest.raises(AssertionError, match=r"to_dense gave numpy \(1, 3\)"):
        testing.check_dense_round_trip(A)


def test_transpose(monkeypatch: pytest.MonkeyPatch) -> None:
    testing.check_transpose(csr())
    testing.check_transpose(bsr())
    same = COO(np.ones(1), np.array([0]), np.array([1]), (2, 2))
    testing.check_transpose(same)
    monkeypatch.setattr(COO, "T", property(lambda self: self))
    with pytest.raises(AssertionError, match="transpose: 1 lost, 1 invented"):
        testing.check_transpose(same)


def test_transpose_sees_another_format(monkeypatch: pytest.MonkeyPatch) -> None:
    square = CSR(np.ones(1), np.array([0]), np.array([0, 1]), (1, 1))
    monkeypatch.setattr(CSR, "T", property(lambda self: self.to("coo")))
    with pytest.raises(AssertionError, match="the transposed of the transposed is coo"):
        testing.check_transpose(square)


def test_same_buffers() -> None:
    testing.check_same_buffers(bsr(), bsr())
    with pytest.raises(AssertionError, match="same buffers: the other is <COO"):
        testing.check_same_buffers(csr(), csr().to("coo"))
    with pytest.raises(AssertionError, match="same buffers: data differs"):
        testing.check_same_buffers(csr((0.0, 1.0)), csr((-0.0, 1.0)))
    with pytest.raises(AssertionError, match="same buffers: indices differs"):
        testing.check_same_buffers(csr(), csr(index=np.int64))
    with pytest.raises(AssertionError, match=r"buffers \['data', 'indices', 'indptr', 'zeros'\]"):
        testing.check_same_buffers(bsr(), trusted(bsr(), zeros=None))


def test_same_buffers_sees_the_mark_of_stored_slots() -> None:
    A = bsr_inside()
    with pytest.raises(AssertionError, match="same buffers: static facts"):
        testing.check_same_buffers(A, trusted(A, zeros=None))


def test_pickle_and_copy() -> None:
    for A in (csr(), bsr(), bsr().T):
        testing.check_pickle(A)
        testing.check_copy(A)
    A = bsr()
    with pytest.raises(AssertionError, match="same buffers"):
        testing.check_pickle(A, lambda stream: trusted(pickle.loads(stream), zeros=None))
    with pytest.raises(AssertionError, match=r"no shared memory: data shares memory with .* data"):
        testing.check_copy(A, lambda A: trusted(A))


def test_copy_sees_buffers_that_can_be_written() -> None:
    def writable(A: Any) -> Any:
        B = copy.deepcopy(A)
        data = B.data.copy()
        object.__setattr__(B, "data", data)
        return B

    with pytest.raises(AssertionError, match="immutable: data can be written"):
        testing.check_copy(csr(), writable)


def test_immutable_sees_a_field_that_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    testing.check_immutable(csr())
    monkeypatch.setattr(CSR, "__setattr__", object.__setattr__)
    with pytest.raises(AssertionError, match="immutable: field data can be set"):
        testing.check_immutable(csr())


def test_no_shared_memory() -> None:
    x = np.arange(6.0)
    testing.check_no_shared_memory(x[:3], x[3:])
    with pytest.raises(AssertionError, match="no shared memory"):
        testing.check_no_shared_memory(x[:3], {"half": x[2:]})


@pytest.mark.parametrize("library", ["numpy", "torch", "array_api_strict"])
def test_shared_memory_of_every_library(library: str) -> None:
    testing.register_strict()
    from sparseformats import _arrays

    lib = _arrays.library(library)
    x = lib.from_numpy(np.arange(6.0))
    assert testing.shares_memory(x, x[2:])
    assert not testing.shares_memory(x[:2], x[2:])
    assert not testing.shares_memory(x, lib.copy(x))
    assert not testing.shares_memory(x[:0], x)


def test_unchanged_looks_into_everything() -> None:
    x, y = np.zeros(2), np.zeros(2)
    with testing.unchanged(x, {"y": [y]}, csr(), "text", 3):
        pass
    changed = pytest.raises(AssertionError, match=r"inputs untouched: 1.y.0.array was changed")
    with changed, testing.unchanged(x, {"y": [y]}):
        y[1] = -0.0
    huge = np.broadcast_to(np.float32(1), (2**20, 2**20))
    with testing.unchanged(huge):  # not copied
        pass


def test_laws_know_the_side_record() -> None:
    side = COO(np.array([-0.0]), np.array([0]), np.array([2]), (1, 4))
    data, indices = np.ones((1, 1, 2)), np.array([[[0, 1]]], np.uint8)
    A = NM(data, indices, (1, 4), 2, 4, side=side)
    testing.check_pickle(A)
    with pytest.raises(AssertionError, match=r"buffers .*side_col"):
        testing.check_same_buffers(A, trusted(A, side=None))
    assert formats.ALL == "all"
    assert set(laws.arrays_of(A)) >= {"side_data", "side_row", "side_col"}
