"""Planted bugs: the ordinary checkers, on ordinary examples, must reject every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from sparseformats import formats, reference, testing
from sparseformats.reference.decoding import is_nonzero
from sparseformats.testing import matrices
from tests.laws import obvious
from tests.laws.contract import chains, steps
from tests.laws.obvious import FORMATS, SOURCES

Convert = Callable[..., Any]

# As many examples as every change gets; a bug that needs luck to be found is not found.
EXAMPLES = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
)


def rejected(law: Callable[[], None]) -> None:
    with pytest.raises(AssertionError):
        law()


def round_trip(convert: Convert, source: Any = None, target: str | None = None) -> None:
    @EXAMPLES
    @given(matrices(source or SOURCES), chains(FORMATS) if target is None else steps(target))
    def law(A: Any, chain: Any) -> None:
        testing.check_round_trip(A, chain if target is None else [chain], convert)

    law()


def test_the_obvious_conversion_obeys_the_law() -> None:
    round_trip(obvious.convert)


# ---- edges that lose or invent elements


def drops_stored_zeros(A: Any, format: str, **options: Any) -> Any:
    kept = {at: v for at, v in reference.entries(A).items() if v != 0}
    return obvious.build(format, kept, A, **options)


def loses_minus_zero(A: Any, format: str, **options: Any) -> Any:
    added = {at: v + np.zeros((), v.dtype) for at, v in reference.entries(A).items()}
    return obvious.build(format, added, A, **options)


def takes_nan_for_zero(A: Any, format: str, **options: Any) -> Any:
    kept = {at: v for at, v in reference.entries(A).items() if v == v}
    return obvious.build(format, kept, A, **options)


def quietens_nan(A: Any, format: str, **options: Any) -> Any:
    plain = {at: v if v == v else v * 0 + np.nan for at, v in reference.entries(A).items()}
    return obvious.build(format, plain, A, **options)


LIKE = {"bfloat16": "float32"}  # the same exponents


def flushes_subnormals(A: Any, format: str, **options: Any) -> Any:
    def flushed(v: Any) -> Any:
        if v.dtype.kind in "biu":
            return v
        if v.dtype.kind == "c":
            return (flushed(v.real) + 1j * flushed(v.imag)).astype(v.dtype)
        return np.where(
            abs(v) < np.finfo(LIKE.get(v.dtype.name, v.dtype)).smallest_normal, 0 * v, v
        )

    plain = {at: flushed(v) for at, v in reference.entries(A).items()}
    return obvious.build(format, plain, A, **options)


def stores_fill(A: Any, format: str, **options: Any) -> Any:
    s = reference.slots(A)
    fill = [(int(i), int(j)) for i, j in zip(s.row[~s.stored], s.col[~s.stored], strict=True)]
    zero = np.zeros((), s.values.dtype)
    return obvious.build(format, dict.fromkeys(fill, zero) | reference.entries(A), A, **options)


def casts_to_float64(A: Any, format: str, **options: Any) -> Any:
    wide = {at: v.astype(np.float64) for at, v in reference.entries(A).items()}
    B = obvious.build(format, wide, A, **options)
    return obvious.build(format, {at: v.astype(np.float32) for at, v in wide.items()}, B, **options)


def narrows_indices(A: Any, format: str, **options: Any) -> Any:
    B = obvious.convert(A, format, **options)
    if format != "csr":
        return B
    return formats.CSR(B.data, B.indices, B.indptr, B.shape, index_dtype="int32")


def forgets_the_shape(A: Any, format: str, **options: Any) -> Any:
    B = obvious.convert(A, format, **options)
    if format != "csr":
        return B
    m, n = B.shape
    return formats.CSR(B.data, B.indices, B.indptr, (m, n + n % 2))


def writes_to_its_source(A: Any, format: str, **options: Any) -> Any:
    B = obvious.convert(A, format, **options)
    data = A.data.view()
    data.flags.writeable = True
    data[...] = 0
    return B


EVERYWHERE = {
    drops_stored_zeros: None,
    loses_minus_zero: ["coo", "csr", "csc", "bsr", "blocked_ell"],
    takes_nan_for_zero: None,
    quietens_nan: None,
    flushes_subnormals: None,
    stores_fill: ["bsr", "blocked_ell"],
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bug", EVERYWHERE, ids=lambda bug: bug.__name__)
def test_a_bug_of_any_edge_is_rejected_by_chains(bug: Convert) -> None:
    rejected(lambda: round_trip(bug))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("bug", "source"),
    [(bug, source) for bug, found in EVERYWHERE.items() for source in found or SOURCES],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_a_bug_of_one_source_is_rejected(bug: Convert, source: str) -> None:
    rejected(lambda: round_trip(bug, source))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("bug", EVERYWHERE, ids=lambda bug: bug.__name__)
def test_a_bug_of_one_target_is_rejected(bug: Convert, target: str) -> None:
    rejected(lambda: round_trip(bug, EVERYWHERE[bug], target))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bug", [narrows_indices, forgets_the_shape, writes_to_its_source])
def test_a_bug_of_structure_is_rejected(bug: Convert) -> None:
    rejected(lambda: round_trip(bug, ["coo", "csc", "bsr"], "csr"))


def test_a_value_that_went_through_another_type_is_rejected() -> None:
    @EXAMPLES
    @given(matrices("csr", dtypes="float32"))
    def law(A: Any) -> None:
        testing.check_content_preserved(A, casts_to_float64(A, "csr"))

    # A signalling NaN becomes a quiet one on the way.
    with np.errstate(all="ignore"):
        rejected(law)


# ---- edges that get structure wrong


def forgets_sorting(A: Any) -> Any:
    B = obvious.convert(A, "csr")
    order = np.concatenate(
        [np.arange(a, b)[::-1] for a, b in zip(B.indptr[:-1], B.indptr[1:], strict=True)]
        or [np.zeros(0, int)]
    ).astype(int)
    return formats.CSR.trusted(
        data=B.data[order], indices=B.indices[order], indptr=B.indptr, shape=B.shape
    )


def leaks_padding(A: Any) -> Any:
    B = obvious.convert(A, "bsr", blocksize=(2, 3))
    return formats.BSR.trusted(
        data=np.where(B.data == 0, np.ones_like(B.data), B.data),
        indices=B.indices,
        indptr=B.indptr,
        shape=B.shape,
    )


def marks_padding_as_stored(A: Any) -> Any:
    B = obvious.convert(A, "bsr", blocksize=(2, 3))
    return formats.BSR.trusted(
        data=B.data,
        indices=B.indices,
        indptr=B.indptr,
        shape=B.shape,
        zeros=np.flatnonzero(~is_nonzero(B.data)),
    )


def transposes_blocks_wrong(A: Any) -> Any:
    B = obvious.convert(A, "bsr", blocksize=(2, 3))
    wrong = np.ascontiguousarray(B.data).reshape(-1, 3, 2).swapaxes(1, 2)
    return formats.BSR.trusted(
        data=np.ascontiguousarray(wrong),
        indices=B.indices,
        indptr=B.indptr,
        shape=B.shape,
        zeros=B.zeros,
    )


def loses_the_ragged_edge(A: Any) -> Any:
    kept = {
        (i, j): v
        for (i, j), v in reference.entries(A).items()
        if i < A.shape[0] // 2 * 2 and j < A.shape[1] // 2 * 2
    }
    return obvious.build("bsr", kept, A, blocksize=(2, 2))


def prunes_silently(A: Any) -> Any:
    kept: dict[Any, Any] = {}
    for (i, j), v in sorted(reference.entries(A).items()):
        if sum((r, c // 4) == (i, j // 4) for r, c in kept) < 2:
            kept[i, j] = v
    return obvious.build("2:4", kept, A)


def drops_the_side_record(A: Any) -> Any:
    B = obvious.convert(A, "2:4")
    return formats.NM.trusted(
        data=B.data, indices=B.indices, shape=B.shape, n=2, m=4, zeros=B.zeros, side=None
    )


BROKEN = [
    forgets_sorting,
    leaks_padding,
    marks_padding_as_stored,
    transposes_blocks_wrong,
    loses_the_ragged_edge,
    prunes_silently,
    drops_the_side_record,
]


@pytest.mark.parametrize("bug", BROKEN)
def test_a_bug_of_one_structure_is_rejected(bug: Callable[[Any], Any]) -> None:
    @EXAMPLES
    @given(matrices(["coo", "csr"], values="small"))
    def law(A: Any) -> None:
        if bug is drops_the_side_record and not testing.holds(A, "2:4"):
            return
        B = bug(A)
        testing.check_valid(B)
        testing.check_content_preserved(A, B)

    rejected(law)


def test_an_empty_slot_read_as_block_column_0_is_rejected() -> None:
    @EXAMPLES
    @given(matrices("blocked_ell", values="small"))
    def law(A: Any) -> None:
        wrong = formats.BlockedELL.trusted(
            data=A.data,
            col_indices=np.where(A.col_indices < 0, 0, A.col_indices),
            shape=A.shape,
            zeros=A.zeros,
        )
        testing.check_valid(wrong)
        testing.check_content_preserved(A, wrong)

    rejected(law)


def test_a_position_that_wraps_in_int32_is_rejected() -> None:
    # A key row * ncols + col beyond int32 comes out negative and sorts first.
    n = 2**16
    A = formats.COO(np.array([1.0, 2.0]), np.array([0, n // 2]), np.array([1, 0]), (n, n))
    row, col = A.row.astype(np.int32), A.col.astype(np.int32)
    order = np.argsort(row * np.int32(n) + col)
    assert order.tolist() == [1, 0]
    wrong = formats.COO.trusted(data=A.data[order], row=row[order], col=col[order], shape=A.shape)
    rejected(lambda: testing.check_valid(wrong))
    wrapped = (row * np.int32(n) + col)[::-1]
    wrong = formats.COO.trusted(
        data=A.data, row=wrapped // np.int32(n), col=wrapped % np.int32(n), shape=A.shape
    )
    rejected(lambda: testing.check_valid(wrong))


# ---- validators


@pytest.mark.parametrize(
    ("format", "rule"),
    [(format, rule) for format, rules in testing.RULES.items() for rule in rules],
)
def test_a_validator_that_forgets_a_rule_is_rejected(format: str, rule: str) -> None:
    @settings(EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(testing.broken_inputs(format, rule))
    def law(broken: Any) -> None:
        name = broken.rule
        broken.check(lambda A: [problem for problem in A.problems() if problem.rule != name])

    rejected(law)
