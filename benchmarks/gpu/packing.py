"""S-pack: a dense array to 2:4 on the device, against a copy of the device's memory.

Wall time of whole calls between two events, waiting for the device included: that no group has too
many non-zeros has to be known before the call returns.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

import sparseformats as sf
from benchmarks.gpu.clock import ROUNDS, Clock, interleave, spread_of
from benchmarks.gpu.results import Row, short

__all__ = ["IDS", "rows"]

IDS = ("S-pack",)
SIZE, SHARE = 8192, 0.6


def rows(clock: Clock, scale: str = "full") -> list[Row]:
    """The row, or what went wrong."""
    size = SIZE if scale == "full" else 64
    row: Row = {
        "id": IDS[0],
        "workload": f"dense to 2:4, {size}x{size} bfloat16",
        "kernel": None,
        "baseline": "the same bytes at the speed of a copy on the device",
        **dict.fromkeys(("ours_us", "baseline_us", "ratio", "spread", "share_of_roofline")),
        "ratio_is": "share of the copy's bandwidth",
        "l2_model_us": None,
        "goal": f"{SHARE:g}x",
        "met": False,
    }
    try:
        return [row | _measured(clock, size)]
    except Exception as error:  # noqa: BLE001 - a fault must not end the other tasks
        return [row | {"error": f"{type(error).__name__}: {error}"}]


def _measured(clock: Clock, size: int) -> Row:
    D = _two_of_four(size, clock.device)
    twin = torch.empty_like(D)
    with sf.tracing() as trace:
        A = sf.from_dense(D, "2:4")
    if not bool((A.to_dense() == D).all()):
        raise RuntimeError("the conversion is wrong: its time means nothing")
    times = interleave(
        clock, {"ours": lambda: sf.from_dense(D, "2:4"), "copy": lambda: twin.copy_(D)}
    )
    ours, copy = (statistics.median(times[name]) for name in ("ours", "copy"))
    moved = D.nbytes * 7 / 4  # half of the values, and a byte a value for its position
    floor = copy * moved / (2 * D.nbytes)
    return {
        "kernel": ", ".join(run.kernel for run in trace if run.op == "convert:dense->n:m"),
        "ours_us": short(ours),
        "baseline_us": short(floor),
        "ratio": short(floor / ours),
        "share_of_roofline": short(floor / ours),
        "spread": short(spread_of(times["ours"])),
        "met": floor / ours >= SHARE,
        "rounds": ROUNDS,
        "clock": "events",
    }


def _two_of_four(size: int, device: str) -> Any:
    generator = torch.Generator(device).manual_seed(0)
    rank = torch.rand(size, size // 4, 4, generator=generator, device=device).argsort(dim=2)
    values = torch.randn(size, size, generator=generator, device=device)
    return (values * (rank < 2).reshape(size, size)).bfloat16()
