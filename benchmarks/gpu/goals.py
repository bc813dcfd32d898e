"""The cases with goals: fixed shapes and densities, and what each must reach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.gpu.cases import (
    BELL,
    CSR,
    CUPY,
    DENSE,
    EVEN,
    EVERY,
    FP8,
    FP8_LAYER,
    GIVEN,
    INT8,
    SEMI,
    TORCH,
    TUNED,
    Case,
    Goal,
)

__all__ = ["goal_cases", "semi"]

OVER_DENSE = {
    128: {0.5: 1.85, 0.2: 4.4, 0.1: 7.8, 0.05: 12.0},
    64: {0.5: 1.4, 0.2: 3.3, 0.1: 6.2, 0.05: 11.0},
    32: {0.1: 3.8, 0.05: 7.0},
    16: {0.1: 2.1, 0.05: 4.0},
}
OVER_TORCH = {
    128: {0.1: 2.8, 0.2: 2.0},
    64: {0.1: 2.8, 0.2: 2.0},
    32: {0.05: 3.0, 0.1: 3.0},
    16: {0.05: 5.0, 0.1: 5.0},
}
OVER_TUNED = {128: {0.1: 1.6, 0.2: 1.6}, 64: {0.1: 1.6, 0.2: 1.6}}
OVER_BELL = {16: 1.8, 32: 1.8, 64: 2.3, 128: 2.3}
SQUARE = (8192, 8192, 8192)


def _blocks() -> list[Case]:
    """B-* and T-*: one case each, read against cuBLAS and against torch."""
    found = []
    for b, goals in OVER_DENSE.items():
        for d, value in goals.items():
            rows = [Goal(f"B-{b}-{d:g}", DENSE, value)]
            peers: tuple[str, ...] = (DENSE, TORCH, "stk", "blksprs")
            shipped, tuned = OVER_TORCH[b].get(d), OVER_TUNED.get(b, {}).get(d)
            if shipped is not None:
                rows.append(Goal(f"T-{b}-{d:g}", TORCH, shipped))
            if tuned is not None:
                rows.append(Goal(f"T-{b}-{d:g}-tuned", TUNED, tuned, room=True))
                peers += (TUNED,)
            found.append(Case(f"square-{b}-{d:g}", *SQUARE, (b, b), d, peers=peers, goals=(*rows,)))
    return found


def _ell() -> list[Case]:
    """E-*: Blocked-ELL of even rows."""
    return [
        Case(
            f"ell-{b}-{d:g}",
            *SQUARE,
            (b, b),
            d,
            "blocked_ell",
            "even",
            peers=(DENSE,),
            goals=(Goal(f"E-{b}-{d:g}", BELL, value),),
        )
        for b, value in OVER_BELL.items()
        for d in (0.05, 0.2)
    ]


def _skewed() -> list[Case]:
    """L-skew: power-law rows against even ones."""
    return [
        Case(
            f"skew-{skew}",
            *(32768, 32768, 4096),
            (64, 64),
            0.02,
            pattern="power-law",
            skew=float(skew),
            peers=(EVEN,),
            goals=(Goal(f"L-skew-{skew}", EVEN, 1.10, slower=True),),
        )
        for skew in (10, 50)
    ]


def _layers() -> list[Case]:
    """X-llm: the feed-forward layers of Llama-3 8B."""
    found = []
    for b in (64, 128):
        for d in (0.1, 0.2):
            for name, m, k in (("up", 14336, 4096), ("down", 4096, 14336)):
                for n in (512, 4096, 16384):
                    tail = f"{b}-{d:g}-{name}-{n}"
                    goals = (Goal(f"X-llm-{tail}", DENSE), Goal(f"X-llm-torch-{tail}", TORCH))
                    shape, block = (m, k, n), (b, b)
                    found.append(Case(f"llm-{tail}", *shape, block, d, linear=True, goals=goals))
    return found


def _elements() -> list[Case]:
    """R-csr: CSR against every algorithm of cuSPARSE, and against CuPy."""
    found = []
    for pattern in ("uniform", "power-law"):
        for d in (0.001, 0.01):
            for dtype in ("float32", "float16"):
                for n in (16, 128, 1024):
                    tail = f"{pattern}-{d:g}-{dtype}-{n}"
                    goals = [Goal(f"R-csr-{tail}", CSR, 0.97, clock="graph")]
                    peers: tuple[str, ...] = (CSR,)
                    if dtype == "float32":
                        goals.append(Goal(f"R-csr-cupy-{tail}", CUPY, 2.0))
                        peers += (CUPY,)
                    found.append(
                        Case(
                            f"csr-{tail}",
                            *(16384, 16384, n),
                            (1, 1),
                            d,
                            "csr",
                            pattern,
                            dtype=dtype,
                            peers=peers,
                            goals=(*goals,),
                            graph=True,
                        )
                    )
    return found


def _decode() -> list[Case]:
    """D-*: a few tokens at a time through a layer whose weights are read from memory."""
    found = []
    for b in (64, 32):
        for n in (1, 16, 32, 64):
            main = b == 64 and n == 16
            id = f"D-{n}" if b == 64 else f"D-{n}-{b}"
            goal = Goal(id, DENSE, 6.0 if main else None, clock="cold")
            shape, peers = (14336, 4096, n), (DENSE,)
            made = Case(f"decode-{b}-{n}", *shape, (b, b), 0.1, peers=peers, goals=(goal,))
            found.append(replace(made, graph=True))
    return found


def _narrow() -> list[Case]:
    """Q-*: blocks of int8 and fp8, in the layout of a layer, against the dense product."""
    return [
        Case(
            f"narrow-{name}-{b}-0.1",
            *SQUARE,
            (b, b),
            0.1,
            dtype=dtype,
            linear=True,
            peers=(baseline,),
            goals=(Goal(f"Q-{name}-{b}-0.1", baseline),),
        )
        for name, dtype, baseline in (("int8", "int8", INT8), ("fp8", "float8_e4m3fn", FP8))
        for b in (64, 128)
    ]


SEMI_SHAPES = (
    (4096, 4096, 4096),
    (11008, 4096, 4096),
    (4096, 11008, 4096),
    (14336, 4096, 2048),
    (8192, 8192, 8192),
)


def _semi() -> list[Case]:
    """S-large, S-torch, S-int8 and S-fp8: 2:4 on sparse tensor cores, in a layer's layout."""
    found = []
    for shape in SEMI_SHAPES:
        tail = "x".join(map(str, shape))
        rows = [Goal(f"S-large-{tail}", EVERY, 0.98), Goal(f"S-large-dense-{tail}", DENSE)]
        peers: tuple[str, ...] = (EVERY, DENSE)
        if shape == SEMI_SHAPES[0]:
            rows.append(Goal("S-torch", SEMI, 6.0))
            peers += (SEMI,)
        found.append(semi(f"semi-{tail}", shape, goals=(*rows,), peers=peers))
    for name, dtype, baseline, value in (
        ("int8", "int8", INT8, 2.4),
        ("fp8", "float8_e4m3fn", FP8_LAYER, 1.5),
    ):
        for shape in SEMI_SHAPES:
            tail = "x".join(map(str, shape))
            goals = (Goal(f"S-{name}-{tail}", baseline, value),)
            options: dict[str, Any] = {"goals": goals, "peers": (EVERY, baseline), "dtype": dtype}
            options["gives"] = "bfloat16" if baseline == FP8_LAYER else None
            found.append(semi(f"semi-{name}-{tail}", shape, **options))
    return found


