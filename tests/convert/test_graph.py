"""Paths over the table."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.convert.graph import Node, formats, mirrored_name, path
from sparseformats.testing import check_content_preserved, check_valid, holds
from tests.convert import samples

NODES = [
    *(Node(name) for name in ("coo", "csr", "csc")),
    *(Node(name, (2, 2)) for name in ("bsr", "blocked_ell", "bsr.T", "blocked_ell.T")),
    *(Node("bsr", (2, 3)), Node("bsr.T", (2, 3)), Node("blocked_ell", (3, 3))),
    *(Node("n:m", (2, 4)), Node("n:m.T", (2, 4)), Node("n:m", (1, 3))),
]


def ops(source: Node, target: Node) -> list[str]:
    return [
        step.edge.op.removeprefix("convert:") + "'" * step.mirrored for step in path(source, target)
    ]


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(NODES, 2)))
def test_every_pair_is_connected_without_dense(source: Node, target: Node) -> None:
    steps = path(source, target)
    assert steps[0].source == source
    assert steps[-1].target == target
    for one, after in itertools.pairwise(steps):
        assert one.target == after.source
        assert one.target.name != "dense"


@pytest.mark.parametrize("node", NODES)
def test_dense_is_an_end_of_every_path(node: Node) -> None:
    for steps in (path(node, Node("dense")), path(Node("dense"), node)):
        inner = [step.target.name for step in steps[:-1]]
        assert "dense" not in inner


def test_chosen_paths() -> None:
    assert ops(Node("csr"), Node("csr")) == []
    assert ops(Node("coo"), Node("bsr", (2, 3))) == ["coo->csr", "csr->bsr"]
    assert ops(Node("csr"), Node("blocked_ell", (2, 2))) == ["csr->bsr", "bsr->blocked_ell"]
    assert ops(Node("bsr", (2, 3)), Node("bsr", (4, 4))) == ["bsr->bsr"]
    # Blocks are sorted, not elements.
    assert ops(Node("bsr", (4, 4)), Node("csc")) == ["bsr.T->bsr'", "bsr->csr'"]
    assert ops(Node("bsr.T", (4, 4)), Node("csc")) == ["bsr->csr'"]
    assert ops(Node("n:m.T", (2, 4)), Node("csc")) == ["n:m->csr'"]
    assert ops(Node("dense"), Node("csc")) == ["dense->csr", "csr->csc"]
    assert ops(Node("bsr.T", (4, 4)), Node("dense")) == ["bsr->dense'"]


def test_a_step_tells_its_edge_the_key() -> None:
    (step,) = path(Node("csr"), Node("n:m", (1, 3)))
    assert (step.options.n, step.options.m, step.options.blocksize) == (1, 3, None)
    (step,) = path(Node("csc"), Node("bsr.T", (2, 3)))
    assert step.mirrored
    assert step.options.blocksize == (2, 3)


def test_names() -> None:
    assert formats() == ("csr", "coo", "csc", "bsr", "blocked_ell", "n:m", "sum")
    assert [mirrored_name(n) for n in ("csr", "bsr", "bsr.T", "dense", "coo")] == [
        "csc",
        "bsr.T",
        "bsr",
        "dense",
        None,
    ]


def test_an_unconnected_place_is_refused() -> None:
    with pytest.raises(sf.LossyConversionError, match="from nowhere to csr"):
        path(Node("nowhere"), Node("csr"))


TARGETS: list[tuple[str, dict[str, Any]]] = [
    ("coo", {}),
    ("csr", {}),
    ("csc", {}),
    ("bsr", {"blocksize": (3, 2)}),
    ("bsr", {"blocksize": (4, 4)}),
    ("blocked_ell", {"blocksize": 3}),
    ("bsr.T", {"blocksize": (2, 3)}),
    ("blocked_ell.T", {"blocksize": 2}),
    ("4:4", {}),
    ("3:3.T", {}),
]


@pytest.mark.parametrize("generic", [True, False])
def test_all_ordered_pairs(library: str, generic: bool) -> None:
    with dispatch.temporary(only=generic):
        for A in samples.sources(library):
            for format, options in TARGETS:
                if not holds(A.T if format.endswith(".T") else A, format.removesuffix(".T")):
                    continue
                B = A.to(format, **options)
                assert B.format == format
                assert B.library == library
                check_valid(B)
                check_content_preserved(A, B)
