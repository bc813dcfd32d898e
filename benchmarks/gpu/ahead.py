"""Compiling many variants of our Triton kernels side by side, before they are tried one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

__all__ = ["compile_ahead"]


class _Noted(Exception):
    """What would be compiled is known."""


def compile_ahead(prepare: Sequence[Callable[[], Any]]) -> None:
    """Compile what these need side by side, into Triton's cache on disk.

    Each is called once with a compiler that only notes what it is asked for. What cannot be
    compiled is told when it is prepared in earnest.
    """
    try:
        from sparseformats_kernels.triton import launch
    except ImportError:
        return
    asked: list[tuple[Any, ...]] = []

    def note(*arguments: Any) -> Any:
        asked.append(arguments)
        raise _Noted

    compile_for: Any = launch.compile_for
    vars(launch)["compile_for"] = note
    try:
        for each in prepare:
            with suppress(Exception):
                each()
    finally:
        vars(launch)["compile_for"] = compile_for
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1)) as pool:
        for done in [pool.submit(compile_for, *arguments) for arguments in dict.fromkeys(asked)]:
            done.exception()
