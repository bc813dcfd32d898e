"""The ceilings of the roofline, measured again."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.gpu.clock import Clock, interleave, spread_of
from benchmarks.gpu.results import Row
from benchmarks.gpu.roofline import CEILINGS

__all__ = ["rows"]

SIZES = {"full": (8192, 1 << 31, 24 << 20), "tiny": (64, 1 << 16, 1 << 14)}
READS = 64  # times that the cache's buffer is read in a launch


def rows(clock: Clock, scale: str = "full") -> list[Row]:
    """One row a ceiling: what the data say over what is measured now."""
    size, nbytes, cached = SIZES[scale]
    found = [_product(clock, name, size) for name in ("bfloat16", "float16", "float32", "tf32")]
    found.append(_copy(clock, nbytes))
    if clock.on_gpu:
        found.append(_cache(clock, cached))
    return found


def _product(clock: Clock, name: str, size: int) -> Row:
    dtype = torch.float32 if name == "tf32" else getattr(torch, name)
    a, b = (torch.randn(size, size, dtype=dtype, device=clock.device) for _ in range(2))
    with _tf32(name == "tf32"):
        return _row(clock, name, f"dense {size}^3", lambda: a @ b, 2.0 * size**3)


@contextmanager
def _tf32(on: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if on else "ieee"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def _copy(clock: Clock, nbytes: int) -> Row:
    a = torch.randint(0, 255, (nbytes,), dtype=torch.uint8, device=clock.device)
    b = torch.empty_like(a)
    return _row(clock, "memory", f"copy of {nbytes} bytes", lambda: b.copy_(a), 2.0 * nbytes)


def _cache(clock: Clock, nbytes: int) -> Row:
    from benchmarks.gpu.cache_read import reader

    call, amount = reader(clock.device, nbytes, READS)
    return _row(clock, "l2", f"{READS} reads of {nbytes} bytes", call, amount)


def _row(clock: Clock, name: str, what: str, call: Callable[[], Any], amount: float) -> Row:
    times = interleave(clock, {name: call})[name]
    now, data = statistics.median(times), amount / CEILINGS[name] * 1e6
    return {
        "id": f"C-{name}",
        "workload": f"ceiling of {name}: {what}",
        "kernel": None,
        "baseline": f"the figure in use, {CEILINGS[name]:.3g} a second",
        "ours_us": round(now, 2),
        "baseline_us": round(data, 2),
        "ratio": round(data / now, 3),
        "ratio_is": "measured rate / rate in use",
        "spread": round(spread_of(times), 4),
        "share_of_roofline": round(data / now, 4),
        "l2_model_us": None,
        "goal": None,
        "met": None,
        "rate": amount / now * 1e6,
    }
