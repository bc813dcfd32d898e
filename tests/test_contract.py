"""The cells of the contract table say what the library does."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparseformats as sf

FILE = Path(__file__).resolve().parents[1] / "docs/reference/contract.toml"
ROWS = {row["class"]: row for row in tomllib.loads(FILE.read_text())["formats"]}
SOURCE = sf.COO([1.0, -0.0, 3.0, 4.0], [0, 1, 1, 2], [0, 1, 4, 1], (4, 6))
BLOCKS = {"blocksize": (2, 2)}


def example(name: str) -> Any:
    """The source in the format of one row."""
    if name == "Transposed":
        return example("BSR").T
    row = ROWS[name]
    target = "2:4" if row["format"] == "n:m" else row["format"]
    return SOURCE.to(target, **(BLOCKS if row["needs"] else {}))


@pytest.mark.parametrize("name", ROWS)
def test_class_and_format(name: str) -> None:
    matrix, row = example(name), ROWS[name]
    assert type(matrix) is getattr(sf, name)
    spelled = {"n:m": "2:4", "*.T": "bsr.T"}.get(row["format"], row["format"])
    assert matrix.format == spelled
    assert sf.same(matrix.T if name == "Transposed" else matrix, SOURCE)


@pytest.mark.parametrize("name", ROWS)
def test_slots(name: str) -> None:
    matrix = example(name)
    base = matrix.base if name == "Transposed" else matrix
    assert hasattr(base, "zeros") is ROWS[name]["slots"]


@pytest.mark.parametrize("name", [name for name in ROWS if name != "Transposed"])
def test_what_to_needs(name: str) -> None:
    row = ROWS[name]
    if row["needs"]:
        with pytest.raises(ValueError, match=r"blocksize=\(R, C\)"):
            SOURCE.to(row["format"])
    else:
        with pytest.raises(ValueError, match="takes no blocksize"):
            SOURCE.to(example(name).format, **BLOCKS)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("neighbour", ["scipy", "torch"])
def test_neighbours(name: str, neighbour: str) -> None:
    matrix, says = example(name), ROWS[name][neighbour]
    if neighbour == "torch":
        matrix = matrix.to_library("torch")
    if says == "TypeError":
        with pytest.raises(TypeError):
            getattr(matrix, f"to_{neighbour}")()
        return
    packed = says.startswith("SparseSemiStructured")
    if packed:
        with pytest.raises(TypeError):
            matrix.to_torch()
        matrix = sf.eye(64, dtype="float16").to("2:4")
    made = getattr(matrix, f"to_{neighbour}")()
    found = type(made).__name__ if neighbour == "scipy" or packed else str(made.layout)
    assert found.removeprefix("torch.") == says.split()[0]


@pytest.mark.parametrize("name", [name for name in ROWS if "divide" in ROWS[name]["torch"]])
def test_neighbours_without_ragged_blocks(name: str) -> None:
    ragged = sf.COO([1.0], [2], [4], (3, 5)).to("bsr", **BLOCKS)
    matrix = ragged.T if name == "Transposed" else ragged
    with pytest.raises(TypeError, match="divide"):
        matrix.to_library("torch").to_torch()
    if "divide" in ROWS[name]["scipy"]:
        with pytest.raises(TypeError, match="divide"):
            matrix.to_scipy()


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name]["cupy"] == "TypeError"])
def test_formats_that_cupy_lacks(name: str) -> None:
    with pytest.raises(TypeError):
        example(name).to_cupy()


@pytest.mark.parametrize(
    ("target", "options", "when"),
    [
        ("2:4", {}, "a group with more than n non-zeros"),
        ("blocked_ell", {"blocksize": (2, 3)}, "a block that is not square"),
    ],
)
def test_refusals(target: str, options: dict[str, Any], when: str) -> None:
    row = ROWS["NM" if target == "2:4" else "BlockedELL"]
    (error,) = [each["error"] for each in row["refuses"] if each["when"] == when]
    with pytest.raises(ValueError, match=r".") as caught:
        sf.from_dense(np.ones((2, 4)), "csr").to(target, **options)
    assert type(caught.value).__name__ == error
