"""What a case of the GPU benchmark is: shape, pattern, seed, baselines and goals.

A case is one product, measured once with every peer side by side; its goals are the rows that are
read off that measurement. Nothing here depends on a result, and nothing is tuned to one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["BASELINES", "DENSE", "SEED", "Case", "Goal"]

SEED = 20260
DENSE, TORCH, TUNED = "cublas", "torch-bsr", "torch-bsr-tuned"
BELL, CSR, CUPY, EVEN = "kernel/cusparse-bell", "cusparse", "cupy", "own-even"
EVERY, INT8, FP8, SEMI = "cusparselt", "int-mm", "scaled-mm", "torch-2:4"
FP8_LAYER = "scaled-mm-bfloat16"
GIVEN = "kernel"

BASELINES = {
    DENSE: "cuBLAS dense, the better of both operand layouts",
    TORCH: "torch BSR as shipped",
    TUNED: "torch BSR after its own tuner on this device",
    BELL: "cuSPARSE Blocked-ELL",
    CSR: "cuSPARSE CSR, the best of all its algorithms",
    CUPY: "CuPy A @ X",
    EVEN: "own time on even rows with as many stored blocks",
    EVERY: "cuSPARSELt, the best algorithm of an exhaustive search",
    INT8: "torch._int_mm, the better of both operand layouts",
    FP8: "torch._scaled_mm with float8_e4m3fn results",
    FP8_LAYER: "torch._scaled_mm with bfloat16 results",
    GIVEN: "the best of our kernels, rows as given",
    SEMI: "torch: to_sparse_semi_structured(W) @ X",
}


@dataclass(frozen=True)
class Goal:
    """One row: ours against one baseline.

    Attributes
    ----------
    id : str
        Name of the row.
    baseline : str
        A key of `BASELINES`: the fastest of the sides of that name, or under it (``name/…``).
    value : float or None
        What the ratio must reach; None for a row that is part of an average, or has no goal.
    slower : bool
        The ratio is ours / baseline and must not exceed `value`; else it is baseline / ours.
    room : bool
        The goal holds where the dense ceiling leaves room for it.
    clock : str
        ``"events"``: wall time between events around calls in a row, as a user sees it;
        ``"graph"``: replays of a graph of calls, which leaves the host out;
        ``"cold"``: the same over so many matrices that the cache has none of them any more.
    """

    id: str
    baseline: str = DENSE
    value: float | None = None
    slower: bool = False
    room: bool = False
    clock: str = "events"

    @property
    def text(self) -> str | None:
        """The goal in words."""
        if self.value is None:
            return None
        room = ", where the dense ceiling leaves room" if self.room else ""
        return f"<= {self.value:.2f}x" if self.slower else f"{self.value:g}x{room}"

    @property
    def ratio_is(self) -> str:
        """What the row's ratio means."""
        return "ours / baseline" if self.slower else "speed-up: baseline / ours"


@dataclass(frozen=True)
class Case:
    """One product ``A @ X``.

    Attributes
    ----------
    name : str
        Unique.
    m, k, n : int
        A is (m, k), X (k, n).
    block : (int, int)
        Edges of the blocks; (1, 1) for CSR and 2:4.
    density : float
        Share of the blocks that are stored.
    pattern : str
        ``"uniform"``, ``"even"``, ``"banded"``, ``"power-law"``, ``"dense-row"``, ``"empty-rows"``;
        ``"two-of-four"`` for 2:4, any two of each group; ``"clusters"``: rows of the grid that
        store the same stretches of columns, in no order.
    skew : float
        Blocks of the longest row over the mean, for power-law rows.
    clusters, stretch : int
        Clusters of rows, and columns of the grid that lie side by side in them.
    fill : float
        Share of its stretches that a row of a cluster stores.
    reorder : bool
        Our plan may group rows.
    linear : bool
        The layout of a linear layer: X is the transpose of row-major tokens, and so is the result.
    gives : str or None
        Dtype of the result of a layer of 8-bit operands with a scale each: what `linear` is called
        with. None for a product in its own dtype.
    peers : tuple of str
        Who is measured beside our own kernels.
    goals : tuple of Goal
        The rows.
    graph : bool
        Small: timed by graph replay as well.
    """

    name: str
    m: int
    k: int
    n: int
    block: tuple[int, int]
    density: float
    format: str = "bsr"
    pattern: str = "uniform"
    skew: float = 10.0
    clusters: int = 64
    stretch: int = 64
    fill: float = 1.0
    reorder: bool = False
    dtype: str = "bfloat16"
    linear: bool = False
    gives: str | None = None
    peers: tuple[str, ...] = (DENSE, TORCH)
    goals: tuple[Goal, ...] = field(default=(), repr=False)
    graph: bool = False

    @property
    def grid(self) -> tuple[int, int]:
        """Block rows and block columns."""
        return -(-self.m // self.block[0]), -(-self.k // self.block[1])

    @property
    def torch_goal(self) -> bool:
        """A goal is against torch, whose host time then has to be told from its device's."""
        return any(g.baseline in (TORCH, TUNED) and g.value is not None for g in self.goals)

    @property
    def finite(self) -> bool:
        """The operand is promised finite: what cuSPARSE's quickest algorithm for CSR needs too."""
        return self.format == "csr"

    @property
    def workload(self) -> str:
        """The case in words."""
        shape = f"{self.m}x{self.k}x{self.n} {self.dtype}"
        edges = "" if self.block == (1, 1) else f", blocks {self.block[0]}x{self.block[1]}"
        rows = f" (max/mean {self.skew:g})" if self.pattern == "power-law" else ""
        if self.pattern == "clusters":
            wide = f", {self.stretch} columns at a time" if self.stretch > 1 else ""
            rows = f" ({self.clusters} of alike rows, shuffled{wide}, {self.fill:.0%} full)"
        layout = ", linear-layer layout" if self.linear else ""
        if self.gives:
            layout = f", linear with a scale for each operand, {self.gives} results"
        kind = f"{self.format} @ dense {shape}{edges}, density {self.density:g}"
        promise = ", operand promised finite" if self.finite else ""
        return f"{kind}, {self.pattern}{rows}{layout}{promise}"

    @property
    def facts(self) -> dict[str, Any]:
        """The case as data, for plots."""
        names = ("m", "k", "n", "density", "format", "pattern", "dtype", "linear")
        gives = {"gives": self.gives} if self.gives else {}
        return {name: getattr(self, name) for name in names} | {"block": list(self.block)} | gives

    @property
    def cold(self) -> bool:
        """A goal is for matrices that are not in the cache."""
        return any(goal.clock == "cold" for goal in self.goals)

    def tagged(self, tag: str) -> Case:
        """The same case with rows of their own, which count for nothing else."""
        goals = (replace(goal, id=f"{goal.id}@{tag}") for goal in self.goals)
        return replace(self, goals=(*goals,))

    def quick(self) -> Case:
        """The same case with the peers that cost little time, and the goals against those."""
        peers = tuple(peer for peer in self.peers if peer in (DENSE, TORCH, EVEN))
        goals = tuple(goal for goal in self.goals if goal.baseline in peers)
        return replace(self, peers=peers, goals=goals)

    def tiny(self) -> Case:
        """The same case with a grid of a few blocks, for runs without a GPU."""
        r, c = (min(edge, 16) for edge in self.block)
        rows, columns = (min(size, 8) for size in self.grid)
        return replace(
            self,
            m=rows * r,
            k=columns * c,
            n=min(self.n, 24),
            block=(r, c),
            density=max(self.density, 0.2),
            skew=min(self.skew, 2.0),
        )
