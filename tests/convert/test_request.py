"""What format strings and block sizes mean, and what is said of bad ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats.convert.graph import Node
from sparseformats.convert.request import node_of, requested
from tests.convert import samples

PLAIN, BLOCKS, TURNED = Node("csr"), Node("bsr", (2, 3)), Node("bsr.T", (2, 3))


@pytest.mark.parametrize(
    ("format", "blocksize", "source", "node"),
    [
        ("csr", None, BLOCKS, Node("csr")),
        ("2:4", None, PLAIN, Node("n:m", (2, 4))),
        ("16:256", None, PLAIN, Node("n:m", (16, 256))),
        ("2:4.T", None, PLAIN, Node("n:m.T", (2, 4))),
        ("bsr", (4, 5), BLOCKS, Node("bsr", (4, 5))),
        ("bsr", np.int64(4), PLAIN, Node("bsr", (4, 4))),
        ("bsr", None, BLOCKS, Node("bsr", (2, 3))),
        ("bsr", None, TURNED, Node("bsr", (3, 2))),
        ("bsr.T", None, TURNED, TURNED),
        ("bsr.T", (3, 2), PLAIN, TURNED),
        ("blocked_ell", 4, BLOCKS, Node("blocked_ell", (4, 4))),
        ("bsr", None, Node("blocked_ell.T", (2, 2)), Node("bsr", (2, 2))),
    ],
)
def test_requests(format: str, blocksize: Any, source: Node, node: Node) -> None:
    assert requested(format, blocksize, source) == node


@pytest.mark.parametrize(
    "format", ["", "CSR", "dia", "2:4:8", "02:4", " 2:4", "2:4 ", "n:m", "٢:٤", "csr.T", "coo.T"]
)
def test_unknown_formats(format: str) -> None:
    with pytest.raises(ValueError, match=r"unknown format .*'csr'.*'blocked_ell'.*'2:4'") as caught:
        requested(format, None, PLAIN)
    assert repr(format) in str(caught.value)


def test_numbers_beyond_all_reason() -> None:
    with pytest.raises(ValueError, match="unknown format"):
        requested("9" * 5000 + ":4", None, PLAIN)


@pytest.mark.parametrize("format", ["5:4", "4:2", "1:257"])
def test_impossible_patterns(format: str) -> None:
    with pytest.raises(ValueError, match="1 <= n <= m <= 256") as caught:
        requested(format, None, PLAIN)
    assert repr(format) in str(caught.value)


def test_dense_is_named_as_a_call() -> None:
    with pytest.raises(ValueError, match=r"A\.to_dense\(\)"):
        requested("dense", None, PLAIN)


def test_format_must_be_text() -> None:
    with pytest.raises(TypeError, match="got 3"):
        requested(3, None, PLAIN)


@pytest.mark.parametrize(
    ("format", "blocksize", "source", "error", "text"),
    [
        ("bsr", None, PLAIN, ValueError, r"blocksize=\(R, C\)"),
        ("blocked_ell", None, Node("n:m", (2, 4)), ValueError, r"blocksize=\(R, C\)"),
        ("blocked_ell", None, BLOCKS, ValueError, r"square blocks, the source's are \(2, 3\)"),
        ("blocked_ell", (2, 3), PLAIN, ValueError, r"square blocks, got \(2, 3\)"),
        ("bsr", (0, 2), PLAIN, ValueError, r"\(0, 2\)"),
        ("bsr", (-2, 2), PLAIN, ValueError, r"\(-2, 2\)"),
        ("bsr", (2,), PLAIN, ValueError, r"\(2,\)"),
        ("bsr", (2.0, 2), PLAIN, TypeError, r"\(2\.0, 2\)"),
        ("bsr", "22", PLAIN, TypeError, "'22'"),
        ("bsr", True, PLAIN, TypeError, "True"),
        ("bsr", 2**63, PLAIN, ValueError, rf"2\*\*63 - 1, got \({2**63}, {2**63}\)"),
        ("blocked_ell", 2**70, PLAIN, ValueError, str(2**70)),
        ("csr", (2, 2), PLAIN, ValueError, r"takes no blocksize, got \(2, 2\)"),
        ("2:4", 2, PLAIN, ValueError, "takes no blocksize"),
    ],
)
def test_bad_block_sizes(
    format: str, blocksize: Any, source: Node, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        requested(format, blocksize, source)
    assert "{" not in str(caught.value)


def test_node_of_every_format() -> None:
    assert [node_of(A) for A in samples.sources("numpy")[:6]] == [
        Node("coo"),
        Node("csr"),
        Node("csc"),
        Node("bsr", (2, 3)),
        Node("blocked_ell", (2, 2)),
        Node("n:m", (2, 4)),
    ]
    assert node_of(samples.bsr("numpy").T) == Node("bsr.T", (2, 3))


def test_what_is_asked_for_already_comes_back_itself(library: str) -> None:
    for A in samples.sources(library):
        assert A.to(A.format) is A
    B = samples.bsr(library)
    assert B.to("bsr", blocksize=(2, 3)) is B
    assert B.to("bsr", blocksize=(2, 3), index_dtype="int32") is B
    assert B.T.to("bsr.T", blocksize=(3, 2)).T is B


def test_only_matrices_are_converted() -> None:
    with pytest.raises(TypeError, match="asformat"):
        sf.convert.convert(np.eye(2), "csr")
