"""The explanation of a conversion, before it happens."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from tests.convert import samples


def test_text_and_dict() -> None:
    A = samples.csr("numpy")
    with dispatch.temporary(only=True):
        found = sf.explain_conversion(A, "blocked_ell", blocksize=2)
    text = str(found)
    lines = text.splitlines()
    assert lines[0].startswith("csr -> blocked_ell (2, 2) (7 x 9, float32): ~")
    assert f"{A.nbytes} bytes become at least" in lines[0]
    assert lines[1].split() == ["step", "implementation", "us", "keeps"]
    assert lines[3].startswith("csr -> bsr (2, 2)")
    assert "array-api" in lines[3]
    assert "every stored element; stored zeros are marked" in lines[3]
    assert "bsr (2, 2) -> blocked_ell (2, 2)" in lines[4]
    as_dict = json.loads(json.dumps(found.to_dict()))
    assert [step["target"] for step in as_dict["steps"]] == ["bsr (2, 2)", "blocked_ell (2, 2)"]
    assert as_dict["nbytes"] == A.nbytes
    assert found.microseconds == sum(step.microseconds for step in found.steps)


def test_nothing_to_do() -> None:
    A = samples.bsr("numpy")
    found = sf.explain_conversion(A, "bsr")
    assert found.steps == ()
    assert found.result_nbytes == A.nbytes
    assert "already in that form" in str(found)


@pytest.mark.parametrize("format", ["coo", "csr", "csc", "bsr", "2:4", "4:4", "dense"])
def test_estimated_sizes_hold(format: str, library: str) -> None:
    options = {"blocksize": (2, 3)} if format == "bsr" else {}
    for A in [*samples.sources(library), samples.dense(library)]:
        found = sf.explain_conversion(A, format, **options)
        try:
            B = A.to(format, **options) if isinstance(A, sf.SparseMatrix) else None
        except (ValueError, sf.PatternError):
            B = A.to_dense() if format == "dense" else None
        if not isinstance(B, sf.SparseMatrix):
            continue
        own = {k: v for k, v in B.buffers().items() if k != "zeros" and not k.startswith("side_")}
        size = sum(B.lib.to_numpy(x).nbytes for x in own.values())
        if found.bound == "at most":
            assert size <= found.result_nbytes
        elif found.steps:
            assert size == found.result_nbytes


def test_a_later_step_is_judged_by_estimated_facts(library: str) -> None:
    A = samples.bsr(library).T
    with dispatch.temporary(_record("csr")):
        found = sf.explain_conversion(A, "4:4")
    assert found.steps[-1].implementation == "planned"
    assert found.steps[-1].microseconds == 7.0
    assert found.source == "bsr.T (3, 2)"
    assert sf.explain_conversion(samples.nm(library).T, "csc").source == "2:4.T"


def _record(source: str) -> dispatch.KernelRecord:
    op = f"convert:{source}->n:m"
    return dispatch.KernelRecord("planned", op, (source,), "nowhere:f", cost=lambda _: 7.0)


def test_no_device_is_asked() -> None:
    A = samples.csr("torch")
    meta = {name: x.to("meta") for name, x in A.buffers().items()}
    found = sf.explain_conversion(type(A).from_parts(meta, A.static()), "bsr", blocksize=2)
    assert [step.implementation for step in found.steps] == ["array-api"]
    assert isinstance(A.data, torch.Tensor)


def test_bad_requests() -> None:
    A = samples.csr("numpy")
    with pytest.raises(ValueError, match=r"explain_conversion\('bsr'\) needs a block size"):
        sf.explain_conversion(A, "bsr")
    with pytest.raises(ValueError, match="unknown format"):
        sf.explain_conversion(A, "dia")
    for x in ("csr", np.zeros(3), [[1.0]]):
        with pytest.raises(TypeError, match=type(x).__name__):
            sf.explain_conversion(x, "csr")
