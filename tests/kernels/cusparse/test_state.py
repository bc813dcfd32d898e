"""What is prepared once and kept: by thread, stream and graph."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

from sparseformats.testing import assert_close
from sparseformats_kernels.cusparse import api as c, handles, spmm, state as state_module
from sparseformats_kernels.cusparse.csr import CSRProduct
from tests.kernels.cpu.products import matrix
from tests.kernels.cusparse.fake import Fake, FakeDevice
from tests.kernels.cusparse.test_products import operand, packed


@pytest.fixture
def A() -> Any:  # noqa: N802 - a matrix
    return matrix("csr", (14, 11), "torch")


def test_a_warm_call_makes_nothing(A: Any, library: Fake) -> None:
    X = operand(11, 4)
    state, query = packed(CSRProduct, A, X)
    run = CSRProduct.bind(state, query)
    out = run(X, None, 1, 0)
    before = len(library.calls)
    Z = operand(11, 4, seed=5)
    assert_close(run(Z, out, 1, 0), A, Z)
    assert names(library, before) == ["cusparseDnMatSetValues", "cusparseSpMM"]
    before = len(library.calls)
    assert_close(run(Z, out, 2, 0), A, Z, alpha=2)  # what lies where it lay is not told again
    assert names(library, before) == ["cusparseSpMM"]


def names(library: Fake, since: int) -> list[str]:
    """Functions that were called since then."""
    return [call[0] for call in library.calls[since:]]


def test_numbers_are_read_anew_when_they_change(A: Any, library: Fake) -> None:
    X, Y = operand(11, 4), operand(14, 4, seed=3)
    state, query = packed(CSRProduct, A, X, beta_zero=False)
    run = CSRProduct.bind(state, query)
    for alpha, beta in ((2, 0.5), (2, 0.25), (0.5, 0.25), (1, 0.25), (1, 0), (2.5, 0), (2, 0.5)):
        out = Y.clone()
        assert_close(run(X, out, alpha, beta), A, X, alpha=alpha, beta=beta, out=Y)


def test_a_handle_follows_the_stream_of_each_call(
    A: Any, library: Fake, device: FakeDevice
) -> None:
    X, out = operand(11, 4), operand(14, 4)
    state, query = packed(CSRProduct, A, X)
    run = CSRProduct.bind(state, query)
    for device.current in (5, 8, 5, 8, 8, 5):
        run(X, out, 1, 0)
        (handle,) = (x for x in library.objects.values() if x["kind"] == "handle")
        assert handle["stream"] == device.current


def test_another_device_is_made_the_current_one(
    A: Any, library: Fake, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = operand(11, 4)
    state, query = packed(CSRProduct, A, X)
    run, visits = CSRProduct.bind(state, query), device.visits
    monkeypatch.setattr(FakeDevice, "is_current", lambda self: self.visits > visits)
    assert_close(run(X, None, 1, 0), A, X)
    assert device.visits == visits + 1


def test_kinds_of_operands_that_are_remembered_are_limited(
    A: Any, library: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spmm, "_KEPT", 3)
    state, query = packed(CSRProduct, A, operand(11, 4))
    run = CSRProduct.bind(state, query)
    for n in range(2, 20):
        X = operand(11, n)
        assert_close(run(X, None, 1, 0), A, X)
        assert 1 <= len(run._ready) <= 3


def test_preprocessing_belongs_to_the_matrix_descriptor_and_its_workspace(
    A: Any, library: Fake
) -> None:
    X = operand(11, 4)
    state, query = packed(CSRProduct, A, X, assume_finite=True)
    CSRProduct.bind(state, query)(X, None, 1, 0)
    (call,) = library.named("cusparseSpMM")
    active = library.objects[call[4]]["active"]
    assert active == call[10] != 0
    done = library.named("cusparseSpMM_preprocess")
    assert [row[2:3] + row[8:10] for row in done] == [call[2:3] + call[8:10]] * len(done)


def test_streams_have_products_of_their_own(A: Any, library: Fake, device: FakeDevice) -> None:
    X = operand(11, 4)
    state, query = packed(CSRProduct, A, X)
    run = CSRProduct.bind(state, query)
    run(X, None, 1, 0)
    assert device.shared == []
    device.current = 8
    assert_close(run(X, None, 1, 0), A, X)
    calls = library.named("cusparseSpMM")
    assert calls[0][0] == calls[1][0]  # one handle
    assert calls[0][4] != calls[1][4]  # two descriptors
    assert calls[0][10] != calls[1][10]  # two workspaces
    assert [row[1] for row in library.named("cusparseSetStream")] == [5, 8]
    assert device.shared == [state.arrays]  # memory that another stream reads


def test_threads_have_handles_and_products_of_their_own(A: Any, library: Fake) -> None:
    X = operand(11, 4)
    state, query = packed(CSRProduct, A, X)
    run, found = CSRProduct.bind(state, query), []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        found.append(run(X, None, 1, 0))
        barrier.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for y in found:
        assert_close(y, A, X)
    calls = library.named("cusparseSpMM")
    for place in (0, 4, 10):
        assert len({call[place] for call in calls}) == 4


def test_a_graph_takes_what_was_prepared_ahead(A: Any, library: Fake, device: FakeDevice) -> None:
    """As `torch.cuda.graph` does it: another stream, and no call before."""
    X, out = operand(11, 4), operand(14, 4)
    state, query = packed(CSRProduct, A, X, assume_finite=True)
    run = CSRProduct.bind(state, query)
    assert device.settled == 2  # after packing, after preparing: other streams may go on
    prepared = library.named("cusparseSpMM_preprocess")
    device.current, device.graph = 8, 3
    made = len(library.calls)
    for _ in range(2):
        assert_close(run(X, out, 1, 0), A, X)
    assert not [call for call in library.calls[made:] if "Spmm_" in call[0]]
    calls = library.named("cusparseSpMM")
    assert {call[10] for call in calls} <= {row[10] for row in prepared}
    device.current, device.graph = 5, 0
    run(X, out, 1, 0)
    assert library.named("cusparseSpMM")[-1][10] != calls[0][10]  # never the graph's workspace


def test_a_second_graph_has_memory_of_its_own(A: Any, library: Fake, device: FakeDevice) -> None:
    """And an algorithm that need not look at the matrix, which a graph would do at each replay."""
    X, out = operand(11, 4), operand(14, 4)
    state, query = packed(CSRProduct, A, X, assume_finite=True)
    run = CSRProduct.bind(state, query)
    prepared = len(library.named("cusparseSpMM_preprocess"))
    device.current = 8
    for device.graph in (3, 4):
        assert_close(run(X, out, 1, 0), A, X)
    calls = library.named("cusparseSpMM")
    assert calls[0][10] != calls[1][10]
    assert [call[9] for call in calls] == [c.SPMM_CSR_ALG3, c.SPMM_CSR_ALG2]
    assert len(library.named("cusparseSpMM_preprocess")) == prepared  # not recorded


def test_a_second_graph_of_a_deterministic_call_keeps_the_algorithm(
    A: Any, library: Fake, device: FakeDevice
) -> None:
    X, out = operand(11, 4), operand(14, 4)
    state, query = packed(CSRProduct, A, X, assume_finite=True, deterministic=True)
    run = CSRProduct.bind(state, query)
    device.current = 8
    for device.graph in (3, 4):
        assert_close(run(X, out, 1, 0), A, X)
    assert {call[9] for call in library.named("cusparseSpMM")} == {c.SPMM_CSR_ALG3}


def test_no_memory_is_taken_that_a_graph_would_not_own(
    A: Any, library: Fake, device: FakeDevice
) -> None:
    X, out = operand(11, 4), operand(14, 4)
    state, query = packed(CSRProduct, A, X)
    run = CSRProduct.bind(state, query)
    device.allocates, device.graph = False, 3
    assert_close(run(X, out, 1, 0), A, X)  # prepared ahead
    for x, y, beta in (
        (operand(11, 4, layout="columns"), out, 0),
        (X, operand(14, 4, layout="columns"), 0),
        (operand(11, 7), operand(14, 7), 0),
        (X.double(), out, 0),
    ):
        with pytest.raises(RuntimeError, match="prepare before capture"):
            run(x, y, 1, beta)


def test_binding_while_a_graph_is_recorded_prepares_nothing(
    A: Any, library: Fake, device: FakeDevice
) -> None:
    X = operand(11, 4)
    state, query = packed(CSRProduct, A, X)
    device.graph = 3
    run = CSRProduct.bind(state, query)
    assert not library.named("cusparseSpMM_preprocess")
    assert_close(run(X, None, 1, 0), A, X)
    assert not library.named("cusparseSpMM_preprocess")


@pytest.mark.parametrize(
    ("facts", "layouts"),
    [
        ({}, [("C", "C")]),
        ({"x_layout": "F"}, [("F", "C"), ("F", "F")]),
        ({"x_layout": "F", "out_layout": "F"}, [("F", "F")]),
        ({"x_layout": "C", "out_layout": "F"}, [("C", "F")]),
        ({"x_layout": "strided", "out_layout": "strided"}, [("C", "C")]),
    ],
)
def test_what_calls_of_these_facts_will_need_is_ready(
    facts: Any, layouts: Any, A: Any, library: Fake, device: FakeDevice
) -> None:
    X = operand(11, 4)
    state, query = packed(CSRProduct, A, X, **facts)
    run = CSRProduct.bind(state, query)
    device.allocates, device.graph = False, 3
    for x_layout, out_layout in layouts:
        x, out = operand(11, 4, layout=x_layout), operand(14, 4, layout=out_layout)
        assert_close(run(x, out, 1, 0), A, x)


def test_batches_folded_into_columns_are_ready_too(
    A: Any, library: Fake, device: FakeDevice
) -> None:
    state, query = packed(CSRProduct, A, operand(11, 4), batch=3)
    run = CSRProduct.bind(state, query)
    device.allocates, device.graph = False, 3
    for n in (4, 12):
        X = operand(11, n)
        assert_close(run(X, operand(14, n), 1, 0), A, X)


def test_half_types_that_are_added_to_are_ready_too(library: Fake, device: FakeDevice) -> None:
    A, X = matrix("csr", (14, 11), "torch", "float16"), operand(11, 4, "float16")
    state, query = packed(CSRProduct, A, X, beta_zero=False)
    run = CSRProduct.bind(state, query)
    device.graph = 3
    before = operand(14, 4, "float16", seed=4)
    out = run(X, before.clone(), 1, 2)
    assert_close(out, A, X, beta=2, out=before)
    assert len(library.named("cusparseSpMM_bufferSize")) == 1


def test_a_vector_is_ready_too(A: Any, library: Fake, device: FakeDevice) -> None:
    X = operand(11, 1)
    state, query = packed(CSRProduct, A, X)
    run = CSRProduct.bind(state, query)
    device.allocates, device.graph = False, 3
    assert_close(run(X, operand(14, 1), 1, 0), A, X)
    assert len(library.named("cusparseSpMV_preprocess")) == 1


def test_what_is_kept_is_limited(
    A: Any, library: Fake, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_PRODUCTS", 3)
    monkeypatch.setattr(state_module, "_CAPTURED", 2)
    state, query = packed(CSRProduct, A, operand(11, 4))
    run = CSRProduct.bind(state, query)
    for n in range(2, 30):
        run(operand(11, n), None, 1, 0)
        packed_again = query.__class__(**{**query.to_dict(), "n": n})
        CSRProduct.bind(state, packed_again)
    for device.graph in range(1, 6):
        run(operand(11, 4), None, 1, 0)
    assert len(state.products) == 3
    assert len(state.captured) == 2
    assert state.spared == state_module._SPARES


def test_everything_is_destroyed_with_the_state(A: Any, library: Fake) -> None:
    X = operand(11, 4)
    state, query = packed(CSRProduct, A, X)
    run = CSRProduct.bind(state, query)
    run(X, None, 1, 0)
    kinds = sorted(facts["kind"] for facts in library.objects.values())
    assert kinds == ["csr", "csr", "dense", "dense", "dense", "dense", "handle"]
    gc.disable()  # nothing may wait for the collector: workspaces are large
    try:
        del state, run
        assert [facts["kind"] for facts in library.objects.values()] == ["handle"]
        handles._local.handles.clear()
        assert library.objects == {}
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["cusparseSpMM", "cusparseSpMM_bufferSize", "cusparseCreateCsr"])
def test_a_status_other_than_success_is_raised(name: str, A: Any, library: Fake) -> None:
    X = operand(11, 4)
    state, query = packed(CSRProduct, A, X)
    library.fails[name] = 10
    told = rf"{name} of cuSPARSE 12.6.3 failed: CUSPARSE_STATUS_NOT_SUPPORTED \(10\), told by"
    with pytest.raises(RuntimeError, match=told):
        CSRProduct.bind(state, query)(X, None, 1, 0)


def test_a_status_is_raised_where_an_operand_is_pointed_to(A: Any, library: Fake) -> None:
    X = operand(11, 4)
    state, query = packed(CSRProduct, A, X)
    run = CSRProduct.bind(state, query)
    out = run(X, None, 1, 0)
    library.fails["cusparseDnMatSetValues"] = 3
    with pytest.raises(RuntimeError, match=r"SetValues of a dense operand .*_INVALID_VALUE"):
        run(X.clone(), out, 1, 0)


def test_bytes_of_a_state_are_those_of_new_arrays(library: Fake) -> None:
    from sparseformats.ops.light import _nbytes

    A, X = matrix("csr", (14, 11), "torch", index="int64"), operand(11, 4)
    state, _ = packed(CSRProduct, A, X)
    own = {A.lib.address(x) for x in A.buffers().values()}
    assert _nbytes(state, own, set()) == 4 * (A.nnz + 15)
    assert isinstance(state.arrays[0], torch.Tensor)
