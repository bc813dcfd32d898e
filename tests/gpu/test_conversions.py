"""Conversions stay on the device: no array goes through the host on the way."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import _arrays, reference

OPTIONS: dict[str, dict[str, Any]] = {
    "coo": {},
    "csr": {},
    "csc": {},
    "bsr": {"blocksize": (16, 8)},
    "blocked_ell": {"blocksize": 16},
    "2:4": {},
}


def source(format: str, library: str, device: str) -> Any:
    rng = np.random.default_rng(7)
    dense = np.zeros((203, 391), np.float32)
    rows = np.arange(0, 203, 3)
    for j in range(0, 391, 4):
        dense[rows, j] = rng.standard_normal(rows.size)
    dense[5, 8] = np.nan
    mask = dense != 0
    mask[1, 1], dense[1, 1] = True, -0.0
    made = sf.from_dense(dense, format, mask=mask, **OPTIONS[format])
    return made.to_device(device, library=library)


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize(("a", "b"), list(itertools.product(OPTIONS, repeat=2)))
def test_every_pair_on_the_device(
    library: str, a: str, b: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = source(a, library, device)
    lib = matrix.lib
    bring = type(lib).to_numpy

    def few_only(self: Any, x: Any) -> Any:
        # A handful of numbers that steer the work may be read; the matrix may not.
        assert x.shape[0] <= 64, f"an array of shape {tuple(x.shape)} went through the host"
        return bring(self, x)

    def refuse(*_: Any) -> None:
        raise AssertionError("an array came from the host")

    with monkeypatch.context() as patch:
        patch.setattr(type(lib), "to_numpy", few_only)
        patch.setattr(type(lib), "from_numpy", refuse)
        converted = matrix.to(b, **OPTIONS[b])
        dense = converted.to_dense()
    assert (converted.library, converted.device) == (library, device)
    assert converted.problems() == []
    assert reference.same_content(matrix, converted)
    assert _arrays.library("numpy").equal_bits(lib.to_numpy(dense), reference.dense(matrix))


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_from_dense_on_the_device(library: str, device: str) -> None:
    lib = _arrays.library(library)
    host = np.zeros((37, 53), np.float32)
    host[::4, ::5] = 1.5
    host[0, 1] = -0.0
    host[2, 2] = np.nan
    dense = lib.from_numpy(host, device)
    for format, options in OPTIONS.items():
        made = sf.from_dense(dense, format, **options)
        assert (made.library, made.device) == (library, device)
        assert made.problems() == []
        expected = sf.from_dense(host, format, **options)
        assert reference.same_content(made, expected)
        assert made.nnz == int((host != 0).sum())


def test_more_duplicates_than_a_thread_block(device: str) -> None:
    """Sums of many equal positions are exact and the same on every run."""
    n = 100_003
    values = np.ones(n, np.int64)
    matrix = sf.COO(values, np.zeros(n, np.int64), np.arange(n) % 2, (1, 2))
    for library in ("torch", "cupy"):
        lib = _arrays.library(library)
        data = lib.from_numpy(values, device)
        row = lib.from_numpy(np.zeros(n, np.int64), device)
        col = lib.from_numpy(np.arange(n) % 2, device)
        moved = sf.COO(data, row, col, (1, 2))
        assert reference.same_content(moved, matrix)
