"""Matrices and operands of the cases, drawn on the device where they are used.

Patterns come from a generator of that device with a fixed seed, values are normal. The host draws
nothing but the order of uneven rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

import sparseformats as sf
from benchmarks.gpu.cases import SEED, Case

__all__ = ["Parts", "Problem", "build", "dense_of", "even_twin", "power_law"]

CHUNK = 1 << 26  # keys that are sorted at a time
EXACT = 1 << 22  # places up to which a uniform pattern has exactly the asked number of blocks


class Parts(NamedTuple):
    """Buffers of a matrix by block rows: data (nnzb, R, C), block columns, row pointers."""

    data: Any
    rows: Any
    columns: Any
    pointers: Any


@dataclass(frozen=True)
class Problem:
    """A case with its matrix, operand and result array on a device."""

    case: Case
    parts: Parts
    matrix: Any
    X: Any
    Y: Any

    @property
    def layer(self) -> dict[str, Any]:
        """What `linear` is called with, where the case is a layer's: both scales are one."""
        return {"scale_a": 1.0, "scale_b": 1.0, "out_dtype": self.case.gives}

    @property
    def stored(self) -> int:
        """Stored blocks."""
        return int(self.parts.data.shape[0])


def build(case: Case, device: str) -> Problem:
    """Draw everything that a case needs."""
    generator = torch.Generator(device).manual_seed(SEED)
    mask = _mask(case, device, generator)
    rows, columns = mask.nonzero(as_tuple=True)
    counts = mask.sum(1, dtype=torch.int32)
    del mask
    pointers = torch.zeros(len(counts) + 1, dtype=torch.int32, device=device)
    pointers[1:] = counts.cumsum(0)
    data = draw((len(rows), *case.block), case.dtype, device, generator)
    parts = Parts(data, rows, columns.int(), pointers)
    X, Y = _operands(case, device, generator)
    return Problem(case, parts, _matrix(case, parts), X, Y)


def even_twin(problem: Problem, device: str) -> Problem:
    """The same product with as many stored blocks, spread evenly over the rows."""
    rows, columns = problem.case.grid
    share = problem.stored / (rows * columns)
    case = replace(problem.case, pattern="even", density=share)
    return replace(build(case, device), X=problem.X)


def dense_of(problem: Problem) -> Any:
    """The matrix as a dense array."""
    case, parts = problem.case, problem.parts
    (rows, columns), (r, c) = case.grid, case.block
    # Types of one byte move as what all operations take.
    data = parts.data.view(torch.int8) if parts.data.itemsize == 1 else parts.data
    D = torch.zeros(rows, r, columns, c, dtype=data.dtype, device=data.device)
    D[parts.rows, :, parts.columns.long(), :] = data
    whole = D.view(rows * r, columns * c)[: case.m, : case.k].contiguous()
    return whole.view(parts.data.dtype)


def draw(shape: tuple[int, ...], dtype: str, device: str, generator: Any) -> Any:
    """Normal values; for int8 as quantising makes them, the largest at 127; small ones for fp8.

    None is zero.
    """
    if dtype == "int8":
        made = torch.randn(shape, device=device, generator=generator)
        made = (made * (127 / float(made.abs().max()))).round_() if made.numel() else made
        return made.where(made != 0, 1).to(torch.int8)
    if dtype.startswith("float8"):
        made = torch.randn(shape, dtype=torch.float16, device=device, generator=generator)
        return made.mul_(0.5).where(made.abs() > 2**-7, 0.25).to(getattr(torch, dtype))
    return torch.randn(shape, dtype=getattr(torch, dtype), device=device, generator=generator)


def _operands(case: Case, device: str, generator: Any) -> tuple[Any, Any]:
    gives = getattr(torch, case.gives or ("int32" if case.dtype == "int8" else case.dtype))
    if case.linear:
        X = draw((case.n, case.k), case.dtype, device, generator).T
        return X, torch.empty(case.n, case.m, dtype=gives, device=device).T
    X = draw((case.k, case.n), case.dtype, device, generator)
    return X, torch.empty(case.m, case.n, dtype=gives, device=device)


