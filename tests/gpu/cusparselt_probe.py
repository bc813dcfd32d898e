"""What cuSPARSELt does on this device, fact by fact: ``python -m tests.gpu.cusparselt_probe``.

For a first run on a device or a version that nobody has tried: each fact is found apart, so that
one that fails tells where the kernels' assumptions are wrong. Lines are ``fact: what was found``;
``--json FILE`` writes them too. Exit status 1 means that something which the kernels rely on is not
so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

import sparseformats as sf
from sparseformats_kernels.cusparselt import api as c
from sparseformats_kernels.cusparselt.finding import find, the_api
from sparseformats_kernels.cusparselt.handles import handle
from sparseformats_kernels.cusparselt.launching import Launch
from sparseformats_kernels.cusparselt.packing import PACK
from sparseformats_kernels.cusparselt.plans import DEFAULT, Algorithm, Problem
from sparseformats_kernels.cusparselt.searching import everything
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
from tests.kernels.cusparselt.support import dense, expected, operand, query_for, same

FACTS: dict[str, Callable[[str], Any]] = {}
RELIED_ON: set[str] = set()
M, K, N = 256, 512, 128


def fact(relied_on: bool = False) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
    """Register a fact; one that the kernels rely on must come out true."""

    def register(function: Callable[[str], Any]) -> Callable[[str], Any]:
        name = function.__name__.replace("_", " ")
        FACTS[name] = function
        if relied_on:
            RELIED_ON.add(name)
        return function

    return register


def made(device: str, dtype: str = "float16", shape: Any = (M, K), **facts: Any) -> tuple[Any, Any]:
    """A matrix and its state."""
    A = sf.from_dense(dense(shape, dtype).to(device), "1:2" if dtype == "float32" else "2:4")
    X = x_of(device, shape[1], 16, dtype)
    query = query_for(A, X, device="cuda", capability=(9, 0), **facts)
    return A, CuSparseLtProduct.pack(A, query)


def x_of(device: str, k: int, n: int, dtype: str = "float16", layout: str = "F") -> Any:
    x = operand(k, n, dtype).to(device)
    return x.T.contiguous().T if layout == "F" else x.contiguous()


def product(state: Any, X: Any, **options: Any) -> Any:
    return CuSparseLtProduct.run(state, X, None, 1, 0, **options)


@fact()
def library_and_version(device: str) -> Any:
    api = the_api()
    return {"found": find(), "version": api.version, "struct bytes": api.layout.size}


@fact(relied_on=True)
def a_handle_can_be_made(device: str) -> bool:
    return handle(the_api(), torch.device(device).index or 0).address % 16 == 0


@fact(relied_on=True)
def structs_are_not_larger_than_we_think(device: str) -> bool:
    """The library writes nothing behind the end of any struct."""
    api = the_api()
    structs: list[Any] = []
    original = type(api).opaque

    class Guarded:
        def __init__(self) -> None:
            import ctypes

            size = api.layout.size
            self.memory = ctypes.create_string_buffer(b"\x5a" * (3 * size + 64), 3 * size + 64)
            start = ctypes.addressof(self.memory)
            self.address = -(-(start + size) // 64) * 64
            self.begin, self.end = self.address - start, self.address - start + size
            structs.append(self)

        def intact(self) -> bool:
            raw = self.memory.raw
            return set(raw[: self.begin]) | set(raw[self.end :]) <= {0x5A}

    try:
        type(api).opaque = lambda self: Guarded()  # type: ignore[assignment, method-assign, return-value]
        state = made(device)[1]
        product(state, x_of(device, K, N))
        torch.cuda.synchronize(device)
    finally:
        type(api).opaque = original  # type: ignore[method-assign]
    return len(structs) >= 5 and all(each.intact() for each in structs)


@fact(relied_on=True)
def products_of_each_type_and_order_are_exact(device: str) -> Any:
    found = {}
    for dtype in ("float16", "bfloat16", "int8", "float8_e4m3fn"):
        for layout in ("C", "F"):
            try:
                A, state = made(device, dtype)
                X = x_of(device, K, N, dtype, layout)
                y, exact = product(state, X), expected(A, X)
                if dtype.startswith("float8"):
                    y, exact = y.float(), exact.to(A.dtype).float().double()
                found[f"{dtype} {layout}"] = same(y, exact)
            except RuntimeError as error:
                found[f"{dtype} {layout}"] = str(error)
    return all(x is True for x in found.values()) or found


@fact()
def algorithms_and_workspaces(device: str) -> Any:
    found = {}
    for dtype in ("bfloat16", "int8", "float8_e4m3fn"):
        _, state = made(device, dtype, (4096, 4096))
        problem = Problem(4096, c.ORDER_COL, 4096, c.ORDER_COL, 4096)
        most = state.make_plan(problem, DEFAULT).most
        taken, bytes_of = [], set()
        for algorithm in everything(most):
            try:
                plan = state.make_plan(problem, algorithm)
            except RuntimeError:
                continue
            taken.append(tuple(algorithm))
            bytes_of.add(plan.workspace)
        found[dtype] = {"CONFIG_MAX_ID": most, "taken": taken, "workspaces": sorted(bytes_of)}
    return found


@fact()
def an_id_beyond_the_last_is_taken(device: str) -> Any:
    _, state = made(device)
    problem = Problem(N, c.ORDER_COL, K, c.ORDER_COL, M)
    most = state.make_plan(problem, DEFAULT).most
    try:
        state.make_plan(problem, Algorithm(most))
    except RuntimeError as error:
        return f"no: {error}"
    return "yes: CONFIG_MAX_ID is the last id, not how many there are"


@fact()
def the_compressed_bytes_of_each_element(device: str) -> Any:
    sizes = {}
    for dtype in ("bfloat16", "int8", "float8_e4m3fn"):
        A, state = made(device, dtype, (4096, 4096))
        sizes[dtype] = round(state.blob.array.nbytes / (4096 * 4096 * A.data.itemsize), 4)
    return sizes


@fact()
def what_packing_costs_through_a_dense_array_and_directly_in_ms(device: str) -> Any:
    """If directly is quicker or takes less memory, it can be the way wherever it was learnt."""
    capability, found = torch.cuda.get_device_capability(device), {}
    for dtype in ("bfloat16", "int8"):
        A = sf.from_dense(dense((4096, 64), dtype).to(device).repeat(1, 64), "2:4")
        X = x_of(device, 4096, 16, dtype)
        query = query_for(A, X, device="cuda", capability=capability)
        for way in ("", "direct"):
            os.environ[PACK] = way
            CuSparseLtProduct.pack(A, query)
            torch.cuda.reset_peak_memory_stats(device)
            before, start = torch.cuda.memory_allocated(device), perf_counter()
            CuSparseLtProduct.pack(A, query)
            spent = (perf_counter() - start) * 1e3
            most = torch.cuda.max_memory_allocated(device) - before
            found[f"{dtype} {way or 'dense'}"] = {"ms": round(spent, 3), "most bytes": most}
        del os.environ[PACK]
    return found


@fact()
def what_a_plan_and_a_search_cost_in_ms(device: str) -> Any:
    _, state = made(device, "bfloat16", (4096, 4096))
    problem = Problem(4096, c.ORDER_COL, 4096, c.ORDER_COL, 4096)
    plans = []
    for _ in range(6):
        start = perf_counter()
        state.make_plan(problem, DEFAULT)
        plans.append((perf_counter() - start) * 1e3)
    state.worth = 0
    start = perf_counter()
    state._choose(problem, False)
    torch.cuda.synchronize(device)
    return {"plans": plans, "search": (perf_counter() - start) * 1e3}


@fact()
def what_a_warm_call_costs_on_the_host_in_us(device: str) -> Any:
    A, state = made(device)
    X = x_of(device, K, N)
    out = torch.empty(M, N, device=device, dtype=torch.float16)
    run = CuSparseLtProduct.bind(state, query_for(A, X, device="cuda", x_layout="F"))
    times = []
    for _ in range(5):
        torch.cuda.synchronize(device)
        start = perf_counter()
        for _ in range(200):
            run(X, out, 1, 0)
        times.append((perf_counter() - start) / 200 * 1e6)
    return [round(t, 2) for t in times]


@fact()
def a_bias_is_read_when_a_product_is_launched_and_not_when_its_plan_is_made(device: str) -> Any:
    """Either is served; if so, one plan would do for all addresses."""
    A, state = made(device)
    X, one, two = x_of(device, K, N), *(torch.full((M,), v, device=device).half() for v in (1, 2))
    problem = Problem(N, c.ORDER_COL, K, c.ORDER_ROW, N, one.data_ptr())
    plan = state.make_plan(problem, DEFAULT, one.data_ptr())
    product_struct = plan._keep[3]
    out = torch.empty(M, N, device=device, dtype=torch.float16)
    workspace = torch.empty(max(1, plan.workspace), dtype=torch.uint8, device=device)
    stream = torch.cuda.current_stream(device).cuda_stream
    launch = Launch(state, plan, stream, workspace, None)
    import ctypes

    where = ctypes.c_void_p(two.data_ptr())
    name = "cusparseLtMatmulDescSetAttribute"
    state.api.set(name, plan.handle.address, product_struct.address, c.BIAS_POINTER, where)
    launch(X.data_ptr(), out.data_ptr(), 1, 0)
    torch.cuda.synchronize(device)
    exact = expected(A, X)
    return {"at launch": same(out, exact + 2), "of the plan": same(out, exact + 1)}


@fact()
def the_librarys_relu_keeps_nan(device: str) -> Any:
    """If so, relu can be fused: see `spmm._relu`."""
    import ctypes

    A, state = made(device)
    X = x_of(device, K, N)
    X[0, 0] = torch.nan
    original = type(state.api).call

    def call(self: Any, name: str, *arguments: Any) -> None:
        original(self, name, *arguments)
        if name == "cusparseLtMatmulDescriptorInit":
            on = ctypes.c_int(1)
            set_name = "cusparseLtMatmulDescSetAttribute"
            self.set(set_name, arguments[0], arguments[1], c.ACTIVATION_RELU, on)

    try:
        type(state.api).call = call  # type: ignore[method-assign]
        y = product(state, X)
        torch.cuda.synchronize(device)
    finally:
        type(state.api).call = original  # type: ignore[method-assign]
    meets = A.to_dense()[:, 0] != 0
    rest = y[:, 1:].double()
    return {
        "NaN stays": bool(y[meets, 0].isnan().all()),
        "the rest is right": bool(torch.equal(rest, expected(A, X)[:, 1:].relu())),
    }


@fact()
def int8_sums_beyond_what_float32_holds_are_exact(device: str) -> Any:
    """If so, `slices` is needed no more."""
    k = 8192
    D = torch.zeros(64, k, dtype=torch.int8)
    D[:, ::4] = D[:, 1::4] = 127
    D[:, 0] = torch.arange(64, dtype=torch.int8)
    A = sf.from_dense(D.to(device), "2:4")
    X = torch.full((16, k), 127, dtype=torch.int8, device=device).T
    state = CuSparseLtProduct.pack(A, query_for(A, X, device="cuda"))
    y, exact = product(state, X), expected(A, X)
    return {"exact": same(y, exact), "worst": float((y.double() - exact).abs().max())}


@fact()
def fp8_sums_are_kept_in_float32(device: str) -> Any:
    """The worst error over the float32 result's size; 1e-4 or more hints at fewer bits."""
    A = sf.prune(torch.randn(256, 8192, device=device), "2:4").astype("float8_e4m3fn")
    X = torch.randn(64, 8192, device=device).to(torch.float8_e4m3fn).T
    state = CuSparseLtProduct.pack(A, query_for(A, X, device="cuda"))
    problem = Problem(64, c.ORDER_COL, 8192, c.ORDER_ROW, 64)
    launch = state.launch(problem, torch.cuda.current_stream(device).cuda_stream, 0, False)
    y = torch.empty(256, 64, device=device)
    launch(X.data_ptr(), y.data_ptr(), 1, 0)
    torch.cuda.synchronize(device)
    D, wide = A.to_dense().float().double(), X.float().double()
    return float(((y.double() - D @ wide).abs() / (D.abs() @ wide.abs())).max())


