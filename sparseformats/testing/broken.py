"""Matrices that break exactly one rule of their format, with the name of the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import assume, strategies as st

from sparseformats import formats
from sparseformats.errors import Problem
from sparseformats.reference.decoding import is_nonzero
from sparseformats.testing._values import Draw
from sparseformats.testing.strategies import matrices

__all__ = ["RULES", "BrokenInput", "broken_inputs"]

Fields = dict[str, Any]
Mutation = Callable[[Any, Fields], Fields | None]


@dataclass(frozen=True, eq=False)
class BrokenInput:
    """Fields of a matrix that break one rule.

    Attributes
    ----------
    format : str
        Family of the format.
    rule : str
        Name of the broken rule, as `problems` must report it.
    make : type
        Class of the format.
    fields : mapping of str to object
        What ``make.trusted`` takes.
    """

    format: str
    rule: str
    make: Any
    fields: Fields

    def build(self) -> Any:
        """Wrap the fields without any check."""
        return self.make.trusted(**self.fields)

    def check(self, validate: Callable[[Any], Sequence[Problem]] | None = None) -> None:
        """Raise AssertionError unless the rule is reported.

        Parameters
        ----------
        validate : callable, optional
            From a matrix to its problems; by default its own `problems`.
        """
        A = self.build()
        found = (validate or type(A).problems)(A)
        if self.rule not in {problem.rule for problem in found}:
            listed = "".join(f"\n  {problem}" for problem in found)
            raise AssertionError(
                f"{self.format} breaks {self.rule!r}, reported:{listed or ' none'}"
            )


def broken_inputs(format: str, rule: str | None = None) -> Any:
    """Strategy of matrices of one format that break one rule.

    Parameters
    ----------
    format : str
        ``"coo"``, ``"csr"``, ``"csc"``, ``"bsr"``, ``"blocked_ell"``, ``"n:m"`` or ``"sum"``.
    rule : str, optional
        One of ``RULES[format]``; None: any. What follows a colon names a variant.

    Returns
    -------
    strategy of BrokenInput
    """
    mutations = {rule: _MUTATIONS[format][rule]} if rule else _MUTATIONS[format]
    shapes = st.tuples(st.integers(3, 6), st.integers(3, 6))
    whole = matrices(format, shapes=shapes, blocksizes=(2, 2), values="small")

    def draw_broken(draw: Draw) -> BrokenInput:
        A = draw(whole)
        applicable = [
            (name, fields)
            for name, mutate in mutations.items()
            if (fields := mutate(A, _fields(A))) is not None
        ]
        assume(applicable)
        name, fields = draw(st.sampled_from(applicable))
        return BrokenInput(format, name.partition(":")[0], type(A), fields)

    return st.composite(draw_broken)()


def _fields(A: Any) -> Fields:
    """Fields of a NumPy matrix, the arrays as copies that may be written."""
    found = {name: getattr(A, name) for name in A.__match_args__ if not name.startswith("_")}
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in found.items()}


def _set(name: str, at: Any, value: Any) -> Mutation:
    """Mutation that sets one element, where there is one; `value` may be a function of A."""

    def mutate(A: Any, f: Fields) -> Fields | None:
        if not f[name].size:
            return None
        f[name][at] = value(A) if callable(value) else value
        return f

    return mutate


def _shorter(name: str) -> Mutation:
    def mutate(A: Any, f: Fields) -> Fields | None:
        f[name] = f[name][:-1]
        return f if getattr(A, name).size else None

    return mutate


def _unsorted_coo(A: Any, f: Fields) -> Fields | None:
    f |= {name: f[name][::-1].copy() for name in ("row", "col")}
    return f if A.nnz > 1 else None


def _twice_coo(A: Any, f: Fields) -> Fields | None:
    f |= {name: f[name].repeat(2) for name in ("data", "row", "col")}
    return f if A.nnz else None


def _unsorted_row(A: Any, f: Fields) -> Fields | None:
    for start, end in zip(f["indptr"][:-1], f["indptr"][1:], strict=True):
        if end - start > 1:
            for name in ("indices", "data"):  # whole blocks move, so that padding stays padding
                f[name][start:end] = f[name][start:end][::-1].copy()
            return {**f, "zeros": None} if "zeros" in f else f
    return None


def _falling(A: Any, f: Fields) -> Fields | None:
    f["indptr"][1] = f["indptr"][-1] + 1
    return f


def _late_start(A: Any, f: Fields) -> Fields | None:
    f["indptr"][0] = 1
    return f


def _beyond_data(A: Any, f: Fields) -> Fields | None:
    f["indptr"][-1] += 1
    return f


def _outside(A: Any) -> Any:
    """Slots outside the logical shape or in empty slots, from the reference's point of view."""
    return np.flatnonzero(~_all_stored(A).stored_mask())


def _all_stored(A: Any) -> Any:
    """The same buffers with every slot inside the shape stored."""
    return type(A).trusted(**{**_fields(A), "zeros": formats.ALL})


def _filled_padding(A: Any, f: Fields) -> Fields | None:
    outside = _outside(A)
    if not outside.size:
        return None
    f["data"].reshape(-1)[outside[0]] = 1
    return f


def _mark(pick: Callable[[Any], Any]) -> Mutation:
    """Mutation that replaces the list of stored zeros."""

    def mutate(A: Any, f: Fields) -> Fields | None:
        marks = pick(A)
        if marks is None or not marks.size:
            return None
        return {**f, "zeros": marks}

    return mutate


def _zero_slots(A: Any) -> Any:
    inside = _all_stored(A).stored_mask().reshape(-1)
    return np.flatnonzero(inside & ~is_nonzero(A.data).reshape(-1))


