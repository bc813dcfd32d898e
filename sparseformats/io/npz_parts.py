"""What the description of a file may say, checked before any array is trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from sparseformats import formats
from sparseformats._dtypes import VALUE_DTYPES
from sparseformats.errors import InvalidTensorError
from sparseformats.formats import SparseMatrix
from sparseformats.formats.groups import check_pattern_numbers
from sparseformats.formats.inputs import as_shape
from sparseformats.formats.sum import within

__all__ = ["Description", "build", "check_description"]

# Class -> dimensions of each buffer; those of the second table may be absent.
_BUFFERS: dict[str, dict[str, int]] = {
    "COO": {"data": 1, "row": 1, "col": 1},
    "CSR": {"data": 1, "indices": 1, "indptr": 1},
    "CSC": {"data": 1, "indices": 1, "indptr": 1},
    "BSR": {"data": 3, "indices": 1, "indptr": 1},
    "BlockedELL": {"data": 4, "col_indices": 2},
    "NM": {"data": 3, "indices": 3},
}
_SIDE = {"side_data": 1, "side_row": 1, "side_col": 1}
_OPTIONAL: dict[str, dict[str, int]] = {
    "BSR": {"zeros": 1},
    "BlockedELL": {"zeros": 1},
    "NM": {"zeros": 1, **_SIDE},
}
_SLOTTED = tuple(_OPTIONAL)
_VALUES = frozenset(name for names in VALUE_DTYPES.values() for name in names)


class Description(NamedTuple):
    """A checked description: class, static facts, buffer dtypes."""

    cls: str
    static: dict[str, Any]
    buffers: dict[str, str]
    parts: tuple[Description, ...] = ()  # of a sum, whose buffers are theirs

    @property
    def values(self) -> list[str]:
        """Value dtypes, one for each array of values."""
        if self.parts:
            return [dtype for part in self.parts for dtype in part.values]
        return [self.buffers["data"]]

    @property
    def holder(self) -> str:
        """Class that the buffers belong to: the base's for a transpose."""
        return str(self.static["base"]) if self.cls == "Transposed" else self.cls


def _damaged(name: str, what: str) -> NoReturn:
    raise ValueError(f"{name} is damaged: {what}")


def check_description(name: str, raw: Any, version: int) -> Description:
    """Read a description.

    Raises
    ------
    ValueError
        It is not one, or one of a later version.
    """
    if not isinstance(raw, dict):
        _damaged(name, f"the description is a {type(raw).__name__}, not an object")
    found = raw.get("version")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        _damaged(name, f"the version must be a positive integer, got {found!r}")
    if found > version:
        raise ValueError(
            f"{name} has version {found} of the layout, this sparseformats reads up to {version}; "
            "a newer sparseformats is needed"
        )
    cls, static, buffers = (raw.get(key) for key in ("class", "static", "buffers"))
    if not isinstance(static, dict) or not isinstance(buffers, dict):
        _damaged(name, "the description lacks 'static' or 'buffers'")
    for key, dtype in buffers.items():
        if not isinstance(dtype, str):
            _damaged(name, f"{key} has dtype {dtype!r}")
    described = Description(str(cls), dict(static), dict(buffers))
    return _checked_sum(name, described) if cls == "Sum" else _checked(name, described)


def _checked(name: str, described: Description) -> Description:
    cls, static, _, _ = described
    if cls == "Transposed" and static.get("base") not in _SLOTTED:
        _damaged(name, f"a transpose of {static.get('base')!r}")
    if described.holder not in _BUFFERS:
        _damaged(
            name, f"unknown class {cls!r}, expected one of {', '.join(_BUFFERS)}, Sum, Transposed"
        )
    _check_static(name, described)
    _check_buffers(name, described)
    return described