@fact(relied_on=True)
def nan_and_zeros_survive_compression(device: str) -> bool:
    D = torch.zeros(64, 64, device=device, dtype=torch.float16)
    D[:, 1], D[:, 3] = torch.nan, -2
    A, X = sf.from_dense(D, "2:4"), torch.ones(64, 16, device=device).half()
    state = CuSparseLtProduct.pack(A, query_for(A, X, device="cuda"))
    first = bool(product(state, X).isnan().all())
    D[:, 1] = 0
    A = sf.from_dense(D, "2:4")
    state = CuSparseLtProduct.pack(A, query_for(A, X, device="cuda"))
    return first and bool((product(state, X) == -2).all())


@fact(relied_on=True)
def the_same_bits_without_cut_sums(device: str) -> Any:
    A = sf.prune(torch.randn(1024, 4096, device=device).half(), "2:4")
    X = torch.randn(4096, 512, device=device).half()
    state = CuSparseLtProduct.pack(A, query_for(A, X, device="cuda"))
    differ = []
    for i in range(-1, state.make_plan(Problem(512, 2, 512, 2, 512), DEFAULT).most):
        state.forced = Algorithm(i)
        state.plans.clear()
        state.launches.clear()
        try:
            first = product(state, X)
            if not all(torch.equal(first, product(state, X)) for _ in range(10)):
                differ.append(i)
        except RuntimeError:
            continue
    return differ == [] or {"ids that vary": differ}


