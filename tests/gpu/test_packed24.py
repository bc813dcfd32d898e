"""torch's packed 2:4 tensors on the device, against torch's own conversions there."""

from __future__ import annotations

import pytest
import torch
from torch.sparse import SparseSemiStructuredTensorCUTLASS as Packed
from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass

import sparseformats as sf
from sparseformats.convert.interop.cutlass24 import PACKINGS


@pytest.mark.parametrize("dtype", PACKINGS)
def test_packed_tensors_stay_on_the_device(dtype: str, device: str) -> None:
    packing = PACKINGS[dtype]
    torch.manual_seed(24)
    weight = torch.randint(-99, 100, (3 * packing.rows, 2 * packing.columns), device=device)
    pattern = "1:2" if dtype == "float32" else "2:4"
    A = sf.prune(weight.to(getattr(torch, dtype)), pattern).to("2:4")
    T, D = A.to_torch(), A.to_dense()
    assert {str(x.device) for x in (T, T.packed, T.meta)} == {device}
    assert torch.equal(T.to_dense(), D)
    theirs = Packed(D.shape, *sparse_semi_structured_from_dense_cutlass(D), None, None, None)
    back = sf.from_torch(theirs)
    assert back.device == device
    assert sf.same(back, A, level="buffers")
    assert sf.same(sf.from_torch(T.t()).T, A, level="buffers")


def test_checkpoints_are_decoded_on_the_device(device: str) -> None:
    parts = {
        "up.shape": torch.tensor([[2], [8]]),
        "up.bitmask": torch.tensor([[0x69], [0x3C]], dtype=torch.uint8, device=device),
        "up.compressed": torch.arange(1.0, 9.0, device=device).reshape(2, 4),
    }
    A = sf.io.read_compressed_tensors(parts)["up"]
    assert (A.format, A.device) == ("2:4", device)
    assert A.to_dense().tolist() == [[1, 0, 0, 2, 0, 3, 4, 0], [0, 0, 5, 6, 7, 8, 0, 0]]
    offsets = {"up.row_offsets": torch.tensor([0, 4], device=device)}
    flat = {"up.compressed": parts["up.compressed"].reshape(-1)}
    B = sf.io.read_compressed_tensors({**parts, **flat, **offsets})["up"]
    assert (B.format, B.device) == ("csr", device)
    assert sf.same(A, B)
