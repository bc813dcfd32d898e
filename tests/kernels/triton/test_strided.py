"""What is handed to the driver for a strided kernel: every parameter, of its type, at each call."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sparseformats.ops.facts import matmul_query
from sparseformats.ops.operands import read
from sparseformats_kernels.triton import spmm_csr, spmm_few, spmm_tiles, strided
from tests.kernels.triton.elements import elements, uneven
from tests.kernels.triton.matrices import dense, matrix, narrow_dense, narrow_matrix

SENT: list[dict[str, Any]] = []


class Recorder:
    """Stands for a launch: knows the parameters that its code has."""

    def __init__(self, code: Any, grid: int, device: int, keep: Any = ()) -> None:
        self.types, self.grid, self.values = dict(code.types), grid, {}  # type: ignore[var-annotated]
        self.slots: dict[str, Any] = {}
        self.keep, self.lock = keep, Lock()

    def slot(self, name: str) -> Any:
        assert name in self.types, name
        return self.slots.setdefault(name, SimpleNamespace(value=None))

    def set(self, **values: Any) -> None:
        for name, value in values.items():
            kind = self.types[name]  # a KeyError is a parameter that the code does not have
            assert isinstance(value, float) == (kind in ("fp32", "fp64")), (name, kind, value)
            if kind == "i32":
                assert -(2**31) <= value < 2**31
            self.values[name] = value

    def __call__(self, stream: int) -> None:
        found = {
            **self.values,
            **{k: s.value for k, s in self.slots.items() if s.value is not None},
        }
        missing = set(self.types) - set(found)
        assert not missing, missing
        SENT.append({**found, "grid": self.grid})


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    SENT.clear()
    monkeypatch.setattr(strided, "compiled", lambda specimen, capability, index: specimen)
    monkeypatch.setattr(strided, "Launch", Recorder)


def state_of(module: Any, A: Any, query: Any) -> Any:
    """A packed matrix that believes in a device."""
    state = module.State(A, query)
    state.device = SimpleNamespace(
        place="cpu",
        index=0,
        lib=A.lib,
        here=nullcontext,
        is_current=lambda: True,
        stream=lambda: 0,
        capture=lambda stream: 0,
        share=lambda arrays: None,
        settle=lambda: None,
        can_allocate_in_capture=lambda: True,
    )
    if module is spmm_tiles:
        state.lists._device = state.device
    return state


def query_of(A: Any, X: Any, out: Any, **facts: Any) -> Any:
    o = read(A, X)
    made = matmul_query(o, out, alpha_one=True, beta_zero=True)
    return replace(made, capability=(9, 0), **facts)


@pytest.fixture(autouse=True)
def _processors(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (spmm_csr, spmm_few, spmm_tiles):
        monkeypatch.setattr(module, "processors_of", lambda device: 4)


TARGETS = [(spmm_tiles, spmm_tiles.TritonTiles), (spmm_few, spmm_few.TritonFew)]
targets = pytest.mark.parametrize(("module", "target"), TARGETS, ids=["tiles", "few"])


@targets
@pytest.mark.parametrize("epilogue", [None, "bias+gelu", "residual", "bias+relu+residual"])
@pytest.mark.parametrize("scalars", [(1, 0), (2, 0), (1, 3)])
def test_single_products(module: Any, target: Any, epilogue: str | None, scalars: Any) -> None:
    A, X = matrix("bsr", (50, 70), (16, 16), "float16"), dense((40, 70), "float16").T
    out = torch.empty(40, 50, dtype=torch.float16).T
    facts = {"epilogue": epilogue, "alpha_one": scalars[0] == 1, "beta_zero": scalars[1] == 0}
    query = query_of(A, X, out, **facts)
    run = target.bind_epilogue(state_of(module, A, query), query)
    names = (epilogue or "").split("+")
    for residual in (dense((50, 40), "float16"), dense((40, 50), "float16").T):
        bias = dense((50,), "float16") if "bias" in names else None
        beside = {"residual": residual} if "residual" in names else {}
        for _ in range(2):
            run(X, out, *scalars, bias, **beside)
        sent = SENT[-1]
        assert (sent["x"], sent["out"]) == (X.data_ptr(), out.data_ptr())
        if beside:
            assert sent["residual"] == residual.data_ptr()
            steps = {sent.get("residual_row", 1), sent.get("residual_column", 1)}
            assert steps == set(residual.stride())
        if scalars != (1, 0):
            assert (sent["alpha"], sent["beta"]) == scalars


@targets
@pytest.mark.parametrize("epilogue", [None, "bias+residual"])
def test_batches(module: Any, target: Any, epilogue: str | None) -> None:
    A, wide = matrix("bsr", (50, 70), (16, 16), "float16"), dense((3, 43, 80), "float16")
    X, out = wide[:, 2:42, :70].mT, torch.empty(3, 40, 50, dtype=torch.float16).mT
    query = query_of(A, X, out, epilogue=epilogue)
    state = state_of(module, A, query)
    run = target.bind_batch(state, query)
    R, bias = dense((3, 41, 50), "float16")[:, 1:].mT, dense((50,), "float16")
    run(
        X,
        out,
        1,
        0,
        *(() if epilogue is None else (bias,)),
        **({"residual": R} if epilogue else {}),
    )
    (sent,) = SENT
    assert (sent["x_piece"], sent["out_piece"]) == (43 * 80, 40 * 50)
    assert sent["grid"] == 3 * sent["tiles"]
    if epilogue:
        assert sent["residual_piece"] == 41 * 50


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize("gives", [None, "float32", "bfloat16"])
def test_values_of_8_bits(dtype: str, gives: str | None) -> None:
    A = narrow_matrix(dtype, "bsr", (50, 70), (16, 16))
    X = narrow_dense(dtype, (40, 70)).T
    own = "int32" if dtype == "int8" else dtype
    out = torch.empty(40, 50, dtype=getattr(torch, gives or own)).T
    facts: dict[str, Any] = {"out_dtype": gives or own, "alpha_one": gives is None}
    facts["epilogue"] = "scale+bias" if gives else None
    query = query_of(A, X, None, **facts)
    run = spmm_tiles.TritonTiles.bind_epilogue(state_of(spmm_tiles, A, query), query)
    if gives is None:
        run(X, out, 1, 0)
        assert "row_scale" not in SENT[-1]
        return
    rows, tokens, bias = dense((50,)), dense((40,)), dense((50,))
    for row, column in ((rows, tokens), (rows[:1], None), (None, tokens)):
        run(X, out, 0.5, 0, bias, row_scale=row, column_scale=column)
        sent = SENT[-1]
        assert sent["alpha"] == 0.5
        assert sent["row_scale_step"] == (row is rows)
        assert sent["column_scale_step"] == (column is tokens)
        assert row is None or sent["row_scale"] == row.data_ptr()
        assert column is None or sent["column_scale"] == column.data_ptr()
        assert sent["row_scale"]
        assert sent["column_scale"]


def test_scalars_of_int8_are_whole() -> None:
    A, X = narrow_matrix("int8", "bsr", (50, 70), (16, 16)), narrow_dense("int8", (70, 40))
    out = torch.empty(50, 40, dtype=torch.int32)
    query = query_of(A, X, out, alpha_one=False, beta_zero=False)
    run = spmm_tiles.TritonTiles.bind(state_of(spmm_tiles, A, query), query)
    run(X, out, -3, 2**31 - 1)
    assert (SENT[-1]["alpha"], SENT[-1]["beta"]) == (-3, 2**31 - 1)
    assert type(SENT[-1]["alpha"]) is int


def test_an_operand_that_lies_otherwise_has_a_launch_of_its_own() -> None:
    """A residual that was copied apart from `out`, for example."""
    A, X = matrix("bsr", (50, 70), (16, 16), "float16"), dense((40, 70), "float16").T
    out = torch.empty(40, 50, dtype=torch.float16).T
    query = query_of(A, X, out, epilogue="residual")
    run = spmm_tiles.TritonTiles.bind_epilogue(state_of(spmm_tiles, A, query), query)
    wide = dense((40, 64), "float16")
    for residual in (wide[:, :50].T, wide[:, :50].contiguous().T, wide[:, :50].T):
        run(X, out, 1, 0, None, residual=residual)
        assert SENT[-1]["residual_column"] == residual.stride()[1]


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8"])
@pytest.mark.parametrize("cut", [False, True])
def test_rows_and_the_parts_of_cut_ones(dtype: str, cut: bool) -> None:
    A = elements("csr", uneven(50, 900) if cut else [4] * 50, 900, dtype)
    X, gives = dense((900, 40), dtype), "int32" if dtype == "int8" else dtype
    out = torch.empty(40, 50, dtype=getattr(torch, gives)).T
    scalars = (2, 3) if dtype == "int8" else (0.5, -1.5)
    query = query_of(A, X, out, alpha_one=False, beta_zero=False)
    run = spmm_csr.TritonCSR.bind(state_of(spmm_csr, A, query), query)
    for _ in range(2):
        SENT.clear()
        assert run(X, out, *scalars) is out
        assert len(SENT) == 1 + cut
        for sent in SENT:
            assert sent["out"] == out.data_ptr()
            assert (sent["alpha"], sent["beta"]) == scalars
            assert sent["out_column"] == 50
        assert SENT[0]["x"] == X.data_ptr()
        assert not cut or SENT[0]["partial"] == SENT[1]["x"] != X.data_ptr()


def test_parts_follow_with_bias_and_residual() -> None:
    A, X = elements("csr", uneven(50, 900), 900, "float16"), dense((900, 40), "float16")
    query = query_of(A, X, None, epilogue="bias+gelu+residual")
    run = spmm_csr.TritonCSR.bind_epilogue(state_of(spmm_csr, A, query), query)
    bias, residual = dense((50,), "float16"), dense((50, 40), "float16")
    made = run(X, None, 1, 0, bias, residual=residual)
    assert len(SENT) == 2
    for sent in SENT:
        assert (sent["out"], sent["bias"]) == (made.data_ptr(), bias.data_ptr())
        assert sent["residual"] == residual.data_ptr()


def test_no_memory_for_parts_while_a_graph_is_recorded() -> None:
    """Where the array library cannot give any."""
    A, X = elements("csr", uneven(50, 900), 900, "float16"), dense((900, 40), "float16")
    query = query_of(A, X, None)
    state = state_of(spmm_csr, A, query)
    state.device.can_allocate_in_capture = lambda: False
    run = spmm_csr.TritonCSR.bind(state, query)
    run(X, None, 1, 0)
    state.device.capture = lambda stream: 1
    with pytest.raises(RuntimeError, match="prepare before capture: the parts of long rows"):
        run(X, None, 1, 0)


@targets
@pytest.mark.parametrize("name", ["x", "residual"])
def test_an_operand_that_is_aligned_otherwise_has_a_launch_of_its_own(
    module: Any, target: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy is aligned; what it was copied from, and the next call's operand, may not be."""
    ran: list[Any] = []
    monkeypatch.setattr(
        Recorder, "__call__", lambda self, stream: ran.append(self.aligned), raising=True
    )
    made = Recorder.__init__

    def init(self: Any, code: Any, *args: Any) -> None:
        made(self, code, *args)
        self.aligned = code.aligned

    monkeypatch.setattr(Recorder, "__init__", init)
    A = matrix("bsr", (48, 64), (16, 16), "float16")
    out = torch.empty(32, 48, dtype=torch.float16).T
    wide = {"x": dense((32 * 64 + 8,), "float16"), "residual": dense((32 * 48 + 8,), "float16")}

    def lying(which: str, columns: int, first: int) -> Any:
        found = wide[which][first : first + 32 * columns].view(32, columns).T
        assert found.data_ptr() % 16 == 2 * first
        return found

    plain = {"x": lying("x", 64, 0), "residual": lying("residual", 48, 0)}
    moved = {**plain, name: lying(name, {"x": 64, "residual": 48}[name], 1)}
    for order in ((plain, moved, plain), (moved, plain, moved)):
        query = query_of(A, order[0]["x"], out, epilogue="residual")
        run = target.bind_epilogue(state_of(module, A, query), query)
        for given in order:
            run(given["x"], out, 1, 0, None, residual=given["residual"])
            assert (name in ran[-1]) == (given is plain)
