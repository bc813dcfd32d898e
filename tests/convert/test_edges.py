"""Each edge of the table, by itself, against the plain decoding of both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparseformats import _arrays, reference
from sparseformats.convert import EDGES, Edge, Options, chunks, numbering
from sparseformats.testing import check_content_preserved, check_index_width, check_valid, unchanged
from tests.convert import samples

SIZES = ((1, 1), (2, 2), (2, 3), (3, 2), (4, 6), (16, 16))
PATTERNS = ((2, 4), (4, 4), (3, 3))


def _sources(edge: Edge, library: str) -> list[Any]:
    if edge.source == "dense":
        return [samples.dense(library)]
    name = edge.source.removesuffix(".T")
    found = [A for A in samples.sources(library) if A.family == name]
    return [A.T for A in found] if name != edge.source else found


def _options(edge: Edge, A: Any) -> list[Options]:
    if edge.key != "new":
        return [Options()]
    if edge.target == "n:m":
        return [Options(n=n, m=m) for n, m in PATTERNS]
    return [Options(blocksize=size) for size in SIZES if size != getattr(A, "blocksize", None)]


def _holds(edge: Edge, A: Any) -> bool:
    """Blocked-ELL is reached from square blocks only; the graph sees to that."""
    return edge.target != "blocked_ell" or A.blocksize[0] == A.blocksize[1]


def _square(A: Any) -> list[Any]:
    """BSR sources of the edge to Blocked-ELL."""
    from sparseformats import BSR

    data = A.lib.xp.concat([A.data, A.lib.zeros((A.nnzb, 1, 3), "float32")], axis=1)
    return [BSR(data, A.indices, A.indptr, (10, 10))]


def _check(edge: Edge, A: Any) -> None:
    for options in _options(edge, A):
        if edge.target == "n:m" and not _fits(A, options):
            continue
        with unchanged(A):
            B = edge.run(A, options)
        if edge.source == "dense":
            _check_from_dense(A, B)
        elif edge.target == "dense":
            host = A.lib.to_numpy(B)
            expected = reference.dense(A)
            assert host.shape == expected.shape
            assert np.array_equal(_bits(host), _bits(expected)), (edge, A, host, expected)
        else:
            check_valid(B)
            check_content_preserved(A, B)
            check_index_width(A, B)
            if options.blocksize is not None:
                assert B.blocksize == options.blocksize


def _bits(x: Any) -> Any:
    return np.ascontiguousarray(x).view(np.uint32)


def _fits(A: Any, options: Options) -> bool:
    from sparseformats.testing import holds

    if not hasattr(A, "family"):
        host = _bits(_arrays.of(A).to_numpy(A)) << 1 != 0
        beyond = np.pad(host, ((0, 0), (0, -host.shape[1] % (options.m or 1))))
        return int(beyond.reshape(-1, options.m or 1).sum(axis=1).max()) <= (options.n or 0)
    return holds(A, f"{options.n}:{options.m}")


def _check_from_dense(D: Any, B: Any) -> None:
    host = _arrays.of(D).to_numpy(D)
    check_valid(B)
    expected = {
        (i, j): host[i, j].tobytes() for i, j in np.argwhere(_bits(host) << 1 != 0).tolist()
    }
    assert dict(reference.content(B).elements) == expected


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.op)
def test_edge_keeps_the_content(edge: Edge, library: str) -> None:
    found = _sources(edge, library)
    if edge.op == "convert:bsr->blocked_ell":
        found = [B for A in found for B in _square(A)]
    assert found
    for A in found:
        _check(edge, A)


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.op)
@pytest.mark.parametrize("sorting", [False, True])
def test_edge_in_chunks(
    edge: Edge, sorting: bool, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_ON_CPU", 3)
    if sorting:
        monkeypatch.setattr(numbering, "_BITMAP", 0)
        monkeypatch.setattr(numbering, "_ALWAYS", 0)
    test_edge_keeps_the_content(edge, library)


def test_edges_are_named_and_described() -> None:
    names = [edge.op for edge in EDGES]
    assert len(set(names)) == len(names)
    assert all(edge.keeps and edge.cost > 0 for edge in EDGES)
