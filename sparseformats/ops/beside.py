"""What a layer may have beside its operands, bias and activation: scales, a residual, a dtype.

Scales are for operands of 8 bits, whose values stand for others: the sums are multiplied by them in
float32 before anything is rounded. A residual is added last, in the dtype of the sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import VALUE_DTYPES, accumulator, itemsize, kind
from sparseformats.errors import DeviceMismatchError
from sparseformats.ops.activations import activate
from sparseformats.ops.operands import Operands, refuse_stand_in

__all__ = ["NOTHING", "Beside", "added", "finished", "read_beside", "rounding"]

SCALED = ("int8", "float8_e4m3fn", "float8_e5m2")
LONGEST = 2**17 - 1
"""Columns up to which no sum of int8 products, of at most 2**14 each, leaves int32."""

_OUT = ("float16", "bfloat16", "float32")


class Beside(NamedTuple):
    """The options as the caller gave them.

    Attributes
    ----------
    residual : array or None
    scale_a, scale_b : number, array or None
        Of X and of the weight.
    out_dtype : dtype, str or None
    """

    residual: Any = None
    scale_a: Any = None
    scale_b: Any = None
    out_dtype: Any = None

    @property
    def has_number(self) -> bool:
        """Whether a scale is a number."""
        return is_number(self.scale_a) or is_number(self.scale_b)

    @property
    def factor(self) -> float:
        """The product of those scales that are numbers."""
        made = 1.0
        for scale in (self.scale_a, self.scale_b):
            if is_number(scale):
                made *= float(scale)
        return made

    @property
    def scales(self) -> str | None:
        """As `Query.scales` has it."""
        found = set()
        for name, scale in (("rows", self.scale_b), ("columns", self.scale_a)):
            if scale is not None and not is_number(scale):
                one = all(int(size) == 1 for size in scale.shape)
                found.add("one" if one else name)
        return "+".join(name for name in ("one", "rows", "columns") if name in found) or None

    def named_arrays(self, *, residual: bool) -> dict[str, Array]:
        """The scales that are arrays, and the residual if it is asked for."""
        names = ("scale_a", "scale_b", "residual")[: 2 + residual]
        given = {name: getattr(self, name) for name in names}
        return {name: x for name, x in given.items() if x is not None and not is_number(x)}

    def arrays(self, lib: ArrayLibrary, rows: tuple[int, ...]) -> dict[str, Array]:
        """What a kernel that fuses is given, by name: tokens are columns of its result.

        Parameters
        ----------
        rows : (tokens, m)
        """
        given = {}
        if self.residual is not None:
            given["residual"] = lib.reshape(lib.native(self.residual), rows).mT
        for name, scale in (("row_scale", self.scale_b), ("column_scale", self.scale_a)):
            if scale is not None and not is_number(scale):
                given[name] = lib.contiguous(lib.reshape(lib.native(scale), (-1,)))
        return given

    def facts(self, lib: ArrayLibrary) -> tuple[Any, ...] | None:
        """What distinguishes calls; None where that is not known."""
        if self is NOTHING:
            return ()
        found: list[Any] = [str(self.out_dtype)]
        for given in self[:3]:
            if given is None or is_number(given):
                found.append(given is None)
            elif _arrays.known(given) is lib and (fact := lib.facts(given)) is not None:
                found.append(fact)
            else:
                return None
        return tuple(found)


NOTHING = Beside()


def is_number(x: Any) -> bool:
    """Whether a scale is a real number and not an array."""
    return isinstance(x, (int, float, np.number)) and not isinstance(x, (bool, np.complexfloating))


def read_beside(o: Operands, tokens: tuple[int, ...], given: Beside) -> tuple[str, bool]:
    """Understand scales, residual and dtype of a layer.

    Parameters
    ----------
    o : Operands
        ``W @ X.T``, with the dtype of the product.
    tokens : tuple of int
        Shape of X but its last axis.

    Returns
    -------
    dtype : str
        Of the result, as far as these options decide it.
    scaled : bool
        The sums are scaled, or rounded to a floating dtype that was asked for.

    Raises
    ------
    ValueError, TypeError, DeviceMismatchError, NotImplementedError
        As `sparseformats.linear` says.
    """
    if given is NOTHING:
        return o.dtype, False
    for name, scale, axis in (("scale_a", given.scale_a, tokens), ("scale_b", given.scale_b, None)):
        if scale is not None:
            _check_scale(o, name, scale, axis)
    dtype, scales = _asked(o, given), given.scale_a is not None or given.scale_b is not None
    if scales and kind(dtype) != "f":
        raise ValueError(
            f"linear: a scaled product of {o.matrix.dtype_name} is no {dtype}; give "
            f"out_dtype={' or '.join(_OUT)}"
        )
    if given.residual is not None:
        _check_residual(o, (*tokens, o.m), given.residual)
    if (scales or dtype != o.dtype) and o.matrix.dtype_name == "int8" and o.k > LONGEST:
        raise ValueError(
            f"linear: sums of int8 over more than {LONGEST:,} columns may leave int32 before they "
            f"are scaled, W has {o.k:,}; add up layers of slices of X and W in float32"
        )
    asked = given.out_dtype is not None and kind(dtype) == "f" and o.matrix.dtype_name in SCALED
    return dtype, scales or asked


def _asked(o: Operands, given: Beside) -> str:
    """Dtype of the result, as it was asked for."""
    lib, own = o.lib, o.dtype
    dtypes = o.matrix.dtype_name, lib.dtype_name(o.x)
    narrow = dtypes[0] == dtypes[1] and dtypes[0] in SCALED
    if not narrow and (given.scale_a is not None or given.scale_b is not None):
        raise TypeError(
            f"linear: scales are for X and W both of one of {', '.join(SCALED)}, got X of "
            f"{dtypes[1]} and W of {dtypes[0]}"
        )
    if given.out_dtype is None:
        return own
    name = given.out_dtype if isinstance(given.out_dtype, str) else _name(given.out_dtype)
    allowed = [own, *(x for x in _OUT if narrow and x in VALUE_DTYPES[lib.name])]
    if name not in allowed:
        raise TypeError(
            f"linear: out_dtype of X of {dtypes[1]} and W of {dtypes[0]} must be "
            f"{' or '.join(allowed)}, got {given.out_dtype!r}"
        )
    return name


def _name(dtype: Any) -> str | None:
    """Name of a dtype in any library's spelling: torch.float16, np.float16, np.dtype("float16")."""
    text = str(dtype).rpartition(".")[2]
    if text in _OUT:
        return text
    try:
        return str(np.dtype(dtype).name)
    except (TypeError, ValueError):
        return text