def _semi_decode() -> list[Case]:
    """S-decode: 2:4 and a few tokens, out of a cold cache."""
    return [
        semi(
            f"semi-decode-{m}x{k}-{n}",
            (m, k, n),
            goals=(Goal(f"S-decode-{m}x{k}-{n}", DENSE, 1.5, clock="cold"),),
            peers=(DENSE,),
            graph=True,
        )
        for m, k in ((4096, 4096), (14336, 4096))
        for n in (1, 16, 32)
    ]


def semi(name: str, shape: tuple[int, int, int], **options: Any) -> Case:
    """A case of a 2:4 matrix."""
    kind: dict[str, Any] = {"format": "2:4", "pattern": "two-of-four", "linear": True}
    m, k, n = shape
    return Case(name, m, k, n, block=(1, 1), density=0.5, **kind, **options)


def _clustered() -> list[Case]:
    """K-*: clusters of alike rows that were shuffled; a plan that groups them against one without.

    K-shared-* has blocks already, whose rows share what they read once they stand together.
    """
    found = []
    common: dict[str, Any] = {"pattern": "clusters", "reorder": True, "peers": (DENSE,)}
    for d, fill, columns in (
        *((d, 1.0, (128, 512, 4096)) for d in (0.05, 0.1)),
        *((d, 0.3, (512, 4096)) for d in (0.05, 0.1)),
    ):
        for n in columns:
            tail = f"{d:g}-{fill:g}-{n}"
            rows = (Goal(f"K-{tail}", GIVEN, 1.5), Goal(f"K-dense-{tail}", DENSE))
            options = common | {"format": "csr", "fill": fill, "goals": rows}
            found.append(Case(f"reorder-{tail}", 8192, 8192, n, (1, 1), d, **options))
    for b in (16, 32):
        for n in (512, 4096):
            tail = f"{b}-0.1-{n}"
            goals = (Goal(f"K-shared-{tail}", GIVEN),)
            options = common | {"clusters": 512 // b, "stretch": 1, "goals": goals}
            found.append(Case(f"reorder-shared-{tail}", 8192, 8192, n, (b, b), 0.1, **options))
    return found


def goal_cases() -> tuple[Case, ...]:
    """Cases whose rows have goals, the block goals first."""
    return (
        *_blocks(),
        *_ell(),
        *_skewed(),
        *_layers(),
        *_decode(),
        *_narrow(),
        *_elements(),
        *_semi(),
        *_semi_decode(),
        *_clustered(),
    )
