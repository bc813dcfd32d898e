"""The warp-specialised kernel as it is compiled for launch parameters and the facts of a call."""

from __future__ import annotations

from typing import Any

from triton.experimental.gluon import language as gl

from sparseformats_kernels.triton.configs import Config
from sparseformats_kernels.triton.launch import Specimen
from sparseformats_kernels.triton.packing import PAD
from sparseformats_kernels.triton.specialised import multiply

__all__ = ["specimen_of"]

_POINTERS = ("bias", "out", "program_ptr", "items", "columns", "places", "partial")
_LOADER_REGISTERS, _TURN_REGISTERS = 24, 240


def specimen_of(
    config: Config,
    block: tuple[int, int],
    dtype: str,
    *,
    transposed: bool = False,
    indirect: bool = False,
    x_rows: bool = True,
    y_rows: bool = True,
    alpha: bool = False,
    beta: bool = False,
    bias: bool = False,
    activation: str | None = None,
    split: bool = False,
) -> Specimen:
    """The kernel for one set of launch parameters and facts of a call.

    Parameters
    ----------
    config : Config
    block : (int, int)
        R and C of the matrix that is multiplied.
    dtype : str
        ``"fp16"`` or ``"bf16"``.
    transposed, indirect : bool
        The values hold the transposes of the blocks; blocks lie in another order.
    x_rows, y_rows : bool
        Rows of operand and result are contiguous, not columns.
    alpha, beta, bias : bool
        The epilogue has them.
    activation : str or None
    split : bool
        Some rows are summed in parts.
    """
    bm, bn, bk = config.BM, config.BN, config.BK
    if block[0] % bm or block[1] % bk or config.stages < 2 or config.G > PAD:
        raise ValueError(
            f"launch parameters {config} do not go with blocks of {block[0]} x {block[1]}: BM and "
            f"BK must divide them, with at least 2 stages and at most {PAD} blocks a stage"
        )
    written = (bm // config.pieces, bn) if config.swap else (bm, bn // config.pieces)
    maps = {
        "values": (bk, bm) if transposed else (bm, bk),
        "dense": (bk, bn) if x_rows else (bn, bk),
        "result": written if y_rows else written[::-1],
    }
    types = {name: _map_type(dtype, box) for name, box in maps.items()}
    types |= dict.fromkeys(("bias", "out"), f"*{dtype}")
    types |= dict.fromkeys(("program_ptr", "items", "columns", "places"), "*i32")
    types["partial"] = "*fp32"
    types |= {"out_row": "i64", "out_column": "i64", "alpha": "fp32", "beta": "fp32"}
    types |= {"M": "i32", "N": "i32", "value_rows": "i32"}
    constants: dict[str, Any] = {
        "R": block[0],
        "C": block[1],
        "BM": bm,
        "BN": bn,
        "BK": bk,
        "G": config.G,
        "STAGES": config.stages,
        "TURNS": config.turns,
        "PIECES": config.pieces,
        "TRANSPOSED": transposed,
        "INDIRECT": indirect,
        "SWAP": config.swap,
        "X_ROWS": x_rows,
        "Y_ROWS": y_rows,
        "ALPHA": alpha,
        "BETA": beta,
        "BIAS": bias,
        "ACTIVATION": activation,
        "SPLIT": split,
        "LOADER_REGISTERS": _LOADER_REGISTERS,
        "TURN_REGISTERS": _TURN_REGISTERS,
        "num_warps": config.warps,
    }
    names = multiply.arg_names
    return Specimen(
        multiply,
        tuple((name, types[name]) for name in names if name in types),
        tuple((name, constants[name]) for name in names if name in constants),
        frozenset(_POINTERS) - {"bias", "out"},
        config.warps,
    )


def _map_type(dtype: str, box: tuple[int, int]) -> str:
    element = {"fp16": gl.float16, "bf16": gl.bfloat16}[dtype]
    layout = gl.NVMMASharedLayout.get_default_for(list(box), element)
    return f"tensordesc<{dtype}[{box[0]}, {box[1]}],{layout!r}>"