def _check_array(o: Operands, name: str, x: Any) -> Array:
    lib, here = o.lib, o.matrix.device
    if not _arrays.is_array(x) or _arrays.of(x) is not lib:
        wanted = "a number or " * name.startswith("scale")
        raise TypeError(f"{name} must be {wanted}a {lib.name} array, got {type(x).__name__}")
    if lib.device(x) != here:
        raise DeviceMismatchError(f"{name} is on {lib.device(x)!r}, the operands are on {here!r}")
    if lib.requires_grad(x):
        raise NotImplementedError(
            f"linear: gradients are not supported yet, and {name} requires grad"
        )
    refuse_stand_in(lib, x, f"linear: {name}")
    return x


def _check_scale(o: Operands, name: str, scale: Any, tokens: tuple[int, ...] | None) -> None:
    """Refuse what is neither one scale nor one a token (of X) or a row (of the weight)."""
    if is_number(scale):
        return
    if isinstance(scale, np.complexfloating):
        raise TypeError(f"{name} must be a real number, got {scale!r}")
    x = _check_array(o, name, scale)
    if o.lib.dtype_name(x) != "float32":
        raise TypeError(f"{name} must be of float32, is of {o.lib.dtype_name(x)}; convert it")
    shape = tuple(int(size) for size in x.shape)
    shapes = [tokens, (*tokens, 1)] if tokens is not None else [(o.m,), (o.m, 1), (1, o.m)]
    if all(size == 1 for size in shape) or shape in shapes:
        return
    raise ValueError(
        f"{name} must be one scale, or of shape {' or '.join(map(str, shapes))}, has {shape}"
    )


def _check_residual(o: Operands, shape: tuple[int, ...], residual: Any) -> None:
    x = _check_array(o, "residual", residual)
    found = tuple(int(size) for size in x.shape)
    if found != shape:
        raise ValueError(f"residual must have the result's shape {shape}, has {found}")


def rounding(lib: ArrayLibrary, dtype: str, what: str, name: str, scaled: bool) -> str:
    """`dtype`, which was asked for; refuses to round a summand of another one to it.

    Raises
    ------
    ValueError
    """
    # The bias of a scaled product is added in float32, whatever the result's dtype is.
    wide = "float32" if what == "bias" and scaled else dtype
    try:
        fits = name == wide or lib.result_dtype(wide, name) == wide
    except (TypeError, RuntimeError):  # fp8 has no promotion
        fits = wide == "float32" and kind(name) == "f" and itemsize(name) == 1
    if not fits:
        raise ValueError(
            f"linear: {what} of {name} does not fit into the result of {dtype}; convert it, or "
            "give another out_dtype"
        )
    return dtype


def added(lib: ArrayLibrary, y: Array, dtype: str, given: Beside) -> Array:
    """`y` and a residual, rounded once: of half types, too, sums of two are made in float32."""
    residual = lib.native(given.residual)
    if itemsize(dtype) == 1 or lib.dtype_name(residual) != dtype:
        return finished(lib, y, dtype, given=given)
    with np.errstate(all="ignore"):
        y += lib.reshape(residual, tuple(int(size) for size in y.shape))
    return y


def finished(
    lib: ArrayLibrary,
    y: Array,
    dtype: str,
    *,
    given: Beside = NOTHING,
    scaled: bool = False,
    bias: Array | None = None,
    activation: str | None = None,
) -> Array:
    """What follows a product, in the dtype of its sums, then one rounding.

    Parameters
    ----------
    y : (tokens, m) or (m,) array
        Not used by anyone else.
    dtype : str
        Of the result.
    given : Beside
        The residual, and the scales if the product is to be `scaled`.
    """
    wide = accumulator(dtype)
    shape = tuple(int(size) for size in y.shape)
    with np.errstate(all="ignore"):
        y = lib.astype(y, wide)
        if scaled:
            y = _scaled(lib, y, given)
        if bias is not None:
            y += lib.astype(bias, wide)
        y = activate(lib, y, activation)
        if given.residual is not None:
            y += lib.reshape(lib.astype(lib.native(given.residual), wide), shape)
        return lib.astype(y, dtype)


def _scaled(lib: ArrayLibrary, y: Array, given: Beside) -> Array:
    y *= given.factor
    if given.scale_b is not None and not is_number(given.scale_b):
        y *= lib.reshape(lib.native(given.scale_b), (-1,))
    if given.scale_a is not None and not is_number(given.scale_a):
        scale = lib.reshape(lib.native(given.scale_a), (-1,))
        y *= scale[:, None] if len(y.shape) > 1 else scale
    return y
