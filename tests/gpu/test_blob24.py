"""cuSPARSELt's blobs on the device: read, made bit for bit, multiplied with.

On a device or with a version of the library whose layout is not in the table, each test holds that
it is refused. ``python -m tests.gpu.cusparselt_layout`` learns such a layout.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

import sparseformats as sf
from sparseformats.formats.blob24 import LEARNT, BlobLayout, elements
from sparseformats_kernels.cusparselt.packing import PACK
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
from tests.gpu import cusparselt_layout as tool
from tests.kernels.cusparselt.support import expected, query_for, same

DTYPES = ("float16", "bfloat16", "int8", "float8_e4m3fn")
SHAPES = [(32, 64), (160, 64), (96, 192), (1024, 2048), (4096, 11008)]
MINUS_ZERO = {"float16": "0x8000", "bfloat16": "0x8000", "float8_e4m3fn": "0x80"}


@pytest.fixture(autouse=True)
def _theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch makes tensors of cuSPARSELt."""
    monkeypatch.setattr(SparseSemiStructuredTensor, "_FORCE_CUTLASS", False)


def layout_of(dtype: str, device: str) -> BlobLayout | None:
    capability = torch.cuda.get_device_capability(device)
    return LEARNT.get((torch.backends.cusparselt.version(), capability, dtype))


def weight(shape: tuple[int, int], dtype: str, device: str) -> Any:
    """Whole numbers, none to two a group of four, at any of its places."""
    (m, k), maker = shape, torch.Generator(device).manual_seed(24)
    options = {"device": device, "generator": maker}
    rank = torch.rand(m, k // 4, 4, **options).argsort(-1).argsort(-1)
    kept = rank < torch.randint(0, 3, (m, k // 4, 1), **options)
    some = torch.randint(-3, 4, (m, k // 4, 4), **options)
    return torch.where(kept, some, 0).reshape(m, k).to(getattr(torch, dtype))


def raw(T: Any) -> Any:
    return T.reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_theirs_is_read_and_ours_is_theirs(dtype: str, shape: tuple[int, int], device: str) -> None:
    D = weight(shape, dtype, device)
    theirs, A = to_sparse_semi_structured(D), sf.from_dense(D, "2:4")
    if layout_of(dtype, device) is None:
        for use in (lambda: sf.from_torch(theirs), lambda: A.to_torch(packed="cusparselt")):
            with pytest.raises(TypeError, match="layouts learnt"):
                use()
        return
    read = sf.from_torch(theirs)
    assert read.device == device
    assert sf.same(read, A, level="buffers")
    assert sf.same(sf.from_torch(theirs.t()), A.T)
    ours = A.to_torch(packed="cusparselt")
    assert type(ours) is type(theirs)
    assert (ours.shape, ours.dtype, ours.device) == (theirs.shape, theirs.dtype, theirs.device)
    assert ours.packed.shape == theirs.packed.shape
    count = elements(dtype, shape) * D.element_size()  # behind it memory that nobody wrote
    assert torch.equal(raw(ours.packed)[:count], raw(theirs.packed)[:count])


@pytest.mark.parametrize("shape", [(32, 64), (160, 64), (1024, 2048)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_torch_multiplies_with_ours(dtype: str, shape: tuple[int, int], device: str) -> None:
    if layout_of(dtype, device) is None:
        return  # refused, see above
    A = sf.from_dense(weight(shape, dtype, device), "2:4")
    ours = A.to_torch(packed="cusparselt")
    generator = torch.Generator(device).manual_seed(7)
    X = torch.randint(-1, 2, (64, shape[1]), device=device, generator=generator)
    X = X.to(A.dtype).t()  # along the sum, as 8-bit operands must lie
    theirs = to_sparse_semi_structured(A.to_dense())
    y = torch.mm(ours, X)
    assert torch.equal(y, torch.mm(theirs, X))
    if dtype != "int8":  # whose results torch writes as int8
        assert same(y, expected(A, X))


@pytest.mark.parametrize("shape", SHAPES[:-1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_packing_gives_the_same_bytes_either_way(
    dtype: str, shape: tuple[int, int], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    A = sf.from_dense(weight(shape, dtype, device), "2:4")
    X = torch.ones(16, shape[1], device=device).to(A.dtype).t()
    capability = torch.cuda.get_device_capability(device)
    query = query_for(A, X, device="cuda", capability=capability)
    calls = []
    usual = CuSparseLtProduct.pack(A, query)
    monkeypatch.setenv(PACK, "direct")
    original = type(usual.blob)._compress
    monkeypatch.setattr(
        type(usual.blob), "_compress", lambda *given: calls.append(1) or original(*given)
    )
    direct = CuSparseLtProduct.pack(A, query)
    assert len(calls) == (layout_of(dtype, device) is None)
    assert torch.equal(direct.blob.array, usual.blob.array)
    y = CuSparseLtProduct.run(direct, X, None, 1, 0)
    assert torch.equal(y, CuSparseLtProduct.run(usual, X, None, 1, 0))


def test_the_table_is_what_is_learnt_here(device: str) -> None:
    """Everything that the tool tries: places bit by bit, patterns, further shapes."""
    torch.cuda.set_device(device)
    data = tool.gather(tool.by_library(device))
    for dtype in DTYPES:
        layout = layout_of(dtype, device)
        if layout is not None:
            found = tool.learn(data, dtype)
            assert (found.bits, found.wrong) == (layout.bits, {})


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_library_keeps_every_value(dtype: str, device: str) -> None:
    """All values of the type, NaN and subnormals too; a -0.0 may become +0.0."""
    changed = tool.kept_values(tool.by_library(device), dtype)
    minus = MINUS_ZERO.get(dtype)
    assert changed.pop(minus, "0x0") == "0x0"
    assert changed == {}


def test_float32_loses_bits_in_a_blob(device: str) -> None:
    """Why float32 is not in the table: if this fails, it can be learnt."""
    changed = tool.kept_values(tool.by_library(device), "float32")
    assert len(changed) > 1 << 15, changed