def _two_falling(A: Any) -> Any:
    slots = _zero_slots(A)
    return slots[:2][::-1].copy() if slots.size > 1 else None


def _outer_zero(A: Any) -> Any:
    return _outside(A)[:1]


_MARKS: dict[str, Mutation] = {
    "zeros-type": _mark(lambda A: _zero_slots(A).astype(np.int32)),
    "zeros-sorted": _mark(_two_falling),
    "zeros-value": _mark(lambda A: np.flatnonzero(is_nonzero(A.data))[:1]),
    "zeros-slot": _mark(_outer_zero),
    "index-range:zeros": _mark(lambda A: np.array([A.data.size])),
}


def _gap(A: Any, f: Fields) -> Fields | None:
    """Put an empty slot of Blocked-ELL before a used one."""
    if not (f["col_indices"] >= 0).any():
        return None
    columns, data = np.insert(f["col_indices"], 0, -1, axis=1), np.insert(f["data"], 0, 0, axis=1)
    return {**f, "col_indices": columns, "data": data, "zeros": None}


def _descending(A: Any, f: Fields) -> Fields | None:
    if A.n < 2 or not f["indices"].size:
        return None
    f["indices"][0, 0, :2] = f["indices"][0, 0, :2][::-1].copy()
    return f


def _moved_slot(A: Any, f: Fields) -> Fields | None:
    """Move an unstored last slot of a group beyond the smallest free position."""
    last = f["indices"][..., -1]
    free = ~A.stored_mask()[..., -1] & (last + 1 < A.m)
    if not free.any():
        return None
    at = tuple(np.argwhere(free)[0])
    f["indices"][(*at, -1)] += 1
    return f


def _side(A: Any, data: Any, row: Any, col: Any) -> Any:
    return formats.COO(np.asarray(data).astype(A.dtype), np.asarray(row), np.asarray(col), A.shape)


def _side_value(A: Any, f: Fields) -> Fields | None:
    return {**f, "side": _side(A, [1], [0], [0])}


def _side_twice(A: Any, f: Fields) -> Fields | None:
    taken = np.argwhere(A.stored_mask())
    if not taken.size:
        return None
    i, g, s = taken[0]
    return {**f, "side": _side(A, [0], [i], [g * A.m + int(A.indices[i, g, s])])}


def _side_shape(A: Any, f: Fields) -> Fields | None:
    m, n = A.shape
    wrong = formats.COO(np.zeros(1, A.dtype), np.zeros(1, int), np.zeros(1, int), (m, n + 1))
    return {**f, "side": wrong}


def _with_part(other: Callable[[Any], Any]) -> Mutation:
    """Mutation that adds a part made of the last one."""

    def mutate(A: Any, f: Fields) -> Fields | None:
        return {"parts": (*f["parts"], other(f["parts"][-1]))}

    return mutate


def _empty(part: Any, shape: Any = None, dtype: Any = None) -> Any:
    rows = np.zeros(0, int)
    return formats.COO(np.zeros(0, dtype or part.dtype), rows, rows, shape or part.shape)


def _stored_twice(A: Any, f: Fields) -> Fields | None:
    full = [part for part in f["parts"] if part.nnz]
    return {"parts": (*f["parts"], full[0].to("csc"))} if full else None


def _zero_twice(A: Any, f: Fields) -> Fields | None:
    """A stored zero where another part stores an element."""
    full = [part.to("coo") for part in f["parts"] if part.nnz]
    if not full:
        return None
    zero = np.zeros(1, A.dtype), full[0].row[-1:], full[0].col[-1:]
    return {"parts": (*f["parts"], formats.COO(*zero, A.shape))}


_COMPRESSED: dict[str, Mutation] = {
    "length": _shorter("indptr"),
    "length:data": _shorter("indices"),
    "indptr-start": _late_start,
    "indptr-end": _beyond_data,
    "indptr-ascending": _falling,
    "index-range": _set("indices", -1, -1),
    "index-range:high": _set("indices", 0, 99),
    "sorted": _unsorted_row,
}
_MUTATIONS: dict[str, dict[str, Mutation]] = {
    "coo": {
        "length": _shorter("row"),
        "length:data": _shorter("data"),
        "index-range": _set("row", 0, -1),
        "index-range:high": _set("col", -1, lambda A: A.shape[1]),
        "sorted": _unsorted_coo,
        "sorted:twice": _twice_coo,
    },
    "csr": _COMPRESSED,
    "csc": _COMPRESSED,
    "bsr": {**_COMPRESSED, **_MARKS, "padding": _filled_padding},
    "blocked_ell": {
        **_MARKS,
        "length": _shorter("col_indices"),
        "index-range": _set("col_indices", (0, 0), -2),
        "index-range:high": _set("col_indices", (0, 0), 99),
        "sorted": _gap,
        "padding": _filled_padding,
    },
    "n:m": {
        **_MARKS,
        "length": _shorter("indices"),
        "position-range": _set("indices", (0, 0, -1), lambda A: A.m),
        "sorted": _descending,
        "padding": _filled_padding,
        "free-position": _moved_slot,
        "side-value": _side_value,
        "side-slot": _side_twice,
        "side-shape": _side_shape,
    },
    "sum": {
        "part": lambda A, f: {"parts": ()},
        "shape": _with_part(lambda part: _empty(part, shape=(2, 3))),
        "dtype": _with_part(
            lambda part: _empty(part, dtype="int8" if part.dtype_name != "int8" else "bool")
        ),
        "disjoint": _stored_twice,
        "disjoint:zero": _zero_twice,
    },
}

RULES = {format: tuple(mutations) for format, mutations in _MUTATIONS.items()}
"""What `broken_inputs` can break, by format."""
