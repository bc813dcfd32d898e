"""Law checkers: each raises AssertionError with a precise report when its law is broken."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from sparseformats import _arrays, reference
from sparseformats.errors import PatternError
from sparseformats.reference.decoding import is_nonzero
from sparseformats.testing._memory import arrays_of, shares_memory, unchanged

__all__ = [
    "check_content_preserved",
    "check_copy",
    "check_dense_round_trip",
    "check_immutable",
    "check_index_width",
    "check_no_shared_memory",
    "check_pickle",
    "check_round_trip",
    "check_same_buffers",
    "check_transpose",
    "check_valid",
    "holds",
]

Step = str | tuple[str, dict[str, Any]]
Convert = Callable[..., Any]

_SHOWN = 6  # places spelled out in a report


def _to(A: Any, format: str, **options: Any) -> Any:
    return A.to(format, **options)


def _fail(law: str, A: Any, detail: str) -> None:
    raise AssertionError(f"{law}: {detail}\n  matrix: {A!r}")


def check_valid(A: Any) -> None:
    """Check that `A` breaks no rule of its format and is in canonical form.

    Parameters
    ----------
    A : SparseMatrix
    """
    found = A.problems()
    if found:
        listed = "".join(f"\n  {problem}" for problem in found[:_SHOWN])
        _fail("valid", A, f"{len(found)} problems{listed}")


def check_content_preserved(A: Any, B: Any) -> None:
    """Check that `B` has the shape, the value type and the stored bits of `A`.

    Parameters
    ----------
    A, B : SparseMatrix
        Source and result, of any formats and libraries.
    """
    difference = _difference(reference.content(A), reference.content(B))
    if difference:
        _fail("content preserved", A, f"{difference}\n  result: {B!r}")


def _difference(expected: reference.Content, got: reference.Content) -> str:
    if expected[:2] != got[:2]:
        return f"shape and dtype {expected[:2]} became {got[:2]}"
    old, new = expected.elements, got.elements
    lost, invented = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    changed = sorted(at for at in old.keys() & new.keys() if old[at] != new[at])
    lines = [f"lost {at} = {old[at].hex()}" for at in lost[:_SHOWN]]
    lines += [f"invented {at} = {new[at].hex()}" for at in invented[:_SHOWN]]
    lines += [f"changed {at}: {old[at].hex()} -> {new[at].hex()}" for at in changed[:_SHOWN]]
    if not lines:
        return ""
    counts = f"{len(lost)} lost, {len(invented)} invented, {len(changed)} changed (bits in hex)"
    return "\n  ".join([counts, *lines])


def holds(A: Any, format: str) -> bool:
    """Whether `format` can hold the content of `A`: n:m takes n non-zeros a group at most.

    Parameters
    ----------
    A : SparseMatrix
    format : str
        Format string such as ``"csr"`` or ``"2:4"``.
    """
    n, colon, m = format.partition(":")
    if not colon:
        return True
    s = reference.slots(A)
    full = s.stored & is_nonzero(s.values)
    groups: dict[tuple[int, int], int] = {}
    for i, j in zip(s.row[full].tolist(), s.col[full].tolist(), strict=True):
        groups[i, j // int(m)] = groups.get((i, j // int(m)), 0) + 1
    return max(groups.values(), default=0) <= int(n)


def check_round_trip(A: Any, chain: Iterable[Step], convert: Convert = _to) -> None:
    """Check that a chain of conversions, and the way back, keeps the content at every step.

    A step into a format that cannot hold the content must raise PatternError and is left out.
    Every result must be valid, in the library and on the device of its source, with index arrays
    no narrower than its source's; no conversion may write to its source.

    Parameters
    ----------
    A : SparseMatrix
    chain : iterable of str or (str, dict)
        Formats to go through, with options of the conversion.
    convert : callable, optional
        ``convert(A, format, **options) -> B``; by default ``A.to``.
    """
    B, way = A, [A.format]
    for step in chain:
        format, options = (step, {}) if isinstance(step, str) else step
        way.append(format)
        if holds(B, format):
            B = _converted(B, format, options, convert, way)
        else:
            _check_refused(B, format, options, convert)
    base = A.base if A.format.endswith(".T") else A
    options = {"blocksize": base.blocksize} if base.family in ("bsr", "blocked_ell") else {}
    if base is not A:
        B = B.T
    B = _converted(B, base.format, options, convert, [*way, base.format])
    B = B.T if base is not A else B
    check_content_preserved(A, B)


def _converted(A: Any, format: str, options: Any, convert: Convert, way: list[str]) -> Any:
    route = " -> ".join(way)
    with unchanged(A):
        B = convert(A, format, **options)
    if (B.format, B.library, B.device) != (format, A.library, A.device):
        _fail("round trip", A, f"{route} gave {B!r}, expected {format} in {A.library}, {A.device}")
    try:
        check_valid(B)
        check_content_preserved(A, B)
        check_index_width(A, B)
    except AssertionError as error:
        raise AssertionError(f"on the way {route}: {error}") from None
    return B


def _check_refused(A: Any, format: str, options: Any, convert: Convert) -> None:
    try:
        B = convert(A, format, **options)
    except PatternError:
        return
    _fail("refusal", A, f"{format} cannot hold this content, yet the result is {B!r}")


def check_index_width(A: Any, B: Any) -> None:
    """Check that index arrays did not become narrower (n:m has none but its side record's).

    Parameters
    ----------
    A, B : SparseMatrix
        Source and result.
    """
    width = {name: _index_bytes(M) for name, M in (("source", A), ("result", B))}
    if width["source"] and width["result"] and width["result"] < width["source"]:
        _fail("index width", A, f"{A.index_dtype} became {B.index_dtype} in {B!r}")


def _index_bytes(A: Any) -> int:
    base = A.base if A.format.endswith(".T") else A
    if ":" in base.format:
        return 0
    return int("64" in str(A.index_dtype)) * 4 + 4


def check_dense_round_trip(A: Any, from_dense: Convert | None = None) -> None:
    """Check `to_dense` against the reference, and the way back with a mask.

    Parameters
    ----------
    A : SparseMatrix
    from_dense : callable, optional
        ``from_dense(D, format, mask=..., blocksize=...) -> B``; by default the library's.
    """
    with unchanged(A):
        D = A.to_dense()
    lib, host = _arrays.of(D), _arrays.library("numpy")
    got, expected = lib.to_numpy(D), reference.dense(A)
    if (lib.name, lib.device(D)) != (A.library, A.device) or got.shape != expected.shape:
        _fail("dense", A, f"to_dense gave {lib.name} {got.shape} on {lib.device(D)}")
    if not host.equal_bits(np.ascontiguousarray(got), expected):
        _fail("dense", A, f"expected\n{expected}\ngot\n{got}")
    if from_dense is None:
        from sparseformats import from_dense as library_from_dense

        from_dense = library_from_dense
    mask = np.zeros(A.shape, np.bool_)
    for at in reference.entries(A):
        mask[at] = True
    base = A.base if A.format.endswith(".T") else A
    if base is not A:
        D, mask = lib.from_numpy(np.ascontiguousarray(got.T), A.device), mask.T.copy()
    options = {"blocksize": base.blocksize} if base.family in ("bsr", "blocked_ell") else {}
    B = from_dense(D, base.format, mask=lib.from_numpy(mask, A.device), **options)
    check_content_preserved(base, B)


def check_transpose(A: Any) -> None:
    """Check that ``A.T`` swaps rows and columns of the content and ``A.T.T`` restores it.

    Parameters
    ----------
    A : SparseMatrix
    """
    with unchanged(A):
        B = A.T
    check_valid(B)
    shape, dtype, elements = reference.content(A)
    swapped = {(j, i): bits for (i, j), bits in elements.items()}
    difference = _difference(reference.Content(shape[::-1], dtype, swapped), reference.content(B))
    if difference:
        _fail("transpose", A, difference)
    check_content_preserved(A, B.T)
    if B.T.format != A.format:
        _fail("transpose", A, f"the transposed of the transposed is {B.T.format}")


def check_same_buffers(A: Any, B: Any) -> None:
    """Check that two matrices agree in format, static facts and every bit of every buffer.

    Parameters
    ----------
    A, B : SparseMatrix
    """
    if type(A) is not type(B) or A.format != B.format or tuple(A.shape) != tuple(B.shape):
        _fail("same buffers", A, f"the other is {B!r}")
    mine, others = arrays_of(A), arrays_of(B)
    if mine.keys() != others.keys():
        _fail("same buffers", A, f"buffers {sorted(mine)} became {sorted(others)}")
    if A.static() != B.static():
        _fail("same buffers", A, f"static facts {A.static()} became {B.static()}")
    for name, x in mine.items():
        if not A.lib.equal_bits(x, others[name]):
            _fail("same buffers", A, f"{name} differs:\n{x}\n{others[name]}")


def check_pickle(A: Any, loads: Callable[[bytes], Any] = pickle.loads) -> None:
    """Check that pickling restores equal, separate and protected buffers.

    Parameters
    ----------
    A : SparseMatrix
    loads : callable, optional
        The inverse of `pickle.dumps`.
    """
    with unchanged(A):
        stream = pickle.dumps(A)
    _check_separate(A, loads(stream))


def check_copy(A: Any, deepcopy: Callable[[Any], Any] = copy.deepcopy) -> None:
    """Check that a deep copy has equal, separate and protected buffers.

    Parameters
    ----------
    A : SparseMatrix
    deepcopy : callable, optional
        What copies.
    """
    with unchanged(A):
        B = deepcopy(A)
    _check_separate(A, B)


def _check_separate(A: Any, B: Any) -> None:
    check_valid(B)
    check_same_buffers(A, B)
    check_content_preserved(A, B)
    check_no_shared_memory(A, B)
    check_immutable(B)


def check_no_shared_memory(A: Any, B: Any) -> None:
    """Check that no buffer of `A` overlaps one of `B`.

    Parameters
    ----------
    A, B : SparseMatrix, array, or mapping or sequence of them
    """
    for mine, x in arrays_of(A).items():
        for other, y in arrays_of(B).items():
            if shares_memory(x, y):
                _fail("no shared memory", A, f"{mine} shares memory with the other's {other}")


def check_immutable(A: Any) -> None:
    """Check that fields cannot be set and that NumPy buffers cannot be written.

    Parameters
    ----------
    A : SparseMatrix
    """
    for name in A.__match_args__:
        try:
            setattr(A, name, getattr(A, name))
        except (dataclasses.FrozenInstanceError, AttributeError):
            continue
        _fail("immutable", A, f"field {name} can be set")
    for name, x in arrays_of(A).items():
        if isinstance(x, np.ndarray) and x.flags.writeable:
            _fail("immutable", A, f"{name} can be written")
