"""Matrices are immutable values: sharing, copies, pickling, identity."""

import copy
import dataclasses
import pickle
import weakref

import numpy as np
import pytest
import torch

from sparseformats import CSR, NM, _arrays, reference
from sparseformats.testing import shares_memory
from tests.formats.examples import ALL_FORMATS, CLASSES, FORMATS, LIBRARIES, SHAPE, arrays, build

SLOT_FORMATS = ("bsr", "blocked_ell", "2:4")
VARIANTS = {
    "plain": {},
    "all stored": {"stored": "all"},
}
EVERY = [(f, "plain") for f in ALL_FORMATS] + [
    (f, "all stored") for f in ALL_FORMATS if f.removesuffix(".T") in SLOT_FORMATS
]


def _with_marks(library):
    """n:m with a mark and a side record; BSR with a mark."""
    lib = _arrays.library(library)

    def array(x, dtype=None):
        return lib.from_numpy(np.array(x, dtype), "cpu")

    data = array([[[0.0, 2.0]]])
    side = CLASSES["coo"](array([-0.0]), array([0]), array([1]), (1, 4))
    mask = array([[[True, True]]])
    return NM(data, array([[[0, 3]]], "uint8"), (1, 4), stored=mask, side=side)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", FORMATS)
def test_copies_by_default(format, library):
    given = arrays(format, library)
    A = CLASSES[format](**given, shape=SHAPE)
    for name, x in A.buffers().items():
        assert not shares_memory(x, given[name]), name


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", FORMATS)
def test_copy_false_shares_every_buffer(format, library, check):
    given = arrays(format, library)
    A = CLASSES[format](**given, shape=SHAPE, copy=False, check=check)
    for name, x in A.buffers().items():
        assert shares_memory(x, given[name]), name


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_copy_and_check_are_independent(format, check):
    given = arrays(format)
    A = CLASSES[format](**given, shape=SHAPE, copy=True, check=check)
    before = {name: x.tobytes() for name, x in A.buffers().items()}
    for x in given.values():
        x[...] = 1
    assert {name: x.tobytes() for name, x in A.buffers().items()} == before


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_numpy_buffers_are_read_only_and_the_caller_is_not_frozen(format, copied):
    given = arrays(format)
    A = CLASSES[format](**given, shape=SHAPE, copy=copied)
    for name, x in A.buffers().items():
        with pytest.raises(ValueError, match="read-only"):
            x[...] = 0
        assert given[name].flags.writeable
        given[name][...] = given[name]


@pytest.mark.parametrize(("format", "variant"), EVERY)
def test_fields_are_frozen(format, variant):
    A = build(format, **VARIANTS[variant])
    for field in dataclasses.fields(A):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(A, field.name, None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(A, field.name)
    with pytest.raises((AttributeError, TypeError)):
        A.something_new = 1
    assert not hasattr(A, "__dict__")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("format", "variant"), EVERY)
@pytest.mark.parametrize("way", [copy.deepcopy, lambda A: pickle.loads(pickle.dumps(A))])
def test_deepcopy_and_pickle(format, variant, library, way):
    _same_but_apart(build(format, library, "float32", **VARIANTS[variant]), way)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("way", [copy.deepcopy, lambda A: pickle.loads(pickle.dumps(A))])
def test_deepcopy_and_pickle_keep_marks_and_the_side_record(library, way):
    A = _with_marks(library)
    assert set(A.buffers()) == {"data", "indices", "zeros", "side_data", "side_row", "side_col"}
    _same_but_apart(A, way)
    _same_but_apart(A.T, way)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("format", ALL_FORMATS)
def test_every_pickle_protocol(format, protocol):
    _same_but_apart(build(format), lambda A: pickle.loads(pickle.dumps(A, protocol)))


def _same_but_apart(A, way):
    B = way(A)
    assert type(B) is type(A)
    assert B is not A
    assert (B.shape, B.dtype, B.format, B.blocksize) == (A.shape, A.dtype, A.format, A.blocksize)
    assert (B.library, B.index_dtype, B.static()) == (A.library, A.index_dtype, A.static())
    assert B.buffers().keys() == A.buffers().keys()
    for name, x in B.buffers().items():
        assert A.lib.equal_bits(x, A.buffers()[name]), name
        assert not shares_memory(x, A.buffers()[name]), name
        if A.library == "numpy":
            assert not x.flags.writeable, name
    assert B.problems() == []
    assert reference.same_content(A, B)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "complex64", "bool"])
