"""The warm path: what is found again, and what must never be taken for something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import dispatch, ops
from sparseformats.ops import product
from tests.plans.support import (
    BatchSpy,
    BucketSpy,
    RigidSpy,
    ThreadSpy,
    host,
    operand,
    sample,
    spying,
)

LIBRARIES = ["numpy", "torch"]
FORMATS = ["coo", "csr", "csc", "bsr", "blocked_ell", "2:4"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("left", [False, True])
def test_a_repeated_product_prepares_nothing(
    library: str, format: str, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    A = sample(library, format)
    x = operand(library, (3, 12) if left else (8, 3))
    first = x @ A if left else A @ x

    def fail(*args: Any) -> Any:
        raise AssertionError("the warm path does not come here")

    monkeypatch.setattr(product, "_anew", fail)
    for _ in range(3):
        y = x @ A if left else A @ x
        np.testing.assert_array_equal(host(y), host(first))
    assert sf.cache_info().hits == 3


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_kernel_that_takes_batches_gets_those_on_the_right(library: str) -> None:
    A, x = sample(library), operand(library, (4, 8, 3))
    exact = host(A.to_dense()) @ host(x)
    before = host(operand(library, (4, 12, 3)))
    with spying(BatchSpy) as counts:
        for _ in range(2):
            np.testing.assert_array_equal(host(A @ x), exact)
            out = operand(library, (4, 12, 3))
            assert sf.matmul(A, x, out=out, alpha=2, beta=3) is out
            np.testing.assert_array_equal(host(out), 2 * exact + 3 * before)
        assert counts["batch"] == 4
        np.testing.assert_array_equal(host(A @ x[..., :2]), exact[..., :2])  # it takes no such
        np.testing.assert_array_equal(host(A @ x[0]), exact[0])
        left, nested = operand(library, (4, 3, 12)), A.lib.reshape(x, (2, 2, 8, 3))
        np.testing.assert_array_equal(host(left @ A), host(left) @ host(A.to_dense()))
        np.testing.assert_array_equal(host(A @ nested).reshape(4, 12, 3), exact)
        assert counts["batch"] == 4


def test_one_state_serves_all_sizes_and_options() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    with spying() as counts:
        for n in (1, 2, 3, 40):
            A @ operand("numpy", (8, n))
        A @ operand("numpy", (8,))
        A @ operand("numpy", (2, 8, 3))
        sf.matmul(A, x, alpha=2)
        sf.matmul(A, x, out=np.empty((12, 3)), beta=1)
        assert counts["pack"] == 1
        operand("numpy", (3, 12)) @ A  # the transpose is another state
        assert counts["pack"] == 2
        A @ operand("numpy", (8, 3), "float32")  # and so are other dtypes
        assert counts["pack"] == 3


def test_a_kernel_may_pack_by_bucket() -> None:
    A = sample()
    with spying(BucketSpy) as counts:
        for n in (3, 4, 5, 8):
            A @ operand("numpy", (8, n))
        assert counts["pack"] == 2


def test_a_view_as_transpose_is_kept_with_its_base() -> None:
    A, x = sample(format="bsr"), operand("numpy", (12, 2))
    with spying() as counts:
        for _ in range(3):
            A.T @ x
        assert counts == {"pack": 1, "bind": 1, "run": 3}
        assert sf.cache_info().matrices == 1
        np.testing.assert_array_equal(A.T @ x, A.to_dense().T @ x)


def test_a_matrix_of_another_library_is_converted_each_time() -> None:
    S, x = sample().to_scipy(), operand("numpy", (8, 2))
    for _ in range(2):
        np.testing.assert_array_equal(sf.matmul(S, x), S @ x)
    assert sf.cache_info().matrices == 0


def variants(library: str) -> dict[str, Any]:
    """Operands and outs of all kinds of facts, for one matrix (12, 8)."""
    wide, rows = operand(library, (16, 12)), operand(library, (8, 6))
    out = operand(library, (24, 12))
    return {
        "C": ((rows[:, :3] + 0).reshape(8, 3), None),
        "F": (operand(library, (3, 8)).T, None),
        "columns": (rows[:, ::2], None),
        "shifted": (rows[:, 1:4], None),
        "rows": (wide[::2, :3], None),
        "float32": (operand(library, (8, 3), "float32"), None),
        "int64": (operand(library, (8, 3), "int64"), None),
        "vector": (operand(library, (8,)), None),
        "stepped vector": (wide[::2, 0], None),
        "batch": (operand(library, (2, 8, 3)), None),
        "out C": (rows[:, :3], out[:12, :3]),
        "out F": (rows[:, :3], operand(library, (3, 12)).T),
        "out rows": (rows[:, :3], out[::2, :3]),
        "out columns": (rows[:, :3], out[:12, ::4]),
    }


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_call_gets_a_plan_of_its_own_facts(library: str) -> None:
    A = sample(library)
    calls = variants(library)
    del calls["batch"]
    wide = operand(library, (8, 6))
    calls["view"], calls["wider view"] = (wide[:, :3], None), (wide[:, :5], None)
    with spying(RigidSpy):
        for _ in range(2):
            for x, out in calls.values():
                for alpha, beta in ((1, 0), (2, 0)) if out is None else ((1, 0), (2, 0), (2, 1)):
                    sf.matmul(A, x, alpha=alpha, beta=beta, out=out)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ["csr", "bsr", "2:4"])
def test_no_plan_is_taken_for_another(library: str, format: str) -> None:
    sf.clear_cache()
    A, seen = sample(library, format), 0
    D = host(A.to_dense())
    for _ in range(2):
        for x, out in variants(library).values():
            for alpha, beta in ((1, 0), (2, 0), (-1, 0.5), (1, 1)):
                if out is None and beta != 0:
                    continue
                old = 0 if beta == 0 else beta * host(out).copy()
                expected = alpha * (D @ host(x)) + old
                y = sf.matmul(A, x, alpha=alpha, beta=beta, out=out)
                assert out is None or y is out
                np.testing.assert_array_equal(host(y), expected)
                seen += 1
    info = sf.cache_info()
    assert info.hits >= seen // 2  # the whole second round
    assert info.hits + info.misses == seen


def test_options_have_plans_of_their_own() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    sf.matmul(A, x)
    sf.matmul(A, x, assume_finite=True)
    sf.matmul(A, x, precision="ieee")
    sf.matmul(A, x, kernel="reference")
    with sf.use_kernel("reference"):
        A @ x
    assert sf.cache_info().plans == 5
    assert sf.cache_info().hits == 0
    sf.matmul(A, x, kernel="reference")
    with sf.use_kernel("reference"), sf.tracing() as trace:
        A @ x
    assert trace.kernels == ["reference"]
    assert sf.cache_info().hits == 2


def test_numbers_of_numpy_scale_as_pythons_do() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    y = sf.matmul(A, x, alpha=2)
    np.testing.assert_array_equal(sf.matmul(A, x, alpha=np.float32(2)), y)
    assert sf.cache_info().hits == 1
    for _ in range(2):
        with pytest.raises(TypeError, match="alpha must be a Python number"):
            sf.matmul(A, x, alpha="2")
        with pytest.raises(TypeError, match="complex"):
            sf.matmul(A, x, alpha=2j)


def test_a_new_registration_is_seen() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    A @ x
    with spying(), sf.tracing() as trace:
        A @ x
        A @ x
    assert trace.kernels == ["spy", "spy"]
    with sf.tracing() as trace:
        A @ x
    assert trace.kernels != ["spy"]


def test_a_warm_run_is_traced_with_its_facts() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    A @ x
    with sf.tracing() as trace:
        A @ x
    assert trace[0].query is not None
    assert trace[0].query.n == 3
    assert trace[0].seconds is not None


def test_refusals_stay_refusals_on_the_warm_path() -> None:
    D = np.eye(4)
    indices, indptr = np.arange(4), np.arange(5)
    A = sf.CSR(D.diagonal().copy(), indices, indptr, (4, 4), copy=False)
    base = np.ones(8)
    B = sf.CSR(base[:4], indices, indptr, (4, 4), copy=False)
    x = np.arange(4.0)
    for _ in range(2):
        sf.matmul(A, x, out=base[4:])
        sf.matmul(B, x, out=base[4:])
        with pytest.raises(ValueError, match="shares memory"):
            sf.matmul(B, x, out=base[2:6])
        frozen = np.zeros(4)
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            sf.matmul(A, x, out=frozen)
        y = np.arange(4.0)
        np.testing.assert_array_equal(sf.matmul(A, y, alpha=2, out=y), 2 * x)  # in place
        y = np.arange(4.0)
        np.testing.assert_array_equal(sf.matmul(A, y[::-1], out=y), x[::-1])


def test_memory_is_compared_by_addresses_as_the_plain_way_does() -> None:
    """What a warm call reads of two tensors decides as `overlaps` would, at every offset."""
    torch = pytest.importorskip("torch")
    data = torch.arange(1, 9, dtype=torch.float64)
    memory = torch.cat([data, torch.zeros(56, dtype=torch.float64)])
    A = sf.CSR(memory[:8], torch.arange(8), torch.arange(9), (8, 8), copy=False)
    lib, scale = A.lib, data.clone()
    views = [(4, 2), (2, 1), (1, 8)]
    for offset in (0, 4, 7, 8, 12, 20):
        for shift in (0, 2, 7, 8, 9, 23):
            for sx, so in ((a, b) for a in views for b in views):
                memory[8:] = torch.arange(56) % 5
                x = memory[8:].as_strided((8, 2), sx, 8 + offset)
                out = memory.as_strided((8, 2), so, min(offset + shift, 26))
                if len({out[i, j].data_ptr() for i in range(8) for j in range(2)}) < 16:
                    continue  # elements of out itself would meet
                shares, before = lib.overlaps(out, memory[:8]), x.clone()
                for _ in range(2):
                    if shares:
                        with pytest.raises(ValueError, match="shares memory"):
                            sf.matmul(A, x, out=out)
                        continue
                    x.copy_(before) if not lib.overlaps(x, out) else None
                    given = x.clone()
                    sf.matmul(A, x, out=out)
                    assert torch.equal(out, scale[:, None] * given)


def test_empty_operands_meet_nothing() -> None:
    torch = pytest.importorskip("torch")
    memory = torch.ones(8, dtype=torch.float64)
    A = sf.CSR(memory[:4], torch.arange(4), torch.arange(5), (4, 4), copy=False)
    for _ in range(2):
        out = memory[2:2].view(4, 0)
        assert sf.matmul(A, memory[1:1].view(4, 0), out=out) is out


def test_gradients_are_refused_on_the_warm_path() -> None:
    torch = pytest.importorskip("torch")
    A = sample("torch")
    x = torch.ones(8, 2, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        with torch.no_grad():
            A @ x
        with pytest.raises(NotImplementedError, match="requires grad"):
            A @ x


def test_lazy_views_of_torch_have_plans_of_their_own() -> None:
    torch = pytest.importorskip("torch")
    A = sf.CSR(torch.ones(2, dtype=torch.complex128), [0, 1], [0, 1, 2], (2, 2))
    x = torch.tensor([[1 + 2j], [3 - 1j]], dtype=torch.complex128)
    for _ in range(2):
        assert torch.equal(A @ x, x)
        assert torch.equal(A @ x.conj(), x.conj().resolve_conj())


def test_the_users_wish_for_determinism_is_part_of_the_facts() -> None:
    torch = pytest.importorskip("torch")
    A, x = sample("torch"), operand("torch", (8, 2))
    with spying(deterministic=False):
        A @ x
        torch.use_deterministic_algorithms(True)
        try:
            with pytest.raises(sf.NoKernelError, match="nondeterministic"):
                A @ x
        finally:
            torch.use_deterministic_algorithms(False)
        A @ x


def test_big_endian_operands() -> None:
    A, x = sample(), operand("numpy", (8, 2))
    for _ in range(2):
        np.testing.assert_array_equal(A @ x.astype(">f8"), A @ x)


def test_states_of_kernels_with_a_workspace_stay_in_their_thread() -> None:
    from concurrent.futures import ThreadPoolExecutor

    A, x = sample(), operand("numpy", (8, 2))
    with spying(ThreadSpy) as counts:
        A @ x
        A @ x
        assert (counts["pack"], counts["run"]) == (1, 2)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: A @ x).result()
            pool.submit(lambda: A @ x).result()
        assert (counts["pack"], counts["run"]) == (2, 4)
        p = sf.plan(A, x)
        with ThreadPoolExecutor(1) as pool:
            np.testing.assert_array_equal(pool.submit(p, x).result(), p(x))
        assert counts["pack"] == 3


def test_nothing_is_prepared_while_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    A, x = sample(), operand("numpy", (8, 2))
    y = A @ x
    p = sf.plan(A, x)
    p(x)
    monkeypatch.setattr(type(A.lib), "capturing", lambda lib, device: device == "cpu")
    np.testing.assert_array_equal(A @ x, y)
    np.testing.assert_array_equal(p(x), y)
    with pytest.raises(RuntimeError, match="prepare before capture"):
        A @ x[:, :1]
    with pytest.raises(RuntimeError, match="prepare before capture"):
        sf.plan(A, x)
    frozen = x.view()
    frozen.flags.writeable = False
    for unprepared in (
        lambda: p(x, out=np.empty_like(y)),
        lambda: p(frozen),
        lambda: p.update(np.ones(A.nnz)),
        lambda: sf.linear(x.T, A),
    ):
        with pytest.raises(RuntimeError, match="prepare before capture"):
            unprepared()
    np.testing.assert_array_equal(p(x), y)
    monkeypatch.undo()
    p.update(np.ones(A.nnz))
    monkeypatch.setattr(type(A.lib), "capturing", lambda lib, device: device == "cpu")
    with pytest.raises(RuntimeError, match="prepare before capture"):
        p(x)


def test_a_kernel_with_a_workspace_is_prepared_on_the_stream_that_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    A, x, out = sample(), operand("numpy", (8, 2)), np.empty((12, 2))
    stream = 1
    monkeypatch.setattr(type(A.lib), "stream", lambda lib, device: stream)
    with spying(ThreadSpy) as counts:
        p = sf.plan(A, x, out=out)
        sf.matmul(A, x, out=out)
        stream = 7
        with monkeypatch.context() as patch:
            patch.setattr(type(A.lib), "capturing", lambda lib, device: True)
            for call in (p, lambda x, out: sf.matmul(A, x, out=out)):
                with pytest.raises(RuntimeError, match="workspace: on the stream that records"):
                    call(x, out=out)
        p(x, out=out)
        sf.matmul(A, x, out=out)
        before = counts["pack"]
        monkeypatch.setattr(type(A.lib), "capturing", lambda lib, device: True)
        assert p(x, out=out) is sf.matmul(A, x, out=out) is out
        stream = 1
        assert p(x, out=out) is sf.matmul(A, x, out=out) is out
        # The first stream's is shared; on the second the plan, which may outlive A, has its own.
        assert counts["pack"] == before == 3


def test_another_librarys_array_after_a_plan() -> None:
    torch = pytest.importorskip("torch")
    A, x = sample(), operand("numpy", (8, 2))
    A @ x
    with pytest.raises(TypeError, match="to_library"):
        A @ torch.ones(8, 2, dtype=torch.float64)
    with pytest.raises(TypeError, match="out must be a numpy array"):
        sf.matmul(A, x, out=torch.ones(12, 2, dtype=torch.float64))


def test_generation_is_part_of_the_key() -> None:
    A, x = sample(), operand("numpy", (8, 2))
    A @ x
    before = dispatch.generation()
    dispatch.REGISTRY.bump()
    assert dispatch.generation() != before
    A @ x
    assert sf.cache_info().misses == 2
    assert ops.cache_info() == sf.cache_info()


def test_a_scalar_is_refused_warm_as_it_is_cold() -> None:
    A, x = sample(), operand("numpy", (8, 3))
    out = np.empty_like(A @ x)
    for scalars in ({"alpha": 1 + 0j}, {"alpha": 2 + 0j}, {"beta": 0j}):
        sf.clear_cache()
        for _ in range(2):
            with pytest.raises(TypeError, match="complex"):
                sf.matmul(A, x, out=out, **scalars)
            sf.matmul(A, x, out=out)
            sf.matmul(A, x, alpha=2, out=out)
