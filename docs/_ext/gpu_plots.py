"""Plots of GPU results as SVG files: speed-up over density, share of the roofline."""

from __future__ import annotations

from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import Any

Point = tuple[float, float]
Curves = dict[str, list[Point]]


def curves(rows: list[dict[str, Any]], value: str) -> Curves:
    """Points (density, value) by shape and block size, of square products of scattered blocks."""
    found: Curves = {}
    for row in rows:
        case = row.get("case")
        dense = str(row.get("baseline", "")).startswith("cuBLAS")
        if case is None or "error" in row or "@" in row["id"] or not dense:
            continue
        square = case["m"] == case["k"] == case["n"]
        if not square or case["pattern"] != "uniform" or case["dtype"] != "bfloat16":
            continue
        r, c = case["block"]
        name = f"{case['m']} cubed, {r} x {c}"
        found.setdefault(name, []).append((case["density"], row[value]))
    return {name: sorted(points) for name, points in sorted(found.items()) if len(points) > 1}


def break_even(points: list[Point]) -> float | None:
    """Density at which the speed-up falls to one, between two measured ones; None if it does not.

    The logarithm of the speed-up is taken as linear in the logarithm of the density.
    """
    for (d0, s0), (d1, s1) in pairwise(points):
        if s0 >= 1 > s1:
            part = log(s0) / (log(s0) - log(s1))
            return exp(log(d0) + part * (log(d1) - log(d0)))
    return None


def density_plot(rows: list[dict[str, Any]], folder: Path, stem: str) -> tuple[Path, str] | None:
    """Draw the speed-up over dense, with the break-even density of each curve marked."""
    found = curves(rows, "ratio")
    if not found:
        return None
    figure, axes = _axes("density of blocks", "speed-up over cuBLAS")
    axes.axhline(1.0, color="gray", linewidth=0.8)
    marks = []
    for name, points in found.items():
        (line,) = axes.plot(*zip(*points, strict=True), marker=".", label=name)
        density = break_even(points)
        if density is not None:
            axes.plot([density], [1.0], marker="o", color=line.get_color(), fillstyle="none")
            marks.append(f"{name}: {density:.2f}")
    axes.set_yscale("log", base=2)
    caption = "Speed-up over cuBLAS by density of blocks, bfloat16."
    caption += f" Break-even (circles) at {'; '.join(marks)}." if marks else ""
    return _save(figure, axes, folder / f"{stem}_density.svg"), caption


def roofline_plot(rows: list[dict[str, Any]], folder: Path, stem: str) -> tuple[Path, str] | None:
    """Draw the share of the roofline that is reached."""
    found = curves(rows, "share_of_roofline")
    if not found:
        return None
    figure, axes = _axes("density of blocks", "share of the roofline")
    for name, points in found.items():
        axes.plot(*zip(*points, strict=True), marker=".", label=name)
    axes.set_ylim(0, 1)
    caption = "Share of the roofline by density of blocks, bfloat16."
    return _save(figure, axes, folder / f"{stem}_roofline.svg"), caption


def _axes(x: str, y: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log", base=2)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    return figure, axes


def _save(figure: Any, axes: Any, path: Path) -> Path:
    import matplotlib as mpl

    axes.legend(fontsize="small", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": path.stem}):  # the same rows, the same file
        figure.savefig(path, metadata={"Date": None})
    return path