@fact(relied_on=True)
def a_plan_can_be_made_while_a_graph_is_recorded(device: str) -> Any:
    A, state = made(device)
    X, out = x_of(device, K, N), torch.empty(M, N, device=device, dtype=torch.float16)
    product(state, X)
    state.plans.clear()
    state.launches.clear()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        CuSparseLtProduct.run(state, X, out, 1, 0)
    graph.replay()
    torch.cuda.synchronize(device)
    return same(out, expected(A, X))


@fact()
def the_best_of_all_algorithms_over_the_default(device: str) -> Any:
    found = {}
    for dtype in ("bfloat16", "int8", "float8_e4m3fn"):
        _, state = made(device, dtype, (4096, 4096))
        for n in (16, 512, 4096):
            problem = Problem(n, c.ORDER_COL, 4096, c.ORDER_COL, 4096)
            most = state.make_plan(problem, DEFAULT).most
            times = state.measure(problem, everything(most), False)
            best = min(times, key=times.__getitem__)
            ratio = times.get(DEFAULT, float("nan")) / times[best]
            found[f"{dtype} N={n}"] = [tuple(best), round(times[best], 1), round(ratio, 3)]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Find all facts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", default="", help="facts with this in their name")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args(arguments)
    torch.cuda.set_device(options.device)
    found: dict[str, Any] = {}
    status = 0
    for name, function in FACTS.items():
        if options.only not in name:
            continue
        try:
            found[name] = function(options.device)
        except Exception as error:  # noqa: BLE001 - one fact must not hide the others
            found[name] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        good = name not in RELIED_ON or found[name] is True
        status |= not good
        print(f"{'' if good else 'WRONG '}{name}: {found[name]}", flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1, default=str) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
