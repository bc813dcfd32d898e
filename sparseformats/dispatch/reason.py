"""Why a kernel does not run: a stable code, both sides of the matter, and a way out."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CODES", "Reason"]

CODES = {
    "format": "The kernel does not serve the matrix's format (or not its transpose).",
    "pattern": "The kernel does not serve the n of m pattern.",
    "blocksize": "The kernel does not serve the block size.",
    "library": "The kernel does not read arrays of this library.",
    "device": "The kernel does not run on this kind of device.",
    "capability": "The device's compute capability is too low.",
    "dtype": "The kernel does not serve a value dtype, or the combination of them.",
    "index-width": "The kernel needs int32 indices, and the matrix does not fit them.",
    "divisibility": "A size must be a multiple of something.",
    "size": "A size is too small or too large.",
    "layout": "The kernel cannot read or write the operand's memory layout.",
    "alignment": "The operand's address or rows are not at multiples of the bytes that it needs.",
    "batch": "The kernel takes no batch axes.",
    "scaling": "The kernel takes only alpha == 1 or beta == 0.",
    "epilogue": "The kernel cannot fuse what follows the product.",
    "precision": "The kernel does not offer the requested arithmetic.",
    "nondeterministic": "A deterministic kernel was asked for, and this one is not.",
    "gradient": "An operand wants gradients, and the kernel gives none.",
    "needs-finite-operand": "NaN or infinity in the operand would give another result.",
    "no-device": "The kernel runs on a kind of device of which this machine shows none.",
    "missing-package": "A required package is not installed.",
    "package-too-old": "A required package is installed in too old a version.",
    "package-unknown": "A required package is installed in a version that is not known here.",
    "package-broken": "A required package is installed, but importing it fails.",
    "failed-to-load": "The kernel's own code could not be imported.",
    "backend-failed": "A whole backend's list of kernels could not be read.",
    "duplicate-name": "A kernel of the same name and operation was registered before.",
    "check-failed": "One of the kernel's checks raised instead of answering.",
    "cost-failed": "The kernel's cost estimate raised, or is not a number of microseconds.",
}
"""Every code that this library gives, with its meaning. Codes are stable; texts are not.

Other people's kernels may use their own codes, best prefixed by their package (``"acme:tile"``).
"""


class Reason(NamedTuple):
    """One reason why a kernel refuses a call.

    Attributes
    ----------
    code : str
        One of `CODES`, for programs.
    message : str
        Both sides, for people: ``"needs K % 16 == 0, has K = 50"``.
    hint : str or None
        What would make the kernel eligible, where something would.
    """

    code: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def to_dict(self) -> dict[str, object]:
        """Return the reason as a JSON-able dict."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


def exception_text(error: BaseException) -> str:
    """Write an exception as one line, with its type."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
