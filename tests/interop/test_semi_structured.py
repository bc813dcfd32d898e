"""torch's semi-structured tensors as objects: read, made, and refused where not understood."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats._arrays.torch_ import TorchLibrary
from sparseformats.convert.interop import from_torch, to_torch
from sparseformats.convert.interop.cutlass24 import pack
from sparseformats.testing import check_no_shared_memory, check_valid

from . import blobs, packed24 as cases

torch = pytest.importorskip("torch")

CUTLASS = torch.sparse.SparseSemiStructuredTensorCUTLASS
CUSPARSELT = torch.sparse.SparseSemiStructuredTensorCUSPARSELT
FIELDS = ("packed", "meta", "packed_t", "meta_t", "compressed_swizzled_bitmask")


def tensor(shape: tuple[int, int], cls: Any = CUTLASS, **fields: Any) -> Any:
    return cls(torch.Size(shape), **{**dict.fromkeys(FIELDS), **fields})


def sample(dtype: str = "float16") -> Any:
    packed, meta = pack(cases.matrix(dtype))
    return tensor(cases.SHAPES[dtype], packed=packed, meta=meta)


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_there_and_back(dtype: str) -> None:
    A = from_torch(sample(dtype))
    assert (A.format, A.library, A.dtype_name) == ("2:4", "torch", dtype)
    assert A.shape == cases.SHAPES[dtype]
    check_valid(A)
    np.testing.assert_array_equal(cases.bits_of(A.to_dense()), cases.bits(dtype))
    T = to_torch(A)
    assert type(T) is CUTLASS
    assert tuple(T.shape) == A.shape
    assert (T.packed_t, T.meta_t, T.compressed_swizzled_bitmask) == (None, None, None)
    check_no_shared_memory(A, [T.packed, T.meta])
    assert sf.same(A, from_torch(T), level="buffers")


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_torch_reads_what_is_made(dtype: str) -> None:
    raw = np.where(cases.bits(dtype) > 0, 1, 0)
    D = torch.tensor(raw).to(getattr(torch, dtype))
    A = sf.from_dense(D, "2:4")
    assert torch.equal(A.to_torch().to_dense(), D)
    assert torch.equal(A.to_library("torch").T.to_torch().t().to_dense(), D)
    if dtype != "bfloat16":
        assert torch.equal(sf.from_dense(D.numpy(), "2:4").to_torch().to_dense(), D)


def test_a_transposed_tensor_is_a_transpose() -> None:
    T = sample()
    A = from_torch(T.t())
    assert isinstance(A, sf.Transposed)
    assert (A.format, A.shape) == ("2:4.T", (192, 64))
    assert sf.same(A.T, from_torch(T), level="buffers")
    back = to_torch(A)
    assert tuple(back.shape) == (192, 64)
    assert (back.packed, back.meta) == (None, None)
    assert torch.equal(back.meta_t, T.meta)
    assert from_torch(back.t()).format == "2:4"


def test_a_tensor_with_both_is_read_as_it_stands() -> None:
    A = sf.from_dense(torch.eye(64).to(torch.float16), "2:4")
    packed, meta = pack(A)
    other = sf.from_dense(torch.ones(64, 64).to(torch.float16).tril(-63), "2:4")
    packed_t, meta_t = pack(other)
    T = tensor((64, 64), packed=packed, meta=meta, packed_t=packed_t, meta_t=meta_t)
    assert sf.same(from_torch(T), A)
    assert sf.same(from_torch(T.t()), other)


def test_options() -> None:
    T = sample()
    assert from_torch(T, "csr").format == "csr"
    assert from_torch(sample("float32"), "1:2").format == "1:2"
    assert from_torch(T, stored="all").nnz == T.packed.numel()
    assert sf.same(from_torch(T), from_torch(T, check=False, index_dtype="int64"), level="buffers")
    mask = torch.ones(64, 48, 2, dtype=torch.bool)
    assert from_torch(T, stored=mask).nnz == mask.numel()
    shared = from_torch(T, copy=False)
    assert shared.data.data_ptr() == T.packed.data_ptr()
    check_no_shared_memory(from_torch(T), [T.packed, T.meta])
    with pytest.raises(ValueError, match="'some'"):
        from_torch(T, stored="some")
    with pytest.raises(TypeError, match="int16"):
        from_torch(T, index_dtype="int16")


def test_not_a_slot_is_canonical_in_torch_and_all_are_here() -> None:
    D = torch.zeros(32, 64, dtype=torch.float16)
    D[:, 3] = 1  # torch writes columns 2 and 3; the smallest free column is 0
    code = sum(0b1110 << (4 * j) for j in range(4)) - 2**16
    meta = torch.full((32, 4), code, dtype=torch.int16)
    packed = D[:, [x for g in range(16) for x in (4 * g + 2, 4 * g + 3)]].contiguous()
    A = from_torch(tensor((32, 64), packed=packed, meta=meta), copy=False, check=False)
    check_valid(A)
    assert A.indices[0, 0].tolist() == [0, 3]
    assert torch.equal(A.to_dense(), D)


def test_gradients_are_refused_in_grad_mode_only() -> None:
    T = sample()
    G = CUTLASS(T.shape, T.packed, T.meta, None, None, None, requires_grad=True)
    with pytest.raises(NotImplementedError, match="from_torch: gradients"):
        from_torch(G)
    with torch.no_grad():
        assert sf.same(from_torch(G), from_torch(T))
    held = tensor(tuple(T.shape), packed=T.packed.clone().requires_grad_(), meta=T.meta)
    with pytest.raises(NotImplementedError, match="CUTLASS packs requires grad"):
        from_torch(held)
    with torch.no_grad():
        assert sf.same(from_torch(held), from_torch(T))


def test_values_and_metadata_lie_on_one_device() -> None:
    T = sample()
    apart = tensor(tuple(T.shape), packed=T.packed, meta=T.meta.to("meta"))
    with pytest.raises(sf.DeviceMismatchError, match="values on 'cpu' and metadata on 'meta'"):
        from_torch(apart)


def test_other_front_doors_know_it() -> None:
    T, X = sample(), torch.ones(192, 3, dtype=torch.float16)
    A = from_torch(T)
    assert sf.same(sf.asformat(T), A)
    assert sf.asformat(T, "csr").format == "csr"
    ones = sf.from_dense(torch.ones(192, 192, dtype=torch.float16).triu(190), "2:4")
    small = ones.to_torch()
    expected = ones @ X
    assert torch.equal(sf.matmul(small, X), expected)
    with pytest.raises(sf.NoKernelError, match="spgemm: 2:4"):
        small @ ones
    assert sf.check_pattern(T, "2:4")
    assert sf.same(sf.prune(small, "2:4"), ones)
    with pytest.raises(TypeError, match="use from_torch"):
        sf.from_dense(T)
    with pytest.raises(TypeError, match=r"SemiStructuredTensorCUTLASS\); use sparseformats.from_t"):
        sf.CSR(T, [0], [0, 1], (1, 1))


# ---- layouts that are not known


def wide_meta() -> Any:
    T = sample()
    return tensor(T.shape, packed=T.packed, meta=T.meta.reshape(6, 64, 2).permute(1, 2, 0))


def padded() -> Any:
    T = sample()
    return tensor((60, 192), packed=T.packed, meta=T.meta)


def other_meta() -> Any:
    T = sample()
    return tensor(T.shape, packed=T.packed, meta=T.meta.to(torch.int32))


def odd_words() -> Any:
    packed, meta = torch.zeros(32, 8, dtype=torch.float16), torch.zeros(32, 1, dtype=torch.int16)
    return tensor((32, 16), packed=packed, meta=meta)


def fp8() -> Any:
    T = sample()
    return tensor(T.shape, packed=T.packed.to(torch.float8_e4m3fn), meta=T.meta)


def other_kind() -> Any:
    class Mine(torch.sparse.SparseSemiStructuredTensor):
        BACKEND = "mine"

    return tensor((64, 192), Mine, packed=sample().packed)


def empty() -> Any:
    return torch.Tensor._make_wrapper_subclass(CUTLASS, (2, 4), dtype=torch.float16)


def blob(**fields: Any) -> Any:
    packed = torch.zeros(32 * 64 // 2 + 256, dtype=torch.float16)
    return tensor((32, 64), CUSPARSELT, packed=packed, **fields)


@pytest.mark.parametrize(
    ("make", "texts"),
    [
        (wide_meta, ("CUTLASS", "(64, 2, 6)", "(64, 12)")),
        (lambda: wide_meta().t(), ("CUTLASS", "(64, 2, 6)", "(64, 12)")),
        (padded, ("(60, 192)", "(64, 96)", "(60, 96)")),
        (other_meta, ("int32 metadata", "int16 (64, 12)")),
        (odd_words, ("(32, 16)", "columns % 32 == 0")),
        (fp8, ("float8_e4m3fn", "float16, bfloat16, float32, int8")),
        (lambda: tensor((64, 192), packed=sample().packed), ("no metadata",)),
        (other_kind, ("Mine", "kind that is not known")),
        (empty, ("holds no values",)),
        (blob, ("CUSPARSELT", "float16", "not present here", "undocumented", "on cpu")),
        (lambda: blob().t(), ("CUSPARSELT", "undocumented")),
    ],
)
def test_what_is_not_understood_is_refused(make: Callable[[], Any], texts: tuple[str, ...]) -> None:
    with pytest.raises(TypeError) as error:
        from_torch(make())
    for text in (*texts, "from_torch: ", 'from_dense(W, "2:4")', "T.to_dense()"):
        assert text in str(error.value)
    assert "{" not in str(error.value)


# ---- cuSPARSELt's blobs


@pytest.fixture
def learnt(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """This process as it would be beside the library and on the device of the fixtures."""
    there = {"version": 800, "capability": (9, 0)}
    monkeypatch.setattr(torch.backends.cusparselt, "version", lambda: there["version"])
    monkeypatch.setattr(TorchLibrary, "capability", lambda self, device: there["capability"])
    return monkeypatch


@pytest.mark.parametrize("shape", blobs.SHAPES)
@pytest.mark.parametrize("dtype", blobs.DTYPES)
def test_blobs_there_and_back(dtype: str, shape: Any, learnt: pytest.MonkeyPatch) -> None:
    T = tensor(shape, CUSPARSELT, packed=blobs.packed(shape, dtype))
    A = from_torch(T)
    check_valid(A)
    assert sf.same(A, sf.from_dense(blobs.dense(shape, dtype), "2:4"), level="buffers")
    assert sf.same(from_torch(T.t()), A.T)
    made = A.to_torch(packed="cusparselt")
    assert type(made) is CUSPARSELT
    assert (tuple(made.shape), made.dtype) == (shape, T.dtype)
    assert (made.meta, made.packed_t, made.meta_t) == (None, None, None)
    assert made.packed.shape == T.packed.shape
    assert torch.equal(made.packed.view(torch.uint8), T.packed.view(torch.uint8))
    turned = to_torch(A.T, packed="cusparselt")
    assert (tuple(turned.shape), turned.packed) == (shape[::-1], None)
    assert torch.equal(turned.packed_t.view(torch.uint8), T.packed.view(torch.uint8))
    check_no_shared_memory(A, [T.packed])


def test_a_blob_is_filled_up_to_whole_rows(learnt: pytest.MonkeyPatch) -> None:
    """160 rows share 192 rows of codes, and torch holds a blob in as many rows as the matrix."""
    D = torch.zeros(160, 64, dtype=torch.int8)
    D[::3, ::5] = 7
    T = sf.from_dense(D, "2:4").to_torch(packed="cusparselt")
    assert tuple(T.packed.shape) == (160, 42)  # 5,120 bytes of values and 1,536 of codes
    assert torch.equal(from_torch(T).to_dense(), D)
    T.packed[-1, -1] = 3  # behind the end
    assert torch.equal(from_torch(T).to_dense(), D)


def test_blobs_are_read_where_they_were_learnt_only(learnt: pytest.MonkeyPatch) -> None:
    shape = blobs.SHAPES[0]
    T = tensor(shape, CUSPARSELT, packed=blobs.packed(shape, "float16"))
    A = from_torch(T)
    learnt.setattr(torch.backends.cusparselt, "version", lambda: 801)
    for use in (lambda: from_torch(T), lambda: A.to_torch(packed="cusparselt")):
        with pytest.raises(
            TypeError, match=r"cuSPARSELt 801 on compute capability 9\.0, .*learnt: "
        ):
            use()
    learnt.setattr(torch.backends.cusparselt, "version", lambda: 800)
    learnt.setattr(TorchLibrary, "capability", lambda self, device: (8, 0))
    for use in (lambda: from_torch(T), lambda: A.to_torch(packed="cusparselt")):
        with pytest.raises(TypeError, match=r"compute capability 8\.0, .*800 on 9\.0 \(float16\)"):
            use()


def stretched(count: int) -> Any:
    return tensor((32, 64), CUSPARSELT, packed=torch.zeros(32, count, dtype=torch.float16))


def own_pruning(**fields: Any) -> Any:
    shape = blobs.SHAPES[0]
    return tensor(shape, CUSPARSELT, packed=blobs.packed(shape, "float16"), **fields)


@pytest.mark.parametrize(
    ("make", "texts"),
    [
        (lambda: stretched(39), ("1248 elements", "not 1280")),
        (lambda: stretched(41), ("1312 elements", "not 1280")),
        (lambda: tensor((48, 64), CUSPARSELT, packed=torch.zeros(48, 9).half()), ("(48, 64)",)),
        (lambda: tensor((32, 96), CUSPARSELT, packed=torch.zeros(32, 9).half()), ("one of 64",)),
        (lambda: own_pruning(meta=torch.zeros(1)), ("pruned by torch itself",)),
        (
            lambda: own_pruning(compressed_swizzled_bitmask=torch.zeros(1)),
            ("pruned by torch itself",),
        ),
        (
            lambda: tensor((32, 64), CUSPARSELT, packed=torch.zeros(32, 48)),
            ("float32 values", "learnt: 800 on 9.0 (bfloat16)"),
        ),
    ],
)
def test_blobs_that_are_not_understood(
    make: Callable[[], Any], texts: tuple[str, ...], learnt: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TypeError) as error:
        from_torch(make())
    for text in (*texts, "from_torch: ", 'from_dense(W, "2:4")'):
        assert text in str(error.value)
    assert "{" not in str(error.value)


def test_a_blob_with_codes_that_no_hardware_defines(learnt: pytest.MonkeyPatch) -> None:
    with pytest.raises(sf.InvalidTensorError, match="two ascending positions"):
        from_torch(stretched(40))


def test_what_a_blob_cannot_hold(learnt: pytest.MonkeyPatch) -> None:
    D = torch.zeros(32, 64, dtype=torch.float16)
    D[0, :2], D[0, 2] = 1, -0.0
    A = sf.from_dense(D, "2:4", mask=torch.ones_like(D, dtype=torch.bool))
    with pytest.raises(sf.LossyConversionError, match="side record"):
        A.to_torch(packed="cusparselt")
    for B, text in (
        (sf.from_dense(D[:, :32], "2:4"), "one of 64"),
        (sf.from_dense(D[:16], "2:4").T, "multiple of 32"),
        (sf.from_dense(D.float(), "2:4"), "float32 values would go into a blob"),
    ):
        with pytest.raises(TypeError, match=text) as error:
            B.to_torch(packed="cusparselt")
        assert 'A.to("csr")' in str(error.value)
        assert "{" not in str(error.value)
    for B, kind in ((A.to("csr"), "cusparselt"), (A, "meta")):
        with pytest.raises(ValueError, match=f"'cutlass', 'cusparselt'; got '{kind}'"):
            B.to_torch(packed=kind)


def test_a_blob_is_made_beside_the_library_only() -> None:
    with pytest.raises(TypeError, match=r"cuSPARSELt \(not present here\) on cpu, whose layout"):
        dense((32, 64)).to_torch(packed="cusparselt")


# ---- matrices that torch cannot hold


def dense(shape: tuple[int, int], dtype: str = "float16", format: str = "2:4") -> Any:
    return sf.from_dense(np.zeros(shape, dtype), format)


@pytest.mark.parametrize(
    ("A", "texts"),
    [
        (dense((32, 64), "float64"), ("float16, bfloat16, float32, int8, not float64",)),
        (dense((48, 64)), ("float16", "multiple of 32", "one of 64", "(48, 64)")),
        (dense((32, 96)), ("(32, 96)",)),
        (dense((48, 64)).T, ("(48, 64)", "2:4.T")),
        (dense((0, 64)), ("neither of them 0", "(0, 64)")),
        (dense((32, 0)), ("(32, 0)",)),
        (dense((16, 64), "int8"), ("multiple of 16", "one of 128")),
        (dense((32, 64), format="1:2"), ("no 1:2 layout", 'A.to("2:4")')),
        (dense((32, 64), format="1:4").T, ("no 1:4.T layout", 'A.to("2:4.T")')),
        (dense((32, 64), format="4:8"), ("no 4:8 layout",)),
    ],
)
def test_what_torch_cannot_hold(A: Any, texts: tuple[str, ...]) -> None:
    with pytest.raises(TypeError) as error:
        to_torch(A)
    for text in (*texts, 'A.to("csr")'):
        assert text in str(error.value)
    assert "{" not in str(error.value)


def test_float32_that_is_not_one_of_two_is_refused() -> None:
    D = torch.zeros(32, 32)
    D[1, 4:6] = 1
    with pytest.raises(sf.PatternError, match="row 1, columns 4 and 5"):
        sf.from_dense(D, "2:4").to_torch()
    D[1, 5] = 0
    assert torch.equal(sf.from_dense(D, "2:4").to_torch().to_dense(), D)


def test_stored_zeros_stay_behind_but_for_a_sign() -> None:
    D = torch.zeros(32, 64, dtype=torch.float16)
    D[0, :2] = 1
    mask = D != 0
    mask[0, 2] = True
    A = sf.from_dense(D, "2:4", mask=mask)
    assert (A.nnz, from_torch(A.to_torch()).nnz) == (3, 2)
    D[0, 2] = -0.0
    with pytest.raises(sf.LossyConversionError, match="side record"):
        sf.from_dense(D, "2:4", mask=mask).to_torch()
