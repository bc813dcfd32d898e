"""The demo's own judges: they accept what is right and reject what is wrong."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import sparseformats as sf
from demo import __main__ as demo, checks, matrices

RNG = np.random.default_rng(5)
DENSE = np.where(RNG.random((7, 11)) < 0.4, RNG.standard_normal((7, 11)), 0.0)
SPARSE = scipy.sparse.csr_array(DENSE)


def test_a_round_trip_is_accepted() -> None:
    matrix = sf.from_scipy(SPARSE)
    assert checks.round_trip(matrix, matrix.to("bsr", blocksize=(2, 3))) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda data: np.where(np.arange(data.size) == 3, np.nextafter(data, 9), data),
        lambda data: np.where(np.arange(data.size) == 3, -data, data),
        lambda data: data.astype(np.float32),
    ],
)
def test_a_round_trip_that_lost_something_is_rejected(change: Any) -> None:
    matrix = sf.from_scipy(SPARSE)
    wrong = sf.CSR(change(SPARSE.data), SPARSE.indices, SPARSE.indptr, SPARSE.shape)
    assert len(checks.round_trip(matrix, wrong)) == 2


def test_a_moved_element_is_rejected() -> None:
    shifted = sf.from_scipy(scipy.sparse.csr_array(np.roll(DENSE, 1, axis=1)))
    assert checks.round_trip(sf.from_scipy(SPARSE), shifted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("dense_first", [False, True])
def test_the_error_bound_holds_and_bites(dtype: Any, dense_first: bool) -> None:
    sparse = SPARSE.astype(dtype)
    dense = RNG.standard_normal((3, 7) if dense_first else (11, 3)).astype(dtype)
    right = dense @ sparse if dense_first else sparse @ dense
    assert checks.worst_error(right, sparse, dense, dense_first=dense_first) <= 1
    wrong = right.copy()
    wrong[1, 2] += 100 * np.finfo(dtype).eps * np.abs(dense).sum() * np.abs(DENSE).max()
    assert checks.worst_error(wrong, sparse, dense, dense_first=dense_first) > 1
    wrong[1, 2] = np.nan
    assert checks.worst_error(wrong, sparse, dense, dense_first=dense_first) == np.inf
    assert checks.worst_error(right[:1], sparse, dense, dense_first=dense_first) == np.inf


def test_pruning_leaves_what_its_name_says() -> None:
    weight = RNG.standard_normal((64, 64)).astype(np.float32)
    groups = matrices.prune_groups(weight, 2, 4)
    assert ((groups.reshape(64, 16, 4) != 0).sum(-1) == 2).all()
    blocks = matrices.prune_blocks(weight, 16, 0.25).reshape(4, 16, 4, 16).any(axis=(1, 3))
    assert blocks.sum() == 4
    assert (matrices.prune_largest(weight, 0.05) != 0).sum() == pytest.approx(205, abs=2)
    assert matrices.smallest_pattern(groups) == "2:4"


@pytest.mark.parametrize("given", [SPARSE, SPARSE.tocsc(), DENSE], ids=["csr", "csc", "dense"])
def test_a_case_runs_and_is_counted(given: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tally = demo.Tally()
    demo.show_case(tally, matrices.Case("small", given, (2, 3), matrices.smallest_pattern(given)))
    assert tally.wrong == []
    assert tally.round_trips == 7
    assert tally.products == 18
    assert tally.kernels
    assert "bit-equal" in capsys.readouterr().out


def test_anything_wrong_ends_non_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    one = [matrices.Case("small", SPARSE, (2,), "4:4")]
    monkeypatch.setattr(matrices, "finite_elements", lambda: iter(one))
    monkeypatch.setattr(matrices, "weights", lambda: iter(()))
    assert demo.main() == 0
    monkeypatch.setattr(checks, "differing", lambda a, b: ["data"])
    assert demo.main() == 1
