"""The kernel whose block rows share what they read, as it is compiled for a call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from triton.experimental.gluon import language as gl

from sparseformats_kernels.triton.configs import RESERVED, SHARED, Config
from sparseformats_kernels.triton.launch import Specimen
from sparseformats_kernels.triton.shared import multiply_shared
from sparseformats_kernels.triton.unions import BITS, Sharing

__all__ = ["fitted", "sharing_of", "specimen_of_shared"]

_LISTS = ("program_ptr", "items", "columns", "present", "starts", "places")
# A multiprocessor's 65,536 registers: of a thread that multiplies, and of one that loads, for each
# number of multiplying groups.
_REGISTERS = {2: (232, 40), 3: (160, 32), 4: (112, 32)}
_ITEMSIZE = 2
_SCARCE = 2  # stages, the least that overlap


def sharing_of(config: Config, block: tuple[int, int]) -> Sharing:
    """How block rows share under launch parameters: BM rows by `turns` groups, G columns a step.

    Raises
    ------
    ValueError
        The kernel has no such variant.
    """
    r, c = block
    rows = config.BM // (r * config.turns)
    sums = rows * r * config.BN // 128 if config.turns in _REGISTERS else 0
    possible = (
        (rows * r * config.turns, c) == (config.BM, config.BK)
        and config.turns in _REGISTERS
        and rows * config.G <= BITS
        and sums <= _REGISTERS[config.turns][0] - 24
        and config.warps == 4
        and config.pieces == 1
        and config.BN in (64, 128, 256)
    )
    if not possible:
        raise ValueError(
            f"expected 2, 3 or 4 groups (turns) of 4 warps that own BM / turns rows each, a whole "
            f"number of blocks whose sums fit registers, with rows of blocks * G <= {BITS}, BK = "
            f"{c}, and BN of 64, 128 or 256, for blocks of {r} x {c}, got {config}"
        )
    return Sharing(config.turns, rows, config.G)


def fitted(config: Config, block: tuple[int, int], slots: int) -> tuple[Config, int]:
    """The same with no more stages and places for blocks than shared memory holds.

    Returns
    -------
    config : Config
    slots : int
        Places for blocks in a stage.
    """
    r, c = block
    free = SHARED - RESERVED - config.turns * r * config.BN * _ITEMSIZE
    dense = config.G * config.BN * c * _ITEMSIZE
    slots = max(1, min(slots, (free // _SCARCE - dense) // (r * c * _ITEMSIZE)))
    stage = dense + slots * r * c * _ITEMSIZE
    return replace(config, stages=max(_SCARCE, min(config.stages, free // stage))), slots


def specimen_of_shared(
    config: Config,
    slots: int,
    block: tuple[int, int],
    dtype: str,
    *,
    transposed: bool = False,
    x_rows: bool = True,
    y_rows: bool = True,
    alpha: bool = False,
    beta: bool = False,
    bias: bool = False,
    activation: str | None = None,
) -> Specimen:
    """The kernel for one set of launch parameters and facts of a call.

    Parameters
    ----------
    config : Config
    slots : int
        Places for blocks in a stage.
    block : (int, int)
        R and C of the matrix that is multiplied.
    dtype : str
        ``"fp16"`` or ``"bf16"``.
    transposed : bool
        The values hold the transposes of the blocks.
    x_rows, y_rows : bool
        Rows of operand and result are contiguous, not columns.
    alpha, beta, bias : bool
        The epilogue has them.
    activation : str or None
    """
    (r, c), bn = block, config.BN
    sharing = sharing_of(config, block)
    maps = {
        "values": (c, r) if transposed else (r, c),
        "dense": (c, bn) if x_rows else (bn, c),
        "result": (r, bn) if y_rows else (bn, r),
    }
    types = {name: _map_type(dtype, box) for name, box in maps.items()}
    types |= dict.fromkeys(("bias", "out"), f"*{dtype}")
    types |= dict.fromkeys(_LISTS, "*i32")
    types |= {"out_row": "i64", "out_column": "i64", "alpha": "fp32", "beta": "fp32"}
    types |= {"M": "i32", "N": "i32"}
    registers, loader_registers = _REGISTERS[sharing.groups]
    constants: dict[str, Any] = {
        "R": r,
        "C": c,
        "BN": bn,
        "G": sharing.columns,
        "PER": sharing.rows,
        "GROUPS": sharing.groups,
        "SLOTS": slots,
        "DIGITS": slots.bit_length(),
        "STAGES": config.stages,
        "TRANSPOSED": transposed,
        "X_ROWS": x_rows,
        "Y_ROWS": y_rows,
        "ALPHA": alpha,
        "BETA": beta,
        "BIAS": bias,
        "ACTIVATION": activation,
        "LOADER_REGISTERS": loader_registers,
        "GROUP_REGISTERS": registers,
        "num_warps": config.warps,
    }
    names = multiply_shared.arg_names
    return Specimen(
        multiply_shared,
        tuple((name, types[name]) for name in names if name in types),
        tuple((name, constants[name]) for name in names if name in constants),
        frozenset(_LISTS),
        config.warps,
    )


def _map_type(dtype: str, box: tuple[int, int]) -> str:
    element = {"fp16": gl.float16, "bf16": gl.bfloat16}[dtype]
    layout = gl.NVMMASharedLayout.get_default_for(list(box), element)
    return f"tensordesc<{dtype}[{box[0]}, {box[1]}],{layout!r}>"
