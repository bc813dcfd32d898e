"""A handful of PTX instructions on NumPy, after the PTX ISA, for whole warps at once.

Every register is an array with one number for each thread; threads come in warps of 32. Where the
manual gives a figure, the comment says what it shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["execute"]

Host = np.ndarray[Any, np.dtype[Any]]
_LANES = np.arange(32)
_G, _T = _LANES // 4, _LANES % 4  # the manual's groupID and threadID_in_group
_KINDS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def execute(text: str, outputs: int, inputs: Sequence[Host]) -> list[Host]:
    """Run an inline instruction sequence; operands ``$0`` on are outputs, then inputs."""
    threads = inputs[0].shape[0]
    registers = {f"${outputs + i}": np.ascontiguousarray(x) for i, x in enumerate(inputs)}
    registers["%laneid"] = np.arange(threads, dtype=np.uint32) % 32
    for statement in re.split(r"[;\n]", text):
        statement = statement.strip()
        while statement.startswith("{ ") or statement == "}":  # a scope, not a list of registers
            statement = statement[1:].strip()
        if statement and not statement.startswith(".reg"):
            _statement(
                statement.rstrip("}").strip() if _closes(statement) else statement, registers
            )
    return [registers[f"${i}"] for i in range(outputs)]


def _closes(statement: str) -> bool:
    return statement.count("}") > statement.count("{")


def _statement(statement: str, registers: dict[str, Host]) -> None:
    name, _, rest = statement.partition(" ")
    operands = [
        [p.strip() for p in part.strip("{} ").split(",")]
        for part in re.findall(r"\{[^}]*\}|[^,{}]+", rest)
        if part.strip()
    ]

    def value(operand: str) -> Any:
        if operand in registers:
            return registers[operand]
        return np.uint32(int(operand, 0))

    target, sources = operands[0], operands[1:]
    parts = name.split(".")
    if parts[0] == "mma":
        assert parts[-4] == "f32"
        assert parts[-1] == "f32"
        assert parts[-3] == parts[-2]
        arguments = [[value(o) for o in group] for group in sources]
        made = _SPARSE if parts[1].startswith("sp") else _DENSE
        found = made(*arguments, kind=_KINDS[parts[-2]])
    else:
        arguments = [value(group[0]) for group in sources]
        found = [_PLAIN[name](*arguments)]
    registers |= dict(zip(target, found, strict=True))


def _bits(x: Any) -> Host:
    return np.asarray(x).view(np.uint32)


def _prmt(a: Any, b: Any, selector: Any) -> Host:
    """Each byte is one of eight; bit 3 of its selector asks for copies of its sign."""
    a, b, selector = np.broadcast_arrays(*(_bits(x).astype(np.uint64) for x in (a, b, selector)))
    both, found = a | b << np.uint64(32), np.zeros(a.shape, np.uint64)
    for i in range(4):
        nibble = selector >> np.uint64(4 * i) & np.uint64(0xF)
        byte = both >> np.uint64(8) * (nibble & np.uint64(7)) & np.uint64(0xFF)
        sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        found |= np.where(nibble & np.uint64(8), sign, byte) << np.uint64(8 * i)
    return found.astype(np.uint32)


def _select(a: Any, b: Any, predicate: Any) -> Host:
    return np.where(predicate, _bits(a), _bits(b))


def _butterfly(x: Any, mask: Any, clamp: Any, members: Any) -> Host:
    assert int(clamp) == 0x1F
    assert int(members) == 0xFFFFFFFF
    return _bits(x).reshape(-1, 32)[:, _LANES ^ int(mask)].reshape(-1)


_PLAIN: dict[str, Callable[..., Host]] = {
    "mov.b32": lambda x: _bits(x),
    "mov.u32": lambda x: _bits(x),
    "and.b32": lambda a, b: _bits(a) & _bits(b),
    "shr.u32": lambda a, b: _bits(a) >> _bits(b),
    "setp.ne.u32": lambda a, b: _bits(a) != _bits(b),
    "selp.b32": _select,
    "prmt.b32": _prmt,
    "shfl.sync.bfly.b32": _butterfly,
}


def _halves(words: Any, kind: Any) -> Host:
    """(warps, 32, 2): the low half of each word, then the high one."""
    both = np.ascontiguousarray(_bits(words)).view(np.uint16).view(kind)
    return both.astype(np.float32).reshape(-1, 32, 2)


def _right(words: Sequence[Any], kind: Any) -> Host:
    """B (warps, 8 k, 8 columns): register i holds rows 8 i + 2 t and the next, column g."""
    found = np.zeros((_warps(words), 8 * len(words), 8), np.float32)
    for i, word in enumerate(words):
        for half in range(2):
            found[:, 8 * i + 2 * _T + half, _G] = _halves(word, kind)[..., half]
    return found


def _left(words: Sequence[Any], kind: Any) -> Host:
    """A (warps, 16, 16): registers hold rows g, g + 8, g, g + 8, columns 2 t and, then, 8 + 2 t."""
    found = np.zeros((_warps(words), 16, 16), np.float32)
    for i, word in enumerate(words):
        for half in range(2):
            column = 2 * _T + half + 8 * (i // 2)
            found[:, _G + 8 * (i % 2), column] = _halves(word, kind)[..., half]
    return found


def _warps(words: Sequence[Any]) -> int:
    return int(np.asarray(words[0]).size) // 32


def _added(a: Host, b: Host, sums: Sequence[Any]) -> list[Host]:
    """D = A B + C; of C, registers hold rows g, g, g + 8, g + 8, columns 2 t, 2 t + 1 in turn."""
    product = a.astype(np.float64) @ b.astype(np.float64)
    found = []
    for i, before in enumerate(sums):
        part = product[:, _G + 8 * (i // 2), 2 * _T + i % 2].reshape(-1)
        found.append((part + np.asarray(before, np.float32)).astype(np.float32))
    return found


def _DENSE(a: Any, b: Any, c: Any, *, kind: Any) -> list[Host]:  # noqa: N802 - beside _SPARSE
    """``mma.m16n8k16``."""
    return _added(_left(a, kind), _right(b, kind), c)


def _SPARSE(  # noqa: N802 - a table's entry
    a: Any, b: Any, c: Any, positions: Any, selector: Any, *, kind: Any
) -> list[Host]:
    """``mma.sp.m16n8k32``: compressed values lie as those of a dense 16 x 16 A.

    Of four threads, selector 0 makes the first two and selector 1 the last two give positions: of
    columns 0-15 and of columns 16-31. The low half of a word is about row g, the high half about
    row g + 8; two bits for each value, the first ones lowest.
    """
    compressed = _left(a, kind).reshape(-1, 16, 8, 2)
    words = _bits(positions[0]).reshape(-1, 32)
    row, group = np.arange(16)[:, None], np.arange(8)[None, :]
    lane = 4 * (row % 8) + 2 * int(selector[0]) + group // 4
    found = words[:, lane] >> (16 * (row // 8) + 4 * (group % 4)).astype(np.uint32)
    place = np.stack([found & 3, found >> 2 & 3], axis=-1).astype(np.int64)
    if (place[..., 0] >= place[..., 1]).any():
        raise AssertionError(f"positions do not ascend: {place[place[..., 0] >= place[..., 1]][0]}")
    whole = np.zeros((compressed.shape[0], 16, 8, 4), np.float32)
    np.put_along_axis(whole, place, compressed, axis=-1)
    whole = whole.reshape(-1, 16, 32)
    return _added(whole, _right(b, kind), c)
