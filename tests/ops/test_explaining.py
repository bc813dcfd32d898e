"""`explain` by operation: the operation's own arguments, refusals included."""

from __future__ import annotations

import json

import numpy as np
import pytest

import sparseformats as sf

A = sf.from_dense(np.eye(4, 6))


def test_matmul_with_and_without_its_name() -> None:
    X = np.ones((6, 2))
    assert sf.explain(A, X).to_dict() == sf.explain("matmul", A, X).to_dict()
    forced = sf.explain("matmul", A, X, kernel="reference")
    assert (forced.chosen, forced.source) == ("reference", "kernel=")


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("linear", (np.ones((3, 6)), A)),
        ("sddmm", (A, np.ones((4, 2)), np.ones((2, 6)))),
        ("matmul", (A, sf.from_dense(np.ones((6, 1))))),
    ],
)
def test_the_one_that_is_explained_is_the_one_that_runs(op, operands) -> None:
    explanation = sf.explain(op, *operands)
    with sf.tracing() as trace:
        getattr(sf, op)(*operands)
    assert [run.kernel for run in trace if not run.op.startswith("convert")] == [explanation.chosen]
    assert explanation.chosen in str(explanation)
    assert json.loads(json.dumps(explanation.to_dict()))["chosen"] == explanation.chosen


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"'matmul', 'linear', 'sddmm', got 'conv'.*explain_conv"):
        sf.explain("conv", A)
    with pytest.raises(ValueError, match=r"\(4, 6\)"):
        sf.explain("matmul", A, np.ones((5, 2)))
    with pytest.raises(TypeError):
        sf.explain()
