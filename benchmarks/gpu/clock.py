"""Timing of several things side by side on a device.

Rounds go over all sides in turn, so that clock speed and heat are shared; a round of a side is
calls in a row between two events. Repeated calls use the same buffers: the second-level cache is
as warm as they leave it.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import torch

__all__ = ["Clock", "Comparison", "Times", "clock_for", "compared", "interleave", "spread_of"]

Call = Callable[[], Any]
Times = dict[str, list[float]]

ROUNDS = 7
SPREAD = 0.10  # a comparison that varies more is measured again
TRIES = 3
ROUND = 4e3  # microseconds that a round of a side lasts, by repetition
COPIES = 20  # calls in a graph
WARM = 0.6  # seconds of work before the first measurement


class Comparison(NamedTuple):
    """Medians in microseconds; ratio and spread are of the rounds' own ratios."""

    ours_us: float
    baseline_us: float
    speedup: float
    spread: float


@dataclass(frozen=True)
class Clock:
    """Wall time of calls in a row, in microseconds a call."""

    device: str

    def sync(self) -> None:
        """Wait for the device."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    @property
    def on_gpu(self) -> bool:
        """There are events and graphs."""
        return self.device.startswith("cuda")

    def time(self, call: Call, count: int) -> float:
        """Microseconds a call."""
        if not self.on_gpu:
            start = perf_counter()
            for _ in range(count):
                call()
            return (perf_counter() - start) / count * 1e6
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(count):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e3 / count

    def graph(self, call: Call, copies: int) -> Call:
        """Record calls in a row; the replay of them all is returned."""
        if not self.on_gpu:
            return lambda: [call() for _ in range(copies)]
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()  # plans and workspaces of this stream
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(copies):
                    call()
        self.sync()
        replay: Call = graph.replay
        return replay

    def warm_up(self, seconds: float = WARM) -> None:
        """Bring the device to the speed that it holds under load."""
        if not self.on_gpu:
            return
        a = torch.randn(4096, 4096, dtype=torch.bfloat16, device=self.device)
        start = perf_counter()
        while perf_counter() - start < seconds:
            for _ in range(20):
                a @ a
            self.sync()


def clock_for(device: str) -> Clock:
    """The clock of a device, which is made the current one."""
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    return Clock(device)


def interleave(
    clock: Clock,
    sides: Mapping[str, Call],
    copies: Mapping[str, int] | None = None,
    rounds: int = ROUNDS,
) -> Times:
    """Time all sides in turn; the order is reversed in every second round.

    Parameters
    ----------
    copies : mapping of str to int, optional
        How many products one call of a side computes, where that is not one.
    """
    copies = copies or {}
    counts = {name: _repeats(clock, call) for name, call in sides.items()}
    times: Times = {name: [] for name in sides}
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            order = list(sides)
            for name in order if number % 2 else reversed(order):
                time = clock.time(sides[name], counts[name])
                times[name].append(time / copies.get(name, 1))
    finally:
        gc.enable()
    return times


def _repeats(clock: Clock, call: Call) -> int:
    clock.time(call, 1)  # lazy set-up
    once = min(clock.time(call, 1) for _ in range(2))
    return max(1, min(2000, round(ROUND / max(once, 0.5))))


def compared(times: Times, ours: str, baseline: str) -> Comparison:
    """Ours against a baseline over the same rounds."""
    mine, theirs = times[ours], times[baseline]
    ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
    return Comparison(
        statistics.median(mine), statistics.median(theirs), statistics.median(ratios),
        spread_of(ratios),
    )  # fmt: skip


def spread_of(values: list[float]) -> float:
    """Half the interquartile range over the median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / middle
