"""What is prepared once and kept, by thread, stream and graph: never a plan of another call."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

from sparseformats.ops.light import _nbytes
from sparseformats_kernels.cusparselt import bound as bound_module, launching, state as state_module
from sparseformats_kernels.cusparselt.plans import Algorithm
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
from tests.kernels.cusparse.fake import FakeDevice
from tests.kernels.cusparselt.fake import Fake
from tests.kernels.cusparselt.support import expected, matrix, operand, packed, query_for, same


@pytest.fixture
def A() -> Any:  # noqa: N802 - a matrix
    return matrix((48, 64))


def bound(A: Any, X: Any, **facts: Any) -> tuple[Any, Any]:
    state, query = packed(A, X, **facts)
    return state, CuSparseLtProduct.bind(state, query)


def biases(count: int, m: int = 48) -> list[Any]:
    return [operand(m, 1, seed=20 + i)[:, 0].contiguous() for i in range(count)]


def test_a_warm_call_makes_nothing(A: Any, library: Fake) -> None:
    X, Z, out = operand(64, 24), operand(64, 24, seed=5), operand(48, 24)
    _, run = bound(A, X)
    run(X, out, 1, 0)
    before = len(library.calls)
    for alpha in (1, 2):
        assert same(run(Z, out, alpha, 0), expected(A, Z, alpha))
    assert [call[0] for call in library.calls[before:]] == ["cusparseLtMatmul"] * 2


def test_the_first_call_finds_what_bind_prepared(A: Any, library: Fake) -> None:
    for n, facts in ((24, {}), (24, {"x_layout": "F", "out_layout": "F"}), (13, {})):
        layout = str(facts.get("x_layout", "C"))
        X = operand(64, n, layout=layout)
        out = operand(48, n, layout=str(facts.get("out_layout", "C")))
        _, run = bound(A, X, **{"x_layout": layout, "out_layout": "C", **facts})
        before = len(library.named("MatmulPlanInit"))
        run(X, out, 1, 0)
        assert len(library.named("MatmulPlanInit")) == before


def test_every_change_between_calls_gives_right_numbers(
    A: Any, library: Fake, device: FakeDevice
) -> None:
    """Columns, layouts, alignment, scalars, bias, stream: in turn, on one bound kernel."""
    base = operand(64, 128)
    query = query_for(A, base, epilogue="bias")
    run = CuSparseLtProduct.bind_epilogue(CuSparseLtProduct.pack(A, query), query)
    some, shifted = biases(3), operand(56, 1, seed=9)[:, 0].contiguous()[1:49]
    for step in range(60):
        device.current = (5, 8, 9)[step % 3]
        n = (8, 13, 24, 64)[step % 4]
        X = base[:, step % 5 : step % 5 + n]
        X = X.T.contiguous().T if step % 7 == 0 else X
        bias = (*some, shifted, None)[step % 5]
        out = operand(48, n, layout=("C", "F", "rows")[step % 3], seed=step)
        alpha, beta, before = (1, 2)[step % 2], (0, 0.5)[step % 3 == 0], out.clone()
        exact = expected(A, X, alpha, beta, before)
        exact = exact if bias is None else exact + bias.double()[:, None]
        assert same(run(X, out, alpha, beta, bias), exact), step
        assert library.streams[-1] == device.current


def test_operands_that_differ_in_one_thing_only(A: Any, library: Fake) -> None:
    """In their strides, in those of the result, in alignment, in shape."""
    room, rows = operand(64, 80), operand(64, 24)
    operands = [rows, rows.T.contiguous().T, room[:, :24], room[:, 1:25], room[:, :24]]
    _, run = bound(A, rows)
    for X in (*operands, *operands[::-1]):
        for out in (operand(48, 24), operand(48, 24, layout="F"), operand(48, 80)[:, 8:32], None):
            assert same(run(X, out, 1, 0), expected(A, X))


def test_numbers_of_int8_change_between_calls(library: Fake) -> None:
    """Trivial ones leave the result to the library, others do not."""
    A, X = matrix((32, 64), "int8"), operand(64, 16, "int8", "F")
    big = torch.full((32, 16), 20_000_001, dtype=torch.int32)
    _, run = bound(A, X, x_layout="F")
    for alpha, beta in ((1, 0), (3, 0), (1, 0), (1, 1), (1, 0), (-2, 5)):
        out = big.clone()
        assert same(run(X, out, alpha, beta), expected(A, X, alpha, beta, big))


# ---- bias


def test_a_bias_is_read_at_each_call(A: Any, library: Fake) -> None:
    X, bias = operand(64, 24), biases(1)[0]
    _, run = bound(A, X, epilogue="bias")
    for value in (1.0, -2.0):
        bias.fill_(value)
        assert same(run(X, None, 1, 0, bias), expected(A, X) + value)


def test_biases_at_many_addresses(A: Any, library: Fake) -> None:
    """The first few have plans of their own; further ones are copied, and plans stay few."""
    X, many = operand(64, 24), biases(20)
    _, run = bound(A, X, epilogue="bias")
    for _ in range(2):
        for bias in many:
            assert same(run(X, None, 1, 0, bias), expected(A, X) + bias.double()[:, None])
    assert len(library.named("MatmulPlanInit")) <= state_module._BIASES + 2


def test_a_bias_that_does_not_fit_is_copied(library: Fake) -> None:
    A, X, room = matrix((33, 64)), operand(64, 16), operand(64, 1, seed=3)[:, 0].contiguous()
    _, run = bound(A, X, epilogue="bias")
    for shift in (0, 1, 8, 0):
        bias = room[shift : shift + 33]
        assert same(run(X, None, 1, 0, bias), expected(A, X) + bias.double()[:, None])


# ---- streams, threads, devices


def test_streams_have_workspaces_of_their_own(A: Any, library: Fake, device: FakeDevice) -> None:
    X = operand(64, 24)
    state, run = bound(A, X)
    run(X, None, 1, 0)
    assert device.shared == []
    device.current = 8
    assert same(run(X, None, 1, 0), expected(A, X))
    first, second = library.named("Matmul")
    assert first[:2] == second[:2]  # one handle, one plan
    assert first[8] != second[8]
    assert library.streams == [5, 8]
    assert device.shared == [(state.blob.array,)]  # memory that another stream reads


def test_threads_have_handles_and_plans_of_their_own(A: Any, library: Fake) -> None:
    X, found = operand(64, 24), []
    _, run = bound(A, X, epilogue="bias")
    some, barrier = biases(4), threading.Barrier(4)

    def work(bias: Any) -> None:
        barrier.wait(60)
        for _ in range(20):
            y = run(X, None, 1, 0, bias)
        found.append(same(y, expected(A, X) + bias.double()[:, None]))
        found.append(same(run(X, None, 1, 0), expected(A, X)))  # what all threads call alike
        barrier.wait(60)

    threads = [threading.Thread(target=work, args=(bias,)) for bias in some]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8
    calls = library.named("Matmul")
    assert len({call[0] for call in calls}) == len({call[8] for call in calls}) == 4
    assert len({call[1] for call in calls}) == 8  # plans, with a bias and without


def test_a_thread_that_is_given_the_number_of_a_dead_one(A: Any, library: Fake) -> None:
    """Its plans keep their handle alive; here the stand-in would tell if they did not."""
    X = operand(64, 24)
    _, run = bound(A, X)
    results = []

    def work() -> None:
        results.append(same(run(X, None, 1, 0), expected(A, X)))

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        gc.collect()
        # The stand-in knows threads by the same numbers as we do.
    assert results == [True] * 3


def test_another_device_is_made_the_current_one(
    A: Any, library: Fake, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = operand(64, 24)
    _, run = bound(A, X)
    visits = device.visits
    monkeypatch.setattr(FakeDevice, "is_current", lambda self: self.visits > visits)
    assert same(run(X, None, 1, 0), expected(A, X))
    assert device.visits == visits + 1


def test_handles_are_one_a_thread_and_device(library: Fake) -> None:
    from sparseformats_kernels.cusparselt.handles import handle

    api = library.api()
    assert handle(api, 0) is handle(api, 0)
    assert handle(api, 0) is not handle(api, 1)
    assert handle(api, 0) is not handle(library.api(), 0)


# ---- graphs


def test_a_graph_has_a_workspace_of_its_own(A: Any, library: Fake, device: FakeDevice) -> None:
    X, out = operand(64, 24), operand(48, 24)
    _, run = bound(A, X)
    run(X, out, 1, 0)
    plans = len(library.named("MatmulPlanInit"))
    used = {library.named("Matmul")[-1][8]}
    for device.graph in (3, 4):
        device.current = 8
        for _ in range(2):
            assert same(run(X, out, 1, 0), expected(A, X))
        used.add(library.named("Matmul")[-1][8])
    assert len(used) == 3
    assert len(library.named("MatmulPlanInit")) == plans  # nothing is planned while recording
    device.current, device.graph = 5, 0
    run(X, out, 1, 0)
    assert library.named("Matmul")[-1][8] == library.named("Matmul")[0][8]


def test_nothing_is_searched_while_a_graph_is_recorded(
    A: Any, library: Fake, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_WORTH", 0)
    X = operand(64, 24)
    state, query = packed(A, X)
    device.current, device.graph = 8, 3
    run = CuSparseLtProduct.bind(state, query)
    assert same(run(X, None, 1, 0), expected(A, X))
    assert library.ran == [Algorithm(-1)]


def test_cupy_has_one_graph_and_refuses_what_needs_memory(
    A: Any, library: Fake, device: FakeDevice
) -> None:
    device.allocates = False
    X, out = operand(64, 24), operand(48, 24)
    state, run = bound(A, X)
    device.current, device.graph = 8, 3
    for _ in range(2):
        assert same(run(X, out, 1, 0), expected(A, X))
    device.graph = 4
    with pytest.raises(RuntimeError, match=r"prepare before capture.*CuPy cannot give"):
        run(X, out, 1, 0)
    with pytest.raises(RuntimeError, match="prepare before capture"):
        run(operand(64, 13), None, 1, 0)
    query = query_for(A, X, epilogue="relu")
    with pytest.raises(RuntimeError, match="prepare before capture"):
        CuSparseLtProduct.bind_epilogue(state, query)(X, out, 1, 0)


def test_an_empty_result_needs_no_launch(library: Fake, device: FakeDevice) -> None:
    A, X = matrix((0, 8)), operand(8, 3)
    _, run = bound(A, X)
    device.current, device.graph = 8, 3
    assert run(X, None, 1, 0).shape == (0, 3)
    assert library.named("Matmul") == []


# ---- memory


def test_structs_live_as_long_as_their_plan_and_no_longer(A: Any, library: Fake) -> None:
    X = operand(64, 24)
    state, run = bound(A, X)
    run(X, None, 1, 0)
    counts = {kind: len(library.living(kind)) for kind in ("plan", "matrix", "selection")}
    assert counts == {"plan": 1, "matrix": 3, "selection": 1}
    del state, run
    gc.collect()
    assert not any(library.living(kind) for kind in counts)
    assert [call[0] for call in library.calls[-5:]] == [
        "cusparseLtMatmulPlanDestroy",
        "cusparseLtMatmulAlgSelectionDestroy",
        *["cusparseLtMatDescriptorDestroy"] * 3,
    ]


def test_what_is_kept_is_limited(A: Any, library: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_PLANS", 3)
    monkeypatch.setattr(state_module, "_LAUNCHES", 4)
    monkeypatch.setattr(bound_module, "_KEPT", 5)
    X = operand(64, 8)
    state, run = bound(A, X)
    for n in range(8, 200, 8):
        X = operand(64, n)
        assert same(run(X, None, 1, 0), expected(A, X))
        assert len(state.plans) <= 3
        assert len(state.launches) <= 4
        assert 1 <= len(run._ready) <= 5
    gc.collect()
    assert len(library.living("plan")) <= 3 + 4 + 5


def test_memory_for_graphs_and_addresses_of_biases_are_limited(
    A: Any, library: Fake, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_ROOMS", 3)
    monkeypatch.setattr(state_module, "_LAUNCHES", 4)
    device.allocates = False
    state, _ = bound(A, operand(64, 8))
    b = torch.ones(48, dtype=torch.float16)
    for n in range(8, 100, 8):
        X, out = operand(64, n), operand(48, n)
        run = CuSparseLtProduct.bind_epilogue(state, query_for(A, X, epilogue="bias"))
        assert same(run(X, None, 1, 0, b), expected(A, X) + 1)
        assert len(state.spares) <= 3
        assert len(state.biases) <= 4
        device.current, device.graph = 8, n
        plain = CuSparseLtProduct.bind(state, query_for(A, X))
        assert same(plain(X, out, 1, 0), expected(A, X))  # by what was set aside
        device.current, device.graph = 0, 0


def test_the_dense_form_is_freed_after_packing(A: Any, library: Fake) -> None:
    state, _ = packed(A, operand(64, 8))
    own = {A.lib.address(x) for x in A.buffers().values()}
    assert _nbytes(state, own, set()) == state.blob.array.nbytes == 48 * 32 * 3
    assert isinstance(state.blob.array, torch.Tensor)


def test_calls_of_a_thread_on_a_stream_share_a_workspace(
    A: Any, library: Fake, device: FakeDevice
) -> None:
    _, run = bound(A, operand(64, 8))
    for n in (8, 16, 24, 8):
        run(operand(64, n), None, 1, 0)
    assert len({call[8] for call in library.named("Matmul")}) == 1
    library.workspace = 1000  # plans from now on need more
    for n in (32, 40, 8):
        X = operand(64, n)
        assert same(run(X, None, 1, 0), expected(A, X))
    used = [call[8] for call in library.named("Matmul")]
    assert len(set(used)) == 2
    assert used[-1] == used[0]  # a plan made before keeps what it was given


def test_bytes_that_no_workspace_needs_are_not_taken(
    A: Any, library: Fake, device: FakeDevice
) -> None:
    library.workspace = 0
    X = operand(64, 24)
    _, run = bound(A, X)
    assert same(run(X, None, 1, 0), expected(A, X))
    assert not library.named("Matmul")[-1][8]


# ---- failures


def test_a_layers_first_call_finds_what_bind_prepared(
    A: Any, library: Fake, device: FakeDevice
) -> None:
    device.allocates = False
    X, out = operand(64, 24), operand(48, 24)
    state, query = packed(A, X, epilogue="relu")
    run = CuSparseLtProduct.bind_epilogue(state, query)
    calls = len(library.named("MatmulPlanInit"))
    assert same(run(X, None, 1, 0), expected(A, X).relu())
    assert len(library.named("MatmulPlanInit")) == calls == 1
    device.current, device.graph = 8, 3
    assert same(run(X, out, 1, 0), expected(A, X).relu())  # in memory that was set aside


@pytest.mark.parametrize(
    "name",
    [
        *("Init", "StructuredDescriptorInit", "DenseDescriptorInit", "MatmulDescriptorInit"),
        *("MatmulAlgSelectionInit", "MatmulPlanInit", "MatmulGetWorkspace", "Matmul"),
        *("SpMMACompressedSize2", "SpMMACompress2", "MatmulDescSetAttribute"),
    ],
)
def test_failures_name_the_call_and_the_status(name: str, A: Any, library: Fake) -> None:
    library.fails[f"cusparseLt{name}"] = 10
    X, bias = operand(64, 24), biases(1)[0]
    text = rf"cusparseLt{name} of cuSPARSELt 0\.8\.0 failed: CUSPARSE_STATUS_NOT_SUPPORTED \(10\)"
    with pytest.raises(RuntimeError, match=text):
        bound(A, X)[1](X, None, 1, 0, bias)
    gc.collect()
    assert not library.living("plan")
    assert not library.living("matrix")
    library.fails.clear()
    assert same(bound(A, X)[1](X, None, 1, 0), expected(A, X))


def test_an_unknown_status_is_told_by_number(A: Any, library: Fake) -> None:
    library.fails["cusparseLtMatmul"] = 99
    X = operand(64, 24)
    with pytest.raises(RuntimeError, match=r"CUSPARSE_STATUS_UNKNOWN \(99\)"):
        bound(A, X)[1](X, None, 1, 0)


def test_a_launch_keeps_what_the_library_reads() -> None:
    assert {"_kept", "_numbers", "_stream", "plan"} <= set(launching.Launch.__slots__)
