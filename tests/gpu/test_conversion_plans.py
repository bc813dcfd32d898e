"""Conversion plans on a device: nothing waits, graphs record them, what does not fit is told."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats import _arrays, dispatch
from sparseformats.testing import assert_close, certify
from tests.gpu.memory import Arena, guarded, poisoned, watched
from tests.gpu.streams import forbidden_synchronisation, side_stream

M, N = 203, 391
FORMATS: dict[str, dict[str, Any]] = {
    "csr": {},
    "bsr": {"blocksize": (16, 8)},
    "blocked_ell": {"blocksize": 16},
}
ROOM = {"csr": 40_000, "bsr": 1_000, "blocked_ell": 25}
formats = pytest.mark.parametrize("format", FORMATS)
libraries = pytest.mark.parametrize("library", ["torch", "cupy"])
PRODUCT = next(r for r in dispatch.records("plan_conversion:matmul") if r.name == "triton-refilled")
BOUND = certify._bound(PRODUCT, flush=False)


@pytest.fixture(autouse=True)
def _memory(device: str) -> None:
    """Memory that nobody wrote to holds NaN and -1."""
    poisoned(device)


def host(seed: int = 0, dtype: str = "float32", *, finite: bool = False) -> Any:
    """Blocks with zeros of both signs and a NaN among the values."""
    rng = np.random.default_rng(seed)
    kept = np.repeat(np.repeat(rng.random((M // 8 + 1, N // 8 + 1)) < 0.3, 8, 0), 8, 1)[:M, :N]
    D = rng.integers(-3, 4, (M, N)) * kept
    D = np.where(D == 0, -np.abs(D).astype(np.float32), D).astype(dtype)
    D[0, 0] = 1 if finite else np.nan
    return D


def choice(seed: int = 0, fill: float = 0.2) -> Any:
    rng = np.random.default_rng(seed + 50)
    return np.repeat(rng.random((M, N // 4 + 1)) < fill, 4, 1)[:, :N].copy()


def on(device: str, x: Any, library: str = "torch") -> Any:
    return _arrays.library(library).from_numpy(x, device)


@formats
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("library", "dtype"), [("torch", "float16"), ("torch", "int8"), ("cupy", "float32")]
)
def test_each_run_is_the_ordinary_conversion(
    library: str, format: str, masked: bool, dtype: str, device: str
) -> None:
    options = FORMATS[format]
    capacity = {"csr": M * N, "bsr": 700, "blocked_ell": 25}[format]
    whole = np.zeros((M, N), bool)
    mask = on(device, whole, library) if masked else None
    start = on(device, np.zeros((M, N), dtype), library)
    plan = sf.plan_conversion(start, format, capacity=capacity, mask=mask, **options)
    if device.startswith("cuda"):
        assert plan.kernel == "triton-refill"
    for seed in range(1, 4):
        finite = host(seed, "float32", finite=dtype == "int8").astype(dtype)
        D = on(device, finite, library)
        D = D.T.copy().T if library == "cupy" and seed == 2 else D
        D = D.T.contiguous().T if library == "torch" and seed == 2 else D
        mask = on(device, choice(seed), library) if masked else None
        found = plan(D, mask=mask).matrix()
        expected = sf.from_dense(D, format, mask=mask, **options)
        assert (found.library, found.device) == (library, plan.device)
        assert sf.same(found, expected, level="buffers")
        sf.validate(found)


@libraries
def test_from_csr(library: str, device: str) -> None:
    options = {"blocksize": (16, 8)}
    first = sf.from_dense(on(device, host(), library))
    plan = sf.plan_conversion(first, "bsr", capacity=700, **options)
    for seed in range(1, 4):
        D, mask = on(device, host(seed), library), on(device, choice(seed, 0.1), library)
        A = sf.from_dense(D, mask=mask if seed == 2 else None)
        assert sf.same(plan(A).matrix(), A.to("bsr", **options), level="buffers")


@formats
@pytest.mark.parametrize(
    ("library", "dtype"), [("torch", "bfloat16"), ("torch", "float32"), ("cupy", "float16")]
)
def test_products(library: str, format: str, dtype: str, device: str) -> None:
    lib = _arrays.library(library)

    def made(x: Any) -> Any:
        return lib.astype(lib.from_numpy(x, device), dtype)

    plan = sf.plan_conversion(
        made(np.ones((M, N), np.float32)), format, capacity=ROOM[format], **FORMATS[format]
    )
    for seed in (1, 2):
        plan(made(host(seed, finite=True)))
        A = plan.matrix()
        for columns in (16, 257):
            X = made(np.random.default_rng(seed).standard_normal((N, columns)).astype(np.float32))
            assert_close(plan.product(X), A, X, **BOUND)
            wide = made(np.full((columns, M + 24), np.nan, np.float32))
            assert_close(plan.product(X, out=wide.T[8 : M + 8]), A, X, **BOUND)
            beside = lib.to_numpy(wide).astype(np.float32)
            assert np.isnan(beside[:, :8]).all()
            assert np.isnan(beside[:, M + 8 :]).all()
        assert_close(plan.product(X[:, 0]), A, X[:, 0], **BOUND)


def guard_zones(plan: Any, arenas: list[Arena]) -> None:
    """Let a plan fill room between guard zones, and its scratch memory too."""
    import dataclasses

    lib, room = plan._room.lib, plan._room
    names = ["data", "indices", "count", "overflow", "indptr", "marked"]
    if room.indptr is None:
        names += ["starts", "ends"]
    new = {
        name: guarded(lib.to_numpy(getattr(room, name)), room.lib.name, room.device, arenas, name)
        for name in names
        if getattr(room, name) is not None
    }
    if room.indptr is not None:
        new |= {"starts": new["indptr"][:-1], "ends": new["indptr"][1:]}
    plan._room = dataclasses.replace(room, **new)
    fill = plan._fill
    fill._room, fill._prepared = plan._room, {}
    for name, x in fill._scratch.items():
        fill._scratch[name] = guarded(lib.to_numpy(x), lib.name, room.device, arenas, name)
    from sparseformats.ops.room_products import RoomProduct

    plan._product = RoomProduct(plan._room, plan.query)


@formats
@pytest.mark.parametrize("masked", [False, True])
def test_nothing_is_written_beside_the_room(format: str, masked: bool, device: str) -> None:
    if not device.startswith("cuda"):
        return
    for capacity in (1, 7, ROOM[format]):
        with watched() as arenas:
            mask = on(device, choice(fill=1.0)) if masked else None
            plan = sf.plan_conversion(
                on(device, host()), format, capacity=capacity, mask=mask, **FORMATS[format]
            )
            guard_zones(plan, arenas)
            for seed in (1, 2):
                D = guarded(host(seed), "torch", device, arenas, "D")
                mask = guarded(choice(seed), "torch", device, arenas, "mask") if masked else None
                plan(D, mask=mask)
                X = guarded(np.ones((N, 37), np.float32), "torch", device, arenas, "X")
                filled = np.full((M, 37), np.nan, np.float32)
                out = guarded(filled, "torch", device, arenas, "out")
                plan.product(X, out=out)
                expected = sf.from_dense(D, format, mask=mask, **FORMATS[format])
                if bool(plan.overflowed):
                    assert out.isnan().all()
                else:
                    assert sf.same(plan.matrix(), expected, level="buffers")


@libraries
@formats
def test_too_little_room(library: str, format: str, device: str) -> None:
    options = FORMATS[format]
    D = on(device, np.ones((M, N), np.float32), library)
    needed = {"csr": M * N, "bsr": 13 * 49, "blocked_ell": 25}[format]
    plan = sf.plan_conversion(D, format, capacity=needed - 1, **options)
    X = on(device, np.ones((N, 40), np.float32), library)
    with pytest.raises(sf.CapacityError, match=f"needs {needed:,} ") as caught:
        plan.matrix()
    assert (caught.value.needed, caught.value.capacity) == (needed, needed - 1)
    if device.startswith("cuda"):
        assert np.isnan(plan._room.lib.to_numpy(plan.product(X))).all()
        assert np.isnan(plan._room.lib.to_numpy(plan.product(X[:, 1]))).all()
    plan(0 * D)  # and it goes on
    assert plan.matrix().nnz == 0
    assert (plan._room.lib.to_numpy(plan.product(X)) == 0).all()


@formats
@pytest.mark.parametrize("masked", [False, True])
def test_nothing_waits_for_the_device(format: str, masked: bool, device: str) -> None:
    D, X = on(device, host(finite=True)), on(device, np.ones((N, 40), np.float32))
    mask = on(device, choice()) if masked else None
    plan = sf.plan_conversion(D, format, capacity=ROOM[format], mask=mask, **FORMATS[format])
    out = torch.empty(M, 40, device=device)
    plan.product(X)
    plan.product(X, out=out)
    small = sf.plan_conversion(D, format, capacity=1, mask=mask, **FORMATS[format])
    with forbidden_synchronisation():
        for each in (plan, small):
            each(D, mask=mask)
            each.product(X)
            each.product(X, out=out)
            each.product(X[:, 0])
            assert each.count.shape == each.overflowed.shape == (1,)
            repr(each)


def test_nothing_waits_for_the_device_from_csr(device: str) -> None:
    A = sf.from_dense(on(device, host(finite=True)))
    plan = sf.plan_conversion(A, "bsr", capacity=700, blocksize=(16, 8))
    with forbidden_synchronisation():
        plan(A)


@formats
@pytest.mark.parametrize("masked", [False, True])
def test_a_graph_finds_new_patterns_at_each_replay(format: str, masked: bool, device: str) -> None:
    D, X = on(device, host(finite=True)), on(device, np.ones((N, 40), np.float32))
    mask = on(device, choice()) if masked else None
    capacity = {"csr": 25_000, "bsr": 700, "blocked_ell": 25}[format]
    plan = sf.plan_conversion(D, format, capacity=capacity, mask=mask, **FORMATS[format])
    out = torch.empty(M, 40, device=device)
    plan.product(X, out=out)
    kept = plan.matrix()
    before = sf.from_dense(D, format, mask=mask, **FORMATS[format])
    torch.cuda.synchronize(device)
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        plan(D, mask=mask)
        plan.product(X, out=out)
    for seed in (1, 2, 3):
        D.copy_(on(device, host(seed, finite=True)))
        if mask is not None:
            mask.copy_(on(device, choice(seed)))
        X.copy_(on(device, np.random.default_rng(seed).integers(-3, 4, (N, 40)).astype(np.float32)))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize(device)
        expected = sf.from_dense(D, format, mask=mask, **FORMATS[format])
        assert sf.same(plan.matrix(), expected, level="buffers")
        whole = D if mask is None else torch.where(mask, D, 0)
        assert torch.equal(out.double(), whole.double() @ X.double())
    # More than there is room for, told by the device alone; then less again.
    D.fill_(1)
    if mask is not None:
        mask.fill_(True)
    graph.replay()
    torch.cuda.synchronize(device)
    if format == "csr":
        assert bool(plan.overflowed)
        assert out.isnan().all()
    D.zero_()
    if mask is not None:
        mask.zero_()
    graph.replay()
    torch.cuda.synchronize(device)
    assert not plan.overflowed
    assert (out == 0).all()
    assert sf.same(kept, before, level="buffers")


def test_what_is_not_prepared_is_not_recorded(device: str) -> None:
    D, X = on(device, host(finite=True)), on(device, np.ones((N, 40), np.float32))
    plan = sf.plan_conversion(D, "bsr", capacity=700, blocksize=(16, 8))
    out = torch.empty(M, 40, device=device)
    plan.product(X, out=out)
    other = D.T.contiguous().T
    torch.cuda.synchronize(device)
    calls: list[Any] = [
        lambda: plan(other),
        lambda: plan.product(X[:, :17], out=out[:, :17]),
        lambda: plan.matrix(),
        lambda: sf.plan_conversion(D, "csr", capacity=700),
    ]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            with pytest.raises(RuntimeError, match="recorded"):
                call()
        plan(D)  # the refusals have not ended the recording
        plan.product(X, out=out)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize(device)
    assert torch.equal(out.double(), D.double() @ X.double())


@formats
def test_cupy_records_it_too(format: str, device: str) -> None:
    import cupy

    place = cupy.cuda.Device(torch.device(device).index or 0)
    D, X = (on(device, x, "cupy") for x in (host(finite=True), np.ones((N, 40), np.float32)))
    plan = sf.plan_conversion(D, format, capacity=ROOM[format], **FORMATS[format])
    with place:
        out, stream = cupy.empty((M, 40), np.float32), cupy.cuda.Stream(non_blocking=True)
        plan.product(X, out=out)
        place.synchronize()
        with stream:
            stream.begin_capture()
            plan(D)
            plan.product(X, out=out)
            graph = stream.end_capture()
        for seed in (1, 2):
            D[...] = on(device, host(seed, finite=True), "cupy")
            place.synchronize()
            graph.launch(stream)
            stream.synchronize()
            expected = sf.from_dense(D, format, **FORMATS[format])
            assert sf.same(plan.matrix(), expected, level="buffers")
            np.testing.assert_array_equal(out.get(), D.get() @ X.get())


@libraries
def test_work_goes_to_the_callers_stream(library: str, device: str) -> None:
    D, X = (on(device, x, library) for x in (host(finite=True), np.ones((N, 40), np.float32)))
    plan = sf.plan_conversion(0 * D, "bsr", capacity=700, blocksize=(16, 8))
    lib = plan._room.lib
    torch.cuda.synchronize(device)
    with side_stream(library, device) as stream:
        for seed in range(5):
            torch.cuda._sleep(3_000_000)  # else a launch on another stream might still be in time
            E = on(device, host(seed, finite=True), library)
            Y = plan(E).product(X)
            found = plan.matrix()
            stream.synchronize()
            np.testing.assert_array_equal(
                lib.to_numpy(Y), host(seed, finite=True) @ lib.to_numpy(X)
            )
            assert sf.same(found, sf.from_dense(E, "bsr", blocksize=(16, 8)), level="buffers")


def test_a_plan_may_go_while_its_work_is_under_way(device: str) -> None:
    D, X = on(device, host(finite=True)), on(device, np.ones((N, 40), np.float32))
    plan = sf.plan_conversion(D, "bsr", capacity=700, blocksize=(16, 8))
    torch.cuda.synchronize(device)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        Y = plan(D).product(X)
    del plan
    gc.collect()
    held = [torch.full((1 << 18,), 255, dtype=torch.uint8, device=device) for _ in range(64)]
    stream.synchronize()
    assert torch.equal(Y.double(), D.double() @ X.double())
    del held


def test_neither_sources_nor_operands_are_kept(device: str) -> None:
    D, X = on(device, host(finite=True)), on(device, np.ones((N, 40), np.float32))
    plan = sf.plan_conversion(D, "bsr", capacity=700, blocksize=(16, 8))
    Y = plan.product(X)
    watched_for = [weakref.ref(x) for x in (D, X, Y)]
    del D, X, Y
    gc.collect()
    assert [ref() for ref in watched_for] == [None] * 3
    assert plan.matrix().nnz > 0


def test_a_source_elsewhere_is_refused(device: str) -> None:
    D = on(device, host(finite=True))
    plan = sf.plan_conversion(D, "csr", capacity=40_000)
    with pytest.raises(sf.DeviceMismatchError, match=r"this plan is for dense .* got dense"):
        plan(D.cpu())
    with pytest.raises(sf.DeviceMismatchError, match="the plan is on"):
        plan.product(torch.ones(N, 3))
    square = torch.eye(32, device=device)
    other = sf.plan_conversion(square, "csr", capacity=99)
    with pytest.raises(ValueError, match="out shares memory with X"):
        other.product(square, out=square)
    own = plan.buffers()["data"][: M * 3].reshape(M, 3)
    with pytest.raises(ValueError, match="out shares memory with the plan's buffers"):
        plan.product(torch.ones(N, 3, device=device), out=own)


def test_what_no_kernel_converts_without_waiting_is_refused(device: str) -> None:
    with pytest.raises(sf.NoKernelError, match="dtype"):
        sf.plan_conversion(torch.zeros(4, 4, device=device).cfloat(), "csr", capacity=4)
    with pytest.raises(sf.NoKernelError, match="blocksize"):
        sf.plan_conversion(torch.zeros(4, 4, device=device), "bsr", capacity=4, blocksize=(2, 3))
    plan = sf.plan_conversion(torch.zeros(4, 4, device=device).double(), "csr", capacity=4)
    with pytest.raises(sf.NoKernelError, match="dtype"):
        plan.product(torch.zeros(4, 4, device=device).double())
