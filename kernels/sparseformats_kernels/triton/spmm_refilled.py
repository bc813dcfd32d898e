"""Products of what a conversion plan has put into its room."""

from __future__ import annotations

from typing import Any, final

from sparseformats._arrays import Array
from sparseformats.dispatch.query import Query
from sparseformats_kernels.triton.convert.common import power, steps_of
from sparseformats_kernels.triton.convert.refill import KEPT, Room
from sparseformats_kernels.triton.prepared import Prepared, Step
from sparseformats_kernels.triton.refilled import multiply_blocks, multiply_elements

__all__ = ["Product", "multiply", "tiling"]


def multiply(room: Room, query: Query) -> Product:
    """Give what multiplies the room: ``run(X, out)``, for X (k, n) and out (m, n)."""
    return Product(room)


def tiling(blocksize: tuple[int, int] | None, n: int, dtype: str) -> tuple[dict[str, int], int]:
    """Tile of a program, and its warps."""
    if blocksize is None:
        return {"BN": min(128, max(16, power(n))), "BK": 16}, 4
    half = dtype != "float32"
    high = min(64, max(16, power(blocksize[0])))
    wide = min(128 if half else 64, max(16, power(n)))
    return {"BM": high, "BN": wide, "BK": 64 if half else 32}, 8 if high * wide > 4096 else 4


@final
class Product:
    """Launches for operands of each shape and each way of lying."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._keeps = (room.data, room.indices, room.starts, room.ends, room.overflow)
        self._prepared: dict[tuple[Any, ...], Prepared] = {}

    def __call__(self, x: Array, out: Array) -> None:
        """Multiply on the current stream."""
        lib = self._room.lib
        key = tuple((tuple(a.shape), lib.strides(a), lib.address(a) % 16) for a in (x, out))
        found = self._prepared.get(key)
        if found is None:
            found = Prepared(lib, self._room.count, [self._step(x, out)], self._keeps)
            if len(self._prepared) >= KEPT:
                self._prepared.pop(next(iter(self._prepared)))
            self._prepared[key] = found
        found(x=x, out=out)

    def _step(self, x: Array, out: Array) -> Step:
        room, n = self._room, int(x.shape[1])
        lib, (m, k) = room.lib, room.shape
        tile, warps = tiling(room.blocksize, n, room.dtype)
        wide = -(-n // tile["BN"])
        given: dict[str, Any] = {"values": room.data, "indices": room.indices, "x": x, "out": out}
        given |= {"starts": room.starts, "ends": room.ends, "wide": wide, "N": n}
        given |= {"overflow": lib.bits(room.overflow)}
        for name, array in (("x", x), ("out", out)):
            steps = zip(("row", "column"), steps_of(lib, array), strict=True)
            given |= {f"{name}_{axis}_step": step for axis, step in steps}
        reads = {"x": "x", "out": "out"}
        if room.blocksize is None:
            return Step(multiply_elements, m * wide, given, tile, reads, warps)
        r, c = room.blocksize
        rows = -(-m // r) * -(-r // tile["BM"])
        given |= {"M": m, "K": k}
        constants = {"R": r, "C": c, **tile, "PRECISION": "ieee"}
        constants["UPCAST"] = room.device == "cpu" and room.dtype == "bfloat16"
        return Step(multiply_blocks, rows * wide, given, constants, reads, warps)
