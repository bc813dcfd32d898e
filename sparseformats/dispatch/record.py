"""What a kernel says about itself.

This is the page for people who write kernels: a backend lists `KernelRecord` objects, and
everything that they are made of can be imported from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from sparseformats.dispatch import checks
from sparseformats.dispatch.query import Query
from sparseformats.dispatch.reason import CODES, Reason, exception_text
from sparseformats.dispatch.requirement import Requirement

__all__ = ["ANY", "CODES", "EXACT", "KernelRecord", "Query", "Reason", "Requirement", "Tolerance"]
__all__ += ["checks"]

ANY = ("*",)
"""The `KernelRecord.formats` of a kernel that serves every format and its transpose."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a kernel's result may be from the exact one, element by element.

    The bound is ``factor * L * eps(accumulator) * (|A| @ |X|)`` plus one rounding to the result's
    dtype, with L the number of terms of the element's sum.

    Attributes
    ----------
    accumulator : str or None
        Dtype in which sums are kept; None is the library's rule (float32 for the half types).
    factor : float
        Multiple of the bound that is allowed; 0 means bit for bit.
    multiplies_in : str or None
        Dtype to which operands are rounded before they are multiplied (``"tf32"``).
    nan_for_infinity : bool
        NaN may stand where the exact result is infinite; never a finite number.
    """

    accumulator: str | None = None
    factor: float = 1.0
    multiplies_in: str | None = None
    nan_for_infinity: bool = False


EXACT = Tolerance(factor=0.0)
"""For kernels that only move values, such as conversions."""


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One kernel: what it serves, what it needs, what it costs, and where its code is.

    Attributes
    ----------
    name : str
        Unique among the kernels of its operation.
    op : str
        The operation it implements (`Query.op`).
    formats : tuple of str
        Families served, ``"n:m"`` or one pattern of it (``"2:4"``). A transpose is served only
        where it is named (``"bsr.T"``): forgetting it must not give wrong results. Or `ANY`.
    target : str
        ``"module:attribute"``, imported when the kernel is first selected.
    cost : callable
        ``Query -> float``, estimated microseconds of one call.
    requires : tuple of Requirement
        Packages that the target imports.
    checks : tuple of callables
        ``Query -> None | Reason``; see `sparseformats.dispatch.checks`. A fused epilogue is served
        only where `checks.epilogue_in` names it: forgetting it must not give wrong results.
    soft_checks : tuple of callables
        Further checks of what would be unwise rather than wrong, such as a large copy; a caller
        who asks for the kernel by name is not held to them.
    tolerance : Tolerance
        Bound of its error.
    wide : bool
        It can leave its result in the dtype of the sums (`Query.wide`): ``out_dtype`` is then wider
        than the promotion of the operands' dtypes. Others are not asked to, so that forgetting it
        must not give wrong results.
    batches : int or None
        Columns of a piece from which on it takes a batch in one launch, with what follows fused:
        its ``bind_batch`` is then asked for layers too. None where it never does.
    deterministic : bool
        It gives the same bits on every run, at least to calls that ask for that.
    doc : str
        One line for the table of kernels.
    note : callable or None
        ``Query -> str``, what it would do for a call beyond `doc`: an algorithm, or where launch
        parameters come from. Explanations show it.
    """

    name: str
    op: str
    formats: tuple[str, ...]
    target: str
    _: KW_ONLY
    cost: Callable[[Query], float]
    requires: tuple[Requirement, ...] = ()
    checks: tuple[Callable[[Query], Reason | None], ...] = ()
    soft_checks: tuple[Callable[[Query], Reason | None], ...] = ()
    tolerance: Tolerance = Tolerance()
    wide: bool = False
    batches: int | None = None
    deterministic: bool = True
    doc: str = ""
    note: Callable[[Query], str] | None = None

    def __post_init__(self) -> None:
        module, colon, attribute = self.target.partition(":")
        if not (module and colon and attribute):
            raise ValueError(
                f"kernel {self.name!r}: target must be 'module:attribute', is {self.target!r}"
            )
        if not self.name or any(c.isspace() or c == "," for c in self.name):
            raise ValueError(f"a kernel's name must be one word without commas, is {self.name!r}")
        for field in ("formats", "requires", "checks", "soft_checks"):
            value = getattr(self, field)
            if not isinstance(value, tuple):
                raise TypeError(
                    f"kernel {self.name!r}: {field} must be a tuple, is {type(value).__name__}"
                )

    def serves(self, query: Query) -> bool:
        """Tell whether the format is one of those that the kernel names."""
        if self.formats == ANY:
            return True
        family = f"{query.format}.T" if query.transposed else query.format
        return family in self.formats or query.format_name in self.formats

    def fuses(self, epilogue: str | None) -> bool:
        """Tell whether the record names this epilogue; every kernel serves a call without one."""
        return epilogue is None or any(
            isinstance(check, checks.Check)
            and check.fact == "epilogue"
            and epilogue in check.allowed
            for check in self.checks
        )

    def package_reasons(self) -> list[Reason]:
        """List the reasons that hold for every call here: packages missing, too old, broken."""
        reasons = (requirement.reason() for requirement in self.requires)
        return [reason for reason in reasons if reason is not None]

    def reasons(self, query: Query, *, forced: bool = False) -> list[Reason]:
        """List all reasons why the kernel cannot serve the query; none means that it can.

        Never raises: a check that does is itself a reason.

        Parameters
        ----------
        forced : bool
            The kernel was asked for by name: `soft_checks` are not asked.
        """
        found = []
        if not self.serves(query):
            needs = " or ".join(self.formats)
            found.append(Reason("format", f"needs {needs}, has {query.format_name}"))
        if query.deterministic and not self.deterministic:
            message = "needs a call that may vary in its last bits, has deterministic=True"
            found.append(Reason("nondeterministic", message))
        if query.wide and not self.wide:
            message = "needs a result in the operands' dtype, has one in that of the sums"
            found.append(Reason("dtype", f"{message} ({query.out_dtype})"))
        found += self.package_reasons()
        asked = self.checks if forced else (*self.checks, *self.soft_checks)
        answers = (_ask(check, query) for check in asked)
        found += [reason for reason in answers if reason is not None]
        if not self.fuses(query.epilogue) and all(reason.code != "epilogue" for reason in found):
            needs = "needs no epilogue (its record names none)"
            found.append(Reason("epilogue", f"{needs}, has {query.epilogue}"))
        return found

    def noted(self, query: Query) -> str:
        """What `note` says of this call; nothing without one. Never raises."""
        try:
            return "" if self.note is None else str(self.note(query))
        except Exception as error:  # noqa: BLE001 - a note must not stop an explanation
            return f"its note raised {exception_text(error)}"

    def estimate(self, query: Query) -> float | Reason:
        """Estimate microseconds, or say why there is none. Never raises."""
        try:
            cost = float(self.cost(query))
        except Exception as error:  # noqa: BLE001 - a kernel's faulty cost must not stop the others
            return Reason(
                "cost-failed", f"needs a cost estimate, it raised {exception_text(error)}"
            )
        if not (math.isfinite(cost) and cost >= 0):
            return Reason("cost-failed", f"needs a finite cost estimate >= 0, has {cost}")
        return cost


def _ask(check: Callable[[Query], Reason | None], query: Query) -> Reason | None:
    try:
        answer: object = check(query)
    except Exception as error:  # noqa: BLE001 - a kernel's faulty check must not stop the others
        message = f"needs an answer of {_name(check)}, it raised {exception_text(error)}"
        return Reason("check-failed", message)
    if answer is None or isinstance(answer, Reason):
        return answer
    return Reason("check-failed", f"needs None or a Reason of {_name(check)}, has {answer!r}")


def _name(check: object) -> str:
    name = getattr(check, "__name__", None) or getattr(check, "needs", type(check).__name__)
    return f"check {name!r}"