@pytest.mark.parametrize("format", ALL_FORMATS)
def test_small_dtypes_pickle(format, dtype):
    _same_but_apart(build(format, "torch", dtype), lambda A: pickle.loads(pickle.dumps(A)))
    _same_but_apart(build(format, "torch", dtype), copy.deepcopy)


def test_pickle_of_a_shared_slice_holds_the_slice_only():
    for big in (np.zeros(1_000_000), torch.zeros(1_000_000, dtype=torch.float64)):
        lib = _arrays.of(big)
        index = lib.arange(3, device="cpu")
        A = CSR(big[5:8], index, lib.asarray([0, 3]), (1, 3), copy=False)
        assert len(pickle.dumps(A)) < 20_000


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_copy_is_the_object_itself(format):
    A = build(format)
    assert copy.copy(A) is A


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_deepcopy_within_a_container_keeps_identity(format):
    A = build(format)
    first, second = copy.deepcopy([A, A])
    assert first is second
    assert first is not A


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_weak_references(format):
    A = build(format)
    ref = weakref.ref(A)
    assert ref() is A
    del A
    assert ref() is None


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_identity_hash(format):
    A, B = build(format), build(format)
    assert hash(A) == object.__hash__(A)
    assert {A: 1, B: 2}[B] == 2
    assert A in [A]


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_counting_stored_elements_is_remembered_only_in_its_field(format):
    A = build(format)
    before = {name: id(x) for name, x in A.buffers().items()}
    assert A.nnz == A.nnz == 5
    assert {name: id(x) for name, x in A.buffers().items()} == before


@pytest.mark.parametrize("format", ["csr", "csc"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_transpose_of_compressed_shares_buffers(format, library):
    A = build(format, library)
    B = A.T
    assert B.format == {"csr": "csc", "csc": "csr"}[format]
    assert B.shape == SHAPE[::-1]
    for name, x in B.buffers().items():
        assert x is A.buffers()[name]
    assert B.problems() == []
    assert np.array_equal(reference.dense(B), reference.dense(A).T)


@pytest.mark.parametrize("library", LIBRARIES)
def test_transpose_of_coordinates_is_sorted(library):
    A = build("coo", library).T
    assert (A.format, A.shape, A.problems()) == ("coo", SHAPE[::-1], [])
    assert np.array_equal(reference.dense(A), reference.dense(build("csr")).T)


@pytest.mark.parametrize("format", SLOT_FORMATS)
def test_transpose_of_slot_formats_is_a_view(format):
    A = build(format)
    assert A.T.base is A
    assert A.T.T is A
    assert A.T.data is A.data
    assert A.T.index_dtype == A.index_dtype


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ALL_FORMATS)
def test_conj(format, library):
    real = build(format, library)
    assert real.conj() is real
    A = build(format, library, "complex128")
    lib, buffers = A.lib, A.buffers()
    turned = A.data * lib.asarray(1j, "complex128")
    B = A.from_parts({**buffers, "data": lib.astype(turned, "complex128")}, A.static())
    C = B.conj()
    assert np.array_equal(reference.dense(C), reference.dense(B).conj())
    assert [p.rule for p in C.problems()] == [p.rule for p in B.problems()]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_conj_keeps_free_slots_plus_zero_and_conjugates_the_side_record(dtype):
    data = np.array([[[0, 2 + 1j]]], dtype)
    side = CLASSES["coo"](np.array([complex(0, -0.0)], dtype), [0], [1], (1, 4))
    A = NM(data, [[[0, 3]]], (1, 4), side=side)
    B = A.conj()
    assert B.problems() == []
    assert B.data.tolist() == [[[0, 2 - 1j]]]
    assert not np.signbit(B.side.data.imag[0])
    assert not np.signbit(B.data.imag[0, 0, 0])
