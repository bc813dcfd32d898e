"""The kernel of 2:4 matrices as it is compiled for launch parameters and the facts of a call."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparseformats.dispatch.query import Query
from sparseformats_kernels.triton.calls import activation_of, has_bias
from sparseformats_kernels.triton.configs import Config
from sparseformats_kernels.triton.launch import Specimen
from sparseformats_kernels.triton.nm_fragments import multiply
from sparseformats_kernels.triton.nm_instructions import product
from sparseformats_kernels.triton.nm_packing import COLUMNS
from sparseformats_kernels.triton.strided_variants import Strides

__all__ = ["Facts", "facts_of", "sizes_of", "specimen_of"]

_TYPES = {"float16": "fp16", "bfloat16": "bf16"}
_KINDS = {"float16": "f16", "bfloat16": "bf16"}  # as instructions call them


class Facts(NamedTuple):
    """What the machine code may rely on about operand, result and shape."""

    x: Strides
    out: Strides
    vectors: bool
    whole: bool

    @property
    def by_columns(self) -> bool:
        """Columns of the operand are contiguous, as in a linear layer."""
        return self.x.row == 1


def facts_of(x: Strides, out: Strides, k: int, n: int) -> Facts:
    """Facts of a call that tell machine codes apart; steps but 1 do not.

    ``vectors``: columns of the operand can be read 16 bytes at a time; ``whole``: the number of
    columns is a multiple of 16.
    """
    vectors = x.row == 1 and x.aligned and k % 8 == 0
    return Facts(_kind(x), _kind(out), vectors, n % 16 == 0)


def _kind(steps: Strides) -> Strides:
    """Strides of the same machine code."""
    row = steps.row == 1
    return Strides(1 if row else 2, 1 if steps.column == 1 and not row else 2, steps.aligned)


def specimen_of(query: Query, config: Config, facts: Facts, sparse: bool = True) -> Specimen:
    """What is compiled for calls of these facts."""
    dtype = query.a_dtype or ""
    pointer = f"*{_TYPES[dtype]}"
    types = {"packed": "*i32", "partial": "*fp32", "alpha": "fp32", "beta": "fp32"}
    types |= dict.fromkeys(("x", "out", "bias"), pointer)
    types |= dict.fromkeys(("M", "K", "N", "TILES", "STEPS", "COLUMNS"), "i32")
    types |= {f"{a}_{b}": "i64" for a in ("x", "out") for b in ("row", "column")}
    constants: dict[str, Any] = {
        "MT": config.BM // 16,
        "NT": config.BN // 8,
        "KS": config.BK // COLUMNS,
        "STAGES": config.stages,
        "SPLIT": config.G,
        "SPARSE": sparse,
        "FIRST": product(_KINDS[dtype], 0, sparse),
        "SECOND": product(_KINDS[dtype], 1, sparse),
        "K_FAST": facts.by_columns,
        "VECTOR": facts.vectors,
        "ALPHA": not query.alpha_one,
        "BETA": not query.beta_zero,
        "BIAS": has_bias(query),
        "ACTIVATION": activation_of(query),
        "num_warps": config.warps,
    }
    constants |= facts.x.constants("x") | facts.out.constants("out")
    aligned = {"packed", "partial"} | ({"N"} if facts.whole else set())
    for name, steps in (("x", facts.x), ("out", facts.out)):
        aligned |= {name, f"{name}_row", f"{name}_column"} if steps.aligned else set()
    names = multiply.arg_names
    return Specimen(
        multiply,
        tuple((n, types[n]) for n in names if n in types and n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset(aligned - set(constants)),
        config.warps,
    )


def sizes_of(config: Config, shape: tuple[int, int], n: int) -> tuple[int, dict[str, int]]:
    """Programs of a launch, and the kernel's sizes for a matrix of (m, k) and n columns."""
    (m, k), columns = shape, -(-n // config.BN)
    tiles = -(-k // COLUMNS)
    steps = -(-tiles // (config.G * config.warps * (config.BK // COLUMNS)))
    sizes = {"M": m, "K": k, "N": n, "TILES": tiles, "STEPS": steps, "COLUMNS": columns}
    return -(-m // config.BM) * config.G * columns, sizes
