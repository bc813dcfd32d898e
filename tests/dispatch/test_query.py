import json
import pickle

import pytest

from sparseformats.dispatch import Query, density_bucket, size_bucket, skew_bucket


def test_short_queries_have_sensible_defaults():
    q = Query("convert:csr->bsr", "csr", m=3, k=4)
    assert (q.library, q.device, q.n, q.batch) == ("numpy", "cpu", 1, 1)
    assert q.fits_int32
    assert q.alpha_one
    assert q.beta_zero
    assert not any((q.grad, q.deterministic, q.assume_finite, q.transposed))


def test_is_a_frozen_hashable_value():
    a, b = (Query("matmul", "csr", m=3, k=4, blocksize=(2, 2)) for _ in range(2))
    assert a == b
    assert hash(a) == hash(b)
    assert {a: 1}[b] == 1
    assert a != Query("matmul", "csr", m=3, k=4)
    with pytest.raises(AttributeError):
        a.m = 5
    with pytest.raises(AttributeError):
        object.__setattr__(a, "buffer", [])  # slots: nothing can be smuggled in
    with pytest.raises(TypeError):
        Query("matmul", "csr", 3, 4)  # sizes by keyword only
    assert pickle.loads(pickle.dumps(a)) == a


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"format": "csr"}, "csr"),
        ({"format": "bsr", "transposed": True}, "bsr.T"),
        ({"format": "n:m", "pattern": (2, 4)}, "2:4"),
        ({"format": "n:m", "pattern": (1, 2), "transposed": True}, "1:2.T"),
    ],
)
def test_format_name(facts, name):
    assert Query("matmul", **facts).format_name == name


def test_describe_names_every_fact_that_is_not_usual():
    q = Query(
        "matmul", "bsr", m=6, k=4, n=2, batch=5, blocksize=(2, 3), nnz=7, a_dtype="float16",
        index_dtype="int64", x_dtype="float32", out_dtype="float32", x_layout="F", library="torch",
        device="cuda", capability=(9, 0), alpha_one=False, beta_zero=False, epilogue="bias",
        precision="tf32", deterministic=True, grad=True, assume_finite=True,
    )  # fmt: skip
    assert q.describe() == (
        "matmul: bsr (6 x 4, blocks 2 x 3, nnz 7, float16, int64) @ (5 of 4 x 2, float32, F) -> "
        "float32, torch on cuda (compute capability 9.0), alpha != 1, beta != 0, epilogue bias, "
        "precision tf32, deterministic, gradients wanted, finite operand promised"
    )
    assert Query("convert:csr->bsr", "csr", m=6, k=4).describe() == (
        "convert:csr->bsr: csr (6 x 4), numpy on cpu"
    )
    sizes = {"blocksize": (4, 4), "into": (2, 2)}
    assert Query("convert:bsr->bsr", "bsr", m=6, k=4, **sizes).describe() == (
        "convert:bsr->bsr: bsr (6 x 4, blocks 4 x 4, into 2 x 2), numpy on cpu"
    )


def test_to_dict_is_json_able_and_complete():
    q = Query("matmul", "n:m", pattern=(2, 4), m=1)
    facts = json.loads(json.dumps(q.to_dict()))
    assert facts["pattern"] == [2, 4]
    assert set(facts) == set(Query.__slots__)
    assert "_" not in facts


@pytest.mark.parametrize(
    ("stored", "slots", "bucket"),
    [(0, 0, 0), (16, 16, 0), (9, 16, 0), (8, 16, 1), (5, 16, 1), (4, 16, 2), (1, 2**40, 30)],
)
def test_density_bucket(stored, slots, bucket):
    assert density_bucket(stored, slots) == bucket


@pytest.mark.parametrize(
    ("longest", "mean", "bucket"), [(0, 0.0, 0), (3, 3.0, 0), (6, 3.0, 1), (100, 3.0, 5)]
)
def test_skew_bucket(longest, mean, bucket):
    assert skew_bucket(longest, mean) == bucket


def test_size_bucket():
    assert [size_bucket(n) for n in (0, 1, 2, 3, 4, 5, 64, 65)] == [0, 1, 2, 4, 4, 8, 64, 128]
