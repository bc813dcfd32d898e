"""Conversion plans on a CPU: what the ordinary conversion makes, again and again, in fixed room."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import _arrays
from sparseformats.testing.strict import register_strict

FORMATS: dict[str, dict[str, Any]] = {
    "csr": {},
    "bsr": {"blocksize": (3, 2)},
    "blocked_ell": {"blocksize": 2},
}
formats = pytest.mark.parametrize("format", FORMATS)
libraries = pytest.mark.parametrize("library", ["numpy", "torch"])


def drawn(library: str = "numpy", seed: int = 0, dtype: str = "float32", fill: float = 0.3) -> Any:
    """A dense array with zeros of both signs and a NaN."""
    rng = np.random.default_rng(seed)
    D = rng.integers(-3, 4, (7, 9)) * (rng.random((7, 9)) < fill)
    D = np.where(D == 0, -np.abs(D).astype(float), D).astype(dtype)
    D[0, 0] = np.nan
    return array(library, D)


def array(library: str, x: Any) -> Any:
    return _arrays.library(library).from_numpy(np.array(x))


def selection(library: str, seed: int = 0, fill: float = 0.4) -> Any:
    return array(library, np.random.default_rng(seed + 100).random((7, 9)) < fill)


@libraries
@formats
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "complex128", "float16"])
def test_each_run_is_the_ordinary_conversion(
    library: str, format: str, masked: bool, dtype: str
) -> None:
    mask = selection(library) if masked else None
    options = FORMATS[format]
    plan = sf.plan_conversion(
        drawn(library, dtype=dtype), format, capacity=70, mask=mask, **options
    )
    addresses = {name: plan._room.lib.address(x) for name, x in plan.buffers().items()}
    for seed in range(1, 4):
        D = drawn(library, seed, dtype, fill=0.2 * seed)
        mask = selection(library, seed) if masked else None
        assert plan(D, mask=mask) is plan
        found, expected = plan.matrix(), sf.from_dense(D, format, mask=mask, **options)
        assert sf.same(found, expected, level="buffers")
        sf.validate(found)
        assert not bool(plan.overflowed[0])
    after = {name: plan._room.lib.address(x) for name, x in plan.buffers().items()}
    assert after == addresses


@formats
@pytest.mark.parametrize("masked", [False, True])
def test_with_nothing_but_the_array_api(format: str, masked: bool) -> None:
    register_strict()
    library, options = "array_api_strict", FORMATS[format]
    mask = selection(library) if masked else None
    plan = sf.plan_conversion(drawn(library), format, capacity=70, mask=mask, **options)
    D, mask = drawn(library, 1), selection(library, 1) if masked else None
    expected = sf.from_dense(D, format, mask=mask, **options)
    assert sf.same(plan(D, mask=mask).matrix(), expected, level="buffers")


@libraries
def test_the_example_is_converted_at_once(library: str) -> None:
    D = drawn(library)
    plan = sf.plan_conversion(D, "csr", capacity=63)
    assert sf.same(plan.matrix(), sf.from_dense(D), level="buffers")
    assert plan.kernel == "array-api"
    assert plan.explanation is None


@libraries
@formats
def test_a_matrix_that_was_handed_out_stays(library: str, format: str) -> None:
    D = drawn(library)
    plan = sf.plan_conversion(D, format, capacity=63, **FORMATS[format])
    before = plan.matrix()
    plan(drawn(library, 1, fill=1.0))
    assert sf.same(before, sf.from_dense(D, format, **FORMATS[format]), level="buffers")


@libraries
@formats
@pytest.mark.parametrize("masked", [False, True])
def test_too_little_room(library: str, format: str, masked: bool) -> None:
    options, D = FORMATS[format], drawn(library, fill=1.0)
    mask = selection(library, fill=1.0) if masked else None
    expected = sf.from_dense(D, format, mask=mask, **options)
    needed = expected.width if format == "blocked_ell" else int(expected.data.shape[0])
    plan = sf.plan_conversion(D, format, capacity=needed - 1, mask=mask, **options)
    assert bool(plan.overflowed[0])
    assert int(plan.count[0]) == needed
    ends = plan.buffers()["ends" if format == "blocked_ell" else "indptr"]
    assert int(ends[-1]) <= plan.capacity * (1 if format != "blocked_ell" else 4)
    what = {"csr": "elements", "bsr": "blocks", "blocked_ell": "slots a block row"}[format]
    text = f"needs {needed} {what}, the capacity is {needed - 1}; plan again with capacity={needed}"
    with pytest.raises(sf.CapacityError, match=text) as caught:
        plan.matrix()
    assert (caught.value.needed, caught.value.capacity) == (needed, needed - 1)
    with pytest.raises(sf.CapacityError, match=text):
        plan.product(array(library, np.ones(9, np.float32)))
    mask = selection(library, fill=0.0) if masked else None
    plan(array(library, np.zeros((7, 9), np.float32)), mask=mask)  # and it goes on
    assert plan.matrix().nnz == 0
    assert not bool(plan.overflowed[0])


@libraries
@formats
def test_exactly_enough_room_and_one_less(library: str, format: str) -> None:
    D, options = drawn(library, seed=4), FORMATS[format]
    expected = sf.from_dense(D, format, **options)
    needed = expected.width if format == "blocked_ell" else int(expected.data.shape[0])
    plan = sf.plan_conversion(D, format, capacity=needed, **options)
    assert (int(plan.count[0]), bool(plan.overflowed[0])) == (needed, False)
    assert sf.same(plan.matrix(), expected, level="buffers")
    plan = sf.plan_conversion(D, format, capacity=needed - 1, **options)
    assert (int(plan.count[0]), bool(plan.overflowed[0])) == (needed, True)
    for call in (plan.matrix, lambda: plan.product(array(library, np.ones(9, np.float32)))):
        with pytest.raises(sf.CapacityError, match=f"needs {needed} .* capacity={needed} or more"):
            call()


@libraries
def test_from_csr(library: str) -> None:
    A = sf.from_dense(drawn(library), mask=selection(library))
    plan = sf.plan_conversion(A, "bsr", capacity=20, blocksize=(3, 2))
    for seed in range(3):
        B = sf.from_dense(drawn(library, seed), mask=selection(library, seed))
        expected = B.to("bsr", blocksize=(3, 2))
        assert sf.same(plan(B).matrix(), expected, level="buffers")
    full = sf.from_dense(
        array(library, np.zeros((7, 9), np.float32)), mask=selection(library, fill=2)
    )
    found = plan(full).matrix()
    assert found.zeros == "all"
    assert sf.same(found, full.to("bsr", blocksize=(3, 2)), level="buffers")


@libraries
@formats
def test_products(library: str, format: str) -> None:
    D = array(library, np.nan_to_num(np.asarray(drawn("numpy", 3)), nan=2.0))
    plan = sf.plan_conversion(0 * D, format, capacity=63, **FORMATS[format])(D)
    X = array(library, np.arange(27, dtype=np.float32).reshape(9, 3))
    out = array(library, np.full((7, 3), np.nan, np.float32))
    assert plan.product(X, out=out) is out
    np.testing.assert_array_equal(np.asarray(out), np.asarray(D) @ np.asarray(X))
    np.testing.assert_array_equal(
        np.asarray(plan.product(X[:, 1])), np.asarray(D) @ np.asarray(X)[:, 1]
    )


def test_index_width() -> None:
    D = drawn()
    for width in ("int32", "int64"):
        plan = sf.plan_conversion(D, "csr", capacity=63, index_dtype=width)
        assert plan.matrix().index_dtype == np.dtype(width)
    A = sf.from_dense(D, index_dtype="int64")
    plan = sf.plan_conversion(A, "bsr", capacity=63, blocksize=1)
    assert plan.matrix().index_dtype == np.dtype("int64")
    with pytest.raises(OverflowError, match="needs int64 indices, got index_dtype='int32'"):
        sf.plan_conversion(D, "csr", capacity=2**31, index_dtype="int32")


def test_what_it_says_of_itself() -> None:
    plan = sf.plan_conversion(drawn(), "bsr", capacity=20, blocksize=(3, 2))
    text = "<ConversionPlan dense -> bsr 7x9, float32, blocksize=(3, 2), capacity=20, numpy on cpu>"
    assert repr(plan) == text
    assert (plan.format, plan.shape, plan.blocksize, plan.capacity) == ("bsr", (7, 9), (3, 2), 20)
    assert (plan.library, plan.device) == ("numpy", "cpu")
    assert plan.query.op == "plan_conversion:dense->bsr"
    assert plan.nbytes == sum(x.nbytes for x in plan.buffers().values())
    assert set(plan.buffers()) == {"data", "indices", "indptr", "count", "overflow"}
    assert not any(x.flags.writeable for x in (*plan.buffers().values(), plan.count))
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            act(plan)


D = np.zeros((7, 9), np.float32)
REFUSED: list[tuple[type[Exception], str, Any]] = [
    (ValueError, "capacity must be an integer of at least 1, got 0", {"capacity": 0}),
    (ValueError, "at least 1, got True", {"capacity": True}),
    (ValueError, r"at least 1, got 2\.5", {"capacity": 2.5}),
    (ValueError, "not dense -> coo", {"format": "coo"}),
    (ValueError, "not dense -> bsr.T", {"format": "bsr.T", "blocksize": 2}),
    (ValueError, "needs a block size", {"format": "bsr"}),
    (ValueError, "unknown format 'dia'", {"format": "dia"}),
    (ValueError, "not csr -> csr", {"source": sf.from_dense(D)}),
    (TypeError, "got csc; use A.to", {"source": sf.from_dense(D, "csc")}),
    (TypeError, "got a sparse csr matrix", {"source": sf.from_dense(D), "mask": D != 0}),
    (TypeError, "plan_conversion takes a NumPy, torch or CuPy array", {"source": "D"}),
    (ValueError, r"takes a 2-D array, got shape \(7,\)", {"source": D[:, 0]}),
    (TypeError, "plan_conversion: mask must be a bool array", {"mask": D}),
    (ValueError, "mask must have the array's shape", {"mask": D[:3] != 0}),
    (MemoryError, "room for 1,000,000,000,000,000 in a conversion plan", {"capacity": 10**15}),
]


@pytest.mark.parametrize(("error", "text", "call"), REFUSED, ids=[row[1] for row in REFUSED])
def test_a_plan_that_cannot_be(error: type[Exception], text: str, call: Any) -> None:
    options = {"source": D, "format": "csr", "capacity": 5, **call}
    with pytest.raises(error, match=text):
        sf.plan_conversion(options.pop("source"), options.pop("format"), **options)


OTHERS: list[tuple[type[Exception], str, Any, Any]] = [
    (ValueError, "this plan is for dense 7 x 9, float32.*got dense 7 x 8", D[:, :8], None),
    (ValueError, "got dense 7 x 9, float64", D.astype(np.float64), None),
    (ValueError, "got dense 7 x 9, float32 and a mask", D, D != 0),
    (ValueError, "got csr 7 x 9, float32 with int32 indices", sf.from_dense(D), None),
    (TypeError, "numpy on cpu; got dense 7 x 9, float32, torch on cpu", torch.zeros(7, 9), None),
]


@pytest.mark.parametrize(("error", "text", "source", "mask"), OTHERS, ids=[o[1] for o in OTHERS])
def test_another_source_is_refused_and_nothing_is_lost(
    error: type[Exception], text: str, source: Any, mask: Any
) -> None:
    plan = sf.plan_conversion(D + 1, "csr", capacity=63)
    with pytest.raises(error, match=text):
        plan(source, mask=mask)
    assert sf.same(plan.matrix(), sf.from_dense(D + 1), level="buffers")


def test_a_mask_is_needed_where_there_was_one() -> None:
    plan = sf.plan_conversion(D, "csr", capacity=63, mask=D == 0)
    with pytest.raises(
        ValueError, match="float32 and a mask, numpy on cpu; got dense 7 x 9, float"
    ):
        plan(D)
    with pytest.raises(TypeError, match="mask must be a bool array"):
        plan(D, mask=torch.zeros(7, 9, dtype=torch.bool))


PRODUCTS: list[tuple[type[Exception], str, Any, Any]] = [
    (TypeError, "X must be a torch array, got ndarray", D, None),
    (ValueError, r"shape \(9,\) or \(9, p\), got \(7, 9\)", torch.zeros(7, 9), None),
    (ValueError, r"got \(1, 9, 2\)", torch.zeros(1, 9, 2), None),
    (ValueError, "out must have shape", torch.zeros(9, 2), torch.zeros(7, 3)),
    (NotImplementedError, "X requires grad", torch.zeros(9, 2, requires_grad=True), None),
]


@pytest.mark.parametrize(("error", "text", "X", "out"), PRODUCTS, ids=[p[1] for p in PRODUCTS])
def test_a_product_that_cannot_be(error: type[Exception], text: str, X: Any, out: Any) -> None:
    plan = sf.plan_conversion(torch.zeros(7, 9), "csr", capacity=63)
    with pytest.raises(error, match=text):
        plan.product(X, out=out)


def test_sources_with_gradients_and_in_the_plans_own_memory() -> None:
    plan = sf.plan_conversion(torch.zeros(7, 9), "csr", capacity=63)
    with pytest.raises(NotImplementedError, match="detach the values"):
        plan(torch.zeros(7, 9, requires_grad=True))
    own = plan.buffers()["data"].reshape(7, 9)
    with pytest.raises(ValueError, match="source's dense shares memory with the plan's buffers"):
        plan(own)
    with torch.no_grad():
        plan(torch.ones(7, 9, requires_grad=True))
    assert plan.matrix().nnz == 63


@libraries
@formats
def test_a_product_writes_neither_to_the_plan_nor_to_its_operand(library: str, format: str) -> None:
    D = np.full((8, 8), 2, np.float32)
    plan = sf.plan_conversion(array(library, D), format, capacity=64, **FORMATS[format])
    before, own = plan.matrix(), plan.buffers()["data"].reshape(-1)[:8]
    X = array(library, np.ones(8, np.float32))
    for out, text in ((own, "out shares memory with the plan's"), (X, "out shares memory with X")):
        if library == "numpy" and out is own:
            out = np.lib.stride_tricks.as_strided(own, writeable=True)  # a caller who insists
        with pytest.raises(ValueError, match=text):
            plan.product(X, out=out)
    assert sf.same(plan.matrix(), before, level="buffers")
    assert (X == 1).all()


def test_other_devices_and_graphs_being_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = sf.plan_conversion(torch.zeros(7, 9), "csr", capacity=63)
    with pytest.raises(sf.DeviceMismatchError, match="the plan is on 'cpu', X is on 'meta'"):
        plan.product(torch.zeros(9, 2, device="meta"))
    with pytest.raises(ValueError, match="an array on device 'meta' holds no values"):
        plan(torch.zeros(7, 9, device="meta"))
    monkeypatch.setattr(_arrays.TorchLibrary, "capturing", lambda self, device: True)
    with pytest.raises(RuntimeError, match="a plan cannot be made while a graph is being recorded"):
        sf.plan_conversion(torch.zeros(7, 9), "csr", capacity=63)
    with pytest.raises(RuntimeError, match="call it after a replay"):
        plan.matrix()


def test_torch_compile_does_not_look_into_it() -> None:
    plan = sf.plan_conversion(torch.zeros(7, 9), "csr", capacity=63)

    @torch.compile(backend="eager")
    def layer(D: Any, X: Any) -> Any:
        return plan(D).product(X) + 1

    expected = torch.ones(7, 9) @ torch.ones(9, 2) + 1
    assert torch.equal(layer(torch.ones(7, 9), torch.ones(9, 2)), expected)
