"""What a conversion allocates beside its input and its output, as Python's allocators see it."""

import gc
import tracemalloc

import numpy as np
import pytest

import sparseformats as sf
from sparseformats.convert import EDGES
from sparseformats.convert.run import GENERIC
from sparseformats.testing import unchanged

FEW = 20_000  # stored elements
SIDE = 200_000  # of a matrix whose m * n could never be held: 4e10 elements
DENSE_FREE = ("coo", "csr", "csc", "bsr")
SLACK = 1 << 20  # what small objects and fixed chunks may take


def _scattered(dtype="float64", index="int32", count=FEW, side=SIDE):
    rng = np.random.default_rng(0)
    row, col = (rng.integers(0, side, count).astype(index) for _ in "ij")
    return sf.COO(np.ones(count, dtype), row, col, (side, side))


def _peak(work):
    """Result of `work()` and the most bytes that were held while it ran, over those before."""
    work()  # imports and caches
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = work()
        return made, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def _options(format, blocksize):
    return {"blocksize": blocksize} if format in ("bsr", "blocked_ell") else {}


@pytest.mark.parametrize("target", DENSE_FREE)
@pytest.mark.parametrize("source", DENSE_FREE)
def test_nothing_of_the_size_of_the_shape(source, target):
    A = _scattered().to(source, **_options(source, (2, 2)))
    if source == target == "bsr":
        made, peak = _peak(lambda: A.to("bsr", blocksize=(4, 1)))
    else:
        made, peak = _peak(lambda: A.to(target, **_options(target, (2, 2))))
    assert made.shape == (SIDE, SIDE)
    lines = 8 * 3 * SIDE  # pointer arrays, one a row or column
    assert peak < 3 * (A.nbytes + made.nbytes) + lines + SLACK
    assert peak < SIDE * SIDE / 1000


@pytest.mark.parametrize(
    ("source", "target"), [("csc", "coo"), ("coo", "csc"), ("csr", "coo"), ("coo", "csr")]
)
def test_no_pointers_along_an_axis_that_neither_format_compresses(source, target):
    """Between COO and CSC the number of rows must not matter, however large."""
    long, few = 2**27, 100
    shape = (long, 50) if "csc" in (source, target) else (50, long)
    places = [np.arange(few, dtype=np.int32) % extent for extent in shape]
    A = sf.COO(np.ones(few), *places, shape).to(source)
    made, peak = _peak(lambda: A.to(target))
    assert made.nnz == A.nnz
    assert peak < SLACK


# Big enough for arrays to outweigh everything else; blocks well filled, as block formats are for.
COUNT, EXTENT = 200_000, 2_000


def _filled(dtype, index):
    rng = np.random.default_rng(1)
    D = (rng.random((EXTENT, EXTENT)) < COUNT / EXTENT**2).astype(dtype)
    A = sf.from_dense(D, "coo", index_dtype=index)
    del D
    return A


@pytest.fixture(scope="module", params=[("float32", "int32"), ("float64", "int64")])
def sources(request):
    A = _filled(*request.param)
    made = {format: A.to(format, **_options(format, (2, 2))) for format in DENSE_FREE}
    return made | {
        "blocked_ell": A.to("blocked_ell", blocksize=2),
        "2:4": _two_of_four(*request.param),
    }


def _two_of_four(dtype, index):
    """A matrix that n:m can hold, half of its slots used."""
    col = np.arange(0, EXTENT, 4, dtype=index)
    row = np.repeat(np.arange(600, dtype=index), len(col))
    return sf.COO(np.ones(len(row), dtype), row, np.tile(col, 600), (600, EXTENT)).to("2:4")


ROUTES = [
    (s, t) for s in (*DENSE_FREE, "blocked_ell") for t in (*DENSE_FREE, "blocked_ell") if s != t
]
ROUTES += [("bsr", "bsr"), ("2:4", "csr"), ("2:4", "coo")]


@pytest.mark.parametrize("generic", [False, True], ids=["fastest", "array api"])
@pytest.mark.parametrize(("source", "target"), ROUTES)
def test_peak_is_at_most_three_times_input_and_output(
    source, target, generic, sources, monkeypatch
):
    if generic:  # no registered kernel: the edges' own implementations
        monkeypatch.setattr("sparseformats.convert.run.dispatch.records", lambda op: ())
    A = sources[source]
    blocksize = (4, 2) if source == target else (2, 2)
    with unchanged(A), sf.tracing() as trace:
        made, peak = _peak(lambda: A.to(target, **_options(target, blocksize)))
    assert made.nnz == A.nnz
    assert {run.kernel == GENERIC for run in trace} == {generic} or not generic
    share = peak / (A.nbytes + made.nbytes)
    assert share <= 3, f"{source} -> {target}: {share:.2f} x (input + output)"


@pytest.mark.parametrize("source", ["csr", "coo"])
def test_peak_into_groups(source, sources):
    A = sources["2:4"].to(source)
    made, peak = _peak(lambda: A.to("2:4"))
    assert made.nnz == A.nnz
    share = peak / (A.nbytes + made.nbytes)
    assert share <= 3, f"{source} -> 2:4: {share:.2f} x (input + output)"


def test_every_edge_between_these_formats_is_on_a_route():
    families = {*DENSE_FREE, "blocked_ell"}
    edges = {(e.source, e.target) for e in EDGES if {e.source, e.target} <= families}
    assert edges <= {*ROUTES, ("bsr", "bsr")}


def test_transposes_allocate_nothing(sources):
    for format, A in sources.items():
        if format != "coo":
            _, peak = _peak(lambda A=A: A.T)
            assert peak < 10_000, format


def test_construction_by_copy_and_by_sharing(sources):
    A = sources["csr"]
    parts = [np.array(x) for x in A.buffers().values()]
    _, copied = _peak(lambda: sf.CSR(*parts, A.shape))
    _, shared = _peak(lambda: sf.CSR(*parts, A.shape, copy=False))
    assert copied <= 2 * A.nbytes
    assert shared <= A.nbytes / 2 + SLACK  # masks of the checks


def test_the_measure_sees_an_array():
    made, peak = _peak(lambda: np.ones(1_000_000))
    assert peak >= made.nbytes
