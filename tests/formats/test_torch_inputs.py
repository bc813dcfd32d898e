"""What torch tensors may be besides plain: lazy views, parameters, inference, sparse, gradients."""

import subprocess
import sys
import textwrap

import pytest
import torch

from sparseformats import COO, CSR
from tests.formats.examples import CLASSES, FORMATS, SHAPE, arrays, build


def _make(format, **values):
    return CLASSES[format](**{**arrays(format, "torch"), "shape": SHAPE, **values})


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_values_that_require_grad(format, copy):
    data = arrays(format, "torch")["data"].requires_grad_()
    with pytest.raises(NotImplementedError, match=r"gradients through .*data\.detach\(\)"):
        _make(format, data=data, copy=copy)
    with torch.no_grad():
        A = _make(format, data=data, copy=copy)
    assert not A.data.requires_grad
    assert A.problems() == []
    assert _make(format, data=data.detach(), copy=copy).nnz == 5


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_parameter_under_no_grad(format, copy):
    data = torch.nn.Parameter(arrays(format, "torch")["data"])
    with torch.no_grad():
        A = _make(format, data=data, copy=copy)
    assert type(A.data) is torch.Tensor
    assert (A.data.data_ptr() == data.data_ptr()) is not copy
    assert data.requires_grad


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_inference_tensors(format, copy):
    with torch.inference_mode():
        given = {name: x.clone() for name, x in arrays(format, "torch").items()}
    assert given["data"].is_inference()
    A = _make(format, **given, copy=copy)
    assert (A.problems(), A.nnz) == ([], 5)
    with torch.inference_mode():
        B = _make(format, **given, copy=copy)
        assert (B.problems(), B.nnz) == ([], 5)
    assert (A.lib.version(A.data) is None) is not copy


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_lazy_conjugate(format, copy):
    plain = arrays(format, "torch", "complex64")["data"] * (1 + 2j)
    lazy = plain.conj()
    assert lazy.is_conj()
    A = _make(format, data=lazy, copy=copy)
    assert not A.data.is_conj()
    assert torch.equal(A.data, plain.conj().resolve_conj())
    assert A.nnz == 5


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_lazy_negative(format, copy):
    values = arrays(format, "torch", "complex64")["data"] * 1j
    lazy = values.conj().imag
    assert lazy.is_neg()
    # Fill turns to -0 that way, which a free slot of n:m may not keep.
    A = _make(format, data=lazy, copy=copy)
    assert not A.data.is_neg()
    assert torch.equal(A.data, -values.imag)
    assert A.problems() == []


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr"])
def test_sparse_tensors_are_no_buffers(layout):
    dense = torch.eye(4)
    tensor = {
        "coo": dense.to_sparse,
        "csr": dense.to_sparse_csr,
        "csc": dense.to_sparse_csc,
        "bsr": lambda: dense.to_sparse_bsr((2, 2)),
    }[layout]()
    for format in FORMATS:
        with pytest.raises(TypeError, match=r"data is a sparse tensor .*sparseformats.from_torch"):
            _make(format, data=tensor)
    with pytest.raises(TypeError, match="row is a sparse tensor"):
        _make("coo", row=torch.ones(4, dtype=torch.int64).to_sparse())


def test_meta_parts_name_both_devices():
    values, indices = torch.tensor([1.0, 2.0]), torch.tensor([0, 1], device="meta")
    with pytest.raises(ValueError, match="data is on 'cpu' but indices is on 'meta'"):
        CSR(values, indices, torch.tensor([0, 1, 2]), (2, 2))


def test_default_device_is_not_taken_for_lists():
    with torch.device("meta"):
        A = COO(torch.ones(1, device="cpu"), [0], [0], (1, 1))
    assert A.device == "cpu"
    assert A.problems() == []


FLUSH = """
    import numpy as np, torch
    from sparseformats import BSR, COO, CSR, NM, BlockedELL, reference
    if not torch.set_flush_denormal(True):
        raise SystemExit("no such mode here")
    tiny32 = np.array([1], np.int32).view(np.float32)
    assert float(torch.from_numpy(tiny32.copy()) * 1) == 0.0, "the mode is on"
    for lib in (np.asarray, torch.from_numpy):
        for kind in (np.float32, np.float64):
            tiny = np.array([1, 3], np.dtype(f"i{np.dtype(kind).itemsize}")).view(kind)
            def a(x, d=None):
                return lib(np.array(x, d))
            data = lib(tiny.copy())
            block = np.zeros((1, 2, 2), kind); block[0, 0] = tiny
            made = [
                COO(data, a([1, 0]), a([0, 1]), (2, 4)),
                CSR(data, a([3, 1]), a([0, 2, 2]), (2, 4)),
                BSR(lib(block.copy()), a([1]), a([0, 1]), (2, 4)),
                BlockedELL(lib(block.copy()[None]), a([[1]]), (2, 4)),
                NM(lib(tiny.copy().reshape(1, 1, 2)), a([[[2, 1]]], np.uint8), (1, 4)),
            ]
            for A in made:
                assert A.nnz == 2, (A, A.nnz)
                bits = sorted(bytes(b) for b in reference.content(A).elements.values())
                assert bits == sorted(t.tobytes() for t in tiny), A
                assert A.problems() == []
    print("kept")
"""


def test_subnormals_survive_a_process_that_flushes_them():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FLUSH)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "kept", done.stderr


@pytest.mark.parametrize("format", FORMATS)
def test_a_tensor_of_another_dtype_than_the_default(format):
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert build(format, "torch", "float32").dtype == torch.float32
    finally:
        torch.set_default_dtype(before)
