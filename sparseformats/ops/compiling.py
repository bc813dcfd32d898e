"""What torch.compile sees of this library: calls that it does not look into.

Dynamo would follow a product into caches and SciPy, and take a kernel's NumPy for torch. So every
entry point carries the mark at which dynamo breaks its graph, and first of all asks whether dynamo
watches this thread; if so it goes on in a function that dynamo calls and leaves alone. Nothing
here imports torch or dynamo: where dynamo is not loaded, the question is one lookup.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import modules
from typing import Any, TypeVar

from sparseformats.formats import SparseMatrix

__all__ = ["DYNAMO", "entry", "modules", "opaque", "watched"]

F = TypeVar("F", bound=Callable[..., Any])

DYNAMO = "torch._dynamo"
"""To ask is ``DYNAMO in modules and watched()``."""
_FRAMES = "torch._C._dynamo.eval_frame"

_entries: list[Any] = []
_opaque: dict[Any, Any] = {}


def entry(function: F) -> F:
    """Let dynamo break its graph at a function, which is returned as it is."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined] # read by dynamo
    _entries.append(function)
    return function


@entry
def watched() -> bool:
    """Whether dynamo reads this code at the moment, or would read what it calls."""
    if modules["torch"].compiler.is_compiling():
        return True
    frames: Any = modules.get(_FRAMES)
    return hasattr(frames, "get_eval_frame_callback") and (
        frames.get_eval_frame_callback() is not None
    )


@entry
def opaque(function: F) -> F:
    """The same function, for which dynamo does nothing; needs dynamo loaded."""
    found = _opaque.get(function)
    if found is None:
        _skip_entries()
        found = _opaque[function] = modules["torch"].compiler.disable(function)
    return found  # type: ignore[no-any-return]


def _skip_entries() -> None:
    """Let dynamo not compile the entry points themselves, for each shape of their operands."""
    skip: Any = getattr(getattr(modules[DYNAMO], "decorators", None), "skip", None)
    if skip is not None:
        for function in _entries:
            skip(function)


for _method in (SparseMatrix.__matmul__, SparseMatrix.__rmatmul__):
    entry(_method)
entry(SparseMatrix.__torch_function__.__func__)  # type: ignore[attr-defined]
