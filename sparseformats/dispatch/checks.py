"""Ready-made checks of a kernel record; each reason says what is needed and what is there.

A check is any callable ``Query -> None | Reason``. Those made here are also data: `Check.needs`
goes into the table of kernels, and `Check.fact` with `Check.allowed` answers questions such as
"which kernels read torch arrays?" without a call to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

from sparseformats.dispatch.query import Query
from sparseformats.dispatch.reason import Reason

__all__ = [
    "Check",
    "aligned",
    "alpha_is_one",
    "at_least",
    "at_most",
    "beta_is_zero",
    "blocksize_in",
    "blocksize_is_square",
    "capability_at_least",
    "device_is",
    "divides",
    "dtype_in",
    "dtypes_equal",
    "epilogue_in",
    "epilogue_of",
    "finite_operand",
    "fits_int32",
    "layout_in",
    "library_is",
    "no_batch",
    "not_implemented_grad",
    "pattern_in",
    "precision_in",
]


@dataclass(frozen=True, slots=True)
class Check:
    """One condition on a query.

    Attributes
    ----------
    code : str
        Code of the reason.
    needs : str
        The condition in words: ``"K % 16 == 0"``.
    holds : callable
        ``Query -> bool``.
    has : callable
        ``Query -> str``, what the query has instead.
    hint : str or None
        What would make the condition hold.
    fact, allowed : str or None, tuple
        The fact that must be one of the allowed values, for checks of that kind.
    """

    code: str
    needs: str
    holds: Callable[[Query], bool]
    has: Callable[[Query], str]
    hint: str | None = None
    fact: str | None = None
    allowed: tuple[object, ...] = ()

    def __call__(self, query: Query) -> Reason | None:
        """None if the condition holds, else the reason with both sides."""
        if self.holds(query):
            return None
        return Reason(self.code, f"needs {self.needs}, has {self.has(query)}", self.hint)


def _one_of(
    code: str, fact: str, allowed: tuple[object, ...], what: str, hint: str | None = None
) -> Check:
    return Check(
        code,
        f"{what} {' or '.join(_text(value) for value in allowed)}",
        lambda query: getattr(query, fact) in allowed,
        lambda query: _text(getattr(query, fact)),
        hint,
        fact,
        allowed,
    )


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(str(part) for part in value)})"
    return "none" if value is None else str(value)


def library_is(*names: str) -> Check:
    """Require arrays of one of these libraries."""
    return _one_of("library", "library", names, "arrays of", f"A.to_library({names[0]!r})")


def device_is(*kinds: str) -> Check:
    """Require a device of one of these kinds."""
    return _one_of("device", "device", kinds, "device", f"A.to_device({kinds[0]!r})")


def capability_at_least(major: int, minor: int = 0) -> Check:
    """Require a CUDA device of at least this compute capability."""
    return Check(
        "capability",
        f"compute capability >= {major}.{minor}",
        lambda query: query.capability is not None and query.capability >= (major, minor),
        lambda query: "none" if query.capability is None else "{}.{}".format(*query.capability),
    )


def dtype_in(*names: str, operand: str = "a") -> Check:
    """Require a value dtype among these; operand is ``"a"``, ``"x"`` or ``"out"``."""
    return _one_of("dtype", f"{operand}_dtype", names, f"{operand.upper()} of dtype")


def dtypes_equal() -> Check:
    """Require one value dtype of the matrix and the dense operand."""
    return Check(
        "dtype",
        "A and X of one dtype",
        lambda query: query.a_dtype == query.x_dtype,
        lambda query: f"A of {query.a_dtype} and X of {query.x_dtype}",
        "convert one operand to the other's dtype",
    )


def fits_int32() -> Check:
    """Require that shape, nnz and block addresses fit int32.

    The matrix's own indices may be int64: one that fits is narrowed in the packed state.
    """
    return Check(
        "index-width",
        "shape, nnz and block addresses up to 2147483647",
        lambda query: query.fits_int32,
        lambda query: f"larger ones (shape {query.m} x {query.k}, nnz {_text(query.nnz)})",
    )


def pattern_in(*patterns: tuple[int, int]) -> Check:
    """Require an n:m pattern among these ``(n, m)``."""
    return Check(
        "pattern",
        f"pattern {' or '.join(f'{n}:{m}' for n, m in patterns)}",
        lambda query: query.pattern in patterns,
        lambda query: "none" if query.pattern is None else "{}:{}".format(*query.pattern),
        None,
        "pattern",
        patterns,
    )


def blocksize_in(*sizes: tuple[int, int]) -> Check:
    """Require a block size among these ``(R, C)``."""
    hint = f"A.to({'bsr'!r}, blocksize={sizes[0]})"
    return _one_of("blocksize", "blocksize", sizes, "block size", hint)


def blocksize_is_square() -> Check:
    """Require square blocks."""
    return Check(
        "blocksize",
        "square blocks",
        lambda query: query.blocksize is not None and query.blocksize[0] == query.blocksize[1],
        lambda query: f"block size {_text(query.blocksize)}",
        "convert with a square blocksize=",
    )


_SIZES: dict[str, Callable[[Query], int | None]] = {
    "m": lambda query: query.m,
    "k": lambda query: query.k,
    "n": lambda query: query.n,
    "nnz": lambda query: query.nnz,
    "nnzb": lambda query: query.nnzb,
    "R": lambda query: query.blocksize[0] if query.blocksize else None,
    "C": lambda query: query.blocksize[1] if query.blocksize else None,
}
_SHOWN = {"m": "M", "k": "K", "n": "N", "nnz": "nnz", "nnzb": "nnzb", "R": "R", "C": "C"}


def divides(size: str, divisor: int) -> Check:
    """Require a size (``"m" "k" "n" "R" "C" "nnz" "nnzb"``) that is a multiple of `divisor`."""
    hint = f"pad {_SHOWN[size]} to a multiple of {divisor}" if size in "mkn" else None
    return _size("divisibility", size, f"% {divisor} == 0", lambda v: v % divisor == 0, hint)


def at_least(size: str, bound: int) -> Check:
    """Require a size of at least `bound`."""
    return _size("size", size, f">= {bound}", lambda v: v >= bound)


def at_most(size: str, bound: int) -> Check:
    """Require a size of at most `bound`."""
    return _size("size", size, f"<= {bound}", lambda v: v <= bound)


def _size(
    code: str, size: str, condition: str, test: Callable[[int], bool], hint: str | None = None
) -> Check:
    read, shown = _SIZES[size], _SHOWN[size]

    def holds(query: Query) -> bool:
        value = read(query)
        return value is not None and test(value)

    def has(query: Query) -> str:
        value = read(query)
        return f"{shown} = {'unknown' if value is None else value}"

    return Check(code, f"{shown} {condition}", holds, has, hint)


def layout_in(*layouts: str, operand: str = "x") -> Check:
    """Require a memory layout among ``"C" "F" "strided"``; an operand not given passes."""
    fact, shown = f"{operand}_layout", operand.upper()
    return Check(
        "layout",
        f"{shown} in layout {' or '.join(layouts)}",
        lambda query: getattr(query, fact) is None or getattr(query, fact) in layouts,
        lambda query: f"layout {getattr(query, fact)}",
        f"pass {shown} in layout {layouts[0]}",
        fact,
        (None, *layouts),
    )


def aligned(operand: str = "x") -> Check:
    """Require rows (or columns) that begin at multiples of 16 bytes; an operand not given passes.

    That is the address and every stride but the unit one. `operand` is ``"x"`` or ``"out"``.
    """
    fact, shown = f"{operand}_aligned", operand.upper()
    return Check(
        "alignment",
        f"{shown} in 16-byte rows",
        lambda query: getattr(query, fact) is not False,
        lambda query: "an address or stride that is no multiple of 16 bytes",
        f"pass a contiguous {shown} with rows padded to a multiple of 16 bytes",
        fact,
        (None, True),
    )


def no_batch() -> Check:
    """Require that there are no leading batch axes."""
    return Check(
        "batch",
        "an operand without batch axes",
        lambda query: query.batch == 1,
        lambda query: f"a batch of {query.batch}",
    )


def alpha_is_one() -> Check:
    """Require that the product is not scaled."""
    return Check("scaling", "alpha == 1", lambda query: query.alpha_one, lambda _: "another alpha")


def beta_is_zero() -> Check:
    """Require that nothing is added to the product."""
    return Check("scaling", "beta == 0", lambda query: query.beta_zero, lambda _: "another beta")


def epilogue_in(*epilogues: str | None) -> Check:
    """Require an epilogue among these; None is none."""
    return _one_of("epilogue", "epilogue", epilogues, "epilogue")


def epilogue_of(*parts: str) -> Check:
    """Require an epilogue made of some of these, in this order, or none.

    Parameters
    ----------
    *parts : str
        ``"scale"``, ``"bias"``, ``"activation"`` (each of relu, gelu, silu), ``"residual"``.
    """
    named = {"activation": ("relu", "gelu", "silu")}
    choices = [("", *named.get(part, (part,))) for part in parts]
    allowed = ("+".join(filter(None, chosen)) or None for chosen in product(*choices))
    listed = ", ".join(parts)
    made = _one_of("epilogue", "epilogue", tuple(allowed), "epilogue")
    return replace(made, needs=f"epilogue none or some of {listed}")


def precision_in(*precisions: str | None) -> Check:
    """Require an arithmetic among these; None is that of the dtypes.

    For kernels that cannot but round. One that computes in IEEE arithmetic serves every call, for
    the others only allow less, and needs no such check.
    """
    return _one_of("precision", "precision", precisions, "precision")


def not_implemented_grad() -> Check:
    """Require that no operand wants gradients."""
    return Check(
        "gradient",
        "operands without gradients",
        lambda query: not query.grad,
        lambda _: "an operand that requires grad while grad mode is on",
        "detach the operands, or call under torch.no_grad()",
    )


def finite_operand() -> Check:
    """Require that no NaN or infinity can be in the operand, or that the caller promises so."""
    return Check(
        "needs-finite-operand",
        "an integer or bool operand, or assume_finite=True",
        lambda query: query.assume_finite or _is_exact(query.x_dtype),
        lambda query: f"an operand of {query.x_dtype} that may hold NaN or infinity",
        "pass assume_finite=True if the operand holds no NaN and no infinity",
    )


def _is_exact(name: str | None) -> bool:
    return name is not None and name.startswith(("bool", "int", "uint"))
