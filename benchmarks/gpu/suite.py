"""The whole suite: the cases with goals, and a wider one of shapes, patterns and types.

The wider cases have no goals of their own; they feed the plots and O-regret.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.cases import DENSE, EVERY, Case, Goal
from benchmarks.gpu.goals import goal_cases, semi

__all__ = ["find", "suite"]


def _wide(name: str, *shape: int, **options: Any) -> Case:
    clock = "graph" if options.get("graph") else "events"
    m, k, n = shape
    goals = (Goal(f"W-{name}", clock=clock),)
    return Case(f"wide-{name}", m, k, n, goals=goals, **options)


def _sweep() -> list[Case]:
    """4096 cubed over density, until dense wins."""
    edges = [(b, b) for b in (16, 32, 64, 128, 256)]
    cases = [
        _wide(f"square-{r}-{d:g}", *(4096,) * 3, block=(r, c), density=d)
        for r, c in edges
        for d in (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.8)
    ]
    return cases + [
        _wide(f"square-{r}x{c}-{d:g}", *(4096,) * 3, block=(r, c), density=d)
        for r, c in ((16, 64), (64, 16))
        for d in (0.1, 0.3)
    ]


def _sizes() -> list[Case]:
    cases = [
        _wide(f"size-{s}-{b}", s, s, s, block=(b, b), density=0.1, graph=s < 4096)
        for s in (1024, 2048, 16384)
        for b in (32, 64, 128)
    ]
    return cases + [
        _wide(f"narrow-{b}-{n}", 14336, 4096, n, block=(b, b), density=0.1, linear=True, graph=True)
        for b in (32, 64)
        for n in (16, 64, 256)
    ]


def _patterns() -> list[Case]:
    return [
        _wide(f"{p}-{b}", 8192, 8192, 4096, block=(b, b), density=0.1, pattern=p)
        for p in ("banded", "power-law", "dense-row", "empty-rows")
        for b in (16, 64)
    ]


_LLAMA = {
    "8b-q": (4096, 4096),
    "8b-kv": (1024, 4096),
    "70b-q": (8192, 8192),
    "70b-up": (28672, 8192),
    "70b-down": (8192, 28672),
}
_VIT = {
    "b-qkv": (2304, 768),
    "b-up": (3072, 768),
    "b-down": (768, 3072),
    "l-qkv": (3072, 1024),
    "l-up": (4096, 1024),
    "l-down": (1024, 4096),
}


def _models() -> list[Case]:
    """Layers of Llama-3 (4096 tokens) and of ViT (64 images of 197 tokens)."""
    cases = [
        _wide(f"llama-{name}-{b}", m, k, 4096, block=(b, b), density=0.2, linear=True)
        for name, (m, k) in _LLAMA.items()
        for b in (64, 128)
    ]
    return cases + [
        _wide(f"vit-{name}-{b}", m, k, 64 * 197, block=(b, b), density=0.2, linear=True)
        for name, (m, k) in _VIT.items()
        for b in (32, 64)
    ]


def _dtypes() -> list[Case]:
    cases = [
        _wide(f"{t}-{b}", *(4096,) * 3, block=(b, b), density=0.1, dtype=t)
        for t in ("float16", "float32")
        for b in (16, 32, 64)
    ]
    return cases + [
        _wide(
            f"ell-{p}-{b}",
            *(4096,) * 3,
            block=(b, b),
            density=0.1,
            format="blocked_ell",
            pattern=p,
            skew=3.0,
            peers=(DENSE,),
        )
        for p in ("even", "power-law")
        for b in (32, 64)
    ]


def _semi_by_columns() -> list[Case]:
    """2:4 over the number of columns, from one token to many."""
    columns = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    return [
        semi(
            f"wide-semi-{m}x{k}-{n}",
            (m, k, n),
            goals=(Goal(f"W-semi-{m}x{k}-{n}", clock="graph"),),
            peers=(DENSE, EVERY),
            graph=True,
        )
        for m, k in ((4096, 4096), (14336, 4096))
        for n in columns
    ]


def suite() -> tuple[Case, ...]:
    """Every case: those with goals, then the wider suite."""
    wide = (*_sweep(), *_sizes(), *_patterns(), *_models(), *_dtypes(), *_semi_by_columns())
    return (*goal_cases(), *wide)


def find(name: str) -> Case:
    """The case of a name.

    Raises
    ------
    KeyError
        There is none.
    """
    for case in suite():
        if case.name == name:
            return case
    raise KeyError(f"no case {name!r}")
