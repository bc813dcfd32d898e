"""In and out of torch: every layout and dtype, nothing changed, nothing shared."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from sparseformats import BSR, COO, CSR, NM, BlockedELL, InvalidTensorError, Transposed
from sparseformats.convert.interop import from_torch, to_library, to_torch
from sparseformats.testing import (
    check_content_preserved,
    check_no_shared_memory,
    check_same_buffers,
    check_valid,
    matrices,
    unchanged,
)

torch = pytest.importorskip("torch")

PLAIN = ("coo", "csr", "csc")
LAYOUTS = (*PLAIN, "bsr", "bsc")
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
FP8 = ("float8_e4m3fn", "float8_e5m2")


def parts(T: Any) -> list[Any]:
    name = str(T.layout).removeprefix("torch.sparse_")
    if name == "coo":
        return [T._values(), T._indices()]
    if name in ("csr", "bsr"):
        return [T.values(), T.col_indices(), T.crow_indices()]
    return [T.values(), T.row_indices(), T.ccol_indices()]


def sample(layout: str, dtype: str = "float64", width: str = "int64") -> Any:
    """A 2x4 tensor [[0, 2, 0, 8], [0, 0, 5, 0]] with a stored zero at (1, 0)."""
    t = {"dtype": getattr(torch, dtype)}
    w = {"dtype": getattr(torch, width)}
    pointer = torch.tensor([0, 2, 4], **w)
    if layout == "coo":
        places = torch.tensor([[0, 0, 1, 1], [1, 3, 0, 2]])
        return torch.sparse_coo_tensor(places, torch.tensor([2, 8, 0, 5], **t), (2, 4))
    if layout == "csr":
        return torch.sparse_csr_tensor(
            pointer, torch.tensor([1, 3, 0, 2], **w), torch.tensor([2, 8, 0, 5], **t), (2, 4)
        )
    if layout == "csc":
        pointer = torch.tensor([0, 1, 2, 3, 4], **w)
        return torch.sparse_csc_tensor(
            pointer, torch.tensor([1, 0, 1, 0], **w), torch.tensor([0, 2, 5, 8], **t), (2, 4)
        )
    blocks = torch.tensor([[[0, 2], [0, 0]], [[0, 8], [5, 0]]], **t)
    if layout == "bsr":
        return torch.sparse_bsr_tensor(
            torch.tensor([0, 2], **w), torch.tensor([0, 1], **w), blocks, (2, 4)
        )
    pointer = torch.tensor([0, 1, 2], **w)
    return torch.sparse_bsc_tensor(pointer, torch.tensor([0, 0], **w), blocks, (2, 4))


EXPECTED = [[0, 2, 0, 8], [0, 0, 5, 0]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
def test_each_layout_keeps_its_format(layout: str, dtype: str) -> None:
    T = sample(layout, dtype)
    with unchanged(parts(T)):
        A = from_torch(T)
    assert A.format == {"bsc": "bsr.T"}.get(layout, layout)
    assert (A.library, A.dtype_name, A.shape) == ("torch", dtype, (2, 4))
    check_valid(A)
    check_no_shared_memory(A, parts(T))
    assert A.nnz == (4 if layout in PLAIN else 3)
    back = to_torch(A)
    assert back.layout == T.layout
    assert back.to_dense().to(torch.complex128).tolist() == EXPECTED


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
@pytest.mark.parametrize("width", ["int32", "int64"])
def test_index_width_is_kept_both_ways(layout: str, width: str) -> None:
    A = from_torch(sample(layout, width=width))
    assert str(A.index_dtype) == f"torch.{width}"
    assert {x.dtype for x in parts(to_torch(A))[1:]} == {getattr(torch, width)}


def test_coo_is_int64_in_torch_and_widens() -> None:
    A = COO(torch.ones(1), torch.tensor([0], dtype=torch.int32), torch.tensor([1]).int(), (1, 2))
    assert str(A.index_dtype) == "torch.int32"
    T = to_torch(A)
    assert T._indices().dtype == torch.int64
    assert T.is_coalesced()


def test_uncoalesced_sums_by_our_rules_and_stays_uncoalesced() -> None:
    places = torch.tensor([[1, 1, 0], [0, 0, 2]])
    T = torch.sparse_coo_tensor(places, torch.tensor([1.0, 2, 4]), (2, 3))
    A = from_torch(T)
    assert not T.is_coalesced()
    assert A.nnz == 2
    assert to_torch(A).to_dense().tolist() == [[0, 0, 4], [3, 0, 0]]
    many = torch.sparse_coo_tensor(places, torch.tensor([200, 100, 1], dtype=torch.uint8), (2, 3))
    with pytest.raises(OverflowError, match="uint8"):
        from_torch(many)


def test_options() -> None:
    T = sample("csr")
    shared = from_torch(T, copy=False)
    assert shared.data.data_ptr() == T.values().data_ptr()
    assert str(from_torch(T, index_dtype="int32").index_dtype) == "torch.int32"
    unsorted = torch.sparse_csr_tensor(
        torch.tensor([0, 2]), torch.tensor([1, 0]), torch.ones(2), (1, 2), check_invariants=False
    )
    assert from_torch(unsorted).indices.tolist() == [0, 1]
    assert from_torch(unsorted, check=False).indices.tolist() == [1, 0]


@pytest.mark.parametrize("layout", ["bsr", "bsc"])
def test_stored_of_blocks(layout: str) -> None:
    T = sample(layout)
    assert from_torch(T).nnz == 3
    assert from_torch(T, stored="all").nnz == 8
    mask = T.values() != 0
    mask[0, 0, 0] = True
    A = from_torch(T, stored=mask)
    assert A.nnz == 4
    check_valid(A)
    dense = A.to("coo")
    assert (dense.row.tolist(), dense.col.tolist()) == ([0, 0, 0, 1], [0, 1, 3, 2])


def test_bsc_blocks_are_rectangular_and_transposed() -> None:
    values = torch.arange(6.0).reshape(1, 2, 3)
    T = torch.sparse_bsc_tensor(torch.tensor([0, 1, 1]), torch.tensor([0]), values, (2, 6))
    A = from_torch(T)
    assert isinstance(A, Transposed)
    assert (A.shape, A.blocksize, A.base.blocksize) == ((2, 6), (2, 3), (3, 2))
    back = to_torch(A)
    assert back.layout == torch.sparse_bsc
    assert torch.equal(back.to_dense(), T.to_dense())
    assert torch.equal(back.values(), values)


def test_strided_tensors() -> None:
    D = torch.tensor([[0.0, 2.0], [-0.0, float("nan")]])
    A = from_torch(D)
    assert (A.format, A.nnz) == ("csr", 2)
    assert from_torch(D, "bsr", blocksize=(2, 2)).format == "bsr"
    assert str(from_torch(D, index_dtype="int64").index_dtype) == "torch.int64"
    assert from_torch(D.t()).to_dense()[0, 1] == 0
    with pytest.raises(ValueError, match="from_dense"):
        from_torch(D, stored="all")


def test_format_converts_after() -> None:
    assert from_torch(sample("csr"), "coo").format == "coo"
    assert from_torch(sample("csr"), "csr").format == "csr"
    A = from_torch(sample("csr"), "bsr", blocksize=(1, 2))
    assert (A.format, A.blocksize, A.nnz) == ("bsr", (1, 2), 4)


def test_gradients_are_refused_in_grad_mode_only() -> None:
    v = torch.ones(2, requires_grad=True)
    T = torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), v, (2, 2))
    for thing in (T, torch.ones(2, 2, requires_grad=True), torch.nn.Parameter(torch.ones(2, 2))):
        with pytest.raises(NotImplementedError, match="from_torch: gradients"):
            from_torch(thing)
        with torch.no_grad():
            assert from_torch(thing).nnz >= 2
    assert from_torch(T.detach()).nnz == 2


def hybrid_csr() -> Any:
    return torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2, 3), (2, 2, 3)
    )


def semi_structured() -> Any:
    cls = torch.sparse.SparseSemiStructuredTensorCUTLASS
    return torch.Tensor._make_wrapper_subclass(cls, (2, 4), dtype=torch.float16)


def nested() -> Any:
    return torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)


def quantized() -> Any:
    return torch._empty_affine_quantized([2, 2], scale=0.1, zero_point=0, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    ("make", "error", "texts"),
    [
        (lambda: torch.ones(2, 3, 3).to_sparse_csr(), ValueError, ("batched", "(2, 3, 3)")),
        (hybrid_csr, ValueError, ("hybrid", "(2, 2, 3)", "1 dense")),
        (lambda: torch.ones(2, 2).to_sparse(1), ValueError, ("hybrid", "(2, 2)")),
        (lambda: torch.ones(2, 2, 2).to_sparse(), ValueError, ("two dimensions", "(2, 2, 2)")),
        (lambda: torch.ones(3).to_sparse(), ValueError, ("two dimensions", "(3,)")),
        (lambda: torch.ones(3), ValueError, ("two dimensions", "(3,)")),
        (lambda: torch.ones(1, 2, 2), ValueError, ("two dimensions", "(1, 2, 2)")),
        (lambda: torch.ones(2, 2, device="meta"), ValueError, ("meta",)),
        (lambda: sample("csr").to("meta"), ValueError, ("meta",)),
        (semi_structured, TypeError, ("SemiStructured", "from_dense")),
        (quantized, TypeError, ("qint8", "dequantize")),
        (lambda: torch.ones(2, 2).to_mkldnn(), TypeError, ("_mkldnn", "to_dense")),
        (nested, TypeError, ("nested", "jagged")),
        (lambda: np.eye(2), TypeError, ("numpy.ndarray", "from_dense")),
        (lambda: [[1.0]], TypeError, ("list",)),
        (lambda: torch.ones(2, 2).to(torch.uint16), TypeError, ("uint16",)),
    ],
)
def test_what_is_refused(make: Callable[[], Any], error: type[Exception], texts: Any) -> None:
    with pytest.raises(error) as caught:
        from_torch(make())
    for text in texts:
        assert text in str(caught.value)
    assert "{" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors:UserWarning")
def test_masked_tensors_are_ambiguous() -> None:
    T = torch.masked.masked_tensor(torch.ones(2, 2), torch.eye(2, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"mask=T.get_mask"):
        from_torch(T)


@pytest.mark.parametrize(
    ("stored", "text"), [("some", "'some'"), (torch.ones(4, dtype=torch.bool), "block formats")]
)
def test_stored_is_refused_where_it_means_nothing(stored: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        from_torch(sample("csr"), stored=stored)


def test_broken_structure_lists_problems() -> None:
    T = torch.sparse_csr_tensor(
        torch.tensor([0, 2]), torch.tensor([0, 7]), torch.ones(2), (1, 2), check_invariants=False
    )
    with pytest.raises(InvalidTensorError, match=r"indices\[1\]"):
        from_torch(T)


@given(matrices(PLAIN, dtypes=(*DTYPES, *FP8), library="torch"))
def test_round_trip_of_plain_formats_keeps_every_bit(A: Any) -> None:
    with unchanged(A):
        T = to_torch(A)
    check_no_shared_memory(A, parts(T))
    back = from_torch(T)
    check_content_preserved(A, back)
    if A.format != "coo":
        check_same_buffers(A, back)


@given(matrices(("bsr", "bsr.T"), dtypes=(*DTYPES, *FP8), library="torch"))
def test_round_trip_of_blocks_keeps_values_and_blocks(A: Any) -> None:
    m, n = A.shape
    r, c = A.blocksize
    if m % r or n % c:
        with pytest.raises(TypeError, match="divide") as error:
            to_torch(A)
        assert str((m, n)) in str(error.value)
        assert str((r, c)) in str(error.value)
        return
    T = to_torch(A)
    check_no_shared_memory(A, parts(T))
    mask = A.stored_mask() if A.format == "bsr" else A.base.stored_mask().transpose(1, 2)
    check_content_preserved(A, from_torch(T, stored=mask))
    assert from_torch(T).T.T.format == A.format


@given(matrices(PLAIN, dtypes=DTYPES))
def test_numpy_matrices_cross_by_copy(A: Any) -> None:
    T = to_torch(A)
    check_content_preserved(A, from_torch(T))
    check_no_shared_memory(A, parts(T))


def refusals() -> list[Any]:
    nm = NM(np.ones((1, 1, 2)), [[[0, 1]]], (1, 4))
    return [
        (BlockedELL(np.ones((1, 1, 2, 2)), [[0]], (2, 2)), ("blocked_ell", 'A.to("bsr")')),
        (BlockedELL(np.ones((1, 1, 2, 2)), [[0]], (2, 2)).T, ("blocked_ell.T", 'A.to("bsr")')),
        (nm, ("2:4", 'A.to("csr")')),
        (nm.T, ("2:4.T", 'A.to("csr")')),
        (CSR(np.ones(1, np.uint16), [0], [0, 1], (1, 1)), ("uint16", "float32")),
        (
            BSR(np.array([[[1.0, 0], [0, 0]]]), [0], [0, 1], (1, 1)),
            ("(1, 1)", "(2, 2)", 'A.to("csr")'),
        ),
    ]


@pytest.mark.parametrize(("A", "texts"), refusals())
def test_what_torch_cannot_hold(A: Any, texts: tuple[str, ...]) -> None:
    with pytest.raises(TypeError) as error:
        to_torch(A)
    for text in texts:
        assert text in str(error.value)
    assert "{" not in str(error.value)


def test_shapes_beyond_int64_elements() -> None:
    A = to_library(COO([1.0], [0], [5], (2**40, 2**40)), "torch")
    with pytest.raises(ValueError, match="exceed") as error:
        to_torch(A)
    assert str(2**80) in str(error.value)


def test_int64_beyond_int32_survives() -> None:
    A = CSR([5.0, 7.0], np.array([3, 2**31 + 5]), np.array([0, 2]), (1, 2**32))
    T = to_torch(A)
    assert T.col_indices().tolist() == [3, 2147483653]
    assert from_torch(T).indices.tolist() == [3, 2147483653]


@pytest.mark.parametrize("shape", [(0, 0), (0, 6), (4, 0)])
@pytest.mark.parametrize("format", [*PLAIN, "bsr"])
def test_empty_shapes(format: str, shape: tuple[int, int]) -> None:
    A = from_torch(torch.zeros(shape), format, blocksize=(2, 3) if format == "bsr" else None)
    assert (A.format, A.shape, A.nnz) == (format, shape, 0)
    T = to_torch(A)
    assert tuple(T.shape) == shape
    check_same_buffers(from_torch(T), from_torch(to_torch(from_torch(T))))


def test_conjugate_and_negative_views_are_resolved() -> None:
    D = torch.tensor([[1 + 2j, 0]]).conj()
    assert from_torch(D).data.tolist() == [1 - 2j]
    values = torch.tensor([1 + 2j]).conj()
    T = torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), values, (1, 1))
    assert from_torch(T).data.tolist() == [1 - 2j]
