"""SciPy's compiled products: a trial decides whether they are used, results are the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats_kernels.cpu import sparsetools

FORMATS: list[tuple[str, dict[str, Any]]] = [
    ("csr", {}),
    ("csc", {}),
    ("bsr", {"blocksize": (2, 3)}),
    ("bsr", {"blocksize": (3, 4)}),
]
D = np.arange(48.0).reshape(6, 8)[:, :6] * (np.arange(6) % 2)


def products(kernel: str) -> list[Any]:
    found = []
    for format, options in FORMATS:
        if kernel == "scipy-bsr" and format != "bsr":
            continue
        A = sf.from_dense(D, format, **options)
        wide = np.arange(60.0).reshape(6, 10)
        for x in (
            wide[:, 0],
            wide[0, :6],
            wide,
            wide[:, :1],
            wide.T[:6],
            wide[:, ::3],
            wide[:, :0],
        ):
            shape = (6, *x.shape[1:])
            found.append(sf.matmul(A, x, kernel=kernel))
            outs = (np.full(shape, np.nan), np.full(shape[::-1], np.nan).T)
            found += [sf.matmul(A, x, out=out, kernel=kernel) for out in outs]
            found.append(sf.matmul(x.T, A, kernel=kernel))
    return found


def test_the_installed_scipy_passes_the_trial() -> None:
    assert sparsetools.AVAILABLE


@pytest.mark.parametrize("kernel", ["scipy-csr", "scipy-bsr"])
def test_both_ways_give_the_same(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sf.clear_cache()
    compiled = products(kernel)
    monkeypatch.setattr(sparsetools, "AVAILABLE", False)
    sf.clear_cache()
    for ours, theirs in zip(compiled, products(kernel), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.shape == theirs.shape


def refuse(*args: Any) -> None:
    raise TypeError("another signature")


@pytest.mark.parametrize("answer", [None, SimpleNamespace(), "refuse", "nothing"])
def test_the_trial_fails_where_something_has_changed(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{f}_matvec{s}" for f in ("csr", "csc", "bsr") for s in ("", "s")]
    if isinstance(answer, str):
        function = refuse if answer == "refuse" else lambda *args: None
        answer = SimpleNamespace(**dict.fromkeys(names, function))
    monkeypatch.setattr(sparsetools, "compiled", answer)
    assert not sparsetools._works()
