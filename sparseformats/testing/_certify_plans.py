"""Certification of what conversion plans run: conversions into room, and products of the room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from sparseformats import dispatch, from_dense, plan_conversion, same
from sparseformats.errors import CapacityError
from sparseformats.testing._values import host_dtype, masks
from sparseformats.testing.bounds import assert_close
from sparseformats.testing.operands import LAYOUTS, dense_operands, laid_out

__all__ = ["PREFIX", "law_of"]

PREFIX = "plan_conversion:"
Judge = Callable[[Any, Callable[[], None]], None]
"""``judge(A, check)`` runs the check of a call with matrix A and counts how it went."""


def law_of(
    drawn: Any, record: dispatch.KernelRecord, values: Any, bound: dict[str, Any], judge: Judge
) -> Any:
    """A Hypothesis test of a kernel; `bound` are options of `error_bound`."""
    if record.op == f"{PREFIX}matmul":
        return _product_law(drawn, record, values, bound, judge)
    return _conversion_law(drawn, record, judge)


def _conversion_law(drawn: Any, record: dispatch.KernelRecord, judge: Judge) -> Any:
    """A conversion gives the ordinary one's buffers, or `CapacityError`."""
    origin, _, target = record.op.removeprefix(PREFIX).partition("->")

    def law(A: Any, pair: tuple[int, int], data: Any, capacity: int) -> None:
        options = _options(target, pair)
        if origin == "csr":
            expected, zero = A.to(target, **options), A.lib.zeros(A.shape, A.dtype_name, A.device)
            everything = A.lib.full(A.shape, True, "bool", A.device)
            index = A.lib.dtype_name(A.index_dtype)
            sources = [from_dense(zero, mask=everything, index_dtype=index), A]
            judge(A, lambda: _check(record, sources, expected, options, capacity))
            return
        D = _laid(A, A.to_dense(), data)
        mask = None
        if data.draw(st.booleans(), label="masked"):
            bits = data.draw(masks(int(np.prod(A.shape))), label="mask").reshape(A.shape)
            mask = laid_out(bits, data.draw(st.sampled_from(LAYOUTS)), A.lib, A.device)
        expected = from_dense(D, target, mask=mask, **options)
        # The most that a first source can leave over: marks of zeros, or values.
        other = A.lib.full(A.shape, 1 if mask is None else 0, A.dtype_name, A.device)
        every = None if mask is None else A.lib.full(A.shape, True, "bool", A.device)
        sources, both = [other, D], (every, mask)
        judge(A, lambda: _check(record, sources, expected, options, capacity, both))

    pairs = st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4]))
    return given(drawn, pairs, st.data(), st.integers(1, 30))(law)


def _product_law(
    drawn: Any, record: dispatch.KernelRecord, values: Any, bound: dict[str, Any], judge: Judge
) -> Any:
    """A product is right within the bound, or NaN alone."""

    def law(A: Any, pair: tuple[int, int], format: str, data: Any, capacity: int) -> None:
        full = A.lib.full(A.shape, 1, A.dtype_name, A.device)  # so that something is left over
        plan = plan_conversion(full, format, capacity=capacity, **_options(format, pair))
        plan(A.to_dense())
        X = data.draw(dense_operands(A, values=values, batched=False), label="X")
        X = X[:, 0] if X.shape[1] and data.draw(st.booleans(), label="vector") else X
        layout = data.draw(st.sampled_from([x for x in LAYOUTS if x != "broadcast"]), label="out")
        judge(A, lambda: _check_product(record, plan, X, layout, bound))

    formats, pairs = st.sampled_from(record.formats), st.tuples(st.integers(1, 4), _COLUMNS)
    return given(drawn, pairs, formats, st.data(), st.integers(1, 30))(law)


_COLUMNS = st.sampled_from([1, 2, 4])


def _options(format: str, pair: tuple[int, int]) -> dict[str, Any]:
    if format == "csr":
        return {}
    return {"blocksize": pair if format == "bsr" else pair[1]}


def _laid(A: Any, D: Any, data: Any) -> Any:
    """A dense array in one of the memory layouts."""
    layout = data.draw(st.sampled_from([x for x in LAYOUTS if x != "broadcast"]), label="layout")
    return laid_out(A.lib.to_numpy(D), layout, A.lib, A.device)


def _check(
    record: dispatch.KernelRecord,
    sources: list[Any],
    expected: Any,
    options: dict[str, Any],
    capacity: int,
    masks: tuple[Any, Any] = (None, None),
) -> None:
    """Convert two sources; the second one is to be found, and nothing of the first."""
    first, second = sources
    needed = expected.width if expected.format == "blocked_ell" else int(expected.data.shape[0])
    with dispatch.use_kernel(record.name, record.op):
        plan = plan_conversion(first, expected.format, capacity=capacity, mask=masks[0], **options)
        plan(second, mask=masks[1])
    if plan.kernel != record.name:
        raise AssertionError(f"{record.name} is under test, but what ran is {plan.kernel}")
    lib = expected.lib
    count = int(lib.item(plan.count))
    if count != needed or bool(lib.item(plan.overflowed)) != (needed > capacity):
        raise AssertionError(f"expected to find {needed} of {capacity}, found {count}")
    _check_bounds(plan)
    try:
        found = plan.matrix()
    except CapacityError as error:
        if needed <= capacity or error.needed != needed:
            raise AssertionError(f"there is room for {needed} of {capacity}: {error}") from error
        return
    if needed > capacity:
        raise AssertionError(f"{needed} do not fit into room for {capacity}")
    if not same(found, expected, level="buffers"):
        raise AssertionError(f"expected {expected.buffers()}, got {found.buffers()}")


def _check_bounds(plan: Any) -> None:
    """No row ends before it begins, or beyond the room."""
    room = plan._room
    starts, ends = room.lib.to_numpy(room.starts), room.lib.to_numpy(room.ends)
    most = room.capacity * (1 if room.indptr is not None else len(starts))
    if (starts > ends).any() or (ends > most).any():
        raise AssertionError(f"rows of a room of {most} begin at {starts} and end at {ends}")


def _check_product(
    record: dispatch.KernelRecord, plan: Any, X: Any, layout: str, bound: dict[str, Any]
) -> None:
    lib = plan._room.lib
    shape = (plan.shape[0], *(int(s) for s in X.shape[1:]))
    filled = np.full(shape, np.nan if _has_nan(plan) else 1).astype(host_dtype(plan._room.dtype))
    out = laid_out(filled, layout, lib, plan.device) if len(shape) == 2 else None
    with dispatch.use_kernel(record.name, record.op):
        Y = plan.product(X, out=out)
    if out is not None and Y is not out:
        raise AssertionError("the result is another array than out")
    if bool(lib.item(plan.overflowed)):
        wrong = ~np.isnan(lib.to_numpy(Y).astype(np.float64))
        if wrong.any():
            raise AssertionError(f"{int(wrong.sum())} elements of a spoiled product are no NaN")
        return
    assert_close(Y, plan.matrix(), X, **bound)


def _has_nan(plan: Any) -> bool:
    return bool(plan._room.dtype.startswith(("float", "bfloat")))