def _matrix(case: Case, parts: Parts) -> Any:
    shape = (case.m, case.k)
    options: dict[str, Any] = {"copy": False, "check": False}
    if case.format == "csr":
        return sf.CSR(parts.data.reshape(-1), parts.columns, parts.pointers, shape, **options)
    if case.format == "2:4":
        groups = (case.m, case.k // 4, 2)
        places = (parts.columns % 4).to(torch.uint8)
        return sf.NM(parts.data.reshape(groups), places.reshape(groups), shape, **options)
    if case.format == "bsr":
        return sf.BSR(parts.data, parts.columns, parts.pointers, shape, **options)
    data, index = _slots(case, parts)
    return sf.BlockedELL(data, index, shape, **options)


def _slots(case: Case, parts: Parts) -> tuple[Any, Any]:
    """Blocked-ELL's rows, padded to the longest by empty slots."""
    counts = parts.pointers.diff()
    rows, width = len(counts), int(counts.max())
    slot = torch.arange(len(parts.rows), device=counts.device) - parts.pointers[parts.rows]
    index = torch.full((rows, width), -1, dtype=torch.int32, device=counts.device)
    index[parts.rows, slot] = parts.columns
    data = parts.data.new_zeros(rows, width, *case.block)
    data[parts.rows, slot] = parts.data
    return data, index


# Patterns: which blocks of the grid are stored.


def _mask(case: Case, device: str, generator: Any) -> Any:
    return _PATTERNS[case.pattern](case, device, generator)


def _scattered(case: Case, device: str, generator: Any, factor: float = 1.0) -> Any:
    """Blocks anywhere: exactly as many as the density says, unless the grid is huge."""
    rows, columns = case.grid
    keys = torch.rand(rows * columns, device=device, generator=generator)
    share = min(1.0, case.density * factor)
    if keys.numel() > EXACT:
        return (keys < share).view(rows, columns)
    mask = torch.zeros(rows * columns, dtype=torch.bool, device=device)
    mask[keys.argsort(stable=True)[: round(share * keys.numel())]] = True
    return mask.view(rows, columns)


def _with_lengths(lengths: list[int], columns: int, device: str, generator: Any) -> Any:
    """Rows with so many blocks each, in columns drawn without replacement."""
    count = torch.tensor(lengths, device=device)[:, None]
    place = torch.arange(columns, device=device)[None, :]
    step = max(1, CHUNK // columns)
    pieces = []
    for piece in count.split(step):
        keys = torch.rand(len(piece), columns, device=device, generator=generator)
        order = keys.argsort(dim=1, stable=True)
        chosen = torch.zeros_like(keys, dtype=torch.bool)
        pieces.append(chosen.scatter_(1, order, place < piece))
    return torch.cat(pieces)


def _even(case: Case, device: str, generator: Any) -> Any:
    rows, columns = case.grid
    if case.format == "blocked_ell":
        total = max(1, round(case.density * columns)) * rows
    else:
        total = round(case.density * rows * columns)
    lengths = [total // rows + (row < total % rows) for row in range(rows)]
    random.Random(SEED).shuffle(lengths)
    return _with_lengths(lengths, columns, device, generator)


def _power_law(case: Case, device: str, generator: Any) -> Any:
    rows, columns = case.grid
    lengths = power_law(round(case.density * rows * columns), rows, columns, case.skew)
    random.Random(SEED).shuffle(lengths)
    return _with_lengths(lengths, columns, device, generator)


def power_law(total: int, rows: int, columns: int, skew: float) -> list[int]:
    """Lengths of rows that fall as a power of their rank.

    The longest is `skew` times the mean, but no longer than a full row; their sum is `total`.
    """
    longest = min(columns, round(skew * total / rows))

    def ideal(power: float) -> list[float]:
        return [longest * (rank + 1.0) ** -power for rank in range(rows)]

    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(ideal(middle)) > total else (low, middle)
    wanted = ideal(high)
    lengths = [int(length) for length in wanted]
    missing = total - sum(lengths)
    by_rest = sorted(range(rows), key=lambda row: lengths[row] - wanted[row])
    for row in by_rest[:missing]:
        lengths[row] = min(columns, lengths[row] + 1)
    return lengths


def _banded(case: Case, device: str, generator: Any) -> Any:
    """A full band around the diagonal, as wide as the density says."""
    rows, columns = case.grid
    centre = torch.arange(rows, device=device)[:, None] * (columns / rows)
    place = torch.arange(columns, device=device)[None, :]
    width = max(1, round(case.density * columns))
    first = (centre - width / 2).round().clamp(0, columns - width)
    return (place >= first) & (place < first + width)


def _dense_row(case: Case, device: str, generator: Any) -> Any:
    mask = _scattered(case, device, generator)
    mask[mask.shape[0] // 2] = True
    return mask


def _empty_rows(case: Case, device: str, generator: Any) -> Any:
    """Every second block row is empty, the others are twice as dense."""
    mask = _scattered(case, device, generator, 2.0)
    mask[1::2] = False
    return mask


def _clusters(case: Case, device: str, generator: Any) -> Any:
    """Alike rows anywhere: each of a cluster has the same stretches, and drawn places in them."""
    rows, columns = case.grid
    stretch, count = min(case.stretch, columns), min(case.clusters, rows)
    wide = -(-columns // stretch)
    share = [max(1, round(case.density * wide))] * count
    met = _with_lengths(share, wide, device, generator).repeat_interleave(stretch, dim=1)
    label = torch.randperm(rows, device=device, generator=generator) % count
    mask = met[label, :columns]
    if case.fill < 1:
        mask &= torch.rand(mask.shape, device=device, generator=generator) < case.fill
    return mask


def _two_of_four(case: Case, device: str, generator: Any) -> Any:
    """Two places of each group of four, any two."""
    keys = torch.rand(case.m, case.k // 4, 4, device=device, generator=generator)
    kept = torch.zeros(keys.shape, dtype=torch.bool, device=device)
    return kept.scatter_(2, keys.topk(2, dim=2).indices, True).view(case.m, case.k)


_PATTERNS: dict[str, Callable[[Case, str, Any], Any]] = {
    "uniform": _scattered,
    "even": _even,
    "power-law": _power_law,
    "banded": _banded,
    "dense-row": _dense_row,
    "empty-rows": _empty_rows,
    "two-of-four": _two_of_four,
    "clusters": _clusters,
}
