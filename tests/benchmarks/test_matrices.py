"""Matrices of the cases: patterns, skew, and agreement of all their views."""

from dataclasses import replace

import pytest
import torch

import sparseformats as sf
from benchmarks.gpu.cases import Case
from benchmarks.gpu.matrices import build, dense_of, even_twin, power_law

CASE = Case("case", 96, 160, 8, (8, 16), 0.3, dtype="float32")
PATTERNS = ("uniform", "even", "power-law", "banded", "dense-row", "empty-rows", "clusters")


def lengths(case: Case) -> list[int]:
    counts: list[int] = build(case, "cpu").parts.pointers.diff().tolist()
    return counts


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("format", ["bsr", "blocked_ell", "csr"])
def test_every_pattern_makes_a_valid_matrix_whose_dense_copy_is_right(
    pattern: str, format: str
) -> None:
    block = {"bsr": (8, 16), "blocked_ell": (8, 8), "csr": (1, 1)}[format]
    problem = build(replace(CASE, pattern=pattern, format=format, block=block), "cpu")
    assert problem.matrix.problems() == []
    assert problem.matrix.format == format
    assert torch.equal(problem.matrix.to_dense(), dense_of(problem))


def test_the_same_case_is_the_same_matrix() -> None:
    a, b = build(CASE, "cpu"), build(CASE, "cpu")
    assert sf.same(a.matrix, b.matrix)
    assert torch.equal(a.X, b.X)


def test_uniform_has_exactly_the_asked_number_of_blocks() -> None:
    assert sum(lengths(CASE)) == round(0.3 * 12 * 10)


def test_rows_of_clusters_are_alike_and_shuffled() -> None:
    options = {"format": "csr", "block": (1, 1), "clusters": 4, "stretch": 20}
    case = replace(CASE, pattern="clusters", **options)
    D = dense_of(build(case, "cpu")) != 0
    kinds, label = D.unique(dim=0, return_inverse=True)
    assert len(kinds) == 4
    assert label.bincount().tolist() == [24] * 4
    assert (label.diff() != 0).sum() > 40
    stretches = kinds.view(4, 8, 20)
    assert torch.equal(stretches.all(2), stretches.any(2))
    assert stretches.any(2).sum(1).tolist() == [round(0.3 * 8)] * 4
    half = dense_of(build(replace(case, fill=0.5), "cpu")) != 0
    assert 0.4 < float(half.sum() / D.sum()) < 0.6


def test_even_rows_differ_by_one_at_most() -> None:
    found = lengths(replace(CASE, pattern="even"))
    assert max(found) - min(found) <= 1
    assert sum(found) == round(0.3 * 12 * 10)


def test_even_rows_of_blocked_ell_are_full() -> None:
    problem = build(replace(CASE, pattern="even", format="blocked_ell", block=(8, 8)), "cpu")
    assert int((problem.matrix.col_indices < 0).sum()) == 0


def test_power_law_has_its_sum_and_its_longest_row() -> None:
    found = power_law(5243, 512, 512, 10)
    assert (sum(found), max(found)) == (5243, 102)
    steep = power_law(5243, 512, 512, 50)
    assert (sum(steep), max(steep)) == (5243, 512)
    assert min(steep) >= 1
    assert sorted(steep, reverse=True) == steep


def test_dense_row_and_empty_rows() -> None:
    assert max(lengths(replace(CASE, pattern="dense-row"))) == 10
    assert lengths(replace(CASE, pattern="empty-rows"))[1::2] == [0] * 6


def test_banded_rows_follow_the_diagonal() -> None:
    problem = build(replace(CASE, pattern="banded", block=(8, 8)), "cpu")
    columns = problem.parts.columns.tolist()
    pointers = problem.parts.pointers.tolist()
    firsts = [columns[start] for start in pointers[:-1]]
    assert firsts == sorted(firsts)
    assert firsts[0] == 0
    assert columns[-1] == 19


def test_the_even_twin_has_as_many_blocks_and_the_same_operand() -> None:
    problem = build(replace(CASE, pattern="power-law", skew=2.0), "cpu")
    twin = even_twin(problem, "cpu")
    assert twin.stored == problem.stored
    assert twin.X is problem.X


def test_the_operand_of_a_linear_layer_is_a_transposed_view() -> None:
    problem = build(replace(CASE, linear=True), "cpu")
    assert problem.X.T.is_contiguous()
    assert problem.Y.T.is_contiguous()
    assert tuple(problem.X.shape) == (160, 8)
