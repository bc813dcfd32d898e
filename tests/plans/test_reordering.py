"""Plans that group rows: the same results, where it pays, and nothing of it outside."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import dispatch, ops, testing
from sparseformats.dispatch import KernelRecord
from sparseformats.ops.reordering import blocks, decision
from sparseformats.ops.reordering.blocks import Blocks
from sparseformats.ops.reordering.similarity import Order
from tests.plans.support import Spy, host, spying

FORMATS = ("coo", "csr", "csc", "bsr", "bsr.T", "blocked_ell", "blocked_ell.T", "2:4", "sum")


def planted(
    rows: int = 256,
    columns: int = 256,
    clusters: int = 8,
    edge: int = 16,
    *,
    dtype: str = "float32",
    seed: int = 0,
) -> tuple[Any, Any]:
    """Whole numbers in clusters of rows that store the same blocks of columns, and their labels."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.repeat(np.arange(clusters), rows // clusters))
    met = rng.random((clusters, columns // edge)) < 0.2
    met[np.arange(clusters), np.arange(clusters) % (columns // edge)] = True
    D = np.repeat(met, edge, axis=1)[label] * rng.integers(1, 4, (rows, columns))
    return D.astype(dtype), label


def scattered(size: int = 256) -> Any:
    rng = np.random.default_rng(1)
    return ((rng.random((size, size)) < 0.1) * rng.integers(1, 4, (size, size))).astype("float32")


def numbers(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def always(A: Any, X: Any, **options: Any) -> Any:
    """A product by a plan that groups whatever it takes."""
    plan = sf.plan(A, X, reorder="always", assume_finite=True, **options)
    return plan(A if isinstance(X, sf.SparseMatrix) else X, out=options.get("out"))


# Results.


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("format", FORMATS)
def test_results_are_those_of_any_product(
    format: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SIZES", ((2, 2), (3, 2)))
    monkeypatch.setattr(blocks, "SHARING", (2,))

    @given(st.data())
    def check(data: st.DataObject) -> None:
        dtype = data.draw(st.sampled_from(["float32", "float64", "float16", "int8", "bool"]))
        options: dict[str, Any] = {"dtypes": dtype, "library": library, "values": "small"}
        A = data.draw(testing.matrices(format, shapes=testing.shapes(12), **options))
        left = data.draw(st.booleans())
        X = data.draw(testing.dense_operands(A, left=left, values="small"))
        out = data.draw(st.sampled_from([None, "C", "F", "rows", "guarded"]))
        alpha, beta = data.draw(st.sampled_from([(1, 0), (2, 0), (1, 1), (2, 3)]))
        if dtype == "bool":
            alpha, beta = bool(alpha), bool(beta)
        beta = 0 if out is None else beta
        options = {"alpha": alpha, "beta": beta, "out": out, "left": left}
        testing.check_product(A, X, matmul=always, **options)

    check()


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("format", ["csr", "csc", "bsr", "2:4"])
def test_any_order_gives_the_same(
    format: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders drawn at random, with gaps, prove what a good grouping may hide."""
    drawn: list[Order] = []

    def in_blocks(pattern: Any) -> list[Blocks]:
        order = drawn[-1]
        count = blocks.similarity.blocks_of(pattern, order, 2, 2)
        return [Blocks((2, 2), order, count, 1.0)]

    monkeypatch.setattr(blocks, "SIZES", ((2, 2),))
    monkeypatch.setattr(blocks, "_in_blocks", in_blocks)

    @given(st.data())
    def check(data: st.DataObject) -> None:
        A = data.draw(testing.matrices(format, library=library, dtypes="float32", values="small"))
        m, gaps = A.shape[0], data.draw(st.integers(0, 4))
        places = data.draw(st.permutations(range(m + gaps)))[:m]
        drawn.append(Order(np.array(places, np.int64), m + gaps))
        X = data.draw(testing.dense_operands(A, values="small"))
        Y = always(A, X)
        np.testing.assert_array_equal(host(Y), host(A.to_dense()) @ host(X))
        old = A.lib.from_numpy(numbers(*Y.shape))
        expected = 2 * host(Y) + 3 * host(old)
        if 0 not in Y.shape:
            Z = always(A, X, alpha=2, beta=3, out=old)
            assert Z is old
            np.testing.assert_array_equal(host(Z), expected)

    check()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_rows_of_a_cluster_are_multiplied_in_blocks(library: str) -> None:
    D, _ = planted(1024, 1024, 16, 64)
    A, X = sf.from_dense(D, "csr").to_library(library), numbers(1024, 256)
    x = torch.from_numpy(X) if library == "torch" else X
    plan = sf.plan(A, x, reorder=True, assume_finite=True)
    told = plan.explanation
    assert told.query.format == "bsr"
    assert told.remark.startswith("rows grouped: ")
    assert "grouped rows in blocks of" in repr(plan)
    assert plan.query.format == "csr"
    with sf.tracing() as trace:
        Y = plan(x)
    assert trace.kernels == [plan.kernel] == [told.chosen]
    assert plan.kernel.endswith("blocks")
    order = plan._selection.target.blocks.order  # type: ignore[attr-defined]
    assert (order.places != np.arange(1024)).mean() > 0.9  # else nothing would show
    np.testing.assert_array_equal(host(Y), D @ X)
    batch = A.lib.from_numpy(numbers(3, 1024, 128))
    many = sf.plan(A, batch, reorder=True, assume_finite=True)
    np.testing.assert_array_equal(host(many(batch)), D @ host(batch))
    vector = A.lib.from_numpy(numbers(1024))
    np.testing.assert_array_equal(host(always(A, vector)), D @ host(vector))


def test_explain_tells_what_a_plan_would_do() -> None:
    D, _ = planted()
    A, X = sf.from_dense(D, "csr"), numbers(256, 128)
    for promise in (False, True):
        options: dict[str, Any] = {"assume_finite": promise, "reorder": True}
        told, plan = sf.explain(A, X, **options), sf.plan(A, X, **options)
        assert (told.chosen, told.remark) == (plan.kernel, plan.explanation.remark)
        assert told.remark in str(told)
        assert told.to_dict()["remark"] == told.remark
    assert sf.explain(A, X).remark == sf.plan(A, X).explanation.remark == ""


def test_where_nothing_is_gained_rows_stay() -> None:
    A, X = sf.from_dense(scattered(), "csr"), numbers(256, 64)
    plain = sf.plan(A, X, assume_finite=True)
    plan = sf.plan(A, X, reorder=True, assume_finite=True)
    assert plan.kernel == plain.kernel
    assert plan.explanation.query.format == "csr"
    remark = plan.explanation.remark
    assert remark.startswith("rows as given: at best ")
    assert remark.endswith(f"us by {plain.kernel}")
    np.testing.assert_array_equal(plan(X), plain(X))


def test_what_looks_promising_is_counted_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small blocks may hold a scattered pattern in some order, only nobody finds one."""
    rng = np.random.default_rng(0)
    D = np.zeros((512, 512), np.float32)
    D[np.repeat(np.arange(512), 4), rng.integers(0, 512, 2048)] = 1
    A, X = sf.from_dense(D, "csr"), numbers(512, 64)
    with dispatch.temporary(cheap_blocks(0.02)):
        plan = sf.plan(A, X, reorder=True, assume_finite=True)
    assert plan.explanation.query.format == "csr"
    assert plan.explanation.remark.startswith("rows as given: ")
    assert "at best" not in plan.explanation.remark
    np.testing.assert_array_equal(plan(X), D @ X)


def cheap_blocks(each: float) -> KernelRecord:
    return KernelRecord(
        "cheap",
        "matmul",
        ("bsr",),
        "tests.plans.support:Spy",
        cost=lambda query: each * (query.nnzb or 0) if query.blocksize == (16, 16) else 1e9,
    )


def test_blocks_that_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "_BYTES", 0)
    A, X = sf.from_dense(np.eye(512, dtype="float32"), "csr"), numbers(512, 64)
    with dispatch.temporary(cheap_blocks(0.0)):
        plan = sf.plan(A, X, reorder=True, assume_finite=True)
        assert "take" in plan.explanation.remark
        assert "more than" in plan.explanation.remark
        assert plan.explanation.query.format == "csr"
        taken = sf.plan(A, X, reorder="always", assume_finite=True)
        assert taken.kernel == "cheap"
    np.testing.assert_array_equal(plan(X), X)
    np.testing.assert_array_equal(taken(X), X)


def test_the_way_back_is_counted() -> None:
    D, _ = planted()
    A, X = sf.from_dense(D, "csr"), numbers(256, 64)
    query = sf.explain(A, X).query

    def time(**changes: Any) -> float:
        return decision._way_back(replace(query, **changes))

    assert time() < time(out_layout="F") < time(out_layout="F", beta_zero=False)
    assert time(out_layout="C") == time()
    assert time(out_layout="C", beta_zero=False) == pytest.approx(2 * time(), rel=0.3)
    assert time(device="cuda", n=10_000) < time(n=10_000) / 100
    assert time(n=128) == pytest.approx(time(batch=2))


# What is not finite.


def test_without_a_promise_elements_stay_elements() -> None:
    D, _ = planted()
    A, X = sf.from_dense(D, "csr"), numbers(256, 128)
    X[7, 3], X[100, 5] = np.inf, np.nan
    plan = sf.plan(A, X, reorder=True)
    assert "0 x inf is NaN" in plan.explanation.remark
    assert "pass assume_finite=True" in plan.explanation.remark
    np.testing.assert_array_equal(plan(X), A @ X)
    with pytest.raises(ValueError, match=r"reorder='always': .* 0 x inf is NaN.*assume_finite"):
        sf.plan(A, X, reorder="always")
    with pytest.raises(ValueError, match="reorder='always'"):
        sf.explain(A, X, reorder="always")


def test_whole_numbers_need_no_promise() -> None:
    D, _ = planted(dtype="int32")
    A, X = sf.from_dense(D, "csr"), numbers(256, 64, dtype="int32")
    plan = sf.plan(A, X, reorder="always")
    assert plan.explanation.query.format == "bsr"
    np.testing.assert_array_equal(plan(X), D @ X)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_in_the_matrix_stays_in_its_rows(value: float) -> None:
    D, _ = planted()
    D[3, np.flatnonzero(D[3])[0]] = value
    A, X = sf.from_dense(D, "csr"), numbers(256, 8)
    np.testing.assert_array_equal(always(A, X), A @ X)


def striped(edge: int = 16) -> Any:
    """Block rows of two kinds in turn."""
    kinds = np.random.default_rng(0).random((2, 32)) < 0.3
    met = kinds[np.arange(64) % 2]
    rows, columns = np.nonzero(met)
    indptr = np.concatenate([[0], np.cumsum(met.sum(1))])
    data = numbers(rows.size, edge, edge)
    data[0] = 0  # a block that stores nothing, and still meets the operand
    data[rows == 63, -3:] = 0  # padding
    return sf.BSR(data, columns, indptr, (64 * edge - 3, 32 * edge))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_whole_block_rows_move_without_a_promise(library: str) -> None:
    A = striped().to_library(library)
    X = numbers(512, 24)
    X[7, 3], X[200, 5] = np.inf, np.nan
    x = A.lib.from_numpy(X)
    plan = sf.plan(A, x, reorder="always")
    assert plan.explanation.remark.startswith("block rows grouped: ")
    query = plan.explanation.query
    assert query.blocksize == (16, 16)
    assert query.union == pytest.approx(1 / 8)  # eight block rows of one kind read a column once
    np.testing.assert_array_equal(host(plan(x)), host(A @ x))
    old = A.lib.from_numpy(numbers(A.shape[0], 24))
    scaled = sf.plan(A, x, reorder="always", beta=2, out=old)
    expected = host(A @ x) + 2 * host(old)
    np.testing.assert_array_equal(host(scaled(x, out=old)), expected)


def test_what_block_rows_share_already_counts() -> None:
    """Kernels that share nothing gain nothing, and neither does an order that shares already."""
    A, X = striped(), numbers(512, 24)
    plan = sf.plan(A, X, reorder=True)
    assert plan.explanation.remark.startswith("rows as given: ")
    assert plan.explanation.query.union == pytest.approx(2 / 8, rel=0.3)
    ordered = sf.vstack([A[i : i + 16] for half in (0, 16) for i in range(half, 992, 32)])
    told = sf.explain(ordered, X, reorder=True)
    assert told.query.union == pytest.approx(1 / 8, rel=0.2)
    assert sf.plan(A, X).explanation.query.union is None


def sharing() -> KernelRecord:
    """A kernel that takes as long as block rows share little."""
    return KernelRecord(
        "sharing",
        "matmul",
        ("bsr",),
        "tests.plans.support:Spy",
        cost=lambda query: 1e3 * (0.8 if query.union is None else query.union),
    )


def test_block_rows_are_grouped_where_a_kernel_shares() -> None:
    A, X = striped(), numbers(512, 24)
    X[7, 3] = np.inf
    with dispatch.temporary(sharing(), only=True):
        plan = sf.plan(A, X, reorder=True)
        remark = plan.explanation.remark
        assert remark.startswith(f"block rows grouped: {A.nnzb:,} blocks of 16 x 16 (0.1")
        assert "reads of the operand each); predicted: about 1" in remark
        assert remark.endswith("us by sharing")
        assert "grouped rows in blocks of 16 x 16" in repr(plan)
        np.testing.assert_array_equal(plan(X), sf.matmul(A, X))
    turned = sf.plan(A.T, numbers(A.shape[0], 24), reorder=True, assume_finite=True)
    assert not turned.explanation.remark.startswith("block rows")


def test_a_kernel_that_knows_no_blocks_gains_nothing_by_them() -> None:
    """Not even one that is quicker where more is stored."""
    D, _ = planted()
    A, X = sf.from_dense(D, "csr"), numbers(256, 64)
    odd = KernelRecord(
        "odd",
        "matmul",
        dispatch.ANY,
        "tests.plans.support:Spy",
        cost=lambda query: 1.0 if query.format == "bsr" else 1e6,
    )
    with dispatch.temporary(odd, only=True):
        plan = sf.plan(A, X, reorder=True, assume_finite=True)
        assert "by odd, which gains nothing by blocks" in plan.explanation.remark
        assert plan.explanation.query.format == "csr"


# Edges.


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (5, 7), (1, 1)])
@pytest.mark.parametrize("reorder", [True, "always"])
def test_nothing_stored(shape: tuple[int, int], reorder: Any) -> None:
    for format in ("csr", "coo", "csc"):
        A, X = sf.from_dense(np.zeros(shape), format), np.ones((shape[1], 3))
        plan = sf.plan(A, X, reorder=reorder, assume_finite=True)
        assert "nothing to group" in plan.explanation.remark
        np.testing.assert_array_equal(plan(X), np.zeros((shape[0], 3)))


def test_no_columns() -> None:
    A, X = sf.eye(40), np.ones((40, 0))
    plan = sf.plan(A, X, reorder="always", assume_finite=True)
    assert "nothing to group" in plan.explanation.remark
    assert plan(X).shape == (40, 0)


def test_duplicates_stored_zeros_and_empty_rows() -> None:
    D, _ = planted(dtype="float64")
    D[::5] = 0
    row, column = np.nonzero(D)
    values = D[row, column]
    twice = [np.concatenate([x, x]) for x in (values, row, column)]
    X = numbers(256, 16, dtype="float64")
    A = sf.COO(*twice, D.shape)
    np.testing.assert_array_equal(always(A, X), 2 * D @ X)
    values[::3] = 0
    Z = sf.COO(values, row, column, D.shape)
    assert Z.nnz == values.size
    np.testing.assert_array_equal(always(Z, X), Z @ X)


def test_only_these_words() -> None:
    A, X = sf.eye(4), np.ones((4, 2))
    for bad in ("rows", None, 1, "Always", np.ones(2)):
        with pytest.raises(ValueError, match="reorder must be False, True or 'always', got"):
            sf.plan(A, X, reorder=bad)
        with pytest.raises(ValueError, match="reorder must be"):
            sf.explain(A, X, reorder=bad)


def test_a_kernel_asked_for_by_name() -> None:
    D, _ = planted()
    A, X = sf.from_dense(D, "csr"), numbers(256, 64)
    options: dict[str, Any] = {"assume_finite": True, "reorder": True}
    plan = sf.plan(A, X, kernel="numpy-blocks", **options)  # serves no CSR but in blocks
    assert plan.kernel == "numpy-blocks"
    assert "as given there is no kernel" in plan.explanation.remark
    np.testing.assert_array_equal(plan(X), D @ X)
    plain = sf.plan(A, X, kernel="scipy-csr", **options)
    np.testing.assert_array_equal(plain(X), D @ X)
    with pytest.raises(sf.errors.NoKernelError, match="torch-blocks"):
        sf.plan(A, X, kernel="torch-blocks", **options)


def test_a_sum_groups_its_parts() -> None:
    D, _ = planted()
    D[::7, 5] = 9
    S, X = sf.split(D, "bsr", blocksize=16, min_fill=0.5), numbers(256, 64)
    plan = sf.plan(S, X, reorder="always", assume_finite=True)
    assert all(part.remark for part in plan.explanation.parts if part is not None)
    np.testing.assert_array_equal(plan(X), D @ X)
    told = sf.explain(S, X, reorder=True, assume_finite=True)
    assert all(part.remark for part in told.parts if part is not None)
    with pytest.raises(ValueError, match="reorder='always'"):
        sf.plan(S, X, reorder="always")


# What is kept, and values that change.


def grouped_spy() -> Any:
    return spying(Spy)


def test_states_are_shared_by_plans_alike_and_by_no_others() -> None:
    D, _ = planted()
    A, X, wide = sf.from_dense(D, "csr"), numbers(256, 16), numbers(256, 32)
    with grouped_spy() as counts:
        options: dict[str, Any] = {"assume_finite": True}
        first = sf.plan(A, X, reorder="always", **options)
        second = sf.plan(A, wide, reorder="always", **options)
        assert counts["pack"] == 1
        plain = sf.plan(A, X, **options)
        A @ X
        assert counts["pack"] == 2
        for plan, x in ((first, X), (second, wide), (plain, X)):
            np.testing.assert_array_equal(plan(x), D @ x)
        assert sf.cache_info().packed_bytes > 0
        assert counts["pack"] == 2


@pytest.mark.parametrize("format", ["bsr", "blocked_ell"])
def test_a_matrix_and_its_transpose_have_orders_of_their_own(format: str) -> None:
    D = planted(256, 96)[0]
    A = sf.from_dense(D, format, blocksize=2)
    for _ in range(2):
        assert np.array_equal(always(A, X := numbers(96, 8)), D @ X)
        assert np.array_equal(always(A.T, X := numbers(256, 8)), D.T @ X)
        assert np.array_equal(always(X := numbers(8, 256), A), X @ D)
        assert np.array_equal(always(X := numbers(8, 96), A.T), X @ D.T)


def test_each_size_of_blocks_has_a_state_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one matrix and one kernel: other numbers of columns may ask for other blocks."""
    A, X = sf.from_dense(planted()[0], "csr"), numbers(256, 8)
    quickest, plans = decision._quickest, []
    for size in ((16, 16), (64, 32), (128, 64)):

        def chosen(tried: Any, *args: Any, size: Any = size) -> Any:
            return quickest([each for each in tried if each.size == size], *args)

        monkeypatch.setattr(decision, "_quickest", chosen)
        options: dict[str, Any] = {"assume_finite": True, "reorder": "always"}
        plans.append((size, sf.plan(A, X, kernel="scipy-bsr", **options)))
    for (r, c), plan in plans:
        assert plan.explanation.query.blocksize == (r, c)
        assert repr(plan).endswith(f"blocks of {r} x {c}>")
        assert np.array_equal(plan(X), A @ X)


def test_without_a_cache() -> None:
    D, _ = planted()
    ops.set_cache_limit(0)
    A, X = sf.from_dense(D, "csr"), numbers(256, 16)
    for _ in range(2):
        np.testing.assert_array_equal(always(A, X), D @ X)
    assert sf.cache_info().packed_bytes == 0


def test_a_plan_outlives_its_matrix() -> None:
    D, _ = planted()
    A, X = sf.from_dense(D, "csr"), numbers(256, 16)
    plan, gone = sf.plan(A, X, reorder="always", assume_finite=True), weakref.ref(A)
    data = A.data.copy()
    del A
    gc.collect()
    assert gone() is None
    assert sf.cache_info().matrices == 0
    np.testing.assert_array_equal(plan(X), D @ X)
    plan.update(data * 2)
    np.testing.assert_array_equal(plan(X), 2 * D @ X)
    data[::2] = 0  # what is stored stays stored
    plan.update(data)
    E = D.copy()
    E[np.nonzero(D)] = data
    np.testing.assert_array_equal(plan(X), E @ X)


def test_values_written_to_behind_its_back() -> None:
    D, _ = planted()
    A = sf.from_dense(torch.from_numpy(D), "csr")
    X = torch.from_numpy(numbers(256, 16))
    plan = sf.plan(A, X, reorder="always", assume_finite=True)
    plan(X)
    A.data.mul_(3)
    np.testing.assert_array_equal(host(plan(X)), 3 * D @ host(X))
    # Blocks whose fill is written to store more than was counted.
    B = sf.from_dense(torch.eye(64), "bsr", blocksize=4)
    x = torch.from_numpy(numbers(64, 8))
    other = sf.plan(B, x, reorder="always", assume_finite=True)
    B.data.fill_(2)
    np.testing.assert_array_equal(host(other(x)), host(B.to_dense()) @ host(x))
    B.data.zero_()
    np.testing.assert_array_equal(host(other(x)), np.zeros((64, 8)))


def test_equal_matrices_get_equal_orders() -> None:
    D, _ = planted()
    X = numbers(256, 16)

    def order() -> Any:
        plan = sf.plan(sf.from_dense(D, "csr"), X, reorder="always", assume_finite=True)
        return plan._selection.target.blocks  # type: ignore[attr-defined]

    first, second = order(), order()
    assert first.size == second.size
    np.testing.assert_array_equal(first.order.places, second.order.places)


def test_the_facts_of_blocks_are_those_of_the_matrix_that_is_made() -> None:
    from sparseformats.ops.facts import matrix_facts
    from sparseformats.ops.reordering import kernel

    D, _ = planted()
    for A in (sf.from_dense(D, "csr"), sf.from_dense(D, "csr").to("csr", index_dtype="int64")):
        plan = sf.plan(A, numbers(256, 16), reorder="always", assume_finite=True)
        target = plan._selection.target
        made = kernel._put(A, target.blocks, transposed=False)  # type: ignore[attr-defined]
        told, facts = plan.explanation.query, matrix_facts(A.lib, made)
        assert {name: getattr(told, name) for name in facts} == facts
        assert (told.m, told.k) == made.shape
        assert not made.problems()
