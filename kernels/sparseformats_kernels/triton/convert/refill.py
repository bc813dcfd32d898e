"""Conversions into room of a fixed size, again and again, without waiting for the device.

Each target takes a room and gives what fills it: ``fill(dense=D)``, ``fill(dense=D, mask=M)`` or
``fill(data=..., indices=..., indptr=...)``. All memory is taken before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query
from sparseformats_kernels.cuda.devices import device_of
from sparseformats_kernels.triton.convert import finding, refilling
from sparseformats_kernels.triton.convert.common import (
    ELEMENTS,
    LINE,
    ROWS,
    bits_of,
    kind_of,
    power,
    some_of,
    steps_of,
    strips,
    tiling,
)
from sparseformats_kernels.triton.prepared import Prepared, Step

__all__ = ["Room", "csr_to_bsr", "dense_to_blocked_ell", "dense_to_bsr", "dense_to_csr"]

KEPT = 16  # ways of lying of sources, for each of which launches are kept
LINES = 1024  # flags of a row that a program numbers at a time
TILE = (4, 256)  # rows and columns of a dense array that a program counts
VECTOR, LOOK = 16, 64  # bytes side by side, and how many of such, that a warp looks at for writing
Arrays = Mapping[str, Array]


class Room(Protocol):
    """What is filled; see `sparseformats.ops.room.Room`."""

    lib: ArrayLibrary
    device: str
    dtype: str
    shape: tuple[int, int]
    blocksize: tuple[int, int] | None
    capacity: int
    data: Array
    indices: Array
    starts: Array
    ends: Array
    count: Array
    overflow: Array
    indptr: Array | None
    marked: Array | None


Steps = Callable[[Room, Arrays, Arrays], list[Step]]
"""``(room, scratch, sources) -> launches`` for sources that lie like these."""


@final
class _Refill:
    """Launches for each way in which sources have lain so far."""

    def __init__(self, room: Room, scratch: Arrays, steps: Steps) -> None:
        self._room, self._scratch, self._steps = room, scratch, steps
        kept = (room.data, room.indices, room.starts, room.ends, room.count, room.overflow)
        more = (x for x in (room.indptr, room.marked) if x is not None)
        self._keeps = (*kept, *more, *scratch.values())
        self._prepared: dict[tuple[Any, ...], Prepared] = {}

    def __call__(self, **sources: Array) -> None:
        """Fill the room from these arrays, on the current stream."""
        lib = self._room.lib
        bits = {name: some_of(lib, x) for name, x in sources.items()}
        key = tuple((name, lib.strides(x), lib.address(x) % 16) for name, x in bits.items())
        found = self._prepared.get(key)
        if found is None:
            steps = self._steps(self._room, self._scratch, bits)
            found = Prepared(lib, self._room.count, steps, self._keeps)
            if len(self._prepared) >= KEPT:
                self._prepared.pop(next(iter(self._prepared)))
            self._prepared[key] = found
        found(**bits)


def dense_to_csr(room: Room, query: Query) -> _Refill:
    """Count what each row stores, number the rows, write."""
    return _settled(_Refill(room, _scratch(room, {"counts": (room.shape[0], "int32")}), _elements))


def dense_to_bsr(room: Room, query: Query) -> _Refill:
    """Flag blocks, number them row by row, copy those that the room has a place for."""
    rows, columns = _grid(room)
    needs = {"flags": (rows * columns, "int8"), "counts": (rows, "int32")}
    needs |= {"kept": (room.capacity, "int32")}
    return _settled(_Refill(room, _scratch(room, needs), _blocks))


def dense_to_blocked_ell(room: Room, query: Query) -> _Refill:
    """Flag blocks, and give each row its own slots."""
    rows, columns = _grid(room)
    needs = {"flags": (rows * columns, "int8"), "counts": (rows, "int32")}
    needs |= {"kept": (rows * room.capacity, "int32")}
    return _settled(_Refill(room, _scratch(room, needs), _slots))


def csr_to_bsr(room: Room, query: Query) -> _Refill:
    """Flag the blocks that elements lie in, number them, write each element to its place."""
    rows, columns = _grid(room)
    needs = {"flags": (rows * columns, "int8"), "counts": (rows, "int32")}
    needs |= {"kept": (room.capacity, "int32"), "ranks": (rows * columns, "int32")}
    return _settled(_Refill(room, _scratch(room, needs), _gathered))


def _scratch(room: Room, needs: Mapping[str, tuple[int, str]]) -> Arrays:
    """Memory between the steps, at least one element of each."""
    lib = room.lib
    size = sum(count * {"int8": 1, "int32": 4}[name] for count, name in needs.values())
    lib.ensure_fits(size, room.device, "memory between the steps of a conversion plan")
    return {
        key: lib.zeros(max(1, count), name, room.device) for key, (count, name) in needs.items()
    }


def _settled(refill: _Refill) -> _Refill:
    """The same, once its memory is what it should be: other streams may use it at once."""
    room = refill._room
    if room.device != "cpu":
        device_of(room.count, room.lib).settle()
    return refill


def _grid(room: Room) -> tuple[int, int]:
    (m, n), (r, c) = room.shape, room.blocksize or (1, 1)
    return -(-m // r), -(-n // c)


def _steps(lib: ArrayLibrary, x: Array, prefix: str = "") -> dict[str, int]:
    return dict(zip((f"{prefix}row_step", f"{prefix}column_step"), steps_of(lib, x), strict=True))


def _masked(room: Room, sources: Arrays) -> tuple[dict[str, Any], dict[str, str], bool]:
    """What the kernels that write are told of the dense array and its mask."""
    lib, dense, mask = room.lib, sources["dense"], sources.get("mask")
    chosen = dense if mask is None else mask
    given = {"dense": dense, **_steps(lib, dense), "mask": chosen, **_steps(lib, chosen, "mask_")}
    reads = {"dense": "dense"} | ({} if mask is None else {"mask": "mask"})
    return given, reads, mask is not None


def _chosen(room: Room, sources: Arrays) -> tuple[dict[str, Any], dict[str, str], int]:
    """What the kernels that look for what is stored are told: of the mask, where there is one."""
    name = "mask" if "mask" in sources else "dense"
    given = {"dense": sources[name], **_steps(room.lib, sources[name])}
    return given, {"dense": name}, 0 if name == "mask" else kind_of(room.dtype)


def _elements(room: Room, scratch: Arrays, sources: Arrays) -> list[Step]:
    (m, n), lib, (high, wide) = room.shape, room.lib, TILE
    found, reads, kind = _chosen(room, sources)
    sizes = {"m": m, "n": n}
    tile = {"RB": high, "E": wide}
    look = found | sizes | {"counts": scratch["counts"]}
    given, both, masked = _masked(room, sources)
    given |= {"n": n, "capacity": room.capacity, "indptr": room.indptr}
    given |= {"data": bits_of(lib, room.data), "indices": room.indices}
    each = VECTOR // itemsize(room.dtype)
    constants = {"W": LOOK * each, "V": each, "KIND": kind_of(room.dtype), "MASKED": masked}
    return [
        Step(refilling.count_chosen, -(-m // high), look, tile | {"KIND": kind}, reads),
        _numbered(room, scratch),
        Step(refilling.write_chosen, m, given, constants, both, 1),
    ]


def _numbered(room: Room, scratch: Arrays) -> Step:
    """One program that turns counts of rows into pointers."""
    given = {"counts": scratch["counts"], "indptr": room.indptr, "rows": int(room.ends.shape[0])}
    given |= {"count": room.count, "overflow": bits_of(room.lib, room.overflow)}
    given |= {"capacity": room.capacity}
    return Step(refilling.number_rows, 1, given, {"E": _lane(given["rows"], 4)}, warps=8)


def _flagged(room: Room, scratch: Arrays, sources: Arrays) -> list[Step]:
    """Flags of a dense array's blocks, and how many each row has."""
    (m, n), (r, c), (rows, columns) = room.shape, room.blocksize or (1, 1), _grid(room)
    found, reads, kind = _chosen(room, sources)
    size = itemsize(room.lib.dtype_name(found["dense"]))
    groups, along = strips(n, c, size)
    given = found | {"flags": scratch["flags"], "m": m, "n": n}
    given |= {"columns": columns, "strips": along}
    height = min(ROWS, power(r), max(1, ROWS * LINE // (groups * c * size)))
    shape = {"R": r, "C": c, "G": groups, "RB": height, "KIND": kind}
    shape["BY_ROWS"] = found["column_step"] == 1
    return [
        Step(finding.flag_blocks, rows * along, given, shape, reads),
        _counted(room, scratch),
    ]


def _counted(room: Room, scratch: Arrays) -> Step:
    rows, columns = _grid(room)
    given = {"flags": scratch["flags"], "counts": scratch["counts"], "columns": columns}
    return Step(refilling.count_flags, rows, given, {"E": _lane(columns)})


def _lane(count: int, times: int = 1) -> int:
    """Flags of a row, or counts of rows, that a program takes at a time."""
    return max(32, power(count, times * LINES))


def _named(room: Room, scratch: Arrays, *, ranked: bool = False, padded: bool = False) -> Step:
    rows, columns = _grid(room)
    given: dict[str, Any] = {name: scratch[name] for name in ("flags", "kept")}
    given |= {"ranks": scratch["ranks" if ranked else "kept"], "indices": room.indices}
    given |= {"starts": room.starts, "columns": columns, "capacity": room.capacity}
    constants = {"E": _lane(columns), "RANKED": ranked, "PADDED": padded}
    return Step(refilling.name_flags, rows, given, constants)


def _copied(room: Room, scratch: Arrays, sources: Arrays, *, padded: bool) -> Step:
    """Copy what is named from a dense array."""
    lib, (m, n), (rows, columns) = room.lib, room.shape, _grid(room)
    slots = rows * room.capacity if padded else room.capacity
    programs, tile, parts = tiling(slots, room.blocksize or (1, 1))
    given, reads, masked = _masked(room, sources)
    data = bits_of(lib, room.data)
    marked = data if room.marked is None else bits_of(lib, room.marked)
    given |= {"kept": scratch["kept"], "last": room.ends[-1:], "data": data, "marked": marked}
    given |= {"m": m, "n": n, "columns": max(1, columns), "slots": slots, "parts": parts}
    constants = tile | {"KIND": kind_of(room.dtype), "MASKED": masked, "PADDED": padded}
    return Step(refilling.gather_named, programs if rows else 0, given, constants, reads)


def _blocks(room: Room, scratch: Arrays, sources: Arrays) -> list[Step]:
    return [
        *_flagged(room, scratch, sources),
        _numbered(room, scratch),
        _named(room, scratch),
        _copied(room, scratch, sources, padded=False),
    ]


def _slots(room: Room, scratch: Arrays, sources: Arrays) -> list[Step]:
    given = {"counts": scratch["counts"], "starts": room.starts, "ends": room.ends}
    given |= {"count": room.count, "overflow": bits_of(room.lib, room.overflow)}
    given |= {"rows": _grid(room)[0], "capacity": room.capacity}
    return [
        *_flagged(room, scratch, sources),
        Step(refilling.widest_row, 1, given, {"E": _lane(given["rows"], 4)}, warps=8),
        _named(room, scratch, padded=True),
        _copied(room, scratch, sources, padded=True),
    ]


def _gathered(room: Room, scratch: Arrays, sources: Arrays) -> list[Step]:
    lib, m, (r, c), (rows, columns) = room.lib, room.shape[0], room.blocksize or (1, 1), _grid(room)
    reads = {name: name for name in ("data", "indices", "indptr")}
    kind, marked = kind_of(room.dtype), room.marked
    assert marked is not None
    blocks, marks = bits_of(lib, room.data), bits_of(lib, marked)
    lists = {name: sources[name] for name in ("indices", "indptr")}
    look = lists | {"flags": scratch["flags"], "m": m, "columns": columns}
    flag = {"R": r, "C": c, "E": 4 * ELEMENTS}
    given = {**sources, "ranks": scratch["ranks"], "blocks": blocks, "marked": marks}
    given |= {"columns": columns}
    place = {"R": r, "C": c, "E": 512, "KIND": kind}
    return [
        *(_cleared(x) for x in (scratch["flags"], blocks, marks)),
        Step(refilling.flag_lists, rows, look, flag, {name: name for name in lists}, 16),
        _counted(room, scratch),
        _numbered(room, scratch),
        _named(room, scratch, ranked=True),
        Step(refilling.place_named, m, given, place, reads),
    ]


def _cleared(x: Array) -> Step:
    size = 1
    for extent in x.shape:
        size *= int(extent)
    given = {"room": x, "size": size}
    return Step(refilling.clear, -(-size // (2 * ELEMENTS)), given, {"E": 2 * ELEMENTS})
