"""Planted kernels of conversion plans: certification rejects each, and accepts the sound ones."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings

import sparseformats as sf
from sparseformats.dispatch import EXACT, KernelRecord
from sparseformats.testing import certify, certify_kernel

PREFIX = "plan_conversion:"


def record(op: str, target: Callable[..., Any], formats: tuple[str, ...]) -> KernelRecord:
    name = target.__name__.replace("_", "-")
    path = f"{__name__}:{target.__name__}"
    options: dict[str, Any] = {} if op == "matmul" else {"tolerance": EXACT}
    return KernelRecord(name, PREFIX + op, formats, path, cost=lambda query: 1.0, **options)


def converted(room: Any, dense: Any = None, mask: Any = None, **csr: Any) -> Any:
    """What the ordinary conversion makes."""
    options = {} if room.blocksize is None else {"blocksize": room.blocksize}
    if dense is None:
        return sf.CSR.trusted(**csr, shape=room.shape).to(room.format, **options)
    return sf.from_dense(dense, room.format, mask=mask, **options)


def sound(room: Any, query: Any) -> Any:
    return lambda **sources: room.take(converted(room, **sources))


def keeps_the_first_pattern(room: Any, query: Any) -> Any:
    kept: list[Any] = []

    def fill(**sources: Any) -> None:
        kept.append(converted(room, **sources))
        room.take(kept[0])

    return fill


def forgets_the_mask(room: Any, query: Any) -> Any:
    return lambda dense, mask=None: room.take(converted(room, dense))


def counts_what_fits(room: Any, query: Any) -> Any:
    def fill(**sources: Any) -> None:
        room.take(converted(room, **sources))
        room.count[0], room.overflow[0] = min(room.count[0], room.capacity), False

    return fill


def leaves_marks_behind(room: Any, query: Any) -> Any:
    def fill(**sources: Any) -> None:
        marked = None if room.marked is None else room.marked.copy()
        room.take(converted(room, **sources))
        if marked is not None:
            room.marked[...] |= marked

    return fill


def loses_the_sign_of_zero(room: Any, query: Any) -> Any:
    def fill(**sources: Any) -> None:
        room.take(converted(room, **sources))
        room.data[room.data == 0] = 0

    return fill


def fills_the_last_row_only(room: Any, query: Any) -> Any:
    def fill(**sources: Any) -> None:
        room.take(converted(room, **sources))
        if room.indptr is not None:
            room.indptr[1:-1] = 0

    return fill


def _dense(room: Any, ends: Any) -> Any:
    """What lies in a room, row by row."""
    (m, n), (r, c) = room.shape, room.blocksize or (1, 1)
    D = np.zeros((-(-m // r) * r, -(-n // c) * c), room.data.dtype)
    data, indices = room.data.reshape(-1, r, c), room.indices.reshape(-1)
    for i, (start, end) in enumerate(zip(room.starts, ends, strict=True)):
        for at in range(start, end):
            j = int(indices[at])
            D[i * r : i * r + r, j * c : j * c + c] += data[at]
    return D[:m, :n]


def multiplies(room: Any, query: Any) -> Any:
    def multiply(X: Any, out: Any) -> None:
        out[...] = np.nan if room.overflow[0] else _dense(room, room.ends) @ X

    return multiply


def multiplies_what_fitted(room: Any, query: Any) -> Any:
    def multiply(X: Any, out: Any) -> None:
        out[...] = _dense(room, room.ends) @ X

    return multiply


def spoils_the_first_row_only(room: Any, query: Any) -> Any:
    def multiply(X: Any, out: Any) -> None:
        out[...] = _dense(room, room.ends) @ X
        if room.overflow[0]:
            out[:1] = np.nan

    return multiply


def multiplies_what_is_left_over(room: Any, query: Any) -> Any:
    def multiply(X: Any, out: Any) -> None:
        ends = room.ends.copy()
        ends[-1:] = np.where(room.indptr is None, ends[-1:], room.capacity)
        out[...] = np.nan if room.overflow[0] else _dense(room, ends) @ X

    return multiply


def adds_to_out(room: Any, query: Any) -> Any:
    def multiply(X: Any, out: Any) -> None:
        out[...] += np.nan if room.overflow[0] else _dense(room, room.ends) @ X

    return multiply


FORMATS = ("csr", "bsr", "blocked_ell")
SOUND: list[tuple[str, Any, tuple[str, ...]]] = [
    *((f"dense->{target}", sound, ("dense",)) for target in FORMATS),
    ("csr->bsr", sound, ("csr",)),
    ("matmul", multiplies, FORMATS),
]
PLANTED: list[tuple[str, Any, tuple[str, ...]]] = [
    ("dense->csr", keeps_the_first_pattern, ("dense",)),
    ("dense->csr", forgets_the_mask, ("dense",)),
    ("dense->bsr", counts_what_fits, ("dense",)),
    ("dense->blocked_ell", counts_what_fits, ("dense",)),
    ("dense->bsr", leaves_marks_behind, ("dense",)),
    ("dense->csr", loses_the_sign_of_zero, ("dense",)),
    ("csr->bsr", keeps_the_first_pattern, ("csr",)),
    ("csr->bsr", loses_the_sign_of_zero, ("csr",)),
    ("dense->bsr", fills_the_last_row_only, ("dense",)),
    ("matmul", multiplies_what_fitted, FORMATS),
    ("matmul", spoils_the_first_row_only, FORMATS),
    ("matmul", multiplies_what_is_left_over, ("csr", "bsr")),
    ("matmul", adds_to_out, FORMATS),
]


@pytest.fixture(autouse=True)
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do not spend time on making the failing example small."""
    found = functools.partial(settings, phases=[Phase.generate], database=None, derandomize=True)
    monkeypatch.setattr(certify, "settings", found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def options(op: str) -> dict[str, Any]:
    values = "small" if op == "matmul" else "any"
    return {"values": values, "dtypes": ["float32", "float64"], "examples": 150}


@pytest.mark.parametrize(("op", "target", "formats"), SOUND, ids=[case[0] for case in SOUND])
def test_a_sound_kernel_passes(op: str, target: Any, formats: Any) -> None:
    certificate = certify_kernel(record(op, target, formats), **options(op))
    assert sum(certificate.runs.values()) == 150
    assert not certificate.refusals


@pytest.mark.parametrize(
    ("op", "target", "formats"), PLANTED, ids=[f"{op}-{f.__name__}" for op, f, _ in PLANTED]
)
def test_a_planted_kernel_is_rejected(op: str, target: Any, formats: Any) -> None:
    with pytest.raises(AssertionError) as caught:
        certify_kernel(record(op, target, formats), **options(op))
    assert "served no example" not in str(caught.value)
