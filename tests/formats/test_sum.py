"""Sum: golden buffers, every rule broken alone, and what the parts carry through."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings

import sparseformats as sf
from sparseformats import _arrays, reference
from sparseformats.convert import Options, coo_sum
from sparseformats.testing import (
    broken_inputs,
    check_content_preserved,
    check_immutable,
    check_no_shared_memory,
    check_round_trip,
    check_same_buffers,
    check_valid,
    matrices,
)
from tests.formats.examples import LIBRARIES

SHAPE = (2, 5)
# [[1, 7, 0, 2, 0],
#  [0, 0, 0, 8, 9]]  with a stored zero at (0, 4) in the CSR


def nm(library: str = "numpy", dtype: str = "float64") -> sf.NM:
    data = [[[1, 2], [0, 0]], [[0, 0], [9, 0]]]
    indices = [[[0, 3], [0, 1]], [[0, 1], [0, 1]]]
    return sf.NM(_put(library, data, dtype), _put(library, indices, "uint8"), SHAPE)


def rest(library: str = "numpy", dtype: str = "float64", index: str = "int32") -> sf.CSR:
    parts = ([7, 0, 8], dtype), ([1, 4, 3], index), ([0, 2, 3], index)
    return sf.CSR(*(_put(library, x, kind) for x, kind in parts), SHAPE)


def _put(library: str, x: Any, dtype: str) -> Any:
    return _arrays.library(library).from_numpy(np.array(x).astype(dtype), "cpu")


def build(library: str = "numpy", dtype: str = "float64") -> sf.Sum:
    return sf.Sum([nm(library, dtype), rest(library, dtype)])


@pytest.mark.parametrize("library", LIBRARIES)
def test_golden(library: str) -> None:
    S = build(library)
    host = {name: S.lib.to_numpy(x).tolist() for name, x in S.buffers().items()}
    assert host == {
        "part0_data": [[[1, 2], [0, 0]], [[0, 0], [9, 0]]],
        "part0_indices": [[[0, 3], [0, 1]], [[0, 1], [0, 1]]],
        "part1_data": [7, 0, 8],
        "part1_indices": [1, 4, 3],
        "part1_indptr": [0, 2, 3],
    }
    assert S.static() == {
        "parts": [
            {"class": "NM", "shape": SHAPE, "n": 2, "m": 4},
            {"class": "CSR", "shape": SHAPE},
        ]
    }
    assert reference.dense(S).tolist() == [[1, 7, 0, 2, 0], [0, 0, 0, 8, 9]]
    assert set(reference.entries(S)) == {(0, 0), (0, 1), (0, 3), (0, 4), (1, 3), (1, 4)}
    assert S.problems() == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_attributes(library: str) -> None:
    S = build(library, "float32")
    assert (S.shape, S.format, S.ndim, S.blocksize) == (SHAPE, "sum", 2, (1, 1))
    assert (S.dtype_name, S.library, S.device) == ("float32", library, "cpu")
    assert S.dtype == S.parts[0].dtype
    assert (S.nnz, S.density) == (6, 0.6)
    assert S.nbytes == sum(part.nbytes for part in S.parts)
    assert S.lib.dtype_name(S.index_dtype) == "int32"
    assert S.conj() is S
    assert (S.T.shape, S.T.format) == ((5, 2), "sum")
    assert [part.format for part in S.T.parts] == ["2:4.T", "csc"]


def test_repr_is_one_line_with_the_parts() -> None:
    S = build()
    assert repr(S) == "<Sum 2:4 + csr 2x5, float64, numpy on cpu>"
    assert S.nnz == 6
    assert repr(S) == "<Sum 2:4 + csr 2x5, float64, nnz=6, numpy on cpu>"
    B = sf.Sum(
        [sf.BSR(np.ones((1, 2, 2)), [0], [0, 1, 1], (4, 4)), sf.COO([1.0], [3], [3], (4, 4))]
    )
    assert repr(B).startswith("<Sum bsr 2x2 + coo 4x4, ")


def test_it_has_no_data_but_says_where_they_are() -> None:
    S = build()
    with pytest.raises(AttributeError, match=r"S\.parts.*S\.to\('coo'\)\.data"):
        _ = S.data
    with pytest.raises(TypeError, match=r"each part its own.*split a matrix") as caught:
        S.with_data(np.ones(6))
    assert "{" not in str(caught.value)


def test_parts_of_sums_become_parts() -> None:
    lone = sf.COO([3.0], [1], [0], SHAPE)
    S = sf.Sum([lone, build()])
    assert [part.format for part in S.parts] == ["coo", "2:4", "csr"]
    assert sf.Sum(iter([lone])).parts == (lone,)


def test_complex_values_are_conjugated_in_every_part() -> None:
    S = sf.Sum([sf.COO([1 + 2j], [0], [0], (1, 2)), sf.CSR([3 - 1j], [1], [0, 1], (1, 2))])
    assert S.conj().to_dense().tolist() == [[1 - 2j, 3 + 1j]]
    assert S.T.conj().to_dense().tolist() == [[1 - 2j], [3 + 1j]]


# ---- every rule, broken alone


def problems(*parts: Any) -> list[tuple[str, str, object]]:
    found = sf.Sum.trusted(parts=parts).problems()
    assert all("{" not in str(problem) for problem in found)
    return [(problem.rule, problem.place, problem.value) for problem in found]


def test_rule_part() -> None:
    assert problems() == [("part", "parts", 0)]
    assert problems(nm(), np.ones(SHAPE)) == [("part", "parts[1]", "ndarray")]
    assert problems(sf.Sum.trusted(parts=(nm(),)), rest()) == [("part", "parts[0]", "Sum")]
    with pytest.raises(sf.InvalidTensorError, match="at least one matrix"):
        sf.Sum([])


def test_rule_part_reports_what_is_wrong_within() -> None:
    wrong = sf.CSR.trusted(**{**rest().buffers(), "indptr": np.array([0, 2, 4])}, shape=SHAPE)
    assert problems(nm(), wrong) == [("indptr-end", "parts[1].indptr[2]", 4)]
    unsorted = sf.COO.trusted(
        data=np.ones(2), row=np.array([1, 0]), col=np.array([0, 2]), shape=SHAPE
    )
    (problem,) = problems(nm(), unsorted)
    assert problem[:2] == ("sorted", "parts[1].row[1], col[1]")


def test_rules_library_and_device() -> None:
    assert problems(nm(), rest("torch")) == [("library", "parts[1]", "torch")]
    T = rest("torch")
    meta = sf.CSR.from_parts({k: x.to("meta") for k, x in T.buffers().items()}, T.static())
    assert problems(nm("torch"), meta) == [("device", "parts[1]", "meta")]
    with pytest.raises(TypeError, match=r"numpy arrays, another torch.*to_library\('numpy'\)"):
        sf.Sum([nm(), rest("torch")])
    with pytest.raises(sf.DeviceMismatchError, match=r"another on 'meta'.*to_device\('cpu'\)"):
        sf.Sum([nm("torch"), meta])


def test_rules_shape_and_dtype() -> None:
    other = sf.COO([1.0], [0], [2], (2, 6))
    assert problems(nm(), other) == [("shape", "parts[1]", (2, 6))]
    assert problems(nm(), rest(dtype="float32")) == [("dtype", "parts[1]", "float32")]
    with pytest.raises(sf.InvalidTensorError, match=r"shape at parts\[1\]"):
        sf.Sum([nm(), other])
    with pytest.raises(sf.InvalidTensorError, match=r"dtype at parts\[1\]"):
        sf.Sum([nm(), rest(dtype="float32")], check=False)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("value", [5.0, 0.0, -0.0])
def test_rule_disjoint(value: float, library: str) -> None:
    arrays = ([value, 1.0], "float64"), ([0, 1], "int64"), ([3, 0], "int64")
    again = sf.COO(*(_put(library, x, dtype) for x, dtype in arrays), SHAPE)
    parts = nm(library), rest(library), again
    assert problems(*parts) == [("disjoint", "(0, 3)", (0, 2))]
    with pytest.raises(
        sf.InvalidTensorError, match=r"disjoint at \(0, 3\): is stored in parts\[0\]"
    ):
        sf.Sum(parts)
    assert sf.Sum(parts, check=False).nnz == 8  # the promise that was not kept


def test_a_zero_beside_the_slots_is_stored_too() -> None:
    aside = sf.COO([0.0], [0], [1], SHAPE)
    full = sf.NM(nm().data, nm().indices, SHAPE, side=aside)
    assert problems(full, rest()) == [("disjoint", "(0, 1)", (0, 1))]


def test_fill_and_marked_zeros_of_blocks() -> None:
    block = np.array([[[1.0, 0.0], [0.0, 0.0]]])
    fill = sf.COO([2.0], [0], [1], (2, 2))
    assert problems(sf.BSR(block, [0], [0, 1], (2, 2)), fill) == []
    whole = sf.BSR(block, [0], [0, 1], (2, 2), stored="all")
    assert problems(whole, fill) == [("disjoint", "(0, 1)", (0, 1))]


def test_many_clashes_are_counted() -> None:
    A = sf.from_dense(np.ones((20, 20)))
    found = sf.Sum.trusted(parts=(A, A.to("csc"))).problems()
    assert len(found) == 101
    assert (found[-1].place, found[-1].value) == ("more places", 300)


def test_shapes_beyond_64_bits_are_told_apart() -> None:
    shape = (2**40, 2**40)
    one, other = (sf.COO([1.0], [2**39], [col], shape) for col in (5, 6))
    assert sf.Sum([one, other]).to("coo").col.tolist() == [5, 6]
    assert problems(one, one.to("coo"), other) == [("disjoint", f"({2**39}, 5)", (0, 1))]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (nm(), "a list of matrices, got one NM"),
        (None, "a list of matrices, got NoneType"),
        ([nm(), np.ones(SHAPE)], "got ndarray; use sparseformats.asformat"),
    ],
)
def test_what_is_no_list_of_matrices(parts: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        sf.Sum(parts)


# ---- travelling


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda S: pickle.loads(pickle.dumps(S))])
def test_copies(copied: Any, library: str) -> None:
    S = build(library)
    B = copied(S)
    check_same_buffers(S, B)
    check_no_shared_memory(S, B)
    check_immutable(B)
    check_valid(B)
    assert copy.copy(S) is S


def test_other_libraries() -> None:
    S = build()
    T = S.to_library("torch")
    assert (T.library, [part.library for part in T.parts]) == ("torch", ["torch"] * 2)
    check_content_preserved(S, T)
    check_same_buffers(S, T.to_device("cpu", "numpy"))


@pytest.mark.parametrize("name", ["scipy", "torch", "cupy"])
def test_neighbours_have_no_such_thing(name: str) -> None:
    S = build().to_library("torch") if name == "torch" else build()
    with pytest.raises(TypeError, match=r'no sum (format|layout); use A\.to\("csr"\) first'):
        getattr(S, f"to_{name}")()


def test_same() -> None:
    S, other = build(), sf.Sum([rest(), nm()])
    assert sf.same(S, other)
    assert sf.same(S, S.to("csr"))
    assert sf.same(S, build(), level="buffers")
    assert sf.same(S, S * 2.0, level="structure")
    assert not sf.same(S, other, level="structure")
    assert not sf.same(S, sf.Sum([S.parts[0]]), level="structure")
    assert not sf.same(S, S.to("csr"), level="buffers")
    assert not sf.same(S, sf.Sum([S.parts[0]]))


def test_any_matrix_is_the_only_part_of_a_sum() -> None:
    for A in (rest(), nm(), nm().T, rest().T, rest().to("coo")):
        S = A.to("sum")
        assert S.parts == (A,)
        assert S.to("sum") is S
    assert [part.format for part in sf.from_dense(np.eye(2), "sum").parts] == ["csr"]


def test_index_widths_go_to_every_part() -> None:
    S = build()
    wide = S.to("sum", index_dtype="int64")
    assert wide.parts[1].indices.dtype == np.int64
    assert wide.index_dtype == np.int64
    assert wide.to("sum", index_dtype="int32").index_dtype == np.int32
    assert S.to("sum", index_dtype="int32") is S
    assert wide.to("csr").indices.dtype == np.int64


def test_conversions_are_explained() -> None:
    S = build()
    told = sf.explain_conversion(S, "csr")
    assert [step.target for step in told.steps] == ["coo", "csr"]
    assert told.nbytes == S.nbytes
    wrapped = sf.explain_conversion(rest(), "sum")
    assert (wrapped.result_nbytes, wrapped.bound) == (rest().nbytes, "")
    assert sf.explain_conversion(np.eye(3), "sum").steps[-1].target == "sum"


def test_values_that_require_grad_are_refused() -> None:
    T = rest("torch")
    grown = sf.CSR.trusted(**{**T.buffers(), "data": T.data.clone().requires_grad_()}, shape=SHAPE)
    S = sf.Sum.trusted(parts=(nm("torch"), grown))
    for call in (lambda: S.to("csr"), S.to_dense, lambda: S * 2, lambda: S.sum()):
        with pytest.raises(NotImplementedError, match="grad"):
            call()
    with torch.no_grad():
        assert S.to("csr").nnz == 6


@given(matrices("sum"))
def test_no_value_is_ever_added(S: Any) -> None:
    bits: dict[Any, bytes] = {}
    for part in S.parts:
        mine = reference.content(part).elements
        assert not bits.keys() & mine.keys()
        bits |= mine
    assert dict(reference.content(S.to("csr")).elements) == bits


# ---- planted bugs: validators and conversions that the ordinary checkers must reject


def sees_non_zeros_only(S: Any) -> Any:
    return sf.Sum.trusted(parts=tuple(part.eliminate_zeros() for part in S.parts)).problems()


def sees_parts_alone(S: Any) -> Any:
    return [problem for part in S.parts for problem in part.problems()]


@pytest.mark.parametrize(
    ("validate", "rule"),
    [
        (sees_non_zeros_only, "disjoint:zero"),
        (sees_parts_alone, "disjoint"),
        (sees_parts_alone, "dtype"),
    ],
)
def test_validators_that_see_too_little(validate: Any, rule: str) -> None:
    @settings(phases=[Phase.generate], database=None, derandomize=True)
    @given(broken_inputs("sum", rule))
    def law(broken: Any) -> None:
        broken.check(validate)

    with pytest.raises(AssertionError, match="breaks"):
        law()


def loses_a_part(S: Any) -> Any:
    return coo_sum.sum_to_coo(sf.Sum.trusted(parts=S.parts[:1]), Options())


def forgets_to_sort(S: Any) -> Any:
    found = [part.to("coo") for part in S.parts]
    joined = {name: np.concatenate([x.buffers()[name] for x in found]) for name in ("row", "col")}
    data = np.concatenate([x.data for x in found])
    return sf.COO.trusted(data=data, **joined, shape=S.shape)


def adds_into_zeros(S: Any) -> Any:
    with np.errstate(all="ignore"):
        return sf.from_dense(sum(part.to_dense() for part in S.parts), "coo")


@pytest.mark.parametrize("planted", [loses_a_part, forgets_to_sort, adds_into_zeros])
def test_conversions_that_lose_something(planted: Any) -> None:
    def convert(A: Any, format: str, **options: Any) -> Any:
        return planted(A) if A.format == "sum" and format == "coo" else A.to(format, **options)

    @settings(phases=[Phase.generate], database=None, derandomize=True)
    @given(matrices("sum", dtypes="float32"))
    def law(S: Any) -> None:
        check_round_trip(S, ["coo"], convert)

    with pytest.raises(AssertionError):
        law()