def _checked_sum(name: str, described: Description) -> Description:
    _, static, buffers, _ = described
    listed = static.get("parts")
    if static.keys() != {"parts"} or not isinstance(listed, list) or not listed:
        _damaged(name, f"a Sum is described by a list of 'parts', got {sorted(static)}")
    parts, owned = [], 0
    for i, part in enumerate(listed):
        if not isinstance(part, dict):
            _damaged(name, f"part {i} is described by a {type(part).__name__}, not an object")
        rest = {key: value for key, value in part.items() if key != "class"}
        own = within(i, buffers)
        owned += len(own)
        parts.append(_checked(name, Description(str(part.get("class")), rest, own)))
    if owned != len(buffers):
        _damaged(name, f"a Sum of {len(parts)} parts holds other arrays too: {sorted(buffers)}")
    return described._replace(parts=tuple(parts))


def _check_static(name: str, described: Description) -> None:
    holder, static = described.holder, described.static
    expected = {"shape"} | ({"n", "m"} if holder == "NM" else set())
    allowed = set(expected)
    allowed |= {"zeros"} if holder in _SLOTTED else set()
    allowed |= {"base"} if described.cls == "Transposed" else set()
    if not expected <= static.keys() <= allowed:
        _damaged(name, f"a {holder} is described by {sorted(expected)}, got {sorted(static)}")
    try:
        static["shape"] = as_shape(static["shape"])
        if holder == "NM":
            check_pattern_numbers(static["n"], static["m"])
    except (TypeError, ValueError) as error:
        _damaged(name, str(error))
    if "zeros" in static and (static["zeros"] != formats.ALL or "zeros" in described.buffers):
        _damaged(name, f"the mark of stored zeros is {static['zeros']!r}, expected 'all' or a list")


def _check_buffers(name: str, described: Description) -> None:
    holder, buffers = described.holder, described.buffers
    required, optional = _BUFFERS[holder], _OPTIONAL.get(holder, {})
    side = {key for key in buffers if key.startswith("side_")}
    complete = not side or side == set(_SIDE)
    if not (required.keys() <= buffers.keys() <= required.keys() | optional.keys() and complete):
        _damaged(name, f"a {holder} holds {sorted(required)}, got {sorted(buffers)}")
    for key, dtype in buffers.items():
        if dtype not in _dtypes_of(holder, key, buffers):
            _damaged(name, f"{key} has dtype {dtype!r}")


def _dtypes_of(holder: str, key: str, buffers: Mapping[str, str]) -> frozenset[str]:
    """dtypes that a buffer may have, given the others."""
    if key == "data":
        return _VALUES
    if key == "side_data":
        return frozenset({buffers["data"]})
    if key == "zeros":
        return frozenset({"int64"})
    if holder == "NM" and key == "indices":
        return frozenset({"uint8"})
    first = "side_row" if holder == "NM" else next(k for k in _BUFFERS[holder] if k != "data")
    return frozenset({buffers[first]}) & {"int32", "int64"}


def build(
    name: str, described: Description, buffers: Mapping[str, Any], *, check: bool
) -> SparseMatrix:
    """Matrix of the arrays of a file.

    Raises
    ------
    ValueError
        An array has the wrong number of dimensions, or an empty block.
    InvalidTensorError
        With `check`: the arrays do not form a valid matrix.
    """
    made = _assembled(name, described, buffers)
    if check:
        problems = made.problems()
        if problems:
            raise InvalidTensorError(f"{name}: {made!r}", problems)
    return made


def _assembled(name: str, described: Description, buffers: Mapping[str, Any]) -> SparseMatrix:
    if described.parts:
        parts = enumerate(described.parts)
        made = tuple(_assembled(name, part, within(i, buffers)) for i, part in parts)
        return formats.Sum.trusted(parts=made)
    holder = described.holder
    dims = {**_BUFFERS[holder], **_OPTIONAL.get(holder, {})}
    for key, x in buffers.items():
        if len(x.shape) != dims[key]:
            _damaged(name, f"{key} must be {dims[key]}-D, got shape {tuple(x.shape)}")
    data = tuple(int(s) for s in buffers["data"].shape)
    if holder in ("BSR", "BlockedELL") and not math.prod(data[-2:]):
        _damaged(name, f"blocks must have at least one row and column, got {data[-2:]}")
    cls: type[SparseMatrix] = getattr(formats, described.cls)
    return cls.from_parts(buffers, described.static)
