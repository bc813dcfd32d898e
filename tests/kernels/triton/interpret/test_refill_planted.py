"""Planted bugs in what conversion plans launch: certification, with memory checked, finds each."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from sparseformats.testing import certify, certify_kernel
from sparseformats_kernels.triton import refilled, spmm_refilled
from sparseformats_kernels.triton.convert import refill, refilling
from sparseformats_kernels.triton.plans import RECORDS
from tests.kernels.triton.interpret.test_refill import NAME, registered

# Operation, what stands in the source, what stands there instead.
BUGS = {
    "writes-elements-beyond": ("dense->csr", "(one != 0) & (done + number < capacity)", "one != 0"),
    "points-beyond": ("dense->csr", "tl.minimum(ends, capacity)", "ends"),
    "counts-no-last-row": ("dense->csr", "axis=1), mask=row < m)", "axis=1), mask=row < m - 1)"),
    "names-blocks-beyond": ("dense->bsr", "flagged & (number < end)", "flagged"),
    "copies-beyond": ("dense->bsr", "tl.minimum(tl.load(last), slots)", "slots + 1"),
    "tells-of-no-overflow": ("dense->bsr", "(total > capacity)", "(total < 0)"),
    "marks-what-is-chosen": ("dense->bsr", "chosen & (is_nonzero(bits, KIND) == 0)", "chosen"),
    "keeps-what-is-not-chosen": ("dense->bsr", "tl.where(chosen, bits, 0)", "bits"),
    "names-the-next-rows-slots": ("dense->blocked_ell", "    end += first", "    end += end"),
    "tells-of-no-wide-row": ("dense->blocked_ell", "(longest > capacity)", "(longest < 0)"),
    "leaves-empty-slots": ("dense->blocked_ell", "(number >= at) & (number", "(number < at) & (at"),
    "does-not-clear": ("csr->bsr", "mask=at < size", "mask=at < 0"),
    "numbers-without-room": ("csr->bsr", "tl.where(number < end, number, -1)", "number"),
}
PRODUCTS = {
    "ignores-overflow": ("spoiled = tl.load(overflow) != 0", "spoiled = tl.load(overflow) < 0"),
    "spoils-with-zeros": ('float("nan")', "0.0"),
    "multiplies-padding": ("(inside & (k < K))[:, None]", "inside[:, None]"),
    "skips-the-last-element": ("inside = at < end", "inside = at < end - 1"),
    "writes-beyond-n": ("mask=ns < N)", "mask=ns < N + 1)"),
    "forgets-strides-of-out": (
        "tl.cast(row, tl.int64) * out_row_step",
        "tl.cast(row, tl.int64) * N",
    ),
}


def sabotaged(module: ModuleType, old: str, new: str, folder: Path) -> ModuleType:
    """A copy of a module with other text in it."""
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert old in text, f"{module.__name__} has no {old!r}"
    path = folder / "sabotaged.py"
    path.write_text(text.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("sabotaged", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(autouse=True)
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not spend time on making the failing example small."""
    found = functools.partial(settings, phases=[Phase.generate], database=None, derandomize=True)
    monkeypatch.setattr(certify, "settings", found)


def certified(op: str) -> None:
    (record,) = (record for record in RECORDS if record.op == f"plan_conversion:{op}")
    options: dict[str, Any] = {"dtypes": "float32", "library": "torch", "examples": 80}
    with registered(record):
        certify_kernel(NAME, record.op, values="moderate", **options)


@pytest.mark.parametrize("bug", BUGS)
def test_a_conversion(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    op, old, new = BUGS[bug]
    monkeypatch.setattr(refill, "refilling", sabotaged(refilling, old, new, tmp_path))
    with pytest.raises(AssertionError) as caught:
        certified(op)
    assert "served no example" not in str(caught.value)


@pytest.mark.parametrize("bug", PRODUCTS)
def test_a_product(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sabotaged(refilled, *PRODUCTS[bug], tmp_path)
    for name in refilled.__all__:
        monkeypatch.setattr(spmm_refilled, name, getattr(made, name))
    with pytest.raises(AssertionError) as caught:
        certified("matmul")
    assert "served no example" not in str(caught.value)


def test_copies_without_a_bug_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refill, "refilling", sabotaged(refilling, "rows", "rows", tmp_path))
    certified("dense->bsr")
