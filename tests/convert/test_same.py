"""The four levels of sameness, each with what it must tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from tests.convert import samples

LEVELS = ("content", "values", "structure", "buffers")


def levels(A: Any, B: Any) -> list[str]:
    found = [level for level in LEVELS if sf.same(A, B, level)]
    assert found == [level for level in LEVELS if sf.same(B, A, level)]
    return found


def changed(A: Any, **parts: Any) -> Any:
    return type(A).from_parts({**A.buffers(), **parts}, A.static())


def test_a_matrix_is_the_same_as_itself_and_its_copy(library: str) -> None:
    for A, B in zip(samples.sources(library), samples.sources(library), strict=True):
        assert levels(A, A) == list(LEVELS)
        assert levels(A, B) == list(LEVELS)


def test_formats_share_content(library: str) -> None:
    A = samples.csr(library)
    for B in (A.to("coo"), A.to("csc"), A.to("bsr", blocksize=(2, 2)), A.to("4:4")):
        assert levels(A, B) == ["content", "values"]
        assert levels(A.to("csc").T, B.to("csc").T) == list(LEVELS)


def test_index_width_is_a_matter_of_buffers(library: str) -> None:
    A, B = samples.csr(library, "int32"), samples.csr(library, "int64")
    assert levels(A, B) == ["content", "values", "structure"]


def test_one_bit_of_a_nan(library: str) -> None:
    A = samples.csr(library)
    host = A.lib.to_numpy(A.data).copy()
    host[:1].view(np.uint32)[0] ^= 1
    assert levels(A, changed(A, data=samples.put(library, host))) == ["structure"]


def test_the_sign_of_a_zero_is_content_not_value() -> None:
    A = sf.CSR([0.0, 2.0], [0, 1], [0, 2], (1, 3))
    assert levels(A, changed(A, data=np.array([-0.0, 2.0]))) == ["values", "structure"]


def test_a_stored_zero_is_content_not_value() -> None:
    A = sf.CSR([0.0, 2.0], [0, 1], [0, 2], (1, 3))
    assert levels(A, sf.CSR([2.0], [1], [0, 1], (1, 3))) == ["values"]
    blocks: Any = np.array([[[0.0, 2.0]]])
    B, C, D = (
        sf.BSR(blocks, [0], [0, 1], (1, 2), stored=s)
        for s in ("nonzero", "all", "mask")[:2] + (np.ones((1, 1, 2), bool),)
    )
    assert levels(B, C) == ["values"]
    assert levels(C, D) == ["content", "values", "structure"]


def test_structure_ignores_values() -> None:
    A = sf.CSR([1.0, 2.0], [0, 1], [0, 2], (1, 3))
    assert levels(A, changed(A, data=np.array([5, 6], np.int8))) == ["structure"]
    assert levels(A, sf.CSR([1.0, 2.0], [0, 2], [0, 2], (1, 3))) == []


def test_shape_dtype_and_blocks() -> None:
    A = sf.BSR([[[1.0, 2.0]]], [0], [0, 1], (1, 2))
    assert levels(A, A.to("bsr", blocksize=(1, 1))) == ["content", "values"]
    assert levels(A, sf.BSR([[[1.0, 2.0]]], [0], [0, 1], (1, 4))) == []
    assert levels(A, changed(A, data=A.data.astype(np.float32))) == ["structure"]
    assert levels(A, A.T) == []


def test_zeros_aside_count_as_stored() -> None:
    A, B = samples.nm("numpy"), samples.nm("numpy", aside=False)
    assert levels(A, B) == ["values"]


@pytest.mark.parametrize("level", ["equal", "", None])
def test_unknown_level(level: Any) -> None:
    A = samples.csr("numpy")
    with pytest.raises(ValueError, match="'content', 'values', 'structure', 'buffers'"):
        sf.same(A, A, level)


def test_only_matrices_of_one_library_and_device() -> None:
    A = samples.csr("numpy")
    with pytest.raises(TypeError, match=r"ndarray.*asformat"):
        sf.same(A, np.eye(2))
    with pytest.raises(TypeError, match=r"B\.to_library\('numpy'\)"):
        sf.same(A, samples.csr("torch"))
    B = samples.csr("torch")
    meta = {name: x.to("meta") for name, x in B.buffers().items()}
    with pytest.raises(sf.DeviceMismatchError, match=r"B\.to_device\('cpu'\)"):
        sf.same(B, type(B).from_parts(meta, B.static()))
    assert isinstance(B.data, torch.Tensor)
